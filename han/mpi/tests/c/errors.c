/* Wrong arguments get the classes of errors that the MPI gives them; ranks that disagree get an error, and go on, and the
 * program's handler of errors may call MPI. */
#include "check.h"
#include <string.h>

static int depth, handled;

/* Calls a collective, which fails, too, and so calls this again. */
static void handler(MPI_Comm *comm, int *code, ...) {
    int number = 1, result;
    (void)code;
    handled++;
    if (depth++ == 0) {
        CHECK(MPI_Allreduce(&number, &result, 1, MPI_INT, MPI_SUM, *comm) != MPI_SUCCESS);
        CHECK(MPI_Allreduce(&number, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF) == MPI_SUCCESS && result == 1);
    }
    depth--;
}

static void class_of(int code) {
    int class;
    MPI_Error_class(code, &class);
    if (rank == 0) printf("class %d\n", class);
}

int main(int argc, char **argv) {
    int number = 1, result;
    MPI_Init(&argc, &argv);
    begin();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    class_of(MPI_Bcast(&number, -1, MPI_INT, 0, MPI_COMM_WORLD));
    class_of(MPI_Bcast(&number, 1, MPI_INT, size, MPI_COMM_WORLD));
    class_of(MPI_Bcast(&number, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD));
    class_of(MPI_Bcast(NULL, 1, MPI_INT, 0, MPI_COMM_WORLD));
    class_of(MPI_Allreduce(&number, &number, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    class_of(MPI_Allreduce(&number, &result, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD));
    class_of(MPI_Allreduce(&number, &result, 1, MPI_FLOAT, MPI_BAND, MPI_COMM_WORLD));
    class_of(MPI_Reduce(&number, &result, 1, MPI_INT, MPI_SUM, -7, MPI_COMM_WORLD));
    class_of(MPI_Barrier(MPI_COMM_NULL));
    if (argc > 1) {
        MPI_Errhandler own;
        MPI_Comm_create_errhandler(handler, &own);
        if (!strcmp(argv[1], "handle")) MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
        MPI_Errhandler_free(&own);
        int code = rank == 0 ? MPI_Allreduce(&number, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD)
                             : MPI_Allreduce(&number, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        int class;
        MPI_Error_class(code, &class);
        CHECK(class == MPI_ERR_OTHER);
        CHECK(MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS);
        /* Two failures, and one within the handling of each. */
        CHECK(handled == (strcmp(argv[1], "handle") ? 0 : 4));
    }
    return finish();
}

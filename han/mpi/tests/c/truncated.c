/* A message that is longer than its receive is an error of its communicator, whose handler hears of it once, while a collective
 * is under way, too. On MPI_COMM_WORLD errors are fatal. */
#include "check.h"

static int handled;

static void handler(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    handled++;
}

static int is_truncated(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class == MPI_ERR_TRUNCATE;
}

int main(int argc, char **argv) {
    enum { FEW = 2, MANY = 20 };
    int few[FEW], many[MANY] = {0};
    MPI_Comm comm;
    MPI_Errhandler own;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(comm, own);
    if (rank == 0) {
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        CHECK(is_truncated(MPI_Recv(few, FEW, MPI_INT, 1, 1, comm, MPI_STATUS_IGNORE)) && handled == 1);
        CHECK(is_truncated(MPI_Sendrecv(many, 0, MPI_INT, 1, 2, few, FEW, MPI_INT, 1, 2, comm, MPI_STATUS_IGNORE)));
        CHECK(handled == 2);
    } else if (rank == 1) {
        MPI_Send(many, MANY, MPI_INT, 0, 1, comm);
        MPI_Sendrecv(many, MANY, MPI_INT, 0, 2, few, 0, MPI_INT, 0, 2, comm, MPI_STATUS_IGNORE);
    }
    if (rank) MPI_Ibarrier(MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Errhandler kept[2];
    MPI_Comm_get_errhandler(comm, &kept[0]);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &kept[1]);
    CHECK(kept[0] == own && kept[1] == MPI_ERRORS_ARE_FATAL);
    for (int i = 0; i < 2; i++) MPI_Errhandler_free(&kept[i]);
    MPI_Errhandler_free(&own);
    MPI_Comm_free(&comm);
    return finish();
}

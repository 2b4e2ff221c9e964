/* Messages that are longer than their receives, on MPI_COMM_WORLD and on a duplicate, with a handler of the program's own that comes
 * back: what the call returns then is the MPI's affair, and the same while a collective is under way. */
#include "check.h"

enum { TAG = 5, FEW = 2, MANY = 20 };

static int handled;

static void handler(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    handled++;
}

static void check(const char *name, MPI_Comm comm, MPI_Errhandler wanted) {
    int one = 1, sum = 0, few[FEW], many[MANY] = {0};
    MPI_Errhandler before, after;
    MPI_Request request;
    MPI_Comm_get_errhandler(comm, &before);
    MPI_Comm_set_errhandler(comm, wanted);
    if (rank == 1) {
        MPI_Send(many, MANY, MPI_INT, 0, TAG, comm);
        MPI_Sendrecv(many, MANY, MPI_INT, 0, TAG, few, 0, MPI_INT, 0, TAG, comm, MPI_STATUS_IGNORE);
    }
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (rank == 0) {
        int code = MPI_Recv(few, FEW, MPI_INT, 1, TAG, comm, MPI_STATUS_IGNORE);
        note("%s: class %d, %d handled", name, class_of(code), handled);
        code = MPI_Sendrecv(many, 0, MPI_INT, 1, TAG, few, FEW, MPI_INT, 1, TAG, comm, MPI_STATUS_IGNORE);
        note("%s, both: class %d, %d handled", name, class_of(code), handled);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(sum == ranks, "the sum is %d", sum);
    MPI_Comm_get_errhandler(comm, &after);
    expect(after == wanted, "%s: another handler", name);
    MPI_Comm_set_errhandler(comm, before);
    MPI_Errhandler_free(&before);
    if (after != MPI_ERRORS_RETURN) MPI_Errhandler_free(&after);
}

int main(int argc, char **argv) {
    MPI_Comm comm;
    MPI_Errhandler own;
    start(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handler, &own);
    if (ranks > 1) {
        check("the world returns", MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        check("the world", MPI_COMM_WORLD, own);
        check("a duplicate", comm, own);
    }
    MPI_Errhandler_free(&own);
    MPI_Comm_free(&comm);
    return finish();
}

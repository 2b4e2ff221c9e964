/* A program that sets MPI_ERRORS_RETURN on MPI_COMM_WORLD alone: errors of what has no communicator come back, whatever
 * collectives went before. */
#include "check.h"

static void no_object(const char *when) {
    note("%s: class %d", when, class_of(MPI_Barrier(MPI_COMM_NULL)));
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    no_object("at first");
    for (int k = 0; k < 3; k++) {
        int sum = 1;
        MPI_Comm dup;
        MPI_Comm_dup(MPI_COMM_WORLD, &dup);
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, dup);
        expect(sum == ranks, "sum %d", sum);
        MPI_Comm_free(&dup);
    }
    no_object("after collectives of other communicators");
    int one = 1, all = 0, sent = 3, received = 0;
    MPI_Request collective, send;
    MPI_Iallreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &collective);
    MPI_Isend(&sent, 1, MPI_INT, (rank + 1) % ranks, 0, MPI_COMM_WORLD, &send);
    MPI_Recv(&received, 1, MPI_INT, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    MPI_Wait(&collective, MPI_STATUS_IGNORE);
    expect(all == ranks && received == 3, "all %d, received %d", all, received);
    no_object("after a message beside a collective");
    return finish();
}

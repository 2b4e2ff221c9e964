/* Elements with gaps that the MPI cannot pack or unpack: the error comes to the communicator's handler, once, in the call that
 * completes the bcast, and nobody waits for ever. */
#include "check.h"

static int handled;

static void handler(MPI_Comm *comm, int *code, ...) {
    (void)code;
    handled += *comm == MPI_COMM_WORLD;
}

static int class_in(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    begin();
    int numbers[8] = {0}, plain = rank == 0 ? 5 : 0;
    MPI_Errhandler own;
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
    MPI_Errhandler_free(&own);
    MPI_Datatype gaps;
    MPI_Type_vector(4, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    CHECK(class_in(MPI_Bcast(numbers, 1, gaps, 0, MPI_COMM_WORLD)) == MPI_ERR_TRUNCATE && handled == 1);
    /* Of two ranks, one has no gaps. */
    int code = rank == 0 ? MPI_Bcast(numbers, 4, MPI_INT, 0, MPI_COMM_WORLD) : MPI_Bcast(numbers, 1, gaps, 0, MPI_COMM_WORLD);
    CHECK(rank == 0 ? code == MPI_SUCCESS && handled == 1 : class_in(code) == MPI_ERR_TRUNCATE && handled == 2);
    handled = 0;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    CHECK(MPI_Ibcast(numbers, 1, gaps, 0, MPI_COMM_WORLD, &requests[0]) == MPI_SUCCESS && handled == 0);
    CHECK(class_in(MPI_Wait(&requests[0], MPI_STATUS_IGNORE)) == MPI_ERR_TRUNCATE && handled == 1);
    MPI_Ibcast(numbers, 1, gaps, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Ibcast(&plain, 1, MPI_INT, 0, MPI_COMM_WORLD, &requests[1]);
    CHECK(MPI_Waitall(2, requests, statuses) == MPI_ERR_IN_STATUS && handled == 2);
    CHECK(class_in(statuses[0].MPI_ERROR) == MPI_ERR_TRUNCATE && statuses[1].MPI_ERROR == MPI_SUCCESS && plain == 5);
    MPI_Type_free(&gaps);
    CHECK(MPI_Barrier(MPI_COMM_WORLD) == MPI_SUCCESS && handled == 2);
    return finish();
}

/* A communicator that has non-blocking collectives alone. */
#include "check.h"

int main(int argc, char **argv) {
    MPI_Comm copy, none;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, &none);
    CHECK(none == MPI_COMM_NULL);
    for (int round = 0; round < 20; round++) {
        int sum = round;
        MPI_Iallreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, copy, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == round * size);
    }
    if (argc > 1) MPI_Barrier(copy);
    MPI_Comm_free(&copy);
    return finish();
}

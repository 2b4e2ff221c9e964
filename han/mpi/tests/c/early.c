/* Requests that the program frees while their collectives are under way: MPICH 5 and Intel MPI let it, and so does this library. */
#include "check.h"

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    begin();
    for (int round = 0; round < 20; round++) {
        MPI_Request freed, request;
        int mine = rank + round, sum = -1, word = rank == 0 ? round : -1;
        MPI_Ibarrier(MPI_COMM_WORLD, &freed);
        CHECK(MPI_Request_free(&freed) == MPI_SUCCESS && freed == MPI_REQUEST_NULL);
        MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(sum == size * (size - 1) / 2 + size * round);
        if (round % 2 == 0) continue;
        MPI_Bcast_init(&word, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &freed);
        MPI_Start(&freed);
        MPI_Request_free(&freed);
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return finish();
}

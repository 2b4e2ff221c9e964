/* Calls that a tool has to see, each once, and the library behind it: the tool is in the program or a library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

#ifdef WITH_TOOL
#include "tool.c"
#else
static int tool_calls(void)
{
    int (*found)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "tool_calls");
    return found ? found() : -1;
}
#endif

enum { ROUNDS = 7 };

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size, wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < ROUNDS; round++) {
        int one = 1, sum = 0;
        MPI_Request requests[2];
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        wrong += sum != size;
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
        MPI_Ibarrier(MPI_COMM_WORLD, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        wrong += sum != size;
        MPI_Scan(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        wrong += sum != rank + 1;
    }
    if (tool_calls() != 1 + 3 * ROUNDS) {
        printf("the tool of rank %d has seen %d calls\n", rank, tool_calls());
        wrong++;
    }
    int all;
    PMPI_Reduce(&wrong, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0 && all == 0) printf("passed on %d ranks\n", size);
    MPI_Finalize();
    return wrong != 0;
}

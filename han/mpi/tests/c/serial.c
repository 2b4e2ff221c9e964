/* A program that is linked with a stand-in for MPI. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int size, one = 1, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (sum == 1) printf("passed on %d ranks\n", size);
    return MPI_Finalize();
}

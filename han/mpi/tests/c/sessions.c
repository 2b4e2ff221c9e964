/* MPI by sessions: there is nothing to take, unless MPI is started in the usual way after the first has ended, as an argument
 * wants. MPICH 4.0 does not start again once all have ended. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    MPI_Session first, second;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &first);
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &second);
    MPI_Session_finalize(&first);
    if (argc > 1) {
        MPI_Init(&argc, &argv);
        MPI_Finalize();
    }
    MPI_Session_finalize(&second);
    printf("passed on 1 ranks\n");
    return 0;
}

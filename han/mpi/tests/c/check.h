/* What the test programs have in common: a check that names its line, and the verdict of all ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int failures, rank, size;

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            failures++;                                                                  \
            printf("rank %d: %s:%d: %s\n", rank, __FILE__, __LINE__, #condition);        \
        }                                                                                \
    } while (0)

static void begin(void) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

/* Ends the program; the verdict travels by messages, so it uses nothing that is tested. */
static int finish(void) {
    int theirs, all = failures;
    if (rank == 0) {
        for (int peer = 1; peer < size; peer++) {
            MPI_Recv(&theirs, 1, MPI_INT, peer, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            all += theirs;
        }
        if (all == 0) printf("passed on %d ranks\n", size);
    } else {
        MPI_Send(&failures, 1, MPI_INT, 0, 99, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return failures != 0;
}

/* Many collectives that were begun and not yet waited for: each costs about what it would cost alone. */
#include "check.h"

enum { MANY = 500, TURNS = 5 };

static int numbers[MANY], sums[MANY];

/* Seconds of as many that block, one after the other. */
static double blocking(void) {
    double since = MPI_Wtime();
    for (int i = 0; i < MANY; i++) MPI_Allreduce(&numbers[i], &sums[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return MPI_Wtime() - since;
}

/* Seconds until all have been waited for, one by one, the last one first. */
static double outstanding(void) {
    MPI_Request requests[MANY];
    double since = MPI_Wtime();
    for (int i = 0; i < MANY; i++) {
        numbers[i] = i;
        MPI_Iallreduce(&numbers[i], &sums[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = MANY - 1; i >= 0; i--) {
        MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        CHECK(sums[i] == size * i);
    }
    return MPI_Wtime() - since;
}

int main(int argc, char **argv) {
    double alone = 1e9, together = 1e9;
    MPI_Init(&argc, &argv);
    begin();
    for (int i = 0; i < TURNS; i++) {
        double seconds = blocking();
        if (seconds < alone) alone = seconds;
        MPI_Barrier(MPI_COMM_WORLD);
        seconds = outstanding();
        if (seconds < together) together = seconds;
    }
    if (rank == 0) printf("%.1f ms one after the other, %.1f ms together\n", 1e3 * alone, 1e3 * together);
    /* Usually it is less than twice the time; testing each of them in turn takes a hundred times as long. */
    CHECK(together < 15 * alone);
    return finish();
}

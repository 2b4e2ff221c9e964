/* MPI_THREAD_MULTIPLE: each thread has a communicator of its own, and all call collectives and send messages at once. */
#include "check.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 60, MOST = 3000 };

static MPI_Comm comms[THREADS];
static int wrong[THREADS];

static void *work(void *argument) {
    int self = (int)(intptr_t)argument, *values = malloc(MOST * sizeof(int));
    MPI_Comm comm = comms[self];
    for (int round = 0; round < ROUNDS; round++) {
        int count = 1 + (round * 53 + self) % (round % 8 ? 40 : MOST), root = round % ranks;
        for (int i = 0; i < count; i++) values[i] = element(rank, i % 97, round + self);
        MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_INT, MPI_SUM, comm);
        for (int i = 0; i < count; i++) wrong[self] += values[i] != sum_of(ranks, i % 97, round + self);
        int word = rank == root ? round * THREADS + self : -1;
        MPI_Bcast(&word, 1, MPI_INT, root, comm);
        wrong[self] += word != round * THREADS + self;
        int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, got = -1;
        MPI_Sendrecv(&rank, 1, MPI_INT, to, self, &got, 1, MPI_INT, from, self, comm, MPI_STATUS_IGNORE);
        wrong[self] += got != from;
        int most = -1;
        MPI_Reduce(&rank, &most, 1, MPI_INT, MPI_MAX, root, comm);
        wrong[self] += rank == root && most != ranks - 1;
        if (round % 10 == 0) MPI_Barrier(comm);
    }
    free(values);
    return NULL;
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    know_ranks();
    if (provided < MPI_THREAD_MULTIPLE) return not_in_this_mpi("MPI_THREAD_MULTIPLE");
    int level = -1;
    MPI_Query_thread(&level);
    note("provided %d, level %d", provided == MPI_THREAD_MULTIPLE, level == provided);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i)) abort();
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        expect(!wrong[i], "thread %d has %d wrong results", i, wrong[i]);
        MPI_Comm_free(&comms[i]);
    }
    return finish();
}

/* Collectives of several threads at a time, each on a communicator of its own. */
#include <pthread.h>

#include "check.h"

enum { THREADS = 3, COUNT = 3000 };
static MPI_Comm comms[THREADS];

static void *work(void *argument) {
    int number = (int)(long)argument;
    MPI_Comm comm = comms[number];
    for (int round = 0; round < 60; round++) {
        int own = rank + number, sum = 0, root = round % size;
        double vector[COUNT];
        MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm);
        CHECK(sum == size * (size - 1) / 2 + number * size);
        for (int i = 0; i < COUNT; i++) vector[i] = rank == root ? round + i : -1;
        MPI_Bcast(vector, COUNT, MPI_DOUBLE, root, comm);
        CHECK(vector[COUNT - 1] == round + COUNT - 1);
        if (round % 20 == 0) {
            MPI_Comm twin;
            MPI_Comm_dup(comm, &twin);
            for (int call = 0; call < 8; call++) MPI_Barrier(twin);
            MPI_Comm_free(&twin);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided;
    pthread_t threads[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    begin();
    CHECK(provided == MPI_THREAD_MULTIPLE);
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return finish();
}

/* MPI_THREAD_MULTIPLE: one thread frees a communicator, and another makes one that gets the same handle before the first has
 * returned: on rank 0 alone, so who carries out the new one's collectives must not depend on it. */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

static MPI_Comm before;

static void *end(void *argument) {
    (void)argument;
    MPI_Comm_free(&before);
    return NULL;
}

int main(int argc, char **argv) {
    int provided, one = 1, sum = 0;
    MPI_Comm world, after;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    begin();
    CHECK(provided == MPI_THREAD_MULTIPLE);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_dup(MPI_COMM_WORLD, &before);
    MPI_Barrier(before);
    if (rank == 0) {
        CHECK(!pthread_create(&thread, NULL, end, NULL));
        usleep(100000);
    } else {
        end(NULL);
    }
    MPI_Comm_dup(world, &after);
    for (int round = 0; round < 10; round++) {
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, after);
        CHECK(sum == size);
    }
    if (rank == 0) pthread_join(thread, NULL);
    MPI_Comm_free(&after);
    MPI_Comm_free(&world);
    return finish();
}

/* MPI_THREAD_MULTIPLE: one thread tests the request of a collective that fails, while another is the one that finds the
 * failure: the first must hear of it. */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

static int number = 1, result;
static volatile int is_over;

/* Lets the other rank disagree when the first thread is testing, and looks for messages until that is over. */
static void *look(void *argument) {
    int is_there;
    (void)argument;
    usleep(100000);
    MPI_Send(NULL, 0, MPI_INT, 1, 6, MPI_COMM_WORLD);
    while (!is_over) MPI_Iprobe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &is_there, MPI_STATUS_IGNORE);
    return NULL;
}

int main(int argc, char **argv) {
    int provided, code = MPI_SUCCESS, class, flag = 0;
    MPI_Request request;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    begin();
    CHECK(provided == MPI_THREAD_MULTIPLE);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        MPI_Iallreduce(&number, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, &request);
        CHECK(!pthread_create(&thread, NULL, look, NULL));
        while (!flag && code == MPI_SUCCESS) code = MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
        is_over = 1;
        pthread_join(thread, NULL);
    } else {
        MPI_Recv(NULL, 0, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        code = MPI_Iallreduce(&number, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        if (code == MPI_SUCCESS) code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_OTHER);
    return finish();
}

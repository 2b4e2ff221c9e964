/* A collective fails on a communicator that was freed while it was under way, and another communicator has the handle: the
 * error handler that the freed one had hears of it, whatever handlers the other and MPI_COMM_WORLD have. */
#include "check.h"

static int heard, heard_by_others;

static void hear(MPI_Comm *comm, int *code, ...) {
    int ranks;
    (void)code;
    heard += MPI_Comm_size(*comm, &ranks) == MPI_SUCCESS;
}

static void hear_of_others(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    heard_by_others++;
}

static void set_handler(MPI_Comm comm, MPI_Comm_errhandler_function *function) {
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(function, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    begin();
    int number = 1, numbers[4] = {0}, class;
    MPI_Comm freed, heir;
    MPI_Request request;
    set_handler(MPI_COMM_WORLD, hear_of_others);
    set_handler(MPI_COMM_SELF, hear_of_others);
    MPI_Comm_dup(MPI_COMM_WORLD, &freed);
    set_handler(freed, hear);
    for (int i = 0; i < 20; i++) MPI_Barrier(freed);
    /* Rank 0 begins when all barriers are over, and before it can know that the others do something else. */
    if (rank != 0) {
        MPI_Send(NULL, 0, MPI_INT, 0, 5, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        for (int peer = 1; peer < size; peer++) MPI_Recv(NULL, 0, MPI_INT, peer, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Iallreduce(&number, numbers, 1, MPI_INT, MPI_SUM, freed, &request);
        for (int peer = 1; peer < size; peer++) MPI_Send(NULL, 0, MPI_INT, peer, 6, MPI_COMM_WORLD);
    }
    if (rank != 0 && MPI_Ibcast(numbers, 4, MPI_INT, 0, freed, &request) != MPI_SUCCESS) {
        /* It knows at once. */
        CHECK(heard == 1);
        request = MPI_REQUEST_NULL;
    }
    MPI_Comm_free(&freed);
    MPI_Comm_dup(MPI_COMM_WORLD, &heir);
    MPI_Comm_set_errhandler(heir, MPI_ERRORS_ARE_FATAL);
    int code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Error_class(code, &class);
    CHECK(rank != 0 || class == MPI_ERR_OTHER);
    CHECK(heard == 1 && heard_by_others == 0);
    return finish();
}

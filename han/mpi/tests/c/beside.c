/* A message fails beside collectives that have failed, in one array: the MPI's error is of the message alone, and each collective's
 * comes where its own request is completed. */
#include "check.h"

enum { WAYS = 6 };

static int class_in(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class;
}

static int of_message(int code) { return class_in(code) == MPI_ERR_TRUNCATE; }
static int of_collective(int code) { return class_in(code) == MPI_ERR_OTHER; }

/* Whether `code` is that of a call for several requests, and the statuses have the errors of both. */
static int in_statuses(int code, const MPI_Status *message, const MPI_Status *collective) {
    return class_in(code) == MPI_ERR_IN_STATUS && of_message(message->MPI_ERROR) && of_collective(collective->MPI_ERROR);
}

static void complete(int way, MPI_Request requests[2]) {
    int index = -1, flag = 0, number = 0, indices[2] = {-1, -1};
    MPI_Status statuses[2];
    for (int i = 0; i < 2; i++) statuses[i].MPI_ERROR = MPI_SUCCESS;
    if (way == 0) {
        CHECK(of_message(MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE)) && index == 0);
        CHECK(of_collective(MPI_Wait(&requests[1], MPI_STATUS_IGNORE)));
    } else if (way == 1) {
        CHECK(of_message(MPI_Testany(2, requests, &index, &flag, MPI_STATUS_IGNORE)) && index == 0);
        CHECK(of_collective(MPI_Test(&requests[1], &flag, MPI_STATUS_IGNORE)) && flag);
    } else if (way == 2) {
        /* MPICH 4 leaves what stands behind an error for the next call. */
        int code = MPI_Waitall(2, requests, statuses);
        if (class_in(statuses[1].MPI_ERROR) == MPI_ERR_PENDING) statuses[1].MPI_ERROR = MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
        CHECK(in_statuses(code, &statuses[0], &statuses[1]));
    } else if (way == 3) {
        CHECK(in_statuses(MPI_Testall(2, requests, &flag, statuses), &statuses[0], &statuses[1]));
    } else if (way == 4) {
        CHECK(in_statuses(MPI_Waitsome(2, requests, &number, indices, statuses), &statuses[0], &statuses[1]));
        CHECK(number == 2 && indices[0] == 0 && indices[1] == 1);
    } else {
        /* Refused, it completes nothing. */
        CHECK(MPI_Waitall(-1, requests, statuses) != MPI_SUCCESS);
        CHECK(in_statuses(MPI_Testsome(2, requests, &number, indices, statuses), &statuses[0], &statuses[1]) && number == 2);
    }
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
    CHECK(MPI_Waitall(2, requests, statuses) == MPI_SUCCESS);
}

int main(int argc, char **argv) {
    int numbers[WAYS], sums[WAYS], got[WAYS], is_there;
    MPI_Request collectives[WAYS];
    MPI_Init(&argc, &argv);
    begin();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int way = 0; way < WAYS; way++) numbers[way] = way;
    if (rank != 0) {
        MPI_Recv(NULL, 0, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Allreduce(numbers, sums, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        return finish();
    }
    for (int way = 0; way < WAYS; way++)
        MPI_Iallreduce(&numbers[way], &sums[way], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &collectives[way]);
    for (int peer = 1; peer < size; peer++) MPI_Send(NULL, 0, MPI_INT, peer, 6, MPI_COMM_WORLD);
    /* All have failed when their receives are complete. */
    for (int way = 0; way < WAYS; way++)
        for (is_there = 0; !is_there;) MPI_Request_get_status(collectives[way], &is_there, MPI_STATUS_IGNORE);
    for (int way = 0; way < WAYS; way++) {
        MPI_Request requests[2] = {MPI_REQUEST_NULL, collectives[way]};
        MPI_Irecv(&got[way], 1, MPI_INT, 0, 7, MPI_COMM_SELF, &requests[0]);
        MPI_Send(numbers, 2, MPI_INT, 0, 7, MPI_COMM_SELF);
        complete(way, requests);
    }
    return finish();
}

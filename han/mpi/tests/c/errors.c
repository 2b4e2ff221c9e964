/* Wrong arguments get the classes of errors that the MPI gives them; ranks that disagree get an error, and go on, and the
 * program's handler of errors may call MPI. */
#include "check.h"
#include <string.h>

static int depth, handled;

/* Calls a collective, which fails, too, and so calls this again. */
static void handler(MPI_Comm *comm, int *code, ...) {
    int number = 1, result;
    (void)code;
    handled++;
    if (depth++ == 0) {
        CHECK(MPI_Allreduce(&number, &result, 1, MPI_INT, MPI_SUM, *comm) != MPI_SUCCESS);
        CHECK(MPI_Allreduce(&number, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF) == MPI_SUCCESS && result == 1);
    }
    depth--;
}

static int class_in(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class;
}

static void class_of(int code) {
    int class = class_in(code);
    if (rank == 0) printf("class %d\n", class);
}

static void count(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    handled++;
}

/* A collective that fails on all ranks, of which rank 0 begins it before it can know. */
static int disagree(MPI_Request *request) {
    static int number = 1, result;
    if (rank != 0) MPI_Recv(NULL, 0, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int code = MPI_Iallreduce(&number, &result, 1, MPI_INT, rank ? MPI_SUM : MPI_MAX, MPI_COMM_WORLD, request);
    for (int peer = 1; rank == 0 && peer < size; peer++) MPI_Send(NULL, 0, MPI_INT, peer, 6, MPI_COMM_WORLD);
    return code;
}

/* Collectives that were begun fail when their own requests are completed, in one of five ways, and in no other call. */
static void begun(int way) {
    MPI_Errhandler own;
    MPI_Comm_create_errhandler(count, &own);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
    MPI_Errhandler_free(&own);
    int other, message = 7, flag, index = -1, number = 0;
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status statuses[3];
    if (disagree(&requests[1]) != MPI_SUCCESS) {
        CHECK(handled == 1);
        return;
    }
    for (int i = 0; i < 3; i++) statuses[i].MPI_ERROR = -1;
    MPI_Irecv(&other, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &requests[0]);
    for (int i = 0; i < 1000; i++) CHECK(MPI_Test(&requests[0], &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag);
    CHECK(MPI_Send(&message, 1, MPI_INT, 0, 5, MPI_COMM_SELF) == MPI_SUCCESS && handled == 0);
    if (way == 0) {
        CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS && other == 7);
        CHECK(class_in(MPI_Wait(&requests[1], MPI_STATUS_IGNORE)) == MPI_ERR_OTHER);
    } else if (way == 1) {
        CHECK(MPI_Waitall(3, requests, statuses) == MPI_ERR_IN_STATUS && other == 7);
        CHECK(statuses[0].MPI_ERROR == MPI_SUCCESS && statuses[2].MPI_ERROR == MPI_SUCCESS);
        CHECK(class_in(statuses[1].MPI_ERROR) == MPI_ERR_OTHER);
    } else if (way == 2) {
        while (index != 1) {
            int code = MPI_Waitany(3, requests, &index, MPI_STATUS_IGNORE);
            CHECK(index == 1 ? class_in(code) == MPI_ERR_OTHER : code == MPI_SUCCESS);
        }
    } else if (way == 3) {
        while (index != 1) {
            int indices[3], code = MPI_Waitsome(3, requests, &number, indices, statuses);
            CHECK(code == MPI_SUCCESS || code == MPI_ERR_IN_STATUS);
            for (int i = 0; i < number; i++) {
                if (code != MPI_SUCCESS)
                    CHECK(class_in(statuses[i].MPI_ERROR) == (indices[i] == 1 ? MPI_ERR_OTHER : MPI_SUCCESS));
                if (indices[i] == 1) index = 1;
            }
            CHECK((code == MPI_SUCCESS) == (index != 1));
        }
    } else {
        int code;
        do code = MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
        while (code == MPI_SUCCESS && !flag);
        CHECK(code == MPI_ERR_IN_STATUS);
    }
    CHECK(requests[1] == MPI_REQUEST_NULL && handled == 1);
    CHECK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS && handled == 1 && other == 7);
    printf("%d: an error of its own request\n", way);
}

/* A freed communicator's error is the handler's once, and of the call that the program made; a request
 * that has no place is one of its communicator's. */
static void of_no_object(void) {
    MPI_Errhandler own;
    MPI_Comm_create_errhandler(count, &own);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
    MPI_Comm fresh;
    MPI_Comm_dup(MPI_COMM_WORLD, &fresh);
    MPI_Comm freed = fresh;
    MPI_Comm_free(&fresh);
    CHECK(class_in(MPI_Barrier(freed)) == MPI_ERR_COMM && handled == 1);
    CHECK(MPI_Ibarrier(MPI_COMM_WORLD, NULL) != MPI_SUCCESS && handled == 2);
    MPI_Errhandler kept;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &kept);
    CHECK(kept == own);
    MPI_Errhandler_free(&kept);
    MPI_Errhandler_free(&own);
    handled = 0;
}

int main(int argc, char **argv) {
    int number = 1, result;
    MPI_Init(&argc, &argv);
    begin();
    of_no_object();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    class_of(MPI_Bcast(&number, -1, MPI_INT, 0, MPI_COMM_WORLD));
    class_of(MPI_Bcast(&number, 1, MPI_INT, size, MPI_COMM_WORLD));
    class_of(MPI_Bcast(&number, 1, MPI_DATATYPE_NULL, 0, MPI_COMM_WORLD));
    class_of(MPI_Bcast(NULL, 1, MPI_INT, 0, MPI_COMM_WORLD));
    class_of(MPI_Allreduce(&number, &number, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    class_of(MPI_Allreduce(&number, &result, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD));
    class_of(MPI_Allreduce(&number, &result, 1, MPI_FLOAT, MPI_BAND, MPI_COMM_WORLD));
    class_of(MPI_Reduce(&number, &result, 1, MPI_INT, MPI_SUM, -7, MPI_COMM_WORLD));
    class_of(MPI_Barrier(MPI_COMM_NULL));
    if (argc > 1 && argv[1][0] <= '9') {
        begun(atoi(argv[1]));
    } else if (argc > 1) {
        MPI_Errhandler own;
        MPI_Comm_create_errhandler(handler, &own);
        if (!strcmp(argv[1], "handle")) MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
        MPI_Errhandler_free(&own);
        int code = rank == 0 ? MPI_Allreduce(&number, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD)
                             : MPI_Allreduce(&number, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        int class;
        MPI_Error_class(code, &class);
        CHECK(class == MPI_ERR_OTHER);
        CHECK(MPI_Barrier(MPI_COMM_WORLD) != MPI_SUCCESS);
        /* A communicator that is made now is the MPI's. */
        MPI_Comm fresh;
        MPI_Comm_dup(MPI_COMM_WORLD, &fresh);
        for (int i = 0; i < 20; i++)
            CHECK(MPI_Allreduce(&number, &result, 1, MPI_INT, MPI_SUM, fresh) == MPI_SUCCESS && result == size);
        MPI_Comm_free(&fresh);
        /* Two failures, and one within the handling of each. */
        CHECK(handled == (strcmp(argv[1], "handle") ? 0 : 4));
    }
    return finish();
}

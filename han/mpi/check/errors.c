/* Wrong arguments with MPI_ERRORS_RETURN and with a handler of the program's own: every call fails with the class that the
 * MPI alone gives, on every rank, and what follows works. Calls are wrong on all ranks alike, or rank 0 makes them alone. */
#include "check.h"

static int handled;

static void handler(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    handled++;
}

static void good_call(void) {
    int sum = 1;
    int code = MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    expect(code == MPI_SUCCESS && sum == ranks, "a good call after bad ones: code %d, sum %d", code, sum);
}

#define TRY(call)                                                          \
    do {                                                                   \
        int before = handled, code = (call);                               \
        note("%s: class %d, %d handled", #call, class_of(code), handled - before); \
    } while (0)

static int is(const char *library) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    return strstr(version, library) != NULL;
}

/* MPICH itself does not look at some arguments, and crashes. */
static int is_mpich(void) { return is("MPICH Version"); }

static void blocking(void) {
    int a[4] = {1, 2, 3, 4}, b[4] = {0};
    MPI_Comm comm = MPI_COMM_WORLD;
    TRY(MPI_Bcast(a, -1, MPI_INT, 0, comm));
    TRY(MPI_Bcast(a, 1, MPI_INT, ranks, comm));
    TRY(MPI_Bcast(a, 1, MPI_INT, -1, comm));
    TRY(MPI_Bcast(a, 1, MPI_DATATYPE_NULL, 0, comm));
    TRY(MPI_Bcast(a, 1, MPI_INT, 0, MPI_COMM_NULL));
    TRY(MPI_Allreduce(a, b, 1, MPI_INT, MPI_OP_NULL, comm));
    TRY(MPI_Allreduce(a, b, 1, MPI_INT, MPI_SUM, MPI_COMM_NULL));
    TRY(MPI_Allreduce(a, a, 4, MPI_INT, MPI_SUM, comm));
    TRY(MPI_Reduce(a, b, 1, MPI_INT, MPI_SUM, ranks + 3, comm));
    TRY(MPI_Reduce(a, b, 1, MPI_INT, MPI_SUM, -7, comm));
    TRY(MPI_Reduce(a, b, 1, MPI_INT, MPI_OP_NULL, 0, comm));
    TRY(MPI_Barrier(MPI_COMM_NULL));
    if (!is_mpich()) {
        TRY(MPI_Allreduce(a, b, 1, MPI_DATATYPE_NULL, MPI_SUM, comm));
        TRY(MPI_Allreduce(a, b, -3, MPI_INT, MPI_SUM, comm));
        TRY(MPI_Reduce(a, b, -1, MPI_INT, MPI_SUM, 0, comm));
    }
    good_call();
}

/* Operators that the type does not have. */
static void doubtful(void) {
    double a[4] = {1, 2, 3, 4}, b[4];
    MPI_Datatype pair;
    MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
    MPI_Type_commit(&pair);
    TRY(MPI_Allreduce(a, b, 1, pair, MPI_SUM, MPI_COMM_WORLD));
    TRY(MPI_Allreduce(a, b, 1, MPI_DOUBLE, MPI_MINLOC, MPI_COMM_WORLD));
    TRY(MPI_Allreduce(a, b, 2, MPI_DOUBLE, MPI_BXOR, MPI_COMM_WORLD));
    MPI_Type_free(&pair);
    good_call();
}

/* Datatypes that are not committed. */
static void uncommitted(MPI_Comm comm) {
    int a[8] = {0};
    MPI_Datatype pair, gaps;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_vector(2, 1, 2, MPI_INT, &gaps);
    TRY(MPI_Bcast(a, 1, pair, 0, comm));
    TRY(MPI_Bcast(a, 1, gaps, 0, comm));
    TRY(MPI_Ibcast(a, 1, pair, 0, comm, &request));
    MPI_Type_commit(&pair);
    MPI_Type_commit(&gaps);
    TRY(MPI_Bcast(a, 1, pair, 0, comm));
    TRY(MPI_Bcast(a, 1, gaps, 0, comm));
    MPI_Type_free(&pair);
    MPI_Type_free(&gaps);
}

/* Operators that are for windows alone, and what is no operator at all; Open MPI takes it for one. The errors are the
 * communicator's matter. */
static void no_operators(MPI_Comm comm) {
    int a[4] = {1, 2, 3, 4}, b[4] = {0};
    MPI_Request request = MPI_REQUEST_NULL;
    TRY(MPI_Allreduce(a, b, 1, MPI_INT, MPI_NO_OP, comm));
    TRY(MPI_Allreduce(a, b, 1, MPI_INT, MPI_REPLACE, comm));
    TRY(MPI_Reduce(a, b, 1, MPI_INT, MPI_REPLACE, 0, comm));
    TRY(MPI_Iallreduce(a, b, 1, MPI_INT, MPI_REPLACE, comm, &request));
    if (!is("Open MPI")) TRY(MPI_Allreduce(a, b, 1, MPI_INT, (MPI_Op)MPI_INT, comm));
}

static void non_blocking(void) {
    int a[4] = {1, 2, 3, 4}, b[4] = {0};
    MPI_Request request = MPI_REQUEST_NULL;
    TRY(MPI_Ibcast(a, -1, MPI_INT, 0, MPI_COMM_WORLD, &request));
    TRY(MPI_Ibcast(a, 1, MPI_INT, ranks, MPI_COMM_WORLD, &request));
    TRY(MPI_Iallreduce(a, b, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD, &request));
    if (!is_mpich()) TRY(MPI_Ireduce(a, b, 1, MPI_DATATYPE_NULL, MPI_SUM, 0, MPI_COMM_WORLD, &request));
    TRY(MPI_Ibarrier(MPI_COMM_NULL, &request));
    good_call();
}

/* What must not be done with the request of a collective that is under way, which is not harmed by it. MPIs say with different
 * classes that it cannot be cancelled. */
static void requests(void) {
    int one = 1, sum = 0;
    MPI_Request request, none = MPI_REQUEST_NULL;
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    int before = handled, code = MPI_Cancel(&request);
    note("cancelled: %s, %d handled", code == MPI_SUCCESS ? "no error" : "an error", handled - before);
    TRY(MPI_Cancel(&none));
    TRY(MPI_Start(&request));
    TRY(MPI_Start(&none));
    TRY(MPI_Waitall(-1, &request, MPI_STATUSES_IGNORE));
    TRY(MPI_Request_free(NULL));
    MPI_Status status;
    TRY(MPI_Wait(&request, &status));
    MPI_Test_cancelled(&status, &code);
    expect(!code && sum == ranks && request == MPI_REQUEST_NULL, "after all that the sum is %d", sum);
#if HAS_PERSISTENT
    MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    TRY(MPI_Startall(-1, &request));
    TRY(MPI_Startall(1, &none));
    TRY(MPI_Start(&request));
    TRY(MPI_Wait(&request, MPI_STATUS_IGNORE));
    TRY(MPI_Request_free(&request));
#endif
    good_call();
}

#if HAS_PERSISTENT
/* What is wrong with a request that is not made is its communicator's matter, not MPI_COMM_WORLD's. */
static void persistent(MPI_Comm comm) {
    int a[4] = {1, 2, 3, 4};
    MPI_Request request = MPI_REQUEST_NULL;
    TRY(MPI_Bcast_init(a, 1, MPI_DATATYPE_NULL, 0, comm, MPI_INFO_NULL, &request));
    TRY(MPI_Bcast_init(a, -1, MPI_INT, 0, comm, MPI_INFO_NULL, &request));
    TRY(MPI_Bcast_init(a, 1, MPI_INT, ranks, comm, MPI_INFO_NULL, &request));
}
#endif

/* Rank 0 alone makes calls that the MPI refuses, one after each of the first good ones on a communicator: that changes nothing
 * for those that follow. */
static void alone(int kind) {
    int a[4] = {1, 2, 3, 4}, b[4] = {0}, sum;
    MPI_Comm comm;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    for (int i = 0; i < 12; i++) {
        int code = MPI_SUCCESS;
        if (rank == 0 && kind == 0) {
            if (i % 4 == 0) code = MPI_Bcast(a, -1, MPI_INT, 0, comm);
            if (i % 4 == 1) code = MPI_Reduce(a, b, 1, MPI_INT, MPI_SUM, ranks, comm);
            if (i % 4 == 2) code = MPI_Allreduce(a, b, 1, MPI_INT, MPI_OP_NULL, comm);
            if (i % 4 == 3) code = MPI_Bcast(a, 1, MPI_DATATYPE_NULL, 0, comm);
        } else if (rank == 0 && kind == 1) {
            code = i % 2 ? MPI_Ibcast(a, 1, MPI_INT, ranks, comm, &request) : MPI_Ibcast(a, -1, MPI_INT, 0, comm, &request);
        } else if (rank == 0 && kind == 2) {
            code = i % 2 ? MPI_Reduce(a, a, 1, MPI_INT, MPI_SUM, 0, comm) : MPI_Allreduce(a, a, 4, MPI_INT, MPI_SUM, comm);
#if HAS_PERSISTENT
        } else if (rank == 0 && kind == 3) {
            code = MPI_Bcast_init(a, -1, MPI_INT, 0, comm, MPI_INFO_NULL, &request);
#endif
        }
        note("alone, kind %d: class %d", kind, class_of(code));
        code = MPI_Allreduce(&i, &sum, 1, MPI_INT, MPI_SUM, comm);
        expect(code == MPI_SUCCESS && sum == ranks * i, "after a wrong call of rank 0: code %d, sum %d", code, sum);
    }
    MPI_Comm_free(&comm);
}

/* Messages that are longer than what receives them, while rank 0 has a collective under way: their communicator hears of it, and
 * not MPI_COMM_WORLD, where errors are fatal. */
static void truncated(MPI_Errhandler wanted) {
    int sent[10] = {0}, received[2];
    MPI_Comm comm;
    MPI_Request request;
    MPI_Errhandler of_comm, of_world;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, wanted);
    if (rank == 0) {
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        TRY(MPI_Recv(received, 2, MPI_INT, 1, 1, comm, MPI_STATUS_IGNORE));
        TRY(MPI_Sendrecv(sent, 0, MPI_INT, MPI_PROC_NULL, 2, received, 2, MPI_INT, 1, 2, comm, MPI_STATUS_IGNORE));
    } else {
        for (int tag = 1; rank == 1 && tag <= 2; tag++) MPI_Send(sent, 10, MPI_INT, 0, tag, comm);
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_get_errhandler(comm, &of_comm);
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &of_world);
    expect(of_comm == wanted && of_world == MPI_ERRORS_ARE_FATAL, "error handlers are not what they were");
    MPI_Errhandler_free(&of_comm);
    MPI_Errhandler_free(&of_world);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    MPI_Errhandler own, before;
    MPI_Comm_create_errhandler(handler, &own);
    for (int with_own = 0; with_own < 2; with_own++) {
        MPI_Errhandler wanted = with_own ? own : MPI_ERRORS_RETURN;
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, wanted);
        MPI_Comm_set_errhandler(MPI_COMM_SELF, wanted);
        good_call();
        blocking();
        if (!is_mpich()) doubtful();
        non_blocking();
        if (ranks > 1) requests();
#if HAS_PERSISTENT
        persistent(MPI_COMM_WORLD);
#endif
    }
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
    expect(before == own, "the program's error handler is no longer there");
    MPI_Errhandler_free(&before);
    MPI_Errhandler_free(&own);
    /* A duplicate takes the handler over. */
    MPI_Comm copied;
    MPI_Comm_dup(MPI_COMM_WORLD, &copied);
    int value = 0;
    for (int i = 0; i < 20; i++) MPI_Bcast(&value, 1, MPI_INT, 0, copied);
    TRY(MPI_Bcast(&value, 1, MPI_INT, ranks, copied));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    TRY(MPI_Bcast(&value, 1, MPI_DATATYPE_NULL, 0, copied));
    no_operators(copied);
    uncommitted(copied);
    /* A handle of another kind; Open MPI takes it for what it is given as. */
    if (!is("Open MPI")) TRY(MPI_Bcast(&value, 1, (MPI_Datatype)MPI_COMM_WORLD, 0, copied));
#if HAS_PERSISTENT
    persistent(copied);
#endif
    MPI_Comm_free(&copied);
    /* Open MPI 5 tells MPI_COMM_WORLD of some. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int kind = 0; kind < 4; kind++) alone(kind);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler again;
    MPI_Comm_create_errhandler(handler, &again);
    if (ranks > 1) {
        truncated(MPI_ERRORS_RETURN);
        truncated(again);
    }
    /* What is no communicator is one error, of MPI_COMM_WORLD or MPI_COMM_SELF. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, again);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, again);
    MPI_Errhandler_free(&again);
    if (!is("Open MPI")) TRY(MPI_Barrier((MPI_Comm)MPI_INT));
    good_call();
    return finish();
}

/* Calls that send or receive are refused while a collective is under way: with a handler of the program's own that comes back, some
 * MPIs return no error for what they have refused. The handler hears of each once, nobody waits for what was never begun, and no
 * message is taken by it. */
#include "check.h"

enum { TAG = 5 };

static int handled;

static void handler(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    handled++;
}

/* What the call returns is the MPI's affair, so the same as without a collective under way. */
static void refused(const char *name, int code) {
    note("%s: class %d, %d handled", name, class_of(code), handled);
    handled = 0;
}

static void refuse(MPI_Comm comm) {
    int word = 1, got = 0;
    refused("send", MPI_Send(&word, 1, MPI_INT, ranks, TAG, comm));
    refused("ssend", MPI_Ssend(&word, -1, MPI_INT, 1, TAG, comm));
    refused("recv", MPI_Recv(&got, 1, MPI_INT, ranks, TAG, comm, MPI_STATUS_IGNORE));
    refused("recv of nothing", MPI_Recv(&got, -1, MPI_INT, 1, TAG, comm, MPI_STATUS_IGNORE));
    refused("probe", MPI_Probe(ranks, TAG, comm, MPI_STATUS_IGNORE));
    refused("sendrecv, the send", MPI_Sendrecv(&word, 1, MPI_INT, ranks, TAG, &got, 1, MPI_INT, 1, TAG, comm, MPI_STATUS_IGNORE));
    refused("sendrecv, the receive", MPI_Sendrecv(&word, 1, MPI_INT, 1, TAG, &got, 1, MPI_INT, ranks, TAG, comm, MPI_STATUS_IGNORE));
    expect(word == 1 && got == 0, "refused calls have received %d", got);
}

static void check(MPI_Comm comm, MPI_Errhandler wanted) {
    int sum = 0, got = 0, answer = 42;
    MPI_Request request;
    MPI_Comm_set_errhandler(comm, wanted);
    if (rank == 0) {
        MPI_Iallreduce(&answer, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        refuse(comm);
        MPI_Send(NULL, 0, MPI_INT, 1, TAG + 1, comm);
        MPI_Recv(&got, 1, MPI_INT, 1, TAG, comm, MPI_STATUS_IGNORE);
        expect(got == answer && !handled, "the message has %d, %d handled", got, handled);
    } else {
        if (rank == 1) {
            MPI_Recv(NULL, 0, MPI_INT, 0, TAG + 1, comm, MPI_STATUS_IGNORE);
            MPI_Send(&answer, 1, MPI_INT, 0, TAG, comm);
        }
        MPI_Iallreduce(&answer, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(sum == ranks * answer, "the sum is %d", sum);
}

int main(int argc, char **argv) {
    MPI_Comm comm;
    MPI_Errhandler own;
    start(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handler, &own);
    if (ranks > 1) {
        check(comm, MPI_ERRORS_RETURN);
        check(comm, own);
    }
    MPI_Errhandler_free(&own);
    MPI_Comm_free(&comm);
    return finish();
}

/* Point-to-point messages that need a rank's help while it waits in a collective: MPI promises it. Without it these programs
 * never end. */
#include "check.h"

enum { LARGE = 1 << 20 };
static int *large, *other;

static void collective(int which) {
    int one = 1, sum = 0, root = ranks > 1 ? 1 : 0;
    switch (which) {
    case 0: MPI_Barrier(MPI_COMM_WORLD); break;
    case 1: sum = rank == root ? 5 : 0; MPI_Bcast(&sum, 1, MPI_INT, root, MPI_COMM_WORLD); break;
    case 2: MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD); break;
    default: MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
}

/* Rank 0 has posted its receives and waits in the collective; the others get there only when it has received. */
static void receiver_waits(int which, int synchronous, int count) {
    MPI_Request requests[64];
    if (rank == 0) {
        for (int from = 1; from < ranks; from++)
            MPI_Irecv(other + (size_t)(from - 1) * (size_t)count, count, MPI_INT, from, which, MPI_COMM_WORLD,
                      &requests[from - 1]);
        collective(which);
        MPI_Waitall(ranks - 1, requests, MPI_STATUSES_IGNORE);
        for (int from = 1; from < ranks; from++) {
            const int *got = other + (size_t)(from - 1) * (size_t)count;
            expect(got[0] == from && got[count - 1] == from + count - 1, "collective %d: the message from %d is wrong", which, from);
        }
        return;
    }
    for (int i = 0; i < count; i++) large[i] = rank + i;
    if (synchronous) MPI_Ssend(large, count, MPI_INT, 0, which, MPI_COMM_WORLD);
    else MPI_Send(large, count, MPI_INT, 0, which, MPI_COMM_WORLD);
    collective(which);
}

/* Rank 0 has begun to send, and waits in the collective; the last rank gets there only when it has received. */
static void sender_waits(int which, int count) {
    MPI_Request request = MPI_REQUEST_NULL;
    int last = ranks - 1;
    if (rank == 0) {
        for (int i = 0; i < count; i++) large[i] = 3 * i;
        MPI_Isend(large, count, MPI_INT, last, 9, MPI_COMM_WORLD, &request);
    }
    if (rank == last) {
        MPI_Recv(other, count, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect(other[count - 1] == 3 * (count - 1), "collective %d: what was sent meanwhile is wrong", which);
    }
    collective(which);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    if (ranks < 2) {
        note("messages need two ranks");
        return finish();
    }
    large = malloc(LARGE * sizeof *large);
    other = malloc((size_t)ranks * LARGE * sizeof *other);
    for (int which = 0; which < 4; which++) {
        /* The root of a bcast need not wait for anybody: that is rank 1, so that rank 0 waits for it. */
        receiver_waits(which, 1, 1);
        receiver_waits(which, 0, LARGE);
        /* A root sends and is gone; who only contributes is gone, too: rank 0 must be one that waits. */
        if (which != 1 || ranks == 2) sender_waits(which, LARGE);
    }
    free(large);
    free(other);
    return finish();
}

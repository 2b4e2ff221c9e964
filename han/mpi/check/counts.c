/* Barrier, bcast, reduce and allreduce with every root and with counts around every boundary: none, one, odd ones, a
 * cell's, a page's, and several MiB. Every element of every rank is compared with what this program computes. */
#include "check.h"

static int *send, *receive;

static int wanted_wrong(const int *got, int count, int seed, int source) {
    for (int i = 0; i < count; i++) {
        int wanted = source < 0 ? sum_of(ranks, i % 97, seed) : element(source, i % 97, seed);
        if (got[i] != wanted) return i;
    }
    return -1;
}

static void give(int *buffer, int count, int seed) {
    for (int i = 0; i < count; i++) buffer[i] = element(rank, i % 97, seed);
}

static void check(int count, int root, int seed) {
    int wrong;
    give(send, count, seed);
    MPI_Bcast(send, count, MPI_INT, root, MPI_COMM_WORLD);
    wrong = wanted_wrong(send, count, seed, root);
    expect(wrong < 0, "bcast of %d from %d: element %d", count, root, wrong);

    give(send, count, seed);
    memset(receive, -1, (size_t)count * sizeof *receive);
    MPI_Reduce(send, receive, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    wrong = rank == root ? wanted_wrong(receive, count, seed, -1) : -1;
    expect(wrong < 0, "reduce of %d to %d: element %d", count, root, wrong);
    wrong = wanted_wrong(send, count, seed, rank);
    expect(wrong < 0, "reduce of %d to %d: send buffer's element %d has changed", count, root, wrong);

    MPI_Reduce(rank == root ? MPI_IN_PLACE : send, send, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    wrong = rank == root ? wanted_wrong(send, count, seed, -1) : -1;
    expect(wrong < 0, "reduce in place of %d to %d: element %d", count, root, wrong);

    give(send, count, seed + 1);
    MPI_Allreduce(send, receive, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    wrong = wanted_wrong(receive, count, seed + 1, -1);
    expect(wrong < 0, "allreduce of %d: element %d", count, wrong);
    MPI_Allreduce(MPI_IN_PLACE, send, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    wrong = wanted_wrong(send, count, seed + 1, -1);
    expect(wrong < 0, "allreduce in place of %d: element %d", count, wrong);
}

/* Nobody leaves a barrier before the last has come to it. */
static void check_barrier(void) {
    for (int late = 0; late < ranks; late++) {
        int word = 0;
        MPI_Request request = MPI_REQUEST_NULL;
        if (rank != late) MPI_Irecv(&word, 1, MPI_INT, late, 5, MPI_COMM_WORLD, &request);
        else
            for (int to = 0; to < ranks; to++)
                if (to != late) MPI_Send(&rank, 1, MPI_INT, to, 5, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(rank == late || word == late, "barrier: the word from %d is %d", late, word);
    }
}

int main(int argc, char **argv) {
    static const int all_roots[] = {0, 1, 2, 3, 17, 29, 31, 255, 1021}, few_roots[] = {1025, 4099, 65537, 1048577};
    start(&argc, &argv);
    size_t room = (size_t)1048577 * sizeof(int);
    send = malloc(room);
    receive = malloc(room);
    for (size_t c = 0; c < sizeof all_roots / sizeof *all_roots; c++)
        for (int root = 0; root < ranks; root++) check(all_roots[c], root, (int)c + root);
    for (size_t c = 0; c < sizeof few_roots / sizeof *few_roots; c++) check(few_roots[c], (int)c % ranks, (int)c);
    check_barrier();
    /* The same small call often: buffers and sequence numbers wrap around. */
    long long total = 0;
    for (int i = 0; i < 300; i++) {
        int sum = rank + i;
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        total += sum;
    }
    expect(total == 300LL * ranks * (ranks - 1) / 2 + 300LL * 299 / 2 * ranks, "300 sums make %lld", total);
    free(send);
    free(receive);
    return finish();
}

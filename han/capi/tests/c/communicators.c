/* dup, split by colour and key, free; operations on several communicators at the same time. */
#include "check.h"

static int sum_of_ranks(han_comm_t comm) {
    int total = -1;
    OK(han_allreduce(&rank, &total, 1, HAN_INT32, HAN_SUM, comm));
    return total;
}

int main(void) {
    start();
    int r, n, all = size * (size - 1) / 2;

    han_comm_t copy;
    OK(han_comm_dup(world, &copy));
    CHECK(copy != world && copy != HAN_COMM_NULL);
    OK(han_comm_rank(copy, &r));
    OK(han_comm_size(copy, &n));
    CHECK(r == rank && n == size);
    CHECK(sum_of_ranks(copy) == all);

    /* Even and odd ranks, in descending order. */
    han_comm_t half, quarter;
    OK(han_comm_split(copy, rank % 2, -rank, &half));
    OK(han_comm_rank(half, &r));
    OK(han_comm_size(half, &n));
    CHECK(n == (size + 1 - rank % 2) / 2);
    CHECK(r == n - 1 - rank / 2);
    int want = 0;
    for (int k = rank % 2; k < size; k += 2) want += k;
    CHECK(sum_of_ranks(half) == want);
    int first = rank;
    OK(han_bcast(&first, 1, HAN_INT32, 0, half));
    CHECK(first == 2 * (n - 1) + rank % 2);

    /* A split of a split; the last rank stays out. */
    OK(han_comm_split(world, rank == size - 1 && size > 1 ? HAN_UNDEFINED : 7, 0, &quarter));
    if (rank == size - 1 && size > 1) {
        CHECK(quarter == HAN_COMM_NULL);
    } else {
        OK(han_comm_size(quarter, &n));
        CHECK(n == (size > 1 ? size - 1 : 1));
        CHECK(sum_of_ranks(quarter) == (size > 1 ? all - (size - 1) : 0));
        OK(han_comm_free(&quarter));
    }

    /* Outstanding on two communicators at once. */
    han_request_t requests[2];
    int here = 0, there = 0;
    OK(han_iallreduce(&rank, &here, 1, HAN_INT32, HAN_SUM, half, &requests[0]));
    OK(han_iallreduce(&rank, &there, 1, HAN_INT32, HAN_SUM, copy, &requests[1]));
    OK(han_waitall(2, requests));
    CHECK(here == want && there == all);

    char text[4096];
    OK(han_comm_describe(half, text, sizeof text));
    CHECK(strlen(text) > 10);
    char cut[8];
    EXPECT(HAN_ERR_TRUNCATE, han_comm_describe(half, cut, sizeof cut));
    CHECK(strlen(cut) == sizeof cut - 1 && strncmp(cut, text, sizeof cut - 1) == 0);
    EXPECT(HAN_ERR_TRUNCATE, han_comm_describe(half, cut, 0));

    /* Freed handles stay dead, however many communicators are made after them. */
    han_comm_t stale = half;
    OK(han_comm_free(&half));
    CHECK(half == HAN_COMM_NULL);
    for (int k = 0; k < 10; k++) {
        han_comm_t again;
        OK(han_comm_dup(copy, &again));
        CHECK(again != stale);
        EXPECT(HAN_ERR_COMM, han_barrier(stale));
        CHECK(sum_of_ranks(again) == all);
        OK(han_comm_free(&again));
    }
    CHECK(sum_of_ranks(world) == all);
    end(); /* frees `copy` */
    return 0;
}

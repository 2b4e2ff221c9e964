/* Several operations outstanding, completed in any order; persistent operations, started again and
 * again; what a request is after each step. */
#include "check.h"
#include <stdint.h>

enum { MANY = 12, COUNT = 3000 };

static int64_t in[MANY][COUNT], out[MANY][COUNT];

static void fill(int k) {
    for (int i = 0; i < COUNT; i++) in[k][i] = (int64_t)(rank + 1) * (k + 1) + i, out[k][i] = -1;
}

static void check_sum(int k) {
    int64_t ranks = (int64_t)size * (size + 1) / 2;
    for (int i = 0; i < COUNT; i++) CHECK(out[k][i] == ranks * (k + 1) + (int64_t)size * i);
}

static void wait_backwards(void) {
    han_request_t requests[MANY];
    for (int k = 0; k < MANY; k++) {
        fill(k);
        OK(han_iallreduce(in[k], out[k], COUNT, HAN_INT64, HAN_SUM, world, &requests[k]));
        CHECK(requests[k] != HAN_REQUEST_NULL);
    }
    /* Odd ranks complete them in the opposite order. */
    for (int j = 0; j < MANY; j++) {
        int k = rank % 2 ? MANY - 1 - j : j;
        OK(han_wait(&requests[k]));
        CHECK(requests[k] == HAN_REQUEST_NULL);
        check_sum(k);
    }
}

static void mixed_waitall(void) {
    han_request_t requests[6];
    int64_t token = rank == size - 1 ? 42 : 0, least = rank + 5, minimum = 0;
    fill(0);
    fill(1);
    OK(han_iallreduce(in[0], out[0], COUNT, HAN_INT64, HAN_SUM, world, &requests[0]));
    OK(han_ibcast(&token, 1, HAN_INT64, size - 1, world, &requests[1]));
    OK(han_ireduce(&least, &minimum, 1, HAN_INT64, HAN_MIN, 0, world, &requests[2]));
    OK(han_ibarrier(world, &requests[3]));
    requests[4] = HAN_REQUEST_NULL;
    OK(han_iallreduce(in[1], out[1], COUNT, HAN_INT64, HAN_SUM, world, &requests[5]));
    OK(han_waitall(6, requests));
    for (int k = 0; k < 6; k++) CHECK(requests[k] == HAN_REQUEST_NULL);
    check_sum(0);
    check_sum(1);
    CHECK(token == 42);
    CHECK(rank != 0 || minimum == 5);
    OK(han_waitall(0, NULL));
}

static void test_until_done(void) {
    han_request_t request;
    int flag = 0;
    fill(0);
    OK(han_iallreduce(in[0], out[0], COUNT, HAN_INT64, HAN_SUM, world, &request));
    while (!flag) {
        CHECK(request != HAN_REQUEST_NULL);
        OK(han_test(&request, &flag));
    }
    CHECK(request == HAN_REQUEST_NULL);
    check_sum(0);
    flag = 0;
    OK(han_test(&request, &flag));
    CHECK(flag == 1);
}

/* A blocking operation overtakes outstanding ones. */
static void blocking_between(void) {
    han_request_t first, second;
    int64_t one = 1, all = 0;
    fill(0);
    fill(1);
    OK(han_iallreduce(in[0], out[0], COUNT, HAN_INT64, HAN_SUM, world, &first));
    OK(han_allreduce(&one, &all, 1, HAN_INT64, HAN_SUM, world));
    CHECK(all == size);
    OK(han_iallreduce(in[1], out[1], COUNT, HAN_INT64, HAN_SUM, world, &second));
    OK(han_barrier(world));
    OK(han_wait(&second));
    OK(han_wait(&first));
    check_sum(0);
    check_sum(1);
}

static void persistent(void) {
    han_request_t requests[4], copy;
    int64_t token = 0, mine = 0, total = 0;
    int flag = 0;
    OK(han_allreduce_init(in[0], out[0], COUNT, HAN_INT64, HAN_SUM, world, &requests[0]));
    OK(han_bcast_init(&token, 1, HAN_INT64, 0, world, &requests[1]));
    OK(han_reduce_init(&mine, &total, 1, HAN_INT64, HAN_MAX, size - 1, world, &requests[2]));
    OK(han_barrier_init(world, &requests[3]));
    OK(han_test(&requests[0], &flag));
    CHECK(flag == 1); /* inactive is complete */
    for (int round = 0; round < 20; round++) {
        fill(0);
        token = rank == 0 ? round : -1;
        mine = rank * 100 + round;
        for (int k = 0; k < 4; k++) OK(han_start(&requests[k]));
        EXPECT(HAN_ERR_REQUEST, han_start(&requests[0]));
        EXPECT(HAN_ERR_REQUEST, han_request_free(&requests[0]));
        copy = requests[0];
        OK(han_waitall(4, requests));
        CHECK(requests[0] == copy);
        check_sum(0);
        CHECK(token == round);
        CHECK(rank != size - 1 || total == (size - 1) * 100 + round);
    }
    for (int k = 0; k < 4; k++) {
        OK(han_request_free(&requests[k]));
        CHECK(requests[k] == HAN_REQUEST_NULL);
    }
    EXPECT(HAN_ERR_REQUEST, han_start(&copy));
    EXPECT(HAN_ERR_REQUEST, han_wait(&copy));
}

/* A communicator may be freed while operations on it are outstanding. */
static void freed_communicator(void) {
    han_comm_t copy;
    han_request_t request;
    OK(han_comm_dup(world, &copy));
    fill(0);
    OK(han_iallreduce(in[0], out[0], COUNT, HAN_INT64, HAN_SUM, copy, &request));
    OK(han_comm_free(&copy));
    OK(han_wait(&request));
    check_sum(0);
}

int main(void) {
    start();
    for (int round = 0; round < 5; round++) {
        wait_backwards();
        mixed_waitall();
        test_until_done();
        blocking_between();
        persistent();
        freed_communicator();
    }

    /* han_finalize refuses while something is outstanding, and works afterwards. */
    han_request_t request;
    OK(han_ibarrier(world, &request));
    EXPECT(HAN_ERR_REQUEST, han_finalize());
    OK(han_wait(&request));
    end();
    return 0;
}

/* Operators of the program's own: with a context, not commutative, on large counts. */
#include "check.h"
#include <stdint.h>

enum { COUNT = 50000 };

/* An affine map x -> a x + b modulo 2^32 in one 64-bit word. Composition is associative and does not
 * commute, and is exact: the result tells the order of the ranks. */
static uint64_t affine(uint32_t a, uint32_t b) { return (uint64_t)a << 32 | b; }
static uint64_t compose(uint64_t f, uint64_t g) { /* first f, then g */
    uint32_t fa = (uint32_t)(f >> 32), fb = (uint32_t)f, ga = (uint32_t)(g >> 32), gb = (uint32_t)g;
    return affine(ga * fa, ga * fb + gb);
}

static void compose_op(const void *in, void *inout, size_t count, han_datatype_t datatype, void *ctx) {
    const uint64_t *left = in;
    uint64_t *right = inout;
    if (datatype != HAN_UINT64) abort();
    for (size_t i = 0; i < count; i++) right[i] = compose(left[i], right[i]);
    *(long *)ctx += 1;
}

/* The sum modulo the context. */
static void modular_sum(const void *in, void *inout, size_t count, han_datatype_t datatype, void *ctx) {
    if (datatype != HAN_INT32) abort();
    for (size_t i = 0; i < count; i++) {
        ((int32_t *)inout)[i] = (((const int32_t *)in)[i] + ((int32_t *)inout)[i]) % *(const int *)ctx;
    }
}

static uint64_t of(int r, size_t i) { return affine((uint32_t)(2 * i + 3 * (size_t)r + 1), (uint32_t)(r + 7)); }

int main(void) {
    static uint64_t send[COUNT], receive[COUNT];
    static const size_t counts[] = {0, 1, 5, 100, 4096, COUNT};
    start();

    long calls = 0;
    han_op_t op, stale;
    OK(han_op_create(compose_op, &calls, 0, &op));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t count = counts[c];
        for (int root = -1; root < size; root++) {
            for (size_t i = 0; i < count; i++) send[i] = of(rank, i), receive[i] = 0;
            if (root < 0) {
                OK(han_allreduce(send, receive, count, HAN_UINT64, op, world));
            } else {
                OK(han_reduce(send, receive, count, HAN_UINT64, op, root, world));
            }
            for (size_t i = 0; (root < 0 || rank == root) && i < count; i++) {
                uint64_t want = of(0, i);
                for (int r = 1; r < size; r++) want = compose(want, of(r, i));
                CHECK(receive[i] == want);
            }
        }
    }
    /* In place, non-blocking, and freed before it is complete. */
    for (size_t i = 0; i < COUNT; i++) receive[i] = of(rank, i);
    han_request_t request;
    OK(han_iallreduce(HAN_IN_PLACE, receive, COUNT, HAN_UINT64, op, world, &request));
    stale = op;
    OK(han_op_free(&op));
    CHECK(op == HAN_OP_NULL);
    OK(han_wait(&request));
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t want = of(0, i);
        for (int r = 1; r < size; r++) want = compose(want, of(r, i));
        CHECK(receive[i] == want);
    }
    OK(han_allreduce(HAN_IN_PLACE, &calls, 1, HAN_INT64, HAN_MAX, world));
    CHECK(size == 1 || calls > 0);
    EXPECT(HAN_ERR_OP, han_allreduce(send, receive, 1, HAN_UINT64, stale, world));
    EXPECT(HAN_ERR_OP, han_op_free(&stale));

    int modulus = 1009;
    int32_t mine[1000], total[1000];
    OK(han_op_create(modular_sum, &modulus, 1, &op));
    for (int i = 0; i < 1000; i++) mine[i] = (i * 31 + rank * 500) % modulus;
    OK(han_allreduce(mine, total, 1000, HAN_INT32, op, world));
    for (int i = 0; i < 1000; i++) {
        int want = 0;
        for (int r = 0; r < size; r++) want = (want + (i * 31 + r * 500) % modulus) % modulus;
        CHECK(total[i] == want);
    }
    OK(han_op_free(&op));
    end();
    return 0;
}

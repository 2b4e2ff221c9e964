/* Operators of the program's own: with a context, not commutative, on large counts. */
#include "check.h"
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* A sum within which a child is forked once, which returns as its parent does. */
static pid_t child;
static void forking_sum(const void *in, void *inout, size_t count, han_datatype_t datatype, void *ctx) {
    if (datatype != HAN_INT32) abort();
    for (size_t i = 0; i < count; i++) ((int32_t *)inout)[i] += ((const int32_t *)in)[i];
    if (child == 0) {
        child = fork();
        *(int *)ctx = child == 0;
    }
}

static void fork_within(void) {
    int32_t one = 1, sum = 0;
    int is_child = 0, status = -1;
    han_op_t op;
    OK(han_op_create(forking_sum, &is_child, 1, &op));
    OK(han_allreduce(&one, &sum, 1, HAN_INT32, op, world));
    if (is_child) _exit(0); /* a second process that is this rank */
    CHECK(sum == size);
    OK(han_op_free(&op));
    if (child == 0) return; /* other ranks have called the operator */
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

/* A matrix of 2 x 2 numbers modulo 2^32 and a count: 20 bytes. The product does not commute. */
struct product {
    uint32_t m[4], factors;
};

static struct product multiply(struct product f, struct product g) {
    struct product h = {{f.m[0] * g.m[0] + f.m[1] * g.m[2], f.m[0] * g.m[1] + f.m[1] * g.m[3],
                         f.m[2] * g.m[0] + f.m[3] * g.m[2], f.m[2] * g.m[1] + f.m[3] * g.m[3]},
                        f.factors + g.factors};
    return h;
}

static void multiply_op(const void *in, void *inout, size_t count, han_datatype_t datatype, void *ctx) {
    const struct product *left = in;
    struct product *right = inout;
    if (datatype != HAN_RECORD(sizeof *left) || ctx != NULL) abort();
    for (size_t i = 0; i < count; i++) right[i] = multiply(left[i], right[i]);
}

static struct product factor(int r, size_t i) {
    struct product f = {{(uint32_t)r + 1, (uint32_t)i, 3, (uint32_t)i + 2 * (uint32_t)r}, 1};
    return f;
}

/* Sums of the ranks' mean and spread, 24 bytes with a double: aligned to 8. */
struct samples {
    double count, mean, squares;
};

static void join_op(const void *in, void *inout, size_t count, han_datatype_t datatype, void *ctx) {
    const struct samples *left = in;
    struct samples *right = inout;
    if (datatype != HAN_RECORD(24) || (uintptr_t)in % 8 != 0 || (uintptr_t)inout % 8 != 0 || ctx != NULL) abort();
    for (size_t i = 0; i < count; i++) {
        double both = left[i].count + right[i].count, apart = right[i].mean - left[i].mean;
        double share = left[i].count * right[i].count / both;
        right[i].mean = (left[i].count * left[i].mean + right[i].count * right[i].mean) / both;
        right[i].squares += left[i].squares + apart * apart * share;
        right[i].count = both;
    }
}

static double away(double x, double y) { return x > y ? x - y : y - x; }

static void records(void) {
    static struct product mine[COUNT], all[COUNT];
    static const size_t counts[] = {0, 1, 6, 51, 205, 3300, COUNT};
    han_op_t op;
    size_t bytes;
    OK(han_datatype_size(HAN_RECORD(sizeof mine[0]), &bytes));
    CHECK(bytes == sizeof(struct product));
    OK(han_op_create(multiply_op, NULL, 0, &op));
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        for (size_t i = 0; i < counts[c]; i++) mine[i] = factor(rank, i);
        OK(han_allreduce(mine, all, counts[c], HAN_RECORD(sizeof mine[0]), op, world));
        for (size_t i = 0; i < counts[c]; i++) {
            struct product want = factor(0, i);
            for (int r = 1; r < size; r++) want = multiply(want, factor(r, i));
            CHECK(memcmp(&all[i], &want, sizeof want) == 0);
        }
    }
    OK(han_bcast(mine, COUNT, HAN_RECORD(sizeof mine[0]), size - 1, world));
    CHECK(mine[COUNT - 1].m[0] == (uint32_t)size && mine[0].factors == 1);
    OK(han_op_free(&op));

    struct samples part = {rank + 1, rank, 0}, whole;
    OK(han_op_create(join_op, NULL, 1, &op));
    OK(han_allreduce(&part, &whole, 1, HAN_RECORD(sizeof part), op, world));
    double count = 0, mean = 0, squares = 0;
    for (int r = 0; r < size; r++) count += r + 1, mean += r * (r + 1.0);
    mean /= count;
    for (int r = 0; r < size; r++) squares += (r - mean) * (r - mean) * (r + 1);
    CHECK(whole.count == count && away(whole.mean, mean) < 1e-9 && away(whole.squares, squares) < 1e-9);
    OK(han_op_free(&op));

    EXPECT(HAN_ERR_OP, han_allreduce(&part, &whole, 1, HAN_RECORD(sizeof part), HAN_SUM, world));
    EXPECT(HAN_ERR_DATATYPE, han_bcast(mine, 1, HAN_RECORD(0), 0, world));
    EXPECT(HAN_ERR_DATATYPE, han_bcast(mine, 1, HAN_RECORD(1025), 0, world));
    CHECK(strstr(han_last_error_message(), "HAN_RECORD(1025): a record has 1 to 1024 bytes") != NULL);
    OK(han_datatype_size(HAN_RECORD_LARGEST, &bytes));
    CHECK(bytes == 1024 && HAN_RECORD_LARGEST == HAN_RECORD(1024));
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
    records();
    fork_within();
    end();
    return 0;
}

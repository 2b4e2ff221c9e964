/* barrier, bcast, reduce and allreduce: every datatype with every operator that is defined for it,
 * every root, in place or not, counts around the sizes at which a message takes another path. The
 * values are small integers, so that every result is exact; it is compared with a serial fold. */
#include "check.h"
#include <complex.h>
#include <stdbool.h>
#include <stdint.h>

enum { MOST = 70000 };
static const size_t counts[] = {0, 1, 3, 16, 1000, MOST};

typedef struct { float value; int index; } float_int;
typedef struct { double value; int index; } double_int;
typedef struct { long value; int index; } long_int;
typedef struct { int value; int index; } two_int;
typedef struct { short value; int index; } short_int;

/* The contribution of a rank at an index: 0 to 3, so that products and sums of a few ranks are exact
 * in every datatype, bfloat16 included. */
static int sample(int of, size_t i) { return (int)((i * 7 + (size_t)of * 5 + i / 13) % 4); }

/* IEEE binary16 and bfloat16 of small non-negative integers. */
static uint16_t half_of(int v) {
    if (v == 0) return 0;
    int e = 0;
    while (v >> (e + 1)) e++;
    return (uint16_t)((e + 15) << 10 | ((v - (1 << e)) << 10) >> e);
}
static uint16_t bfloat_of(int v) {
    float f = (float)v;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return (uint16_t)(bits >> 16);
}

#define PAIR(T)                        \
    {                                  \
        T *p = (T *)buffer + i;        \
        memset(p, 0, sizeof *p);       \
        p->value = v, p->index = index; \
    }

/* Stores the value v (for pairs: with an index) as element i of the buffer. */
static void store(void *buffer, han_datatype_t datatype, size_t i, int v, int index) {
    switch (datatype) {
    case HAN_INT8: ((int8_t *)buffer)[i] = (int8_t)v; break;
    case HAN_INT16: ((int16_t *)buffer)[i] = (int16_t)v; break;
    case HAN_INT32: ((int32_t *)buffer)[i] = v; break;
    case HAN_INT64: ((int64_t *)buffer)[i] = v; break;
    case HAN_BYTE:
    case HAN_UINT8: ((uint8_t *)buffer)[i] = (uint8_t)v; break;
    case HAN_UINT16: ((uint16_t *)buffer)[i] = (uint16_t)v; break;
    case HAN_UINT32: ((uint32_t *)buffer)[i] = (uint32_t)v; break;
    case HAN_UINT64: ((uint64_t *)buffer)[i] = (uint64_t)v; break;
    case HAN_FLOAT16: ((uint16_t *)buffer)[i] = half_of(v); break;
    case HAN_BFLOAT16: ((uint16_t *)buffer)[i] = bfloat_of(v); break;
    case HAN_FLOAT: ((float *)buffer)[i] = (float)v; break;
    case HAN_DOUBLE: ((double *)buffer)[i] = v; break;
    case HAN_COMPLEX_FLOAT: ((float complex *)buffer)[i] = (float)v; break;
    case HAN_COMPLEX_DOUBLE: ((double complex *)buffer)[i] = v; break;
    case HAN_BOOL: ((bool *)buffer)[i] = v != 0; break;
    case HAN_FLOAT_INT: PAIR(float_int) break;
    case HAN_DOUBLE_INT: PAIR(double_int) break;
    case HAN_LONG_INT: PAIR(long_int) break;
    case HAN_2INT: PAIR(two_int) break;
    case HAN_SHORT_INT: PAIR(short_int) break;
    default: CHECK(!"a datatype without a representation here");
    }
}

static const han_op_t ops[] = {HAN_SUM, HAN_PROD, HAN_MIN, HAN_MAX,  HAN_LAND,   HAN_LOR,
                               HAN_LXOR, HAN_BAND, HAN_BOR, HAN_BXOR, HAN_MINLOC, HAN_MAXLOC};
enum { OPS = sizeof ops / sizeof *ops };

static int is_defined(han_datatype_t datatype, han_op_t op) {
    int arithmetic = op == HAN_SUM || op == HAN_PROD, order = op == HAN_MIN || op == HAN_MAX;
    int logical = op == HAN_LAND || op == HAN_LOR || op == HAN_LXOR;
    int bitwise = op == HAN_BAND || op == HAN_BOR || op == HAN_BXOR;
    if (datatype <= HAN_UINT64) return arithmetic || order || logical || bitwise;
    if (datatype <= HAN_DOUBLE) return arithmetic || order;
    if (datatype <= HAN_COMPLEX_DOUBLE) return arithmetic;
    if (datatype == HAN_BOOL) return logical;
    if (datatype == HAN_BYTE) return bitwise;
    return op == HAN_MINLOC || op == HAN_MAXLOC;
}

static int combine(han_op_t op, int a, int b) {
    if (op == HAN_SUM) return a + b;
    if (op == HAN_PROD) return a * b;
    if (op == HAN_MIN || op == HAN_MINLOC) return a < b ? a : b;
    if (op == HAN_MAX || op == HAN_MAXLOC) return a > b ? a : b;
    if (op == HAN_LAND) return a && b;
    if (op == HAN_LOR) return a || b;
    if (op == HAN_LXOR) return !a != !b;
    if (op == HAN_BAND) return a & b;
    if (op == HAN_BOR) return a | b;
    return a ^ b;
}

/* Element i of the result over all ranks. */
static void store_result(void *buffer, han_datatype_t datatype, han_op_t op, size_t i) {
    int result = sample(0, i), index = 0;
    if (datatype == HAN_BOOL) result = result != 0;
    for (int r = 1; r < size; r++) {
        int before = result;
        result = combine(op, result, datatype == HAN_BOOL ? sample(r, i) != 0 : sample(r, i));
        if (result != before) index = r; /* used by MINLOC and MAXLOC only */
    }
    store(buffer, datatype, i, result, index);
}

/* Room for the widest datatype, and for a margin that must stay as it is. */
static double send[2 * MOST + 1], receive[2 * MOST + 1], want[2 * MOST + 1];

static void contribute(void *buffer, han_datatype_t datatype, size_t count) {
    for (size_t i = 0; i < count; i++) store(buffer, datatype, i, sample(rank, i), rank);
}

static void reductions(han_datatype_t datatype, han_op_t op, size_t count) {
    size_t bytes;
    OK(han_datatype_size(datatype, &bytes));
    bytes *= count;
    contribute(send, datatype, count);
    memset(want, 0, bytes);
    for (size_t i = 0; i < count; i++) store_result(want, datatype, op, i);

    memset(receive, 0, bytes + 8);
    OK(han_allreduce(send, receive, count, datatype, op, world));
    CHECK(memcmp(receive, want, bytes) == 0);
    CHECK(((char *)receive)[bytes] == 0);

    contribute(receive, datatype, count);
    OK(han_allreduce(HAN_IN_PLACE, receive, count, datatype, op, world));
    CHECK(memcmp(receive, want, bytes) == 0);

    int root = (int)(count + (size_t)datatype) % size;
    memset(receive, 0x55, bytes);
    OK(han_reduce(send, rank == root ? receive : NULL, count, datatype, op, root, world));
    CHECK(rank != root || memcmp(receive, want, bytes) == 0);

    contribute(receive, datatype, count);
    OK(han_reduce(rank == root ? HAN_IN_PLACE : receive, rank == root ? receive : NULL, count, datatype,
                  op, root, world));
    CHECK(rank != root || memcmp(receive, want, bytes) == 0);
    if (rank != root) {
        contribute(want, datatype, count);
        CHECK(memcmp(receive, want, bytes) == 0); /* a contribution is not written to */
    }
}

static void broadcasts(han_datatype_t datatype, size_t count) {
    size_t bytes;
    OK(han_datatype_size(datatype, &bytes));
    bytes *= count;
    for (int root = 0; root < size; root++) {
        for (size_t i = 0; i < count; i++) store(want, datatype, i, sample(root, i), root);
        memset(receive, 0x55, bytes + 8);
        if (rank == root) memcpy(receive, want, bytes);
        OK(han_bcast(receive, count, datatype, root, world));
        CHECK(memcmp(receive, want, bytes) == 0);
        CHECK(((char *)receive)[bytes] == 0x55);
    }
}

int main(void) {
    start();
    for (int code = HAN_INT8; code <= HAN_SHORT_INT; code++) {
        han_datatype_t datatype = (han_datatype_t)code;
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
            broadcasts(datatype, counts[c]);
            for (int o = 0; o < OPS; o++) {
                if (is_defined(datatype, ops[o])) reductions(datatype, ops[o], counts[c]);
            }
            OK(han_barrier(world));
        }
        for (int o = 0; o < OPS; o++) {
            if (!is_defined(datatype, ops[o])) {
                EXPECT(HAN_ERR_OP, han_allreduce(send, receive, 1, datatype, ops[o], world));
            }
        }
    }
    OK(han_allreduce(NULL, NULL, 0, HAN_DOUBLE, HAN_SUM, world));
    OK(han_bcast(NULL, 0, HAN_DOUBLE, 0, world));
    end();
    return 0;
}

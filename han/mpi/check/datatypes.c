/* Every predefined datatype with every predefined operator: bcast, reduce and allreduce, in place and not.
 *
 * Combinations that MPI forbids must fail with the same error class, where the MPI looks: MPICH 4 ends the program
 * instead. Contributions are small, so that no result depends on the order in which it is computed. */
#include "check.h"
#include <complex.h>
#include <stdbool.h>
#include <stddef.h>
#include <wchar.h>

enum kind { INTEGER, REAL, COMPLEX, LOGICAL, RAW, TEXT, PAIR };

/* A datatype as C sees it: elements of `extent` bytes, which begin with a value of `value_bytes`; pairs have an int
 * at `index_at`. Bytes that are neither are padding, whose contents nobody promises. */
struct type {
    const char *name;
    MPI_Datatype type;
    enum kind kind;
    size_t extent, value_bytes, index_at;
};

#define TYPE(type, kind, c) {#type, type, kind, sizeof(c), sizeof(c), 0}
#define LONG_DOUBLE_BYTES 10
struct float_int { float value; int index; };
struct double_int { double value; int index; };
struct long_int { long value; int index; };
struct two_int { int value; int index; };
struct short_int { short value; int index; };
struct long_double_int { long double value; int index; };
#define PAIR_OF(type, c, bytes) {#type, type, PAIR, sizeof(struct c), bytes, offsetof(struct c, index)}

#define BOUND 64
static unsigned char send[BOUND * 64], receive[BOUND * 64];

static void put_number(unsigned char *at, const struct type *t, int value) {
    switch (t->value_bytes) {
    case 1: { int8_t v = (int8_t)value; memcpy(at, &v, 1); break; }
    case 2: { int16_t v = (int16_t)value; memcpy(at, &v, 2); break; }
    case 4: { int32_t v = value; memcpy(at, &v, 4); break; }
    default: { int64_t v = value; memcpy(at, &v, 8); }
    }
}

static void put_real(unsigned char *at, size_t bytes, int value) {
    if (bytes == 4) { float v = (float)value; memcpy(at, &v, 4); }
    else if (bytes == 8) { double v = value; memcpy(at, &v, 8); }
    else { long double v = value; memcpy(at, &v, LONG_DOUBLE_BYTES); }
}

static int is_real(const struct type *t) {
    return t->kind == REAL || t->type == MPI_FLOAT_INT || t->type == MPI_DOUBLE_INT || t->type == MPI_LONG_DOUBLE_INT;
}

static void fill(unsigned char *buffer, const struct type *t, int count, int is_product) {
    memset(buffer, 0, sizeof send);
    for (int i = 0; i < count; i++) {
        unsigned char *at = buffer + (size_t)i * t->extent;
        int value = is_product ? 1 + (i % ranks == rank) : (rank + i) % 8;
        if (t->kind == LOGICAL) put_number(at, t, (rank + i) % 3 == 0);
        else if (t->kind == COMPLEX) {
            put_real(at, t->extent / 2, value);
            put_real(at + t->extent / 2, t->extent / 2, is_product ? 0 : 1);
        } else if (is_real(t)) put_real(at, t->value_bytes, value);
        else put_number(at, t, value);
        if (t->kind == PAIR) { int index = 100 - rank; memcpy(at + t->index_at, &index, sizeof index); }
    }
}

/* Takes in what is no padding. */
static uint64_t digest_values(uint64_t so_far, const unsigned char *buffer, const struct type *t, int count) {
    for (int i = 0; i < count; i++) {
        const unsigned char *at = buffer + (size_t)i * t->extent;
        size_t halves = t->kind == COMPLEX ? 2 : 1, bytes = t->value_bytes / halves;
        for (size_t half = 0; half < halves; half++)
            so_far = digest(so_far, at + half * bytes, bytes == sizeof(long double) ? LONG_DOUBLE_BYTES : bytes);
        if (t->kind == PAIR) so_far = digest(so_far, at + t->index_at, sizeof(int));
    }
    return so_far;
}

/* The operators, and the kinds of types for which each is defined. */
#define KIND(kind) (1u << (kind))
#define NUMBERS (KIND(INTEGER) | KIND(REAL))
#define BITS (KIND(INTEGER) | KIND(RAW))
#define TRUTHS (KIND(INTEGER) | KIND(LOGICAL))
struct operator {
    const char *name;
    MPI_Op op;
    unsigned kinds;
};
#define OPERATOR(op, kinds) {#op, op, kinds}

static const int counts[] = {0, 1, 37};

static void check_bcast(const struct type *t) {
    uint64_t seen = DIGEST_START;
    for (int c = 0; c < 3; c++) {
        fill(send, t, counts[c], 0);
        int code = MPI_Bcast(send, counts[c], t->type, c % ranks, MPI_COMM_WORLD);
        if (code) { note("%s bcast: class %d", t->name, class_of(code)); return; }
        seen = digest_values(seen, send, t, counts[c]);
    }
    note("%s bcast: %016lx", t->name, (unsigned long)seen);
}

/* The first failing call's error class; 0 if the results are in `seen`. */
static int reductions(const struct type *t, MPI_Op op, int count, int in_place, uint64_t *seen) {
    int root = count % ranks, is_product = op == MPI_PROD;
    fill(send, t, count, is_product);
    fill(receive, t, count, is_product);
    int code = MPI_Allreduce(in_place ? MPI_IN_PLACE : send, receive, count, t->type, op, MPI_COMM_WORLD);
    if (code) return class_of(code);
    *seen = digest_values(*seen, receive, t, count);
    fill(receive, t, count, is_product);
    const void *given = !in_place && rank == root ? MPI_IN_PLACE : send;
    code = MPI_Reduce(given, receive, count, t->type, op, root, MPI_COMM_WORLD);
    if (code) return class_of(code);
    if (rank == root) *seen = digest_values(*seen, receive, t, count);
    return 0;
}

static void check_reductions(const struct type *t, const struct operator *o) {
    if (!(o->kinds & KIND(t->kind)) && IS_MPICH_4) return;
    uint64_t seen = DIGEST_START;
    int class = 0;
    for (int c = 0; c < 3 && !class; c++) class = reductions(t, o->op, counts[c], c % 2, &seen);
    if (class) note("%s %s: class %d", t->name, o->name, class);
    else note("%s %s: %016lx", t->name, o->name, (unsigned long)seen);
}

/* Whether the type exists here, with the size that C gives it. */
static int is_there(const struct type *t) {
    int bytes = 0;
    if (t->type == MPI_DATATYPE_NULL || MPI_Type_size(t->type, &bytes) != MPI_SUCCESS || bytes <= 0) return 0;
    MPI_Aint low, extent;
    MPI_Type_get_extent(t->type, &low, &extent);
    if ((size_t)extent == t->extent) return 1;
    note("%s has extent %ld here", t->name, (long)extent);
    return 0;
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    const struct type all[] = {
        TYPE(MPI_CHAR, TEXT, char), TYPE(MPI_SIGNED_CHAR, INTEGER, signed char),
        TYPE(MPI_UNSIGNED_CHAR, INTEGER, unsigned char), TYPE(MPI_SHORT, INTEGER, short),
        TYPE(MPI_UNSIGNED_SHORT, INTEGER, unsigned short), TYPE(MPI_INT, INTEGER, int),
        TYPE(MPI_UNSIGNED, INTEGER, unsigned), TYPE(MPI_LONG, INTEGER, long),
        TYPE(MPI_UNSIGNED_LONG, INTEGER, unsigned long), TYPE(MPI_LONG_LONG, INTEGER, long long),
        TYPE(MPI_UNSIGNED_LONG_LONG, INTEGER, unsigned long long), TYPE(MPI_INT8_T, INTEGER, int8_t),
        TYPE(MPI_INT16_T, INTEGER, int16_t), TYPE(MPI_INT32_T, INTEGER, int32_t), TYPE(MPI_INT64_T, INTEGER, int64_t),
        TYPE(MPI_UINT8_T, INTEGER, uint8_t), TYPE(MPI_UINT16_T, INTEGER, uint16_t),
        TYPE(MPI_UINT32_T, INTEGER, uint32_t), TYPE(MPI_UINT64_T, INTEGER, uint64_t),
        TYPE(MPI_AINT, INTEGER, MPI_Aint), TYPE(MPI_OFFSET, INTEGER, MPI_Offset), TYPE(MPI_COUNT, INTEGER, MPI_Count),
        TYPE(MPI_WCHAR, TEXT, wchar_t), TYPE(MPI_BYTE, RAW, unsigned char), TYPE(MPI_PACKED, TEXT, unsigned char),
        TYPE(MPI_FLOAT, REAL, float), TYPE(MPI_DOUBLE, REAL, double), TYPE(MPI_LONG_DOUBLE, REAL, long double),
        TYPE(MPI_C_BOOL, LOGICAL, bool), TYPE(MPI_C_FLOAT_COMPLEX, COMPLEX, float complex),
        TYPE(MPI_C_DOUBLE_COMPLEX, COMPLEX, double complex),
        TYPE(MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX, long double complex),
        TYPE(MPI_INTEGER, INTEGER, int), TYPE(MPI_REAL, REAL, float), TYPE(MPI_DOUBLE_PRECISION, REAL, double),
        TYPE(MPI_COMPLEX, COMPLEX, float complex), TYPE(MPI_DOUBLE_COMPLEX, COMPLEX, double complex),
        TYPE(MPI_LOGICAL, LOGICAL, int), TYPE(MPI_CHARACTER, TEXT, char), TYPE(MPI_INTEGER1, INTEGER, int8_t),
        TYPE(MPI_INTEGER2, INTEGER, int16_t), TYPE(MPI_INTEGER4, INTEGER, int32_t),
        TYPE(MPI_INTEGER8, INTEGER, int64_t), TYPE(MPI_REAL4, REAL, float), TYPE(MPI_REAL8, REAL, double),
        TYPE(MPI_COMPLEX8, COMPLEX, float complex), TYPE(MPI_COMPLEX16, COMPLEX, double complex),
        TYPE(MPI_CXX_BOOL, LOGICAL, bool), TYPE(MPI_CXX_FLOAT_COMPLEX, COMPLEX, float complex),
        TYPE(MPI_CXX_DOUBLE_COMPLEX, COMPLEX, double complex),
        PAIR_OF(MPI_FLOAT_INT, float_int, sizeof(float)), PAIR_OF(MPI_DOUBLE_INT, double_int, sizeof(double)),
        PAIR_OF(MPI_LONG_INT, long_int, sizeof(long)), PAIR_OF(MPI_2INT, two_int, sizeof(int)),
        PAIR_OF(MPI_SHORT_INT, short_int, sizeof(short)),
        PAIR_OF(MPI_LONG_DOUBLE_INT, long_double_int, sizeof(long double)),
    };
    const struct operator operators[] = {
        OPERATOR(MPI_SUM, NUMBERS | KIND(COMPLEX)), OPERATOR(MPI_PROD, NUMBERS | KIND(COMPLEX)),
        OPERATOR(MPI_MIN, NUMBERS), OPERATOR(MPI_MAX, NUMBERS), OPERATOR(MPI_LAND, TRUTHS), OPERATOR(MPI_LOR, TRUTHS),
        OPERATOR(MPI_LXOR, TRUTHS), OPERATOR(MPI_BAND, BITS), OPERATOR(MPI_BOR, BITS), OPERATOR(MPI_BXOR, BITS),
        OPERATOR(MPI_MINLOC, KIND(PAIR)), OPERATOR(MPI_MAXLOC, KIND(PAIR)), OPERATOR(MPI_REPLACE, 0), OPERATOR(MPI_NO_OP, 0),
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!is_there(&all[i])) { note("%s is not there", all[i].name); continue; }
        check_bcast(&all[i]);
        for (size_t o = 0; o < sizeof operators / sizeof *operators; o++) check_reductions(&all[i], &operators[o]);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return finish();
}

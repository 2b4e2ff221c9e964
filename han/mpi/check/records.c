/* User operators on elements of other sizes than numbers have: structures, rows, and what has gaps or is too long. */
#include "check.h"
#include <stddef.h>

#define PRIME 251
#define MOST 3000

/* A 2 x 2 matrix over a prime field, and where it came from first and last: 24 bytes. Products do not commute. */
struct factor { int m[4], first, last; };

static struct factor multiply(struct factor f, struct factor g) {
    struct factor h = {{0, 0, 0, 0}, f.first, g.last};
    for (int row = 0; row < 2; row++)
        for (int column = 0; column < 2; column++)
            h.m[2 * row + column] = (f.m[2 * row] * g.m[column] + f.m[2 * row + 1] * g.m[2 + column]) % PRIME;
    return h;
}

static void multiply_all(void *in, void *inout, int *length, MPI_Datatype *type) {
    (void)type;
    struct factor *left = in, *right = inout;
    for (int i = 0; i < *length; i++) right[i] = multiply(left[i], right[i]);
}

static struct factor factor_of(int from, int index) {
    return (struct factor){{1 + from, index % PRIME, 3, (2 * from + index) % PRIME}, from, from};
}

static void check_structures(void) {
    static const int counts[] = {1, 4, 5, 42, 43, 170, 171, 700, MOST};
    static struct factor send[MOST], all[MOST], one[MOST];
    int lengths[] = {4, 1, 1};
    MPI_Aint places[] = {offsetof(struct factor, m), offsetof(struct factor, first), offsetof(struct factor, last)};
    MPI_Datatype kinds[] = {MPI_INT, MPI_INT, MPI_INT}, type;
    MPI_Op op;
    MPI_Type_create_struct(3, lengths, places, kinds, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(multiply_all, 0, &op);
    for (int i = 0; i < MOST; i++) send[i] = factor_of(rank, i);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        int count = counts[c], root = (int)c % ranks, wrong = 0;
        memset(all, 0, sizeof all);
        memcpy(one, send, sizeof one);
        MPI_Allreduce(send, all, count, type, op, MPI_COMM_WORLD);
        MPI_Reduce(rank == root ? MPI_IN_PLACE : send, one, count, type, op, root, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) {
            struct factor wanted = factor_of(0, i);
            for (int from = 1; from < ranks; from++) wanted = multiply(wanted, factor_of(from, i));
            wrong += memcmp(&all[i], &wanted, sizeof wanted) != 0;
            wrong += rank == root && memcmp(&one[i], &wanted, sizeof wanted) != 0;
        }
        expect(!wrong, "%d structures: %d wrong", count, wrong);
        note("%d structures: %016llx", count, (unsigned long long)digest(DIGEST_START, all, (size_t)count * sizeof *all));
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
}

/* Sums of rows of so many doubles; what they lie at is aligned for them. */
static int row_length, misaligned;

static void add_rows(void *in, void *inout, int *length, MPI_Datatype *type) {
    (void)type;
    double *left = in, *right = inout;
    misaligned += (uintptr_t)in % sizeof(double) != 0 || (uintptr_t)inout % sizeof(double) != 0;
    for (int i = 0; i < *length * row_length; i++) right[i] += left[i];
}

static void check_rows(int length, int count) {
    MPI_Datatype row;
    MPI_Op op;
    double *rows = malloc((size_t)length * (size_t)count * sizeof *rows);
    if (!rows) abort();
    row_length = length;
    MPI_Type_contiguous(length, MPI_DOUBLE, &row);
    MPI_Type_commit(&row);
    MPI_Op_create(add_rows, 1, &op);
    for (int i = 0; i < length * count; i++) rows[i] = element(rank, i, length);
    MPI_Allreduce(MPI_IN_PLACE, rows, count, row, op, MPI_COMM_WORLD);
    int wrong = 0;
    for (int i = 0; i < length * count; i++) wrong += rows[i] != sum_of(ranks, i, length);
    expect(!wrong, "%d rows of %d: %d wrong", count, length, wrong);
    expect(!misaligned, "%d calls with misaligned rows", misaligned);
    note("%d rows of %d: %016llx", count, length, (unsigned long long)digest(DIGEST_START, rows, (size_t)(length * count) * sizeof *rows));
    MPI_Op_free(&op);
    MPI_Type_free(&row);
    free(rows);
}

/* The product of complex numbers, 32 bytes each. Intel MPI itself lays some at other addresses than multiples of 16. */
static void multiply_complex(void *in, void *inout, int *length, MPI_Datatype *type) {
    (void)type;
    long double _Complex *left = in, *right = inout;
    for (int i = 0; i < *length; i++) right[i] *= left[i];
}

static void check_complex(int count) {
    long double _Complex *values = malloc((size_t)count * sizeof *values);
    MPI_Op op;
    if (!values) abort();
    MPI_Op_create(multiply_complex, 1, &op);
    for (int i = 0; i < count; i++) values[i] = rank % 2 ? 1.0L * 1.0iL : (long double)(1 + i % 3);
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_C_LONG_DOUBLE_COMPLEX, op, MPI_COMM_WORLD);
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        long double _Complex wanted = 1;
        for (int from = 0; from < ranks; from++) wanted *= from % 2 ? 1.0L * 1.0iL : (long double)(1 + i % 3);
        wrong += values[i] != wanted;
    }
    expect(!wrong, "%d complex numbers: %d wrong", count, wrong);
    MPI_Op_free(&op);
    free(values);
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    check_structures();
    static const int lengths[] = {1, 3, 5, 127, 128, 129, 400}; /* a record has 128 at most */
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (int count = 1; count <= 1000; count *= 10) check_rows(lengths[l], count);
    for (int count = 1; count <= 10000; count *= 10) check_complex(count);
    return finish();
}

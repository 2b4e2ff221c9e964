/* A user operator on structures of 24 bytes, on rows of doubles, and on complex numbers of long doubles. */
#include "check.h"
#include <complex.h>
#include <stdint.h>

#define COUNT 5000

/* An affine map modulo a prime, and how many were composed: does not commute. */
struct map {
    int64_t slope, shift, maps;
};

static struct map compose(struct map f, struct map g) {
    return (struct map){f.slope * g.slope % 10007, (f.shift * g.slope + g.shift) % 10007, f.maps + g.maps};
}

static void compose_all(void *in, void *inout, int *length, MPI_Datatype *type) {
    struct map *first = in, *then = inout;
    (void)type;
    for (int i = 0; i < *length; i++) then[i] = compose(first[i], then[i]);
}

static struct map map_of(int from, int i) { return (struct map){1 + from * 5 + i, from + 3 * i, 1}; }

static void check_structures(void) {
    static struct map send[COUNT], receive[COUNT];
    static const int counts[] = {1, 5, 43, 171, COUNT};
    MPI_Datatype type;
    MPI_Op op;
    MPI_Type_contiguous(3, MPI_INT64_T, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(compose_all, 0, &op);
    for (int i = 0; i < COUNT; i++) send[i] = map_of(rank, i);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        MPI_Allreduce(send, receive, counts[c], type, op, MPI_COMM_WORLD);
        for (int i = 0; i < counts[c]; i++) {
            struct map wanted = map_of(0, i);
            for (int from = 1; from < size; from++) wanted = compose(wanted, map_of(from, i));
            CHECK(receive[i].slope == wanted.slope && receive[i].shift == wanted.shift && receive[i].maps == size);
        }
    }
    MPI_Op_free(&op);
    MPI_Type_free(&type);
}

static int row_length;

static void add_rows(void *in, void *inout, int *length, MPI_Datatype *type) {
    double *left = in, *right = inout;
    (void)type;
    for (int i = 0; i < *length * row_length; i++) right[i] += left[i];
}

static void check_rows(int length) {
    static double rows[COUNT];
    MPI_Datatype type;
    MPI_Op op;
    row_length = length;
    MPI_Type_contiguous(length, MPI_DOUBLE, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(add_rows, 1, &op);
    for (int i = 0; i < COUNT; i++) rows[i] = rank + i;
    MPI_Allreduce(MPI_IN_PLACE, rows, COUNT / length, type, op, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT / length * length; i++) CHECK(rows[i] == size * (size - 1) / 2 + size * i);
    MPI_Op_free(&op);
    MPI_Type_free(&type);
}

static void add_complex(void *in, void *inout, int *length, MPI_Datatype *type) {
    long double _Complex *left = in, *right = inout;
    (void)type;
    CHECK((uintptr_t)in % _Alignof(long double) == 0 && (uintptr_t)inout % _Alignof(long double) == 0);
    for (int i = 0; i < *length; i++) right[i] += left[i];
}

static void check_complex(int count) {
    static long double _Complex values[COUNT];
    MPI_Op op;
    MPI_Op_create(add_complex, 1, &op);
    for (int i = 0; i < count; i++) values[i] = rank + i * I;
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_C_LONG_DOUBLE_COMPLEX, op, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) CHECK(values[i] == size * (size - 1) / 2 + size * i * I);
    MPI_Op_free(&op);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    begin();
    check_structures();
    check_rows(5);
    check_rows(128);
    check_rows(129); /* longer than a record */
    check_complex(1);
    check_complex(COUNT);
    return finish();
}

/* User operators, commutative and not, on predefined, contiguous and scattered types; made and freed in loops. */
#include "check.h"

#define PRIME 251
#define MOST 500

/* Affine maps x -> slope x + shift over a prime field: composing them is associative and does not commute. */
struct map { int slope, shift; };

static MPI_Datatype map_type;
static int calls_with_other_types;

static struct map compose(struct map first, struct map then) {
    return (struct map){first.slope * then.slope % PRIME, (first.shift * then.slope + then.shift) % PRIME};
}

static void compose_all(void *in, void *inout, int *length, MPI_Datatype *type) {
    calls_with_other_types += *type != map_type;
    struct map *first = in, *then = inout;
    for (int i = 0; i < *length; i++) then[i] = compose(first[i], then[i]);
}

static void left(void *in, void *inout, int *length, MPI_Datatype *type) {
    int bytes;
    MPI_Type_size(*type, &bytes);
    memcpy(inout, in, (size_t)*length * (size_t)bytes);
}

static void right(void *in, void *inout, int *length, MPI_Datatype *type) { (void)in, (void)inout, (void)length, (void)type; }

static void largest(void *in, void *inout, int *length, MPI_Datatype *type) {
    (void)type;
    int *a = in, *b = inout;
    for (int i = 0; i < *length; i++) b[i] = a[i] > b[i] ? a[i] : b[i];
}

/* Every second int of a pair is a gap, which reductions leave alone. */
static void add_first(void *in, void *inout, int *length, MPI_Datatype *type) {
    (void)type;
    struct map *a = in, *b = inout;
    for (int i = 0; i < *length; i++) b[i].slope += a[i].slope;
}

static struct map map_of(int from, int index) { return (struct map){1 + (from * 5 + index) % (PRIME - 1), (from + 3 * index) % PRIME}; }

static void check_maps(MPI_Op op, int count, int root) {
    static struct map send[MOST], all[MOST], one[MOST];
    for (int i = 0; i < count; i++) send[i] = map_of(rank, i);
    memset(all, 0, sizeof all);
    memcpy(one, send, sizeof one);
    MPI_Allreduce(send, all, count, map_type, op, MPI_COMM_WORLD);
    MPI_Reduce(rank == root ? MPI_IN_PLACE : send, one, count, map_type, op, root, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) {
        struct map wanted = map_of(0, i);
        for (int from = 1; from < ranks; from++) wanted = compose(wanted, map_of(from, i));
        expect(!memcmp(&all[i], &wanted, sizeof wanted), "allreduce of %d maps: map %d", count, i);
        if (rank == root) expect(!memcmp(&one[i], &wanted, sizeof wanted), "reduce of %d maps to %d: map %d", count, root, i);
    }
}

static void check_projections(void) {
    MPI_Op ops[2];
    MPI_Op_create(left, 0, &ops[0]);
    MPI_Op_create(right, 0, &ops[1]);
    for (int which = 0; which < 2; which++)
        for (int count = 1; count <= 40000; count *= 200) {
            double *values = malloc((size_t)count * sizeof *values);
            for (int i = 0; i < count; i++) values[i] = rank * 1000 + i % 1000;
            MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, ops[which], MPI_COMM_WORLD);
            int wrong = 0, source = which ? ranks - 1 : 0;
            for (int i = 0; i < count; i++) wrong += values[i] != source * 1000 + i % 1000;
            expect(!wrong, "%s projection of %d: %d wrong", which ? "right" : "left", count, wrong);
            free(values);
        }
    MPI_Op_free(&ops[0]);
    MPI_Op_free(&ops[1]);
    expect(ops[0] == MPI_OP_NULL, "a freed operator's handle is not MPI_OP_NULL");
}

static void check_gaps(void) {
    MPI_Datatype gappy, scattered;
    MPI_Op op;
    MPI_Type_vector(1, 1, 2, MPI_INT, &scattered);
    MPI_Type_create_resized(scattered, 0, sizeof(struct map), &gappy);
    MPI_Type_commit(&gappy);
    MPI_Op_create(add_first, 1, &op);
    struct map values[33];
    for (int i = 0; i < 33; i++) values[i] = (struct map){element(rank, i, 2), -5};
    MPI_Allreduce(MPI_IN_PLACE, values, 33, gappy, op, MPI_COMM_WORLD);
    for (int i = 0; i < 33; i++) {
        expect(values[i].slope == sum_of(ranks, i, 2), "scattered values: sum %d is %d", i, values[i].slope);
        expect(values[i].shift == -5, "scattered values: gap %d is %d", i, values[i].shift);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&gappy);
    MPI_Type_free(&scattered);
}

/* Handles of freed operators are given out again: for other functions, and with the other commutativity. */
static void check_recycling(void) {
    MPI_User_function *const functions[] = {left, right, largest};
    for (int i = 0; i < 150; i++) {
        MPI_Op op;
        MPI_Op_create(functions[i % 3], i % 3 == 2, &op);
        int value = 10 + (rank + i) % ranks, commutes = -1;
        MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, op, MPI_COMM_WORLD);
        int wanted = i % 3 == 2 ? 9 + ranks : 10 + ((i % 3 ? ranks - 1 : 0) + i) % ranks;
        expect(value == wanted, "operator %d gives %d, not %d", i, value, wanted);
        MPI_Op_commutative(op, &commutes);
        expect(commutes == (i % 3 == 2), "operator %d commutes: %d", i, commutes);
        MPI_Op_free(&op);
    }
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    MPI_Type_contiguous(2, MPI_INT, &map_type);
    MPI_Type_commit(&map_type);
    MPI_Op op;
    MPI_Op_create(compose_all, 0, &op);
    static const int counts[] = {0, 1, 2, 7, 64, MOST};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int root = 0; root < ranks; root++) check_maps(op, counts[c], root);
    expect(!calls_with_other_types, "the operator was called %d times with another type's handle", calls_with_other_types);
    struct map a = {2, 3}, b = {4, 5};
    MPI_Reduce_local(&a, &b, 1, map_type, op);
    note("reduce_local: %d %d", b.slope, b.shift);
    MPI_Op_free(&op);
    MPI_Type_free(&map_type);
    check_projections();
    check_gaps();
    check_recycling();
    return finish();
}

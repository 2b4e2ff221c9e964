/* Every collective, in every way in which its arguments can be described. */
#include "check.h"

static void lengths(void) {
    for (int count = 1; count <= 1 << 18; count *= 8) {
        double *a = malloc(count * sizeof *a), *b = malloc(count * sizeof *b);
        for (int i = 0; i < count; i++) a[i] = rank + i % 10;
        MPI_Allreduce(a, b, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) CHECK(b[i] == size * (size - 1) / 2 + size * (i % 10));
        /* Debian's MPICH itself fails in place at another root than 0. */
        MPI_Reduce(rank == 0 ? MPI_IN_PLACE : a, a, count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) CHECK(a[i] == (rank == 0 ? size - 1 : rank) + i % 10);
        for (int i = 0; i < count; i++) b[i] = rank == 0 ? i : -1;
        MPI_Bcast(b, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) CHECK(b[i] == i);
        MPI_Allreduce(MPI_IN_PLACE, b, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) CHECK(b[i] == (double)i * size);
        free(a), free(b);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* One broadcast, in which the root has a column of a matrix, rank 1 numbers in a row, others triples of them. */
static void descriptions(void) {
    double matrix[6][4], row[6];
    MPI_Datatype column, triple, same;
    MPI_Type_vector(6, 1, 4, MPI_DOUBLE, &column);
    MPI_Type_contiguous(3, MPI_DOUBLE, &triple);
    MPI_Type_dup(triple, &same);
    MPI_Type_commit(&column), MPI_Type_commit(&triple), MPI_Type_commit(&same);
    for (int again = 0; again < 3; again++) {
        for (int i = 0; i < 6; i++) matrix[i][1] = i + again, row[i] = -1;
        if (rank == 0) MPI_Bcast(&matrix[0][1], 1, column, 0, MPI_COMM_WORLD);
        else if (rank == 1) MPI_Bcast(row, 6, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        else MPI_Bcast(row, 2, rank % 2 ? triple : same, 0, MPI_COMM_WORLD);
        for (int i = 0; i < 6; i++) CHECK(rank == 0 || row[i] == i + again);
    }
    MPI_Type_free(&column), MPI_Type_free(&triple), MPI_Type_free(&same);
}

/* x -> a x + b, one after the other: associative, and not commutative. */
static void compose(void *left, void *right, int *count, MPI_Datatype *datatype) {
    int(*f)[2] = left, (*g)[2] = right;
    (void)datatype;
    for (int i = 0; i < *count; i++) {
        g[i][1] = f[i][0] * g[i][1] + f[i][1];
        g[i][0] *= f[i][0];
    }
}

static void operators(void) {
    MPI_Op op;
    MPI_Datatype pair;
    MPI_Op_create(compose, 0, &op);
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    enum { COUNT = 3000 };
    static int own[COUNT][2], all[COUNT][2];
    for (int i = 0; i < COUNT; i++) own[i][0] = 2, own[i][1] = rank + i;
    MPI_Allreduce(own, all, COUNT, pair, op, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) {
        int sum = 0;
        for (int peer = size - 1; peer >= 0; peer--) sum = 2 * sum + peer + i;
        CHECK(all[i][0] == 1 << size && all[i][1] == sum);
    }
    MPI_Op_free(&op), MPI_Type_free(&pair);

    long double mine = rank, total;
    MPI_Allreduce(&mine, &total, 1, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(total == size * (size - 1) / 2);
    struct { double value; int index; } least, place = { rank == size - 1 ? -1.0 : 1.0, rank };
    MPI_Allreduce(&place, &least, 1, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD);
    CHECK(least.value == -1.0 && least.index == size - 1);
}

/* Handles come back: what was known of the communicator that had one before must not be believed. */
static void communicators(void) {
    for (int round = 0; round < 12; round++) {
        MPI_Comm part, twin;
        int members, place, sum;
        MPI_Comm_split(MPI_COMM_WORLD, round % 3 ? rank % 2 : 0, round % 2 ? rank : -rank, &part);
        MPI_Comm_dup(part, &twin);
        MPI_Comm_size(part, &members), MPI_Comm_rank(part, &place);
        for (int call = 0; call < 8; call++) {
            MPI_Allreduce(&place, &sum, 1, MPI_INT, MPI_SUM, call % 2 ? part : twin);
            CHECK(sum == members * (members - 1) / 2);
            int root = call % members, told = place == root ? round : -1;
            MPI_Bcast(&told, 1, MPI_INT, root, part);
            CHECK(told == round);
        }
        MPI_Comm_free(&part);
        if (round % 4) MPI_Comm_free(&twin); /* the others live until the end */
    }
}

static void between_groups(void) {
    if (size < 2) return;
    MPI_Comm half, between;
    int side = rank % 2, sum, number = rank;
    MPI_Comm_split(MPI_COMM_WORLD, side, rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 7, &between);
    MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, between);
    int expected = 0;
    for (int peer = 1 - side; peer < size; peer += 2) expected += peer;
    CHECK(sum == expected);
    MPI_Comm_free(&between), MPI_Comm_free(&half);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    begin();
    lengths();
    descriptions();
    operators();
    communicators();
    between_groups();
    return finish();
}

/* The forms with MPI_Count: all kinds, blocking, non-blocking and persistent, and datatypes made by them. */
#include "check.h"

#if HAS_LARGE_COUNTS
enum { COUNT = 1500 };

static int input[COUNT], output[COUNT];
static MPI_Count count = COUNT;

static void give(int seed) {
    for (int i = 0; i < COUNT; i++) input[i] = element(rank, i, seed), output[i] = -1;
}

static void check_sums(const char *name, const int *got, int seed) {
    for (int i = 0; i < COUNT; i++) expect(got[i] == sum_of(ranks, i, seed), "%s: element %d is %d", name, i, got[i]);
}

static void check_words(const char *name, int root, int seed) {
    for (int i = 0; i < COUNT; i++) expect(input[i] == element(root, i, seed), "%s: element %d is %d", name, i, input[i]);
}

static void check_blocking(int root) {
    give(root);
    MPI_Allreduce_c(input, output, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    check_sums("allreduce_c", output, root);
    MPI_Reduce_c(rank == root ? MPI_IN_PLACE : input, input, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
    if (rank == root) check_sums("reduce_c", input, root);
    give(root + 1);
    MPI_Bcast_c(input, count, MPI_INT, root, MPI_COMM_WORLD);
    check_words("bcast_c", root, root + 1);
}

static void check_requests(int root) {
    MPI_Request request;
    give(root);
    MPI_Iallreduce_c(input, output, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_sums("iallreduce_c", output, root);
    give(root);
    MPI_Ireduce_c(input, output, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == root) check_sums("ireduce_c", output, root);
    MPI_Ibcast_c(input, count, MPI_INT, root, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_words("ibcast_c", root, root);

    MPI_Request all[3];
    static int words[COUNT], tops[COUNT];
    MPI_Allreduce_init_c(input, output, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &all[0]);
    MPI_Reduce_init_c(input, tops, count, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD, MPI_INFO_NULL, &all[1]);
    MPI_Bcast_init_c(words, count, MPI_INT, root, MPI_COMM_WORLD, MPI_INFO_NULL, &all[2]);
    for (int round = 0; round < 3; round++) {
        give(round);
        memcpy(words, input, sizeof words);
        MPI_Startall(3, all);
        MPI_Waitall(3, all, MPI_STATUSES_IGNORE);
        check_sums("allreduce_init_c", output, round);
        if (rank == root) check_sums("reduce_init_c", tops, round);
        for (int i = 0; i < COUNT; i++) expect(words[i] == element(root, i, round), "bcast_init_c: element %d is %d", i, words[i]);
    }
    for (int i = 0; i < 3; i++) MPI_Request_free(&all[i]);
}

/* An operator whose function counts with MPI_Count. */
static void add(void *in, void *inout, MPI_Count *length, MPI_Datatype *type) {
    (void)type;
    for (MPI_Count i = 0; i < *length; i++) ((int *)inout)[i] += ((int *)in)[i];
}

static void check_operator(void) {
    MPI_Op op;
    MPI_Op_create_c(add, 1, &op);
    give(5);
    MPI_Allreduce_c(input, output, count, MPI_INT, op, MPI_COMM_WORLD);
    check_sums("op_create_c", output, 5);
    give(6);
    MPI_Allreduce(input, output, COUNT, MPI_INT, op, MPI_COMM_WORLD);
    check_sums("op_create_c with an int count", output, 6);
    MPI_Op_free(&op);
}

/* Two elements of `ints` ints, every one of `step`. */
static void check_type(const char *name, MPI_Datatype type, int ints, int step) {
    MPI_Type_commit(&type);
    for (int root = 0; root < ranks; root++) {
        give(root);
        MPI_Bcast(input, 2, type, root, MPI_COMM_WORLD);
        for (int i = 0; i < COUNT; i++) {
            int comes = i < 2 * ints * step && i % step == 0;
            expect(input[i] == element(comes ? root : rank, i, root), "%s: element %d is %d", name, i, input[i]);
        }
    }
    MPI_Type_free(&type);
}

static void check_types(void) {
    MPI_Datatype type, inner, spread;
    MPI_Type_contiguous_c(300, MPI_INT, &type);
    check_type("contiguous_c", type, 300, 1);
    MPI_Type_contiguous_c(30, MPI_INT, &inner);
    MPI_Type_contiguous(10, inner, &type);
    check_type("contiguous of contiguous_c", type, 300, 1);
    MPI_Type_contiguous_c(5, inner, &type);
    check_type("contiguous_c of contiguous_c", type, 150, 1);
    MPI_Type_dup(inner, &type);
    check_type("dup of contiguous_c", type, 30, 1);
    MPI_Type_free(&inner);
    MPI_Type_vector_c(100, 1, 2, MPI_INT, &spread);
    MPI_Type_create_resized_c(spread, 0, 200 * sizeof(int), &type);
    MPI_Type_free(&spread);
    check_type("vector_c", type, 100, 2);
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    for (int root = 0; root < ranks; root++) {
        check_blocking(root);
        check_requests(root);
    }
    check_operator();
    check_types();
    return finish();
}
#else
int main(int argc, char **argv) {
    start(&argc, &argv);
    return not_in_this_mpi("large-count forms");
}
#endif

/* Programs that serve MPIs of all versions look whether newer functions are there. With the library under them they find
 * those that it defines: they must do what they are for, by the MPI's older functions where it has no others. */
#include "check.h"

#if !HAS_LARGE_COUNTS
#define WEAK(declared) __attribute__((weak)) int declared
WEAK(MPI_Send_c(const void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm));
WEAK(MPI_Recv_c(void *, MPI_Count, MPI_Datatype, int, int, MPI_Comm, MPI_Status *));
WEAK(MPI_Bcast_c(void *, MPI_Count, MPI_Datatype, int, MPI_Comm));
WEAK(MPI_Iallreduce_c(const void *, void *, MPI_Count, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Request *));
WEAK(MPI_Allgatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype,
                      MPI_Comm));
WEAK(MPI_Gatherv_c(const void *, MPI_Count, MPI_Datatype, void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, int,
                   MPI_Comm));
WEAK(MPI_Alltoallv_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *, const MPI_Count *,
                     const MPI_Aint *, MPI_Datatype, MPI_Comm));
WEAK(MPI_Neighbor_alltoallv_c(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *, const MPI_Count *,
                              const MPI_Aint *, MPI_Datatype, MPI_Comm));
WEAK(MPI_Reduce_scatter_c(const void *, void *, const MPI_Count *, MPI_Datatype, MPI_Op, MPI_Comm));
#endif
#if !HAS_PERSISTENT
__attribute__((weak)) int MPI_Barrier_init(MPI_Comm, MPI_Info, MPI_Request *);
#endif

enum { MOST = 64 };
static int input[2 * MOST], output[2 * MOST];
static MPI_Count counts[MOST], in_counts[MOST];
static MPI_Aint places[MOST], in_places[MOST];

static int handled;
__attribute__((unused)) static void handler(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    handled++;
}

/* Rank r has r + 1 elements; whether output is what all of them together have. */
static void expect_all(const char *name) {
    for (int from = 0, at = 0; from < ranks; from++) {
        for (int i = 0; i <= from; i++, at++) {
            expect(output[at] == element(from, i, 1), "%s: element %d of %d is %d", name, i, from, output[at]);
        }
    }
}

static void clear(void) {
    for (int i = 0; i < 2 * MOST; i++) output[i] = -1;
}

/* The address of a function that may be missing. */
#if HAS_LARGE_COUNTS
#define HAS(function) 1
#else
#define HAS(function) (function != 0)
#endif

int main(int argc, char **argv) {
    start(&argc, &argv);
    for (int i = 0; i < 2 * MOST; i++) input[i] = element(rank, i, 1);
    if (HAS(MPI_Send_c) && HAS(MPI_Recv_c) && ranks > 1) {
        int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
        MPI_Request request;
        MPI_Irecv(output, 9, MPI_INT, previous, 1, MPI_COMM_WORLD, &request);
        MPI_Send_c(input, 9, MPI_INT, next, 1, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(output[8] == element(previous, 8, 1), "send_c: element 8 is %d", output[8]);
        MPI_Isend(input, 9, MPI_INT, next, 1, MPI_COMM_WORLD, &request);
        clear();
        MPI_Recv_c(output, 9, MPI_INT, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(output[8] == element(previous, 8, 1), "recv_c: element 8 is %d", output[8]);
    }
    for (int i = 0, at = 0; i < ranks; at += ++i) counts[i] = i + 1, places[i] = at;
    if (HAS(MPI_Allgatherv_c)) {
        clear();
        MPI_Allgatherv_c(input, rank + 1, MPI_INT, output, counts, places, MPI_INT, MPI_COMM_WORLD);
        expect_all("allgatherv_c");
    }
    if (HAS(MPI_Gatherv_c)) {
        int root = ranks - 1;
        clear();
        /* Off the root, the arrays are nothing. */
        MPI_Gatherv_c(input, rank + 1, MPI_INT, output, rank == root ? counts : (void *)8, rank == root ? places : (void *)8,
                      MPI_INT, root, MPI_COMM_WORLD);
        if (rank == root) expect_all("gatherv_c");
    }
    /* To everybody the same rank + 1 elements. */
    for (int i = 0; i < ranks; i++) in_counts[i] = rank + 1, in_places[i] = 0;
    if (HAS(MPI_Alltoallv_c)) {
        clear();
        MPI_Alltoallv_c(input, in_counts, in_places, MPI_INT, output, counts, places, MPI_INT, MPI_COMM_WORLD);
        expect_all("alltoallv_c");
    }
    if (HAS(MPI_Neighbor_alltoallv_c)) {
        MPI_Comm ring, graph;
        int periodic = 1, everybody[MOST];
        MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
        MPI_Count one[2] = {1, 1};
        MPI_Aint at[2] = {3, 5};
        clear();
        MPI_Neighbor_alltoallv_c(input, one, at, MPI_INT, output, one, at, MPI_INT, ring);
        int before = output[3], after = output[5], previous = (rank + ranks - 1) % ranks;
        if (ranks > 2) expect(before == element(previous, 5, 1), "neighbor_alltoallv_c: from below comes %d", before);
        if (ranks > 2) expect(after == element((rank + 1) % ranks, 3, 1), "neighbor_alltoallv_c: from above comes %d", after);
        MPI_Comm_free(&ring);
        for (int i = 0; i < ranks; i++) everybody[i] = i;
        MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, ranks, everybody, everybody, ranks, everybody, everybody,
                                       MPI_INFO_NULL, 0, &graph);
        clear();
        MPI_Neighbor_alltoallv_c(input, in_counts, in_places, MPI_INT, output, counts, places, MPI_INT, graph);
        expect_all("neighbor_alltoallv_c");
        MPI_Comm_free(&graph);
    }
    if (HAS(MPI_Reduce_scatter_c)) {
        clear();
        MPI_Reduce_scatter_c(input, output, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        int first = (int)places[rank];
        for (int i = 0; i <= rank; i++) expect(output[i] == sum_of(ranks, first + i, 1), "reduce_scatter_c: %d", output[i]);
    }
    /* A young communicator's calls are the MPI's, and those of MPI_COMM_WORLD the library's. */
    MPI_Comm young;
    MPI_Comm_dup(MPI_COMM_WORLD, &young);
    for (int is_young = 0; is_young < 2; is_young++) {
        MPI_Comm comm = is_young ? young : MPI_COMM_WORLD;
        if (HAS(MPI_Bcast_c)) {
            int value = rank == 0 ? 17 : 0;
            MPI_Bcast_c(&value, 1, MPI_INT, 0, comm);
            expect(value == 17, "bcast_c: %d", value);
        }
        if (HAS(MPI_Iallreduce_c)) {
            MPI_Request request;
            MPI_Iallreduce_c(input, output, 5, MPI_INT, MPI_SUM, comm, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            expect(output[4] == sum_of(ranks, 4, 1), "iallreduce_c: %d", output[4]);
        }
    }
#if !HAS_LARGE_COUNTS
    /* What an int cannot have is an error, and so is what has no older form. */
    MPI_Errhandler own;
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(young, own);
    MPI_Errhandler_free(&own);
    if (MPI_Send_c) {
        int code = MPI_Send_c(input, (MPI_Count)1 << 33, MPI_INT, rank, 1, young);
        expect(class_of(code) == MPI_ERR_COUNT && handled == 1, "too many: class %d, handled %d", class_of(code), handled);
    }
    if (MPI_Bcast_c) {
        int code = MPI_Bcast_c(input, (MPI_Count)1 << 33, MPI_INT, 0, young);
        expect(class_of(code) == MPI_ERR_COUNT && handled == 2, "too many: class %d, handled %d", class_of(code), handled);
    }
#endif
#if !HAS_PERSISTENT
    if (MPI_Barrier_init && ranks > 1) {
        MPI_Comm alone;
        MPI_Request request;
        MPI_Errhandler returns = MPI_ERRORS_RETURN;
        MPI_Comm_dup(MPI_COMM_SELF, &alone);
        MPI_Comm_set_errhandler(alone, returns);
        int code = MPI_Barrier_init(alone, MPI_INFO_NULL, &request), length;
        char text[MPI_MAX_ERROR_STRING];
        MPI_Error_string(code, text, &length);
        expect(class_of(code) == MPI_ERR_OTHER && strstr(text, "MPI_Barrier_init"), "barrier_init: %s", text);
        MPI_Comm_free(&alone);
    }
#endif
    MPI_Comm_free(&young);
    for (int i = 0; i < 9; i++) MPI_Barrier(MPI_COMM_WORLD);
    note("what is there works");
    return finish();
}

/* The end of a program that leaves things lying about: communicators, operators, types and attributes that were never freed,
 * and an attribute of MPI_COMM_SELF whose deletion, within MPI_Finalize, calls collectives and completes what is under way. */
#include "check.h"

static MPI_Request under_way, persistent;
static int early = 1, early_sum, often = 1, often_sum;

static int last_words(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    int sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Wait(&under_way, MPI_STATUS_IGNORE);
#if HAS_PERSISTENT
    MPI_Start(&persistent);
    MPI_Wait(&persistent, MPI_STATUS_IGNORE);
    MPI_Request_free(&persistent);
#else
    often_sum = ranks;
#endif
    if (rank == 0) printf("note 0 within MPI_Finalize: %d, %d, %d of %d\n", sum, early_sum, often_sum, ranks);
    fflush(stdout);
    return MPI_SUCCESS;
}

static void keep_first(void *in, void *inout, int *length, MPI_Datatype *type) {
    (void)type;
    memcpy(inout, in, (size_t)*length * sizeof(int));
}

int main(int argc, char **argv) {
    int flag = -1, key;
    MPI_Initialized(&flag);
    expect(!flag, "initialized before MPI_Init");
    start(&argc, &argv);
    MPI_Initialized(&flag);
    expect(flag, "not initialized after MPI_Init");
    for (int i = 0; i < 5; i++) {
        MPI_Comm comm;
        MPI_Op op;
        MPI_Datatype type;
        int values[2] = {rank, rank};
        MPI_Comm_split(MPI_COMM_WORLD, i % 2 ? rank % 2 : 0, rank, &comm);
        MPI_Op_create(keep_first, 0, &op);
        MPI_Type_contiguous(2, MPI_INT, &type);
        MPI_Type_commit(&type);
        for (int j = 0; j < 6; j++) MPI_Bcast(values, 1, type, 0, comm);
        MPI_Allreduce(MPI_IN_PLACE, values, 2, MPI_INT, op, comm);
        note("split %d: %d", i, values[0]);
    }
    MPI_Iallreduce(&early, &early_sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &under_way);
#if HAS_PERSISTENT
    MPI_Allreduce_init(&often, &often_sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &persistent);
#else
    (void)persistent, (void)often;
#endif
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, last_words, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, &key);
    int failed = report();
    MPI_Finalize();
    MPI_Finalized(&flag);
    free(notes);
    return failed || !flag;
}

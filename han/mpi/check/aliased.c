/* The root of a reduction gives one buffer as input and result, which MPI forbids, to an MPI that has been told not to mind: on
 * MPI_COMM_WORLD, and on a communicator that the library takes over in the middle. */
#include "check.h"

enum { COUNT = 5, ROUNDS = 10 };

static void check(const char *name, MPI_Comm comm) {
    int data[COUNT], unused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int root = round % ranks, is_root = rank == root;
        for (int i = 0; i < COUNT; i++) data[i] = element(rank, i, round);
        MPI_Request request = MPI_REQUEST_NULL;
        int code = MPI_SUCCESS;
        void *recv = is_root ? data : &unused;
        if (round % 3) code = MPI_Reduce(data, recv, COUNT, MPI_INT, MPI_SUM, root, comm);
        else code = MPI_Ireduce(data, recv, COUNT, MPI_INT, MPI_SUM, root, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(code == MPI_SUCCESS, "%s: class %d", name, class_of(code));
        for (int i = 0; i < COUNT; i++) {
            int wanted = is_root ? sum_of(ranks, i, round) : element(rank, i, round);
            expect(data[i] == wanted, "%s, round %d: %d at %d in place of %d", name, round, data[i], i, wanted);
        }
    }
    note("%s: the last has %d", name, data[COUNT - 1]);
}

int main(int argc, char **argv) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Comm comm;
    setenv("I_MPI_COMPATIBILITY", "4", 1);
    start(&argc, &argv);
    /* Others that have been told not to mind have wrong sums, or end the program when they copy the buffer to itself. */
    MPI_Get_library_version(version, &length);
    if (!strstr(version, "Intel")) return not_in_this_mpi("right results in place of an input");
    check("the world", MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    check("a duplicate", comm);
    MPI_Comm_free(&comm);
    return finish();
}

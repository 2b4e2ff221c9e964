/* Collectives between two groups: the library leaves them to the MPI, and what is merged from them is its own again. */
#include "check.h"

static int low_ranks, is_high;

static void check_collectives(MPI_Comm inter) {
    int mine, theirs, sum = -1, word = is_high ? -1 : 77;
    MPI_Comm_size(inter, &mine);
    MPI_Comm_remote_size(inter, &theirs);
    MPI_Barrier(inter);
    int one = is_high ? 100 : 1;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, inter);
    expect(sum == (is_high ? 1 : 100) * theirs, "allreduce over %d and %d gives %d", mine, theirs, sum);
    /* The first group's rank 0 is the root; its peers have no part in it. */
    int root = is_high ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    MPI_Bcast(&word, 1, MPI_INT, root, inter);
    expect(word == 77, "bcast brings %d", word);
    sum = -1;
    MPI_Reduce(&one, &sum, 1, MPI_INT, MPI_SUM, root, inter);
    expect(rank != 0 || sum == 100 * theirs, "reduce brings %d", sum);
    MPI_Request requests[2];
    int later = -1;
    MPI_Ibarrier(inter, &requests[0]);
    MPI_Iallreduce(&one, &later, 1, MPI_INT, MPI_MAX, inter, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    expect(later == (is_high ? 1 : 100), "iallreduce brings %d", later);
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    if (ranks < 2) {
        note("two groups need two ranks");
        return finish();
    }
    low_ranks = (ranks + 1) / 2;
    is_high = rank >= low_ranks;
    for (int round = 0; round < 8; round++) {
        MPI_Comm local, inter, copied, merged;
        MPI_Comm_split(MPI_COMM_WORLD, is_high, rank, &local);
        MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, is_high ? 0 : low_ranks, round, &inter);
        check_collectives(inter);
        MPI_Comm_dup(inter, &copied);
        check_collectives(copied);
        MPI_Intercomm_merge(inter, is_high, &merged);
        int sum = rank, place;
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, merged);
        MPI_Comm_rank(merged, &place);
        expect(sum == ranks * (ranks - 1) / 2 && place == rank, "merged: rank %d, sum %d", place, sum);
        MPI_Comm_free(&inter);
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_MAX, local);
        MPI_Comm_free(&merged);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Comm_free(&copied);
        MPI_Comm_free(&local);
    }
    return finish();
}

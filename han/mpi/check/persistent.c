/* Persistent collectives: made once, started often, beside others and beside persistent messages; freed unstarted, too. */
#include "check.h"

#if HAS_PERSISTENT
enum { COUNT = 300, ROUNDS = 25 };

static int input[COUNT], sums[COUNT], place[COUNT], word[COUNT], top[COUNT];

static void check_round(int round, int root) {
    for (int i = 0; i < COUNT; i++) {
        int sum = sum_of(ranks, i, round);
        expect(sums[i] == sum, "round %d: allreduce's element %d is %d", round, i, sums[i]);
        expect(place[i] == sum, "round %d: allreduce in place, element %d is %d", round, i, place[i]);
        expect(word[i] == element(root, i, round), "round %d: bcast's element %d is %d", round, i, word[i]);
        if (rank == root) expect(top[i] == sum, "round %d: reduce's element %d is %d", round, i, top[i]);
    }
}

static void check_all(MPI_Comm comm, int root) {
    MPI_Request all[6];
    int got = -1, from = (rank + ranks - 1) % ranks;
    MPI_Allreduce_init(input, sums, COUNT, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &all[0]);
    MPI_Allreduce_init(MPI_IN_PLACE, place, COUNT, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &all[1]);
    MPI_Bcast_init(word, COUNT, MPI_INT, root, comm, MPI_INFO_NULL, &all[2]);
    MPI_Reduce_init(input, top, COUNT, MPI_INT, MPI_SUM, root, comm, MPI_INFO_NULL, &all[3]);
    MPI_Barrier_init(comm, MPI_INFO_NULL, &all[4]);
    MPI_Recv_init(&got, 1, MPI_INT, from, 6, comm, &all[5]);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++) input[i] = place[i] = word[i] = element(rank, i, round);
        if (round % 3) MPI_Startall(6, all);
        else for (int i = 0; i < 6; i++) MPI_Start(&all[i]);
        MPI_Send(&round, 1, MPI_INT, (rank + 1) % ranks, 6, comm);
        if (round % 2) MPI_Waitall(6, all, MPI_STATUSES_IGNORE);
        else
            for (int i = 5; i >= 0; i--) {
                int flag = 0;
                while (!flag) MPI_Test(&all[i], &flag, MPI_STATUS_IGNORE);
            }
        check_round(round, root);
        expect(got == round, "round %d: the message is %d", round, got);
        for (int i = 0; i < 6; i++) expect(all[i] != MPI_REQUEST_NULL, "round %d has freed request %d", round, i);
    }
    for (int i = 0; i < 6; i++) MPI_Request_free(&all[i]);
    for (int i = 0; i < 6; i++) expect(all[i] == MPI_REQUEST_NULL, "request %d is not MPI_REQUEST_NULL after it was freed", i);
}

/* Whether this is Intel MPI, which takes collectives for each other if ranks start them in different orders. */
static int needs_one_order(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    return strstr(version, "Intel(R) MPI") != NULL;
}

/* Ranks start what they have made in different orders, and before or after other collectives. */
static void check_orders(MPI_Comm comm) {
    enum { MANY = 5 };
    int in[MANY], out[MANY], others = 0;
    MPI_Request many[MANY], beside;
    for (int i = 0; i < MANY; i++) {
        MPI_Allreduce_init(&in[i], &out[i], 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &many[i]);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MANY; i++) in[i] = element(rank, i, round);
        for (int i = 0; i < MANY; i++) {
            if (i == (rank + round) % (MANY + 1)) MPI_Iallreduce(&rank, &others, 1, MPI_INT, MPI_SUM, comm, &beside);
            MPI_Start(&many[(round % 2 ? MANY - 1 - i : i + rank) % MANY]);
        }
        if ((rank + round) % (MANY + 1) == MANY) MPI_Iallreduce(&rank, &others, 1, MPI_INT, MPI_SUM, comm, &beside);
        MPI_Wait(&beside, MPI_STATUS_IGNORE);
        MPI_Waitall(MANY, many, MPI_STATUSES_IGNORE);
        for (int i = 0; i < MANY; i++) {
            expect(out[i] == sum_of(ranks, i, round), "orders, round %d: the sum of request %d is %d", round, i, out[i]);
        }
        expect(others == ranks * (ranks - 1) / 2, "orders, round %d: the sum beside is %d", round, others);
        if (rank % 2) MPI_Barrier(comm);
        MPI_Start(&many[0]);
        if (rank % 2 == 0) MPI_Barrier(comm);
        MPI_Wait(&many[0], MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < MANY; i++) MPI_Request_free(&many[(i + rank) % MANY]);
}

/* Neither the communicator nor the datatype is needed any more when a request is started; Open MPI itself ends then. */
__attribute__((unused)) static void check_freed(void) {
    MPI_Comm comm;
    MPI_Datatype gaps;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Type_vector(4, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Bcast_init(word, 1, gaps, 0, comm, MPI_INFO_NULL, &request);
    MPI_Type_free(&gaps);
    MPI_Comm_free(&comm);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 8; i++) word[i] = element(rank, i, round);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < 7; i++) {
            expect(word[i] == element(i % 2 ? rank : 0, i, round), "freed, round %d: element %d is %d", round, i, word[i]);
        }
    }
    MPI_Request_free(&request);
}

int main(int argc, char **argv) {
    start(&argc, &argv);
#ifndef OMPI_MAJOR_VERSION
    check_freed();
#endif
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int root = 0; root < ranks; root++) check_all(root % 2 ? comm : MPI_COMM_WORLD, root);
    if (!needs_one_order()) {
        check_orders(comm);
        check_orders(MPI_COMM_WORLD);
    }
    /* Never started. */
    MPI_Request unused;
    MPI_Allreduce_init(input, sums, COUNT, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &unused);
    MPI_Request_free(&unused);
    MPI_Barrier(comm);
    MPI_Comm_free(&comm);
    return finish();
}
#else
int main(int argc, char **argv) {
    start(&argc, &argv);
    return not_in_this_mpi("persistent collectives");
}
#endif

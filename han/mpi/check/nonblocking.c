/* Non-blocking collectives completed in every way that MPI has, alone and mixed with point-to-point requests. */
#include "check.h"

enum { COUNT = 700, MANY = 12 };

static int inputs[MANY][COUNT], outputs[MANY][COUNT];

static void give(int which) {
    for (int i = 0; i < COUNT; i++) inputs[which][i] = element(rank, i, which), outputs[which][i] = -1;
}

/* The kinds in turn; each in its own buffers. Returns a request. */
static MPI_Request begin(int which, MPI_Comm comm) {
    MPI_Request request = MPI_REQUEST_NULL;
    int root = which % ranks;
    give(which);
    switch (which % 6) {
    case 0: MPI_Iallreduce(inputs[which], outputs[which], COUNT, MPI_INT, MPI_SUM, comm, &request); break;
    case 1: MPI_Ibcast(inputs[which], COUNT, MPI_INT, root, comm, &request); break;
    case 2: MPI_Ireduce(inputs[which], outputs[which], COUNT, MPI_INT, MPI_SUM, root, comm, &request); break;
    case 3: MPI_Ibarrier(comm, &request); break;
    case 4: MPI_Iallreduce(MPI_IN_PLACE, inputs[which], 1, MPI_INT, MPI_SUM, comm, &request); break;
    default: MPI_Irecv(outputs[which], COUNT, MPI_INT, (rank + 1) % ranks, which, comm, &request);
    }
    return request;
}

/* What a receive of `begin` waits for. */
static void send_all(MPI_Comm comm) {
    for (int which = 5; which < MANY; which += 6) MPI_Send(inputs[which], COUNT, MPI_INT, (rank + ranks - 1) % ranks, which, comm);
}

static void check(const char *how, int which) {
    int root = which % ranks, wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        int sum = sum_of(ranks, i, which);
        switch (which % 6) {
        case 0: wrong += outputs[which][i] != sum; break;
        case 1: wrong += inputs[which][i] != element(root, i, which); break;
        case 2: wrong += rank == root && outputs[which][i] != sum; break;
        case 3: break;
        case 4: wrong += inputs[which][i] != (i ? element(rank, i, which) : sum); break;
        default: wrong += outputs[which][i] != element((rank + 1) % ranks, i, which);
        }
    }
    expect(!wrong, "%s: request %d has %d wrong elements", how, which, wrong);
}

static void check_all(const char *how, const MPI_Request *requests) {
    for (int which = 0; which < MANY; which++) {
        check(how, which);
        expect(requests[which] == MPI_REQUEST_NULL, "%s: request %d is not MPI_REQUEST_NULL", how, which);
    }
}

/* A request that completed must carry the empty status of a collective, or the message's. */
static void check_status(const char *how, int which, const MPI_Status *status) {
    int count = -1;
    MPI_Get_count(status, MPI_INT, &count);
    if (which % 6 == 5) {
        expect(count == COUNT && status->MPI_TAG == which, "%s: receive %d: %d ints, tag %d", how, which, count, status->MPI_TAG);
    }
}

static int wait_each(MPI_Request *requests) {
    MPI_Status status;
    for (int i = 0; i < MANY; i++) MPI_Wait(&requests[i], &status), check_status("wait", i, &status);
    return MANY;
}

static int wait_all(MPI_Request *requests) {
    MPI_Status statuses[MANY];
    MPI_Waitall(MANY, requests, statuses);
    for (int i = 0; i < MANY; i++) check_status("waitall", i, &statuses[i]);
    return MANY;
}

static int wait_any(MPI_Request *requests) {
    int completed = 0, which;
    MPI_Status status;
    for (;; completed++) {
        MPI_Waitany(MANY, requests, &which, &status);
        if (which == MPI_UNDEFINED) return completed;
        check_status("waitany", which, &status);
    }
}

static int wait_some(MPI_Request *requests) {
    int completed = 0, count, indices[MANY];
    MPI_Status statuses[MANY];
    for (;; completed += count) {
        MPI_Waitsome(MANY, requests, &count, indices, statuses);
        if (count == MPI_UNDEFINED) return completed;
        for (int i = 0; i < count; i++) check_status("waitsome", indices[i], &statuses[i]);
    }
}

static int test_each(MPI_Request *requests) {
    int completed = 0, flag;
    while (completed < MANY)
        for (int i = 0; i < MANY; i++) {
            if (requests[i] == MPI_REQUEST_NULL) continue;
            MPI_Test(&requests[i], &flag, MPI_STATUS_IGNORE);
            completed += flag;
        }
    return completed;
}

static int test_all(MPI_Request *requests) {
    int flag = 0;
    while (!flag) MPI_Testall(MANY, requests, &flag, MPI_STATUSES_IGNORE);
    return MANY;
}

static int test_any(MPI_Request *requests) {
    int completed = 0, flag, which;
    for (;;) {
        MPI_Testany(MANY, requests, &which, &flag, MPI_STATUS_IGNORE);
        if (flag && which == MPI_UNDEFINED) return completed;
        completed += flag;
    }
}

static int test_some(MPI_Request *requests) {
    int completed = 0, count, indices[MANY];
    for (;; completed += count) {
        MPI_Testsome(MANY, requests, &count, indices, MPI_STATUSES_IGNORE);
        if (count == MPI_UNDEFINED) return completed;
    }
}

/* A status that is asked for leaves the request alone, and makes progress. */
static int get_status(MPI_Request *requests) {
    for (int i = 0; i < MANY; i++) {
        int flag = 0;
        while (!flag) MPI_Request_get_status(requests[i], &flag, MPI_STATUS_IGNORE);
        expect(requests[i] != MPI_REQUEST_NULL, "request_get_status has freed request %d", i);
    }
    return wait_all(requests);
}

static void check_ways(MPI_Comm comm) {
    static const struct { const char *name; int (*complete)(MPI_Request *); } ways[] = {
        {"wait", wait_each}, {"waitall", wait_all}, {"waitany", wait_any}, {"waitsome", wait_some}, {"test", test_each},
        {"testall", test_all}, {"testany", test_any}, {"testsome", test_some}, {"get_status", get_status},
    };
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        MPI_Request requests[MANY];
        for (int i = 0; i < MANY; i++) requests[i] = begin(i, comm);
        send_all(comm);
        int completed = ways[w].complete(requests);
        expect(completed == MANY, "%s: %d completed", ways[w].name, completed);
        check_all(ways[w].name, requests);
    }
}

/* Blocking collectives and messages between the beginning and the end; completion in another order. */
static void check_overtaking(MPI_Comm comm) {
    MPI_Request requests[3];
    int sum = 1, word = rank ? -1 : 12, one = 1, total = 0;
    MPI_Iallreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm, &requests[0]);
    MPI_Ibcast(&word, 1, MPI_INT, 0, comm, &requests[1]);
    MPI_Ibarrier(comm, &requests[2]);
    MPI_Allreduce(&one, &total, 1, MPI_INT, MPI_SUM, comm);
    expect(total == ranks, "a blocking call among others gives %d", total);
    MPI_Sendrecv_replace(&one, 1, MPI_INT, (rank + 1) % ranks, 3, (rank + ranks - 1) % ranks, 3, comm, MPI_STATUS_IGNORE);
    for (int i = 2; i >= 0; i--) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    expect(sum == ranks && word == 12, "completed backwards: %d %d", sum, word);
}

/* Nobody is in the library while the others need him: the barrier that he has begun must not need more of him than the
 * messages that he waits for. */
static void check_progress(MPI_Comm comm) {
    MPI_Request request;
    int flag = 0, polls = 0, got = -1;
    MPI_Ibarrier(comm, &request);
    if (rank == 0 && ranks > 1) MPI_Recv(&got, 1, MPI_INT, 1, 8, comm, MPI_STATUS_IGNORE);
    for (; !flag; polls++) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(&rank, 1, MPI_INT, 0, 8, comm);
    expect(rank || ranks == 1 || got == 1, "the message after the barrier: %d", got);
}

#ifndef OPEN_MPI
/* The communicator is freed while the operation is under way; Open MPI 5 crashes. */
static void check_early_free(void) {
    MPI_Comm comm;
    MPI_Request request;
    int sum = rank;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Iallreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Comm_free(&comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(sum == ranks * (ranks - 1) / 2, "the freed communicator's sum is %d", sum);
}
#endif

#if defined MPICH_NUMVERSION && MPICH_NUMVERSION >= 40200000
/* MPICH's own ways to go on, and to look at a request. */
static void check_extensions(void) {
    for (int round = 0; round < 20; round++) {
        MPI_Request request;
        int sum = rank;
        MPI_Iallreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        while (!MPIX_Request_is_complete(request)) {
            if (round % 2 == 0) MPIX_Stream_progress(MPIX_STREAM_NULL);
            else MPI_Iprobe(MPI_ANY_SOURCE, 98, MPI_COMM_WORLD, &(int){0}, MPI_STATUS_IGNORE);
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(sum == ranks * (ranks - 1) / 2, "the sum is %d", sum);
    }
}
#endif

int main(int argc, char **argv) {
    start(&argc, &argv);
    MPI_Comm reversed;
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &reversed);
    for (int round = 0; round < 3; round++) {
        check_ways(MPI_COMM_WORLD);
        check_ways(reversed);
        check_overtaking(reversed);
        check_progress(MPI_COMM_WORLD);
        #ifndef OPEN_MPI
        check_early_free();
#endif
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION >= 40200000
        check_extensions();
#endif
    }
    MPI_Comm_free(&reversed);
    return finish();
}

/* MPI_THREAD_MULTIPLE: a thread is in a call that waits when another begins a collective and waits for the first. MPI
 * promises that the collective goes on; the others send what the first thread waits for when it is over for them. */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

enum { LONG = 200000, SHORT = 50, TAG = 5 };

static int ours[SHORT], theirs[64 * SHORT];
static MPI_Comm other; /* of the threads */

/* ---- what rank 0 waits in, and what the others do --------------------------------------------------- */

static void receive(void) { MPI_Recv(theirs, SHORT, MPI_INT, 1, TAG, other, MPI_STATUS_IGNORE); }

static void wait_for_one(void) {
    MPI_Request request;
    MPI_Irecv(theirs, SHORT, MPI_INT, 1, TAG, other, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void wait_for_all(void) {
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Irecv(theirs, SHORT, MPI_INT, 1, TAG, other, requests);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void wait_for_any(void) {
    int index = -1;
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Irecv(theirs, SHORT, MPI_INT, 1, TAG, other, requests + 1);
    MPI_Waitany(2, requests, &index, MPI_STATUS_IGNORE);
    expect(index == 1, "index %d", index);
}

static void wait_for_some(void) {
    int completed = -1, indices[2];
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Irecv(theirs, SHORT, MPI_INT, 1, TAG, other, requests + 1);
    MPI_Waitsome(2, requests, &completed, indices, MPI_STATUSES_IGNORE);
    expect(completed == 1, "%d have completed", completed);
}

static void probe(void) {
    MPI_Probe(1, TAG, other, MPI_STATUS_IGNORE);
    receive();
}

static void match(void) {
    MPI_Message message;
    MPI_Mprobe(1, TAG, other, &message, MPI_STATUS_IGNORE);
    MPI_Mrecv(theirs, SHORT, MPI_INT, &message, MPI_STATUS_IGNORE);
}

static void send(void) {
    if (rank == 1) MPI_Send(ours, SHORT, MPI_INT, 0, TAG, other);
}

static void synchronous(void) {
    if (rank == 0) MPI_Ssend(ours, SHORT, MPI_INT, 1, TAG, other);
    if (rank == 1) MPI_Recv(theirs, SHORT, MPI_INT, 0, TAG, other, MPI_STATUS_IGNORE);
}

static void both(void) {
    int peer = rank < 2 ? 1 - rank : MPI_PROC_NULL;
    MPI_Sendrecv(ours, SHORT, MPI_INT, peer, TAG, theirs, SHORT, MPI_INT, peer, TAG, other, MPI_STATUS_IGNORE);
}

static void gather(void) { MPI_Gather(ours, SHORT, MPI_INT, theirs, SHORT, MPI_INT, 0, other); }
static void barrier(void) { MPI_Barrier(other); }

static void *in_a_thread(void *argument) {
    ((void (*)(void))argument)();
    return NULL;
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*first)(void); void (*others)(void); } calls[] = {
        {"recv", receive, send}, {"wait", wait_for_one, send}, {"waitall", wait_for_all, send},
        {"waitany", wait_for_any, send}, {"waitsome", wait_for_some, send}, {"probe", probe, send},
        {"mprobe", match, send}, {"ssend", synchronous, synchronous}, {"sendrecv", both, both},
        {"gather", gather, gather}, {"barrier", barrier, barrier},
    };
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    know_ranks();
    if (provided < MPI_THREAD_MULTIPLE) return not_in_this_mpi("MPI_THREAD_MULTIPLE");
    int *numbers = malloc(LONG * sizeof *numbers), *sums = malloc(LONG * sizeof *sums);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    for (size_t i = 0; ranks > 1 && i < sizeof calls / sizeof *calls; i++) {
        MPI_Request request;
        pthread_t thread;
        int wrong = 0;
        for (int k = 0; k < LONG; k++) numbers[k] = element(rank, k % 1000, (int)i);
        if (rank == 0) {
            if (pthread_create(&thread, NULL, in_a_thread, (void *)calls[i].first)) abort();
            usleep(20000);
        }
        MPI_Iallreduce(numbers, sums, LONG, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        if (rank == 0) pthread_join(thread, NULL);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank) calls[i].others();
        for (int k = 0; k < LONG; k++) wrong += sums[k] != sum_of(ranks, k % 1000, (int)i);
        expect(!wrong, "%s: %d sums are wrong", calls[i].name, wrong);
        note("%s", calls[i].name);
    }
    MPI_Comm_free(&other);
    free(sums);
    free(numbers);
    return finish();
}

/* A rank whose part in collectives was to send is far ahead of one that receives, and waits in the MPI for it: what it has sent goes
 * on its way all the same. Over nodes the network may have no room for all of it at first. */
#include "check.h"
#include <unistd.h>

enum { BYTES = 64, ROUNDS = 1000, FIRST = 10 };

static unsigned char bytes[BYTES];
static int is_early; /* else this rank is late */

/* Two ranks, one of each half: others each time, or the other way round, as connections have more room when they have been used. */
static MPI_Comm pair(int way) {
    int half = ranks / 2, lower = way % half, upper = half + (way / half + way) % half, turned = way / half / half % 2;
    MPI_Comm comm;
    is_early = rank == (turned ? upper : lower);
    MPI_Comm_split(MPI_COMM_WORLD, rank == lower || rank == upper ? 1 : MPI_UNDEFINED, !is_early, &comm);
    return comm;
}

/* Bcasts from the early rank, the first ones together; how many of them are wrong. The request, if any, is one's that is over early. */
static int bcasts(MPI_Comm comm, int *word, MPI_Request *request) {
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        if (round == FIRST && request) MPI_Ibcast(word, 1, MPI_INT, 0, comm, request);
        if (round == FIRST && !is_early) usleep(700000);
        memset(bytes, is_early ? round % 251 : 255, BYTES);
        MPI_Bcast(bytes, BYTES, MPI_BYTE, 0, comm);
        wrong += bytes[0] != round % 251 || bytes[BYTES - 1] != round % 251;
    }
    return wrong;
}

/* In a receive, or in tests. */
static void wait_for_message(MPI_Comm comm, int tests) {
    int got = -1, flag = 0;
    MPI_Request request;
    if (!is_early) {
        MPI_Send(&tests, 1, MPI_INT, 0, 1, comm);
        return;
    }
    if (tests) {
        MPI_Irecv(&got, 1, MPI_INT, 1, 1, comm, &request);
        while (!flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&got, 1, MPI_INT, 1, 1, comm, MPI_STATUS_IGNORE);
    }
    expect(got == tests, "%d has come", got);
}

/* In what ranks do together to make a persistent collective. */
static void make_persistent(MPI_Comm comm) {
#if HAS_PERSISTENT
    MPI_Request request;
    MPI_Bcast_init(bytes, BYTES, MPI_BYTE, 0, comm, MPI_INFO_NULL, &request);
    MPI_Request_free(&request);
#else
    (void)comm;
#endif
}

/* In another collective. */
static void wait_in_allgather(MPI_Comm comm) {
    int all[2], own = is_early;
    MPI_Allgather(&own, 1, MPI_INT, all, 1, MPI_INT, comm);
    expect(all[0] == 1 && all[1] == 0, "%d and %d have come", all[0], all[1]);
}

/* Takes a provider that keeps what it has no room for; with Intel MPI's own libfabric there is none. */
static void choose_provider(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    if (!strstr(version, "Intel(R) MPI")) setenv("HAN_PROVIDER", "tcp;ofi_rxm", 0);
}

int main(int argc, char **argv) {
    int wrong = 0, failed, word;
    MPI_Comm comm;
    choose_provider();
    start(&argc, &argv);
    for (int way = 0; way < 4 && ranks > 1; way++) {
        comm = pair(way);
        if (comm == MPI_COMM_NULL) continue;
        MPI_Request request = MPI_REQUEST_NULL;
        word = is_early ? way : -1;
        wrong += bcasts(comm, &word, way == 3 ? &request : NULL);
        if (way < 2) wait_for_message(comm, way);
        else if (way == 2) make_persistent(comm);
        else wait_in_allgather(comm);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(way < 3 || word == way, "%d has come", word);
        MPI_Comm_free(&comm);
    }
    expect(!wrong, "%d bcasts are wrong", wrong);
    comm = ranks > 1 ? pair(4) : MPI_COMM_NULL;
    failed = report();
    if (comm != MPI_COMM_NULL) bcasts(comm, NULL, NULL); /* and wait in MPI_Finalize */
    MPI_Finalize();
    free(notes);
    return failed;
}

/* A rank waits in some call of the MPI while it has a collective under way that others wait for: MPI promises that it goes
 * on. And ranks for which the collective is over meet, in the same call, ranks for which it is not. Without that these
 * programs never end. */
#include "check.h"
#include <unistd.h>

enum { LONG = 200000, SHORT = 50 };

static int *numbers, *sums;
static int ours[SHORT], theirs[64 * SHORT];
static char path[64];

static int next(void) { return (rank + 1) % ranks; }
static int previous(void) { return (rank + ranks - 1) % ranks; }

/* ---- the calls ------------------------------------------------------------------------------------ */

static MPI_Comm young; /* the MPI's: it has too few calls */

static void barrier(void) { MPI_Barrier(young); }
static void bcast(void) { MPI_Bcast(ours, SHORT, MPI_INT, 0, young); }
static void reduce(void) { MPI_Allreduce(ours, theirs, SHORT, MPI_INT, MPI_SUM, young); }
static void gather(void) { MPI_Gather(ours, SHORT, MPI_INT, theirs, SHORT, MPI_INT, 0, MPI_COMM_WORLD); }
static void scatter(void) { MPI_Scatter(theirs, SHORT, MPI_INT, ours, SHORT, MPI_INT, 0, MPI_COMM_WORLD); }
static void allgather(void) { MPI_Allgather(ours, SHORT, MPI_INT, theirs, SHORT, MPI_INT, MPI_COMM_WORLD); }
static void alltoall(void) { MPI_Alltoall(theirs, 1, MPI_INT, ours, 1, MPI_INT, MPI_COMM_WORLD); }
static void scan(void) { MPI_Scan(ours, theirs, SHORT, MPI_INT, MPI_SUM, MPI_COMM_WORLD); }
static void reduce_scatter(void) {
    MPI_Reduce_scatter_block(theirs, ours, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void neighbors(void) {
    MPI_Comm ring;
    int periodic = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &ranks, &periodic, 0, &ring);
    MPI_Neighbor_allgather(ours, SHORT, MPI_INT, theirs, SHORT, MPI_INT, ring);
    MPI_Comm_free(&ring);
}

static void duplicate(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_free(&comm);
}

static void split(void) {
    MPI_Comm half, group, both, merged;
    MPI_Group everybody;
    int is_low = rank < ranks / 2;
    MPI_Comm_split(MPI_COMM_WORLD, is_low, rank, &half);
    MPI_Comm_group(MPI_COMM_WORLD, &everybody);
    MPI_Comm_create_group(MPI_COMM_WORLD, everybody, 5, &group);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, is_low ? ranks / 2 : 0, 6, &both);
    MPI_Intercomm_merge(both, !is_low, &merged);
    MPI_Comm_free(&merged);
    MPI_Comm_free(&both);
    MPI_Comm_free(&group);
    MPI_Comm_free(&half);
    MPI_Group_free(&everybody);
}

static void window(void) {
    MPI_Win win;
    MPI_Win_create(theirs, sizeof theirs, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    MPI_Put(ours, 1, MPI_INT, next(), 0, 1, MPI_INT, win);
    MPI_Win_fence(0, win);
    MPI_Win_free(&win);
}

static void file(void) {
    MPI_File file;
    MPI_Status status;
    int code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE,
                             MPI_INFO_NULL, &file);
    expect(code == MPI_SUCCESS, "the file opens with class %d", class_of(code));
    if (code != MPI_SUCCESS) return;
    MPI_File_write_at_all(file, (MPI_Offset)(rank * sizeof ours), ours, SHORT, MPI_INT, &status);
    MPI_File_read_at_all(file, (MPI_Offset)(rank * sizeof ours), theirs, SHORT, MPI_INT, &status);
    expect(!memcmp(ours, theirs, sizeof ours), "what was written is not what is read");
    MPI_File_close(&file);
}

/* Messages: the others send when the collective is over for them. */
static void receive(void) {
    if (rank == 0) {
        for (int from = 1; from < ranks; from++) MPI_Recv(theirs, SHORT, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Ssend(ours, SHORT, MPI_INT, 0, 1, MPI_COMM_WORLD);
    }
}

static void probe(void) {
    MPI_Status status;
    MPI_Message message;
    if (rank == 0) {
        for (int turn = 0; turn < ranks - 1; turn++) {
            int is_there = 0;
            switch (turn % 4) {
            case 0: MPI_Probe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &status); break;
            case 1: while (!is_there) MPI_Iprobe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &is_there, &status); break;
            case 2: MPI_Mprobe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &message, &status); break;
            default: while (!is_there) MPI_Improbe(MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, &is_there, &message, &status);
            }
            if (turn % 4 >= 2) MPI_Mrecv(theirs, SHORT, MPI_INT, &message, &status);
            else MPI_Recv(theirs, SHORT, MPI_INT, status.MPI_SOURCE, 2, MPI_COMM_WORLD, &status);
        }
    } else {
        MPI_Send(ours, SHORT, MPI_INT, 0, 2, MPI_COMM_WORLD);
    }
}

static void replace(void) {
    MPI_Sendrecv_replace(ours, SHORT, MPI_INT, next(), 3, previous(), 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void exchange(void) {
    MPI_Sendrecv(ours, SHORT, MPI_INT, next(), 4, theirs, SHORT, MPI_INT, previous(), 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

#if HAS_LARGE_COUNTS
static void large(void) {
    MPI_Sendrecv_c(ours, SHORT, MPI_INT, next(), 4, theirs, SHORT, MPI_INT, previous(), 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allgather_c(ours, SHORT, MPI_INT, theirs, SHORT, MPI_INT, MPI_COMM_WORLD);
}
#endif

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
/* Buffered messages that are longer than the MPI sends on its own: emptying the buffer waits for who receives them. */
enum { BUFFERED = 300000 };

static void buffered(int way) {
    static int sent[BUFFERED], received[BUFFERED];
    int next_one = next(), bytes = (int)sizeof sent + MPI_BSEND_OVERHEAD;
    void *buffer, *back;
    if (rank == 0) {
        int size;
        buffer = malloc((size_t)bytes);
        if (way < 2) MPI_Buffer_attach(buffer, bytes);
        else MPI_Comm_attach_buffer(MPI_COMM_WORLD, buffer, bytes);
        MPI_Bsend(sent, BUFFERED, MPI_INT, next_one, 8, MPI_COMM_WORLD);
        if (way == 0) MPI_Buffer_flush();
        if (way == 2) MPI_Comm_flush_buffer(MPI_COMM_WORLD);
        if (way < 2) MPI_Buffer_detach(&back, &size);
        else MPI_Comm_detach_buffer(MPI_COMM_WORLD, &back, &size);
        expect(back == buffer && size == bytes, "a buffer of %d bytes comes back", size);
        free(buffer);
    } else if (rank == 1) {
        MPI_Recv(received, BUFFERED, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void flush(void) { buffered(0); }
static void detach(void) { buffered(1); }
static void flush_own(void) { buffered(2); }
static void detach_own(void) { buffered(3); }
#endif

/* ---- who is in the collective when ---------------------------------------------------------------- */

static void begin(MPI_Comm comm, MPI_Request requests[2], int is_second) {
    requests[0] = MPI_REQUEST_NULL;
    /* It is over long before the other one, and nobody asks. */
    if (is_second) MPI_Ibarrier(comm, &requests[0]);
    for (int i = 0; i < LONG; i++) numbers[i] = element(rank, i % 1000, 0);
    MPI_Iallreduce(numbers, sums, LONG, MPI_INT, MPI_SUM, comm, &requests[1]);
}

static void end(const char *name, MPI_Request requests[2]) {
    int wrong = 0;
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < LONG; i++) wrong += sums[i] != sum_of(ranks, i % 1000, 0);
    expect(!wrong, "%s: %d sums are wrong", name, wrong);
    memset(sums, 0, LONG * sizeof *sums);
}

/* Rank `late` has the collective under way in the call, the others have it behind them, or the other way round; as the only
 * one, or behind another. */
static void meet(const char *name, void (*call)(void), int late, int is_late, int is_second) {
    MPI_Request requests[2];
    for (int i = 0; i < SHORT; i++) ours[i] = element(rank, i, 1);
    begin(MPI_COMM_WORLD, requests, is_second);
    if ((rank == late) == is_late) {
        call();
        end(name, requests);
    } else {
        end(name, requests);
        call();
    }
}

int main(int argc, char **argv) {
    static const struct { const char *name; void (*call)(void); int is_local; } calls[] = {
        {"barrier", barrier, 0}, {"bcast", bcast, 0}, {"allreduce", reduce, 0}, {"gather", gather, 0},
        {"scatter", scatter, 0}, {"allgather", allgather, 0}, {"alltoall", alltoall, 0}, {"scan", scan, 0},
        {"reduce_scatter", reduce_scatter, 0}, {"neighbors", neighbors, 0}, {"dup", duplicate, 0}, {"split", split, 0},
        {"window", window, 0}, {"file", file, 0}, {"recv", receive, 1}, {"probe", probe, 1}, {"replace", replace, 0},
        {"sendrecv", exchange, 0},
#if HAS_LARGE_COUNTS
        {"large", large, 0},
#endif
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
        {"flush", flush, 1}, {"detach", detach, 1}, {"flush of a communicator", flush_own, 1},
        {"detach of a communicator", detach_own, 1},
#endif
    };
    start(&argc, &argv);
    if (ranks < 2) {
        note("waiting for others needs two ranks");
        return finish();
    }
    numbers = malloc(LONG * sizeof *numbers);
    sums = calloc(LONG, sizeof *sums);
    int maker = (int)getpid();
    MPI_Bcast(&maker, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(path, sizeof path, "/tmp/han-check-pending-%d", maker);
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &young);
        for (int is_second = 0; is_second < 2; is_second++) {
            for (int is_late = 1; is_late >= 0; is_late--) {
                meet(calls[c].name, calls[c].call, 0, is_late, is_second);
                if (!calls[c].is_local) meet(calls[c].name, calls[c].call, ranks - 1, is_late, is_second);
            }
        }
        MPI_Comm_free(&young);
        note("%s", calls[c].name);
    }
    free(numbers);
    free(sums);
    return finish();
}

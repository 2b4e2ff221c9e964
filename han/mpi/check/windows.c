/* A rank puts into windows, gets from them and combines with them while it has a collective under way. Where windows are posted for
 * that, the others do so when the collective is over for them: without its progress the program never ends. */
#include "check.h"

enum { LONG = 200000, WINDOW = 100000 };

static int *numbers, *sums, *window, *got;
static MPI_Win win;

/* ---- what rank 0 does to the windows of the others -------------------------------------------------- */

static void put(void) {
    for (int to = 1; to < ranks; to++) MPI_Put(numbers, WINDOW, MPI_INT, to, 0, WINDOW, MPI_INT, win);
}

static void get(void) { MPI_Get(got, WINDOW, MPI_INT, ranks - 1, 0, WINDOW, MPI_INT, win); }

static void accumulate(void) {
    for (int to = 1; to < ranks; to++) MPI_Accumulate(numbers, WINDOW, MPI_INT, to, 0, WINDOW, MPI_INT, MPI_SUM, win);
}

static void get_accumulate(void) {
    MPI_Get_accumulate(numbers, WINDOW, MPI_INT, got, WINDOW, MPI_INT, 1, 0, WINDOW, MPI_INT, MPI_SUM, win);
}

static void fetch(void) {
    MPI_Fetch_and_op(&numbers[1], &got[1], MPI_INT, 1, 1, MPI_SUM, win);
    MPI_Compare_and_swap(&numbers[2], &numbers[3], &got[2], MPI_INT, 1, 2, win);
}

#if HAS_LARGE_COUNTS
static void large(void) {
    MPI_Put_c(numbers, WINDOW / 2, MPI_INT, 1, 0, WINDOW / 2, MPI_INT, win);
    MPI_Get_c(got, WINDOW / 4, MPI_INT, 1, WINDOW / 2, WINDOW / 4, MPI_INT, win);
    MPI_Accumulate_c(numbers, 5, MPI_INT, ranks - 1, WINDOW - 5, 5, MPI_INT, MPI_SUM, win);
}
#endif

/* The forms with requests, which are for windows that are locked. */
static void locked(void) {
    MPI_Request requests[4];
    MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, win);
    MPI_Rput(numbers, 100, MPI_INT, 1, 0, 100, MPI_INT, win, &requests[0]);
    MPI_Raccumulate(numbers, 100, MPI_INT, 1, 100, 100, MPI_INT, MPI_SUM, win, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Win_flush(1, win);
    MPI_Rget(got, 100, MPI_INT, 1, 0, 100, MPI_INT, win, &requests[2]);
    MPI_Rget_accumulate(numbers, 99, MPI_INT, got + 100, 99, MPI_INT, 1, 200, 99, MPI_INT, MPI_SUM, win, &requests[3]);
    MPI_Waitall(2, requests + 2, MPI_STATUSES_IGNORE);
#if HAS_LARGE_COUNTS
    MPI_Rput_c(numbers, 100, MPI_INT, 1, 300, 100, MPI_INT, win, &requests[0]);
    MPI_Raccumulate_c(numbers, 100, MPI_INT, 1, 400, 100, MPI_INT, MPI_SUM, win, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Win_flush(1, win);
    MPI_Rget_c(got + 200, 100, MPI_INT, 1, 300, 100, MPI_INT, win, &requests[2]);
    MPI_Rget_accumulate_c(numbers, 99, MPI_INT, got + 300, 99, MPI_INT, 1, 500, 99, MPI_INT, MPI_SUM, win, &requests[3]);
    MPI_Waitall(2, requests + 2, MPI_STATUSES_IGNORE);
    MPI_Get_accumulate_c(numbers, 99, MPI_INT, got + 400, 99, MPI_INT, 1, 600, 99, MPI_INT, MPI_SUM, win);
#endif
    MPI_Win_unlock(1, win);
}

/* ---- who is where when ------------------------------------------------------------------------------ */

static void touch(void (*call)(void)) {
    static const int zero = 0;
    MPI_Group all, group;
    MPI_Win_get_group(win, &all);
    if (rank == 0) {
        MPI_Group_excl(all, 1, &zero, &group);
        MPI_Win_start(group, 0, win);
        call();
        MPI_Win_complete(win);
    } else {
        MPI_Group_incl(all, 1, &zero, &group);
        MPI_Win_post(group, 0, win);
        MPI_Win_wait(win);
    }
    MPI_Group_free(&group);
    MPI_Group_free(&all);
}

static void check(const char *name, void (*call)(void), int is_posted, int seed) {
    MPI_Request request;
    int wrong = 0;
    for (int i = 0; i < LONG; i++) numbers[i] = element(rank, i % 1000, seed);
    MPI_Iallreduce(numbers, sums, LONG, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    if (rank == 0 && is_posted) touch(call);
    if (rank == 0 && !is_posted) call();
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank != 0 && is_posted) touch(call);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < LONG; i++) wrong += sums[i] != sum_of(ranks, i % 1000, seed);
    expect(!wrong, "%s: %d sums are wrong", name, wrong);
    uint64_t windows = digest(DIGEST_START, window, WINDOW * sizeof *window);
    note("%s: %016lx %016lx", name, (unsigned long)windows, (unsigned long)digest(DIGEST_START, got, WINDOW * sizeof *got));
}

/* MPICH itself goes on with nothing else while it waits for a window to be posted. */
static int is_mpich(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    return strstr(version, "MPICH Version") != NULL;
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    numbers = malloc(LONG * sizeof *numbers);
    sums = calloc(LONG, sizeof *sums);
    window = calloc(WINDOW, sizeof *window);
    got = calloc(WINDOW, sizeof *got);
    MPI_Win_create(window, WINDOW * sizeof *window, sizeof *window, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    if (ranks > 1) check("locked", locked, 0, 1);
    if (ranks > 1 && !is_mpich()) {
        check("put", put, 1, 2);
        check("get", get, 1, 3);
        check("accumulate", accumulate, 1, 4);
        check("get_accumulate", get_accumulate, 1, 5);
        check("fetch", fetch, 1, 6);
#if HAS_LARGE_COUNTS
        check("large", large, 1, 7);
#endif
    }
    MPI_Win_free(&win);
    free(got);
    free(window);
    free(sums);
    free(numbers);
    return finish();
}

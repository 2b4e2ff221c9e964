/* mpibench: what `han bench` measures, measured the same way in any MPI.
 *
 *   mpibench COLL[,COLL...] MIN MAX FACTOR REPEATS MS STYLE
 *
 *   COLL    barrier, bcast, reduce, allreduce: of floats, sum, root 0
 *   MIN..MAX bytes, MIN and then the powers of FACTOR above it
 *   STYLE   loop: one operation after the other, the loop is timed
 *           osu:  a barrier before each, only the operation is timed
 *           cold: as osu, and the send buffer is rewritten before each, outside the timed part
 *
 * One repeat lasts about MS milliseconds; its time is the slowest rank's per operation. Results are
 * compared with an independent computation before the clock starts and after every repeat, on every
 * rank, with other contents each time. One JSON object a line, named as those of `han bench --json`.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum collective { BARRIER, BCAST, REDUCE, ALLREDUCE, COLLECTIVES };
static const char *const collective_names[COLLECTIVES] = {"barrier", "bcast", "reduce", "allreduce"};
enum style { LOOP, OSU, COLD, STYLES };
static const char *const style_names[STYLES] = {"loop", "osu", "cold"};

#define PERIOD 8191 /* a prime: pieces that land in a wrong place are found */
#define LEAST_ITERATIONS 3
#define MOST_ITERATIONS 1000000
#define ROOT 0

static int rank, ranks;
static enum style style;
static float *send_buffer, *receive_buffer;
/* per seed: what this rank contributes, and what must come out */
static float input[2][PERIOD], output[2][PERIOD];

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Small integers: sums over all ranks are exact in a float whatever their order. */
static float contribution(int from, long index, int seed) {
    unsigned mixed = (unsigned)index * 2654435761u ^ (unsigned)from * 40503u ^ (unsigned)(seed + 1) * 97u;
    mixed ^= mixed >> 15;
    mixed *= 2246822519u;
    return (float)((mixed >> 20) % 32);
}

static void make_patterns(enum collective collective) {
    for (int seed = 0; seed < 2; seed++)
        for (long i = 0; i < PERIOD; i++) {
            input[seed][i] = contribution(rank, i, seed);
            output[seed][i] = 0;
            for (int from = 0; from < ranks; from++)
                if (collective != BCAST || from == ROOT) output[seed][i] += contribution(from, i, seed);
        }
}

static void fill(float *buffer, const float *pattern, long count) {
    for (long i = 0; i < count; i += PERIOD)
        memcpy(buffer + i, pattern, sizeof(float) * (size_t)(count - i < PERIOD ? count - i : PERIOD));
}

static int matches(const float *buffer, const float *pattern, long count) {
    for (long i = 0; i < count; i += PERIOD)
        if (memcmp(buffer + i, pattern, sizeof(float) * (size_t)(count - i < PERIOD ? count - i : PERIOD))) return 0;
    return 1;
}

static int gives(enum collective collective) { return collective != BCAST || rank == ROOT; }

/* What this rank gives; and, where it receives, what is wrong in every element. */
static void prepare(enum collective collective, long count, int seed) {
    if (gives(collective)) fill(send_buffer, input[seed], count);
    else for (long i = 0; i < count; i++) send_buffer[i] = -1;
    for (long i = 0; i < count; i++) receive_buffer[i] = -1;
}

static int is_right(enum collective collective, long count, int seed) {
    if (collective == BARRIER || (collective == REDUCE && rank != ROOT)) return 1;
    return matches(collective == BCAST ? send_buffer : receive_buffer, output[seed], count);
}

static inline void call(enum collective collective, int count) {
    switch (collective) {
    case BARRIER: MPI_Barrier(MPI_COMM_WORLD); break;
    case BCAST: MPI_Bcast(send_buffer, count, MPI_FLOAT, ROOT, MPI_COMM_WORLD); break;
    case REDUCE: MPI_Reduce(send_buffer, receive_buffer, count, MPI_FLOAT, MPI_SUM, ROOT, MPI_COMM_WORLD); break;
    default: MPI_Allreduce(send_buffer, receive_buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); break;
    }
}

/* Seconds that this rank spent in `iterations` operations. */
static double repeat(enum collective collective, long count, long iterations) {
    MPI_Barrier(MPI_COMM_WORLD);
    double start = seconds(), spent = 0;
    for (long i = 0; i < iterations; i++) {
        if (style == LOOP) {
            call(collective, (int)count);
            continue;
        }
        if (style == COLD && gives(collective)) fill(send_buffer, input[i % 2], count);
        MPI_Barrier(MPI_COMM_WORLD);
        double before = seconds();
        call(collective, (int)count);
        spent += seconds() - before;
    }
    return style == LOOP ? seconds() - start : spent;
}

static double slowest(double value) {
    double result;
    MPI_Allreduce(&value, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return result;
}

/* Seconds that a repeat takes with all its barriers and rewriting, on the slowest rank. */
static double whole_repeat(enum collective collective, long count, long iterations) {
    double start = seconds();
    repeat(collective, count, iterations);
    return slowest(seconds() - start);
}

/* How many iterations make a repeat of the wanted time; the same number on every rank. */
static long calibrate(enum collective collective, long count, double wanted) {
    for (long iterations = 1;; iterations *= 4) {
        /* The better of two, so that one disturbance does not end the search. */
        double spent = whole_repeat(collective, count, iterations), again = whole_repeat(collective, count, iterations);
        if (again < spent) spent = again;
        if (spent > wanted / 4 || iterations >= MOST_ITERATIONS) {
            double fitting = wanted / spent * (double)iterations;
            if (fitting < LEAST_ITERATIONS) return LEAST_ITERATIONS;
            return fitting > MOST_ITERATIONS ? MOST_ITERATIONS : (long)fitting;
        }
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(enum collective collective, long count, int repeats, double wanted) {
    int right = 1;
    for (int seed = 0; seed < 2; seed++) {
        prepare(collective, count, seed);
        call(collective, (int)count);
        right &= is_right(collective, count, seed);
    }
    long iterations = calibrate(collective, count, wanted);
    double *times = malloc(sizeof(double) * (size_t)repeats);
    if (!times) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int r = 0; r < repeats; r++) {
        prepare(collective, count, r % 2);
        times[r] = slowest(repeat(collective, count, iterations) / (double)iterations) * 1e6;
        right &= is_right(collective, count, style == COLD ? (int)((iterations - 1) % 2) : r % 2);
    }
    int all_right;
    MPI_Allreduce(&right, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    qsort(times, (size_t)repeats, sizeof(double), ascending);
    if (rank == 0) {
        printf("{\"coll\":\"%s\",\"bytes\":%ld,\"ranks\":%d,\"style\":\"%s\",\"iters\":%ld,\"repeats\":%d,"
               "\"us_min\":%.4f,\"us_median\":%.4f,\"us_max\":%.4f,\"verified\":%s}\n",
               collective_names[collective], count * (long)sizeof(float), ranks, style_names[style], iterations,
               repeats, times[0], times[repeats / 2], times[repeats - 1], all_right ? "true" : "false");
        fflush(stdout);
    }
    free(times);
}

/* The index of `word` in `names`; ends the program if it is not there. */
static int index_of(const char *word, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (!strcmp(word, names[i])) return i;
    if (rank == 0) fprintf(stderr, "mpibench: unknown word `%s`\n", word);
    MPI_Abort(MPI_COMM_WORLD, 2);
    return 0;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 8) {
        if (rank == 0) fprintf(stderr, "usage: mpibench COLL[,COLL...] MIN MAX FACTOR REPEATS MS STYLE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    long min = atol(argv[2]), max = atol(argv[3]), factor = atol(argv[4]);
    int repeats = atoi(argv[5]);
    double wanted = atof(argv[6]) * 1e-3;
    style = (enum style)index_of(argv[7], style_names, STYLES);
    if (min < 1 || max < min || factor < 2 || repeats < 1) MPI_Abort(MPI_COMM_WORLD, 2);

    size_t room = (size_t)max + 4096;
    if (posix_memalign((void **)&send_buffer, 4096, room) || posix_memalign((void **)&receive_buffer, 4096, room))
        MPI_Abort(MPI_COMM_WORLD, 1);
    memset(send_buffer, 0, room);
    memset(receive_buffer, 0, room);
    for (char *word = strtok(argv[1], ","); word; word = strtok(NULL, ",")) {
        enum collective collective = (enum collective)index_of(word, collective_names, COLLECTIVES);
        make_patterns(collective);
        if (collective == BARRIER) {
            measure(collective, 0, repeats, wanted);
            continue;
        }
        for (long bytes = min, power = 1; bytes <= max; bytes = power) {
            long count = bytes / (long)sizeof(float);
            measure(collective, count > 0 ? count : 1, repeats, wanted);
            while (power <= bytes) power *= factor;
        }
    }
    free(send_buffer);
    free(receive_buffer);
    MPI_Finalize();
    return 0;
}

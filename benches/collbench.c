/* collbench: times and checks collectives; the same code against han.h (-DUSE_HAN) and against any MPI.
 *
 *   collbench COLL[,COLL...] [OPTIONS]       COLL: barrier, bcast, reduce, allreduce
 *
 *   --sizes B,B,...       bytes of a message; K, M and G are powers of 1024; rounded down to whole
 *                         elements, at least one (default: powers of 4 from 4 to 4M)
 *   --dtype f32|f64       elements (default f32); reductions are sums
 *   --loop                no barrier between iterations: the time of the loop is divided. The default
 *                         style, osu, puts a barrier before each operation and times only the operation
 *   --pair                a barrier before each operation; the time of the loop, barriers included, is divided
 *   --cold                send buffers are rewritten before each iteration, outside the timed part
 *   --buffers K           iterations take turns on K pairs of buffers (default 1)
 *   --rotate-roots        the root is the iteration's number modulo the ranks (default: 0)
 *   --in-place            the root of a reduce, and all ranks of an allreduce, give their receive buffer
 *   --alloc malloc|shared|register    ordinary memory; han_malloc; ordinary memory after han_register
 *   --offset B            buffers begin B bytes behind the start of a page, at most 4095 (default 0; the C library's
 *                         malloc returns 16 for long ones); a multiple of the element's length
 *   --repeats N           repeats of each size, at least 5 (default 5)
 *   --ms T                length of a repeat in milliseconds, about (default 10)
 *
 * A repeat's time is the slowest rank's mean per iteration. Results are compared with an independent
 * computation, every element on every rank: what the timed iterations of each repeat have left (not with
 * --in-place unless --cold: these are sums of sums), and what fresh operations, with every root that was used,
 * give before and after timing. One JSON object
 * a line; the program ends with 1 if any result was wrong.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static int rank, ranks;
static int doubles; /* elements are f64, not f32 */

/* ---- the library under test -------------------------------------------------------------------- */

enum alloc { MALLOC, SHARED, REGISTER, ALLOCS };
static const char *const alloc_names[] = {"malloc", "shared", "register"};

/* The whole job ends; the launcher reports it. */
_Noreturn static void give_up(int code, const char *what, const char *why);

#ifdef USE_HAN
#include <han.h>

static han_comm_t world;

static inline void must(int error) {
    if (error) give_up(1, "han", han_last_error_message());
}

static void start(void) {
    must(han_init());
    must(han_comm_world(&world));
    must(han_comm_rank(world, &rank));
    must(han_comm_size(world, &ranks));
}

static void finish(void) { must(han_finalize()); }
static void abort_job(int code) {
    int started = 0;
    han_initialized(&started);
    if (started) han_abort(code);
    exit(code);
}

static inline han_datatype_t datatype(void) { return doubles ? HAN_DOUBLE : HAN_FLOAT; }
static inline void barrier(void) { must(han_barrier(world)); }
static inline void bcast(void *buffer, size_t count, int root) { must(han_bcast(buffer, count, datatype(), root, world)); }
static inline void reduce(const void *send, void *receive, size_t count, int root) {
    must(han_reduce(send ? send : HAN_IN_PLACE, receive, count, datatype(), HAN_SUM, root, world));
}
static inline void allreduce(const void *send, void *receive, size_t count) {
    must(han_allreduce(send ? send : HAN_IN_PLACE, receive, count, datatype(), HAN_SUM, world));
}
static double largest(double value) {
    must(han_allreduce(HAN_IN_PLACE, &value, 1, HAN_DOUBLE, HAN_MAX, world));
    return value;
}
#else
#include <mpi.h>

/* MPI's default error handler ends the job. */
static void start(void) {
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

static void finish(void) { MPI_Finalize(); }
static void abort_job(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

static inline MPI_Datatype datatype(void) { return doubles ? MPI_DOUBLE : MPI_FLOAT; }
static inline void barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }
static inline void bcast(void *buffer, size_t count, int root) {
    MPI_Bcast(buffer, (int)count, datatype(), root, MPI_COMM_WORLD);
}
static inline void reduce(const void *send, void *receive, size_t count, int root) {
    MPI_Reduce(send ? send : MPI_IN_PLACE, receive, (int)count, datatype(), MPI_SUM, root, MPI_COMM_WORLD);
}
static inline void allreduce(const void *send, void *receive, size_t count) {
    MPI_Allreduce(send ? send : MPI_IN_PLACE, receive, (int)count, datatype(), MPI_SUM, MPI_COMM_WORLD);
}
static double largest(double value) {
    MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return value;
}
#endif

_Noreturn static void give_up(int code, const char *what, const char *why) {
    fprintf(stderr, "collbench: %s: %s\n", what, why);
    fflush(stderr);
    abort_job(code);
    abort();
}

/* ---- what is asked for ------------------------------------------------------------------------- */

enum collective { BARRIER, BCAST, REDUCE, ALLREDUCE, COLLECTIVES };
static const char *const collective_names[] = {"barrier", "bcast", "reduce", "allreduce"};
static const char *const dtype_names[] = {"f32", "f64"};

#define MOST_SIZES 64
static struct {
    int wanted[COLLECTIVES];
    size_t sizes[MOST_SIZES];
    int size_count;
    int loop, pair, cold, rotate_roots, in_place;
    enum alloc alloc;
    int buffers, repeats, offset;
    double repeat_s;
} options = {.buffers = 1, .repeats = 5, .repeat_s = 10e-3};

/* The index of `word` in `names`; ends the program if it is not there. */
static int index_of(const char *option, const char *word, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (!strcmp(word, names[i])) return i;
    fprintf(stderr, "collbench: %s: unknown word `%s`; choose of:", option, word);
    for (int i = 0; i < count; i++) fprintf(stderr, " %s", names[i]);
    fputc('\n', stderr);
    exit(2);
}

static double number(const char *option, const char *text, double least, double most) {
    char *end;
    double value = strtod(text, &end);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift) end++;
    value *= (double)(1L << shift);
    if (end == text || *end || !(value >= least && value <= most)) {
        fprintf(stderr, "collbench: %s: `%s` must be a number from %g to %g\n", option, text, least, most);
        exit(2);
    }
    return value;
}

static void add_size(double bytes) {
    if (options.size_count == MOST_SIZES) {
        fprintf(stderr, "collbench: --sizes: at most %d sizes\n", MOST_SIZES);
        exit(2);
    }
    options.sizes[options.size_count++] = (size_t)bytes;
}

/* Reads the command line before the library starts, so that a wrong one costs nothing. */
static void read_arguments(int argc, char **argv) {
    int any = 0;
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i];
        if (option[0] != '-') {
            for (char *word = strtok(argv[i], ","); word; word = strtok(NULL, ","), any = 1)
                options.wanted[index_of("COLL", word, collective_names, COLLECTIVES)] = 1;
            continue;
        }
        if (!strcmp(option, "--loop")) { options.loop = 1; continue; }
        if (!strcmp(option, "--pair")) { options.pair = 1; continue; }
        if (!strcmp(option, "--cold")) { options.cold = 1; continue; }
        if (!strcmp(option, "--rotate-roots")) { options.rotate_roots = 1; continue; }
        if (!strcmp(option, "--in-place")) { options.in_place = 1; continue; }
        if (++i == argc) {
            fprintf(stderr, "collbench: %s is unknown, or lacks its value; the head of collbench.c lists all\n", option);
            exit(2);
        }
        if (!strcmp(option, "--sizes"))
            for (char *word = strtok(argv[i], ","); word; word = strtok(NULL, ",")) add_size(number(option, word, 1, 0x1p31));
        else if (!strcmp(option, "--dtype")) doubles = index_of(option, argv[i], dtype_names, 2);
        else if (!strcmp(option, "--alloc")) options.alloc = (enum alloc)index_of(option, argv[i], alloc_names, ALLOCS);
        else if (!strcmp(option, "--buffers")) options.buffers = (int)number(option, argv[i], 1, 1024);
        else if (!strcmp(option, "--offset")) options.offset = (int)number(option, argv[i], 0, 4095);
        else if (!strcmp(option, "--repeats")) options.repeats = (int)number(option, argv[i], 5, 1000);
        else if (!strcmp(option, "--ms")) options.repeat_s = number(option, argv[i], 0.01, 1e5) * 1e-3;
        else index_of("options", option, (const char *const[]){"--sizes", "--dtype", "--alloc", "--buffers", "--offset", "--repeats", "--ms"}, 7);
    }
    if (!any) {
        fprintf(stderr, "usage: collbench COLL[,COLL...] [OPTIONS]; the head of collbench.c lists them\n");
        exit(2);
    }
    if (options.loop + options.pair + options.cold > 1) {
        fprintf(stderr, "collbench: only one of --loop, --pair and --cold: the first two time iterations together\n");
        exit(2);
    }
    if (!options.size_count)
        for (size_t bytes = 4; bytes <= 4 << 20; bytes *= 4) add_size((double)bytes);
#ifndef USE_HAN
    if (options.alloc != MALLOC) {
        fprintf(stderr, "collbench: --alloc %s: only han has it; MPIs are measured with malloc\n", alloc_names[options.alloc]);
        exit(2);
    }
#elif !defined HAN_HAS_REGISTER
    if (options.alloc == REGISTER) {
        fprintf(stderr, "collbench: --alloc register: the han.h of this build has no han_register\n");
        exit(2);
    }
#endif
}

/* ---- buffers and what is in them --------------------------------------------------------------- */

static unsigned char **send_buffers, **receive_buffers;

static size_t element_bytes(void) { return doubles ? sizeof(double) : sizeof(float); }

/* On pages of their own, touched by the rank that uses them. */
static void *allocate(size_t bytes) {
    void *pointer = NULL;
    bytes = (bytes + (size_t)options.offset + 4095) / 4096 * 4096;
#ifdef USE_HAN
    if (options.alloc == SHARED) must(han_malloc(bytes, &pointer));
#endif
    if (!pointer) {
        pointer = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pointer == MAP_FAILED) give_up(1, "no memory for buffers", "take fewer --buffers or smaller --sizes");
    }
    memset(pointer, 0, bytes);
#if defined USE_HAN && defined HAN_HAS_REGISTER
    if (options.alloc == REGISTER) must(han_register(pointer, bytes));
#endif
    return (unsigned char *)pointer + options.offset;
}

static unsigned char **allocate_all(size_t bytes) {
    unsigned char **buffers = malloc(sizeof *buffers * (size_t)options.buffers);
    if (!buffers) give_up(1, "no memory", "take fewer --buffers");
    for (int set = 0; set < options.buffers; set++) buffers[set] = allocate(bytes);
    return buffers;
}

#define PERIOD 8191 /* a prime: pieces that land in a wrong place are found */
#define SEEDS 2
#define NOBODY (-1)
typedef unsigned char pattern[PERIOD * sizeof(double)];
static pattern input[SEEDS]; /* what this rank contributes */
static pattern sums[SEEDS];  /* what all ranks together do */
static pattern poison;       /* what no result is */

/* Small integers: sums over all ranks are exact in a float whatever their order. */
static double contribution(int from, uint32_t index, uint32_t seed) {
    uint32_t mixed = index * 2654435761u ^ (uint32_t)from * 40503u ^ (seed + 1) * 97u;
    mixed ^= mixed >> 15;
    mixed *= 2246822519u;
    return (double)(mixed >> 27);
}

static void put(pattern of, uint32_t index, double value) {
    if (doubles) ((double *)(void *)of)[index] = value;
    else ((float *)(void *)of)[index] = (float)value;
}

static void make_pattern(pattern of, int from, uint32_t seed) {
    for (uint32_t i = 0; i < PERIOD; i++) put(of, i, from == NOBODY ? -1 : contribution(from, i, seed));
}

static void make_patterns(void) {
    make_pattern(poison, NOBODY, 0);
    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        make_pattern(input[seed], rank, seed);
        for (uint32_t i = 0; i < PERIOD; i++) {
            double sum = 0;
            for (int from = 0; from < ranks; from++) sum += contribution(from, i, seed);
            put(sums[seed], i, sum);
        }
    }
}

static void fill(unsigned char *buffer, const pattern from, size_t bytes) {
    size_t period = PERIOD * element_bytes();
    for (size_t at = 0; at < bytes; at += period) memcpy(buffer + at, from, bytes - at < period ? bytes - at : period);
}

static int matches(const unsigned char *buffer, const pattern wanted, size_t bytes) {
    size_t period = PERIOD * element_bytes();
    for (size_t at = 0; at < bytes; at += period)
        if (memcmp(buffer + at, wanted, bytes - at < period ? bytes - at : period)) return 0;
    return 1;
}

/* ---- one operation ----------------------------------------------------------------------------- */

struct job {
    enum collective collective;
    size_t bytes, count;
};

static int root_of(long iteration) { return options.rotate_roots ? (int)(iteration % ranks) : 0; }

/* Whether this rank's input stands in its receive buffer. */
static int in_place(const struct job *job, int root) {
    return options.in_place && (job->collective == ALLREDUCE || (job->collective == REDUCE && rank == root));
}

static inline void call(const struct job *job, int set, int root) {
    unsigned char *send = send_buffers[set], *receive = receive_buffers[set];
    const unsigned char *given = in_place(job, root) ? NULL : send;
    switch (job->collective) {
    case BARRIER: barrier(); break;
    case BCAST: bcast(send, job->count, root); break;
    case REDUCE: reduce(given, receive, job->count, root); break;
    default: allreduce(given, receive, job->count); break;
    }
}

/* Writes this rank's input. */
static void give(const struct job *job, int set, int root, uint32_t seed) {
    if (job->collective == BCAST && rank != root) return;
    fill(in_place(job, root) ? receive_buffers[set] : send_buffers[set], input[seed], job->bytes);
}

/* Fills both buffers: this rank's input, and where it receives, what is wrong in every element. */
static void prepare(const struct job *job, int set, int root, uint32_t seed) {
    fill(send_buffers[set], job->collective == BCAST ? poison : input[seed], job->bytes);
    fill(receive_buffers[set], poison, job->bytes);
    give(job, set, root, seed);
}

/* Whether the result is here: `source` is the rank whose data a bcast must have brought. */
static int is_right(const struct job *job, int set, int root, int source, uint32_t seed) {
    static pattern wanted;
    switch (job->collective) {
    case BARRIER: return 1;
    case BCAST: make_pattern(wanted, source, seed); return matches(send_buffers[set], wanted, job->bytes);
    case REDUCE: return rank != root || matches(receive_buffers[set], sums[seed], job->bytes);
    default: return matches(receive_buffers[set], sums[seed], job->bytes);
    }
}

/* Fresh operations in every set of buffers and with every root that is used. */
static int check_all(const struct job *job, uint32_t seed) {
    int right = 1, roots = options.rotate_roots ? ranks : 1;
    for (int set = 0; set < options.buffers; set++)
        for (int root = 0; root < roots; root++) {
            prepare(job, set, root, seed);
            call(job, set, root);
            right &= is_right(job, set, root, root, seed);
        }
    return right;
}

/* ---- timing ------------------------------------------------------------------------------------ */

#define LEAST_ITERATIONS 3
#define MOST_ITERATIONS 1000000L

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds that this rank spent in `iterations` operations. */
static double repeat(const struct job *job, long iterations) {
    barrier();
    if (options.loop || options.pair) {
        double start = seconds();
        for (long i = 0; i < iterations; i++) {
            if (options.pair) barrier();
            call(job, (int)(i % options.buffers), root_of(i));
        }
        return seconds() - start;
    }
    double spent = 0;
    for (long i = 0; i < iterations; i++) {
        int set = (int)(i % options.buffers), root = root_of(i);
        if (options.cold) give(job, set, root, (uint32_t)(i % SEEDS));
        barrier();
        double start = seconds();
        call(job, set, root);
        spent += seconds() - start;
    }
    return spent;
}

/* Fills all buffers for a repeat. */
static void prepare_repeat(const struct job *job, uint32_t seed) {
    for (int set = 0; set < options.buffers; set++) prepare(job, set, root_of(set), seed);
}

/* Whether the buffers hold what a repeat must have left there. */
static int left_right(const struct job *job, long iterations, uint32_t seed) {
    /* Sums of sums: what stands there depends on the number of iterations. */
    if (options.in_place && !options.cold) return 1;
    /* With rotating roots a rank reduces in place in one iteration, and gives its send buffer in others. */
    int right = 1;
    for (int set = 0; set < options.buffers && set < iterations; set++) {
        long last = set + (iterations - 1 - set) / options.buffers * options.buffers;
        /* Without rewriting, each bcast hands on what the first one of this set has brought. */
        int source = root_of(options.cold ? last : set);
        right &= is_right(job, set, root_of(last), source, options.cold ? (uint32_t)(last % SEEDS) : seed);
    }
    return right;
}

/* Seconds that a repeat takes with all its barriers and rewriting, on the slowest rank. */
static double whole_repeat(const struct job *job, long iterations) {
    double start = seconds();
    repeat(job, iterations);
    return largest(seconds() - start);
}

/* How many iterations make a repeat of the wanted length; the same number on every rank. A stall may make the first few
 * long: they count only where as many as are returned took about that long, or a few took much longer. */
static long calibrate(const struct job *job) {
    for (long iterations = 1;;) {
        /* The better of two, so that one disturbance does not end the search. */
        double spent = whole_repeat(job, iterations), again = whole_repeat(job, iterations);
        if (again < spent) spent = again;
        double fitting = options.repeat_s / spent * (double)iterations;
        if (fitting < LEAST_ITERATIONS) fitting = LEAST_ITERATIONS;
        if (fitting > MOST_ITERATIONS) fitting = MOST_ITERATIONS;
        if (spent > options.repeat_s / 2 && fitting < 2 * (double)iterations) return (long)fitting;
        if (spent > 4 * options.repeat_s || iterations >= MOST_ITERATIONS) return (long)fitting;
        iterations = fitting < 4 * (double)iterations ? (long)fitting + 1 : 4 * iterations;
    }
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const char *truth(int value) { return value ? "true" : "false"; }

/* Measures, checks and prints one size; whether all results were right. */
static int measure(enum collective collective, size_t bytes) {
    size_t count = bytes / element_bytes();
    if (!count && collective != BARRIER) count = 1;
    struct job job = {collective, count * element_bytes(), count};
    double times[options.repeats];
    int right = check_all(&job, 0);
    long iterations = calibrate(&job);
    for (int r = 0; r < options.repeats; r++) {
        uint32_t seed = (uint32_t)(r % SEEDS);
        prepare_repeat(&job, seed);
        times[r] = largest(repeat(&job, iterations) / (double)iterations) * 1e6;
        right &= left_right(&job, iterations, seed);
    }
    right &= check_all(&job, 1);
    /* Of the library under test, so a rank that saw something wrong believes that before the others' word. */
    right &= largest(!right) == 0;
    qsort(times, (size_t)options.repeats, sizeof *times, ascending);
    if (rank == 0) {
        printf("{\"coll\":\"%s\",\"bytes\":%zu,\"ranks\":%d,\"dtype\":\"%s\",\"style\":\"%s\",\"cold\":%s,"
               "\"alloc\":\"%s\",\"buffers\":%d,\"offset\":%d,\"rotate_roots\":%s,\"in_place\":%s,\"iters\":%ld,\"repeats\":%d,"
               "\"us_min\":%.4f,\"us_median\":%.4f,\"us_max\":%.4f,\"verified\":%s}\n",
               collective_names[collective], job.bytes, ranks, dtype_names[doubles],
               options.loop ? "loop" : options.pair ? "pair" : "osu",
               truth(options.cold), alloc_names[options.alloc], options.buffers, options.offset, truth(options.rotate_roots),
               truth(options.in_place), iterations, options.repeats, times[0], times[options.repeats / 2],
               times[options.repeats - 1], truth(right));
        fflush(stdout);
    }
    return right;
}

int main(int argc, char **argv) {
    read_arguments(argc, argv);
    start();
    size_t room = sizeof(double);
    for (int i = 0; i < options.size_count; i++)
        if (options.sizes[i] > room) room = options.sizes[i];
    send_buffers = allocate_all(room);
    receive_buffers = allocate_all(room);
    make_patterns();
    int right = 1;
    for (int collective = 0; collective < COLLECTIVES; collective++) {
        if (!options.wanted[collective]) continue;
        if (collective == BARRIER) right &= measure(BARRIER, 0);
        else for (int i = 0; i < options.size_count; i++) right &= measure((enum collective)collective, options.sizes[i]);
    }
    finish();
    if (!right) fprintf(stderr, "collbench: wrong results, see \"verified\"\n");
    return right ? 0 : 1;
}

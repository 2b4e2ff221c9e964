/*
 * All-pairs shortest paths by parallel Floyd-Warshall (Luo's dissertation, section 6.3.3): every rank
 * owns a block of rows of the distance matrix, and in step k the owner of row k broadcasts it.
 *
 * The graph joins each of the world's airports with its nearest neighbours, both ways; its weights
 * are great-circle distances in whole metres, so that results are exact. src/bin/asp.rs is the same
 * program in Rust.
 *
 *   cc -O3 -ffp-contract=off asp.c -o asp $(pkg-config --cflags --libs han) -lm
 *   han run -n 4 -- ./asp [AIRPORTS_CSV [AIRPORTS [NEIGHBOURS]]] [--alloc private|shared]
 *
 * `--alloc shared` keeps the rows that are broadcast in memory that the other ranks can map.
 */
#define _POSIX_C_SOURCE 199309L
#include <errno.h>
#include <han.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_AIRPORTS = 10000 };
static const double EARTH_RADIUS_METRES = 6371008.8;
static const double RADIANS_PER_DEGREE = 3.14159265358979323846 / 180.0;
/* Two of these still fit into an int, so that adding to it needs no test. */
static const int UNREACHABLE = INT32_MAX / 2;

typedef struct {
    char name[120];
    double position[3]; /* unit vector from the centre of the earth */
} airport;

typedef struct { /* HAN_2INT */
    int value;   /* distance in metres */
    int index;   /* where to */
} edge;

static airport airports[MOST_AIRPORTS];
static han_comm_t world;
static int rank, size;

/* Ends the program if a han function failed. */
static void require(int error) {
    if (error == HAN_SUCCESS) return;
    fprintf(stderr, "asp: %s\n", han_last_error_message());
    exit(1);
}

static void *allocate(size_t count, size_t bytes) {
    void *memory = calloc(count ? count : 1, bytes);
    if (!memory) {
        fprintf(stderr, "asp: no memory for %zu x %zu bytes\n", count, bytes);
        exit(1);
    }
    return memory;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* First of the rows of a rank; shares are contiguous and differ by one row at most. */
static int first_row(int n, int of_rank) { return (int)((long)n * of_rank / size); }

/* Reads at most `most` airports; returns how many, at least two. */
static int read_airports(const char *path, int most) {
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "asp: cannot read %s: %s; give its path as the first argument\n", path,
                strerror(errno));
        exit(1);
    }
    char line[200], code[4], country[3], city[100];
    double lat, lon;
    int n = 0;
    if (!fgets(line, sizeof line, file)) line[0] = 0; /* the header */
    while (n < most && n < MOST_AIRPORTS && fgets(line, sizeof line, file)) {
        /* The city may hold a comma. */
        if (sscanf(line, "%3[^,],%lf,%lf,%2[^,],%99[^\n]", code, &lat, &lon, country, city) != 5) {
            fprintf(stderr, "asp: %s: line %d is not CODE,LAT,LON,COUNTRY,CITY\n", path, n + 2);
            exit(1);
        }
        airport *here = &airports[n++];
        snprintf(here->name, sizeof here->name, "%s (%s, %s)", code, city, country);
        lat *= RADIANS_PER_DEGREE;
        lon *= RADIANS_PER_DEGREE;
        here->position[0] = cos(lat) * cos(lon);
        here->position[1] = cos(lat) * sin(lon);
        here->position[2] = sin(lat);
    }
    fclose(file);
    if (n < 2) {
        fprintf(stderr, "asp: %s: %d airports, but 2 are the least\n", path, n);
        exit(1);
    }
    return n;
}

/* Each airport's `neighbours` nearest others: distance in metres, and which. */
static void nearest_neighbours(int n, int neighbours, edge *edges) {
    double *squares = allocate((size_t)neighbours, sizeof *squares);
    for (int from = 0; from < n; from++, edges += neighbours) {
        int found = 0;
        for (int to = 0; to < n; to++) {
            if (to == from) continue;
            /* The straight line through the earth orders as the great circle does, and is cheaper. */
            double square = 0.0;
            for (int i = 0; i < 3; i++) {
                double difference = airports[from].position[i] - airports[to].position[i];
                square += difference * difference;
            }
            if (found == neighbours && square >= squares[found - 1]) continue;
            int place = found < neighbours ? found++ : found - 1;
            for (; place > 0 && squares[place - 1] > square; place--) {
                squares[place] = squares[place - 1];
                edges[place] = edges[place - 1];
            }
            squares[place] = square;
            edges[place].index = to;
        }
        for (int i = 0; i < neighbours; i++)
            edges[i].value = (int)round(EARTH_RADIUS_METRES * 2.0 * asin(sqrt(squares[i]) / 2.0));
    }
    free(squares);
}

/*
 * Fills this rank's rows of the weight matrix. Rank 0 builds the graph and broadcasts it, so that all
 * ranks work on the same numbers even if their mathematical libraries round differently.
 */
static void load(int n, int neighbours, int first, int last, int *metres) {
    edge *edges = allocate((size_t)n * (size_t)neighbours, sizeof *edges);
    if (rank == 0) nearest_neighbours(n, neighbours, edges);
    require(han_bcast(edges, (size_t)n * (size_t)neighbours, HAN_2INT, 0, world));
    for (size_t i = 0; i < (size_t)(last - first) * (size_t)n; i++) metres[i] = UNREACHABLE;
    for (int row = first; row < last; row++) metres[(size_t)(row - first) * n + row] = 0;
    for (int i = 0; i < n * neighbours; i++) {
        int from = i / neighbours, to = edges[i].index;
        if (first <= from && from < last) metres[(size_t)(from - first) * n + to] = edges[i].value;
        if (first <= to && to < last) metres[(size_t)(to - first) * n + from] = edges[i].value;
    }
    free(edges);
}

/*
 * Replaces weights by the lengths of the shortest paths; returns the time spent in broadcasts, whose buffer
 * is `row_k`.
 */
static double floyd_warshall(int n, int first, int last, int *metres, int *row_k) {
    double communicating = 0.0;
    for (int owner = 0; owner < size; owner++) {
        for (int k = first_row(n, owner); k < first_row(n, owner + 1); k++) {
            if (rank == owner) memcpy(row_k, metres + (size_t)(k - first) * n, sizeof *row_k * (size_t)n);
            double start = seconds();
            require(han_bcast(row_k, (size_t)n, HAN_INT32, owner, world));
            communicating += seconds() - start;

            for (int i = 0; i < last - first; i++) {
                int *restrict row = metres + (size_t)i * n;
                int to_k = row[k];
                if (to_k == UNREACHABLE) continue;
                for (int j = 0; j < n; j++) {
                    int through_k = to_k + row_k[j];
                    row[j] = through_k < row[j] ? through_k : row[j];
                }
            }
        }
    }
    return communicating;
}

/* Prints the pair of airports that are furthest apart, and a digest of the whole matrix. */
static void report(int n, int first, int last, const int *metres) {
    edge furthest = {0, 0};
    uint64_t unreachable = 0;
    uint64_t digest = 0; /* exclusive or, over the rows, of FNV-1a over row number and row */
    for (int row = first; row < last; row++, metres += n) {
        uint64_t row_digest = (UINT64_C(0xcbf29ce484222325) ^ (uint32_t)row) * UINT64_C(0x100000001b3);
        for (int column = 0; column < n; column++) {
            row_digest = (row_digest ^ (uint32_t)metres[column]) * UINT64_C(0x100000001b3);
            if (metres[column] == UNREACHABLE) {
                unreachable++;
            } else if (metres[column] > furthest.value) {
                furthest.value = metres[column];
                furthest.index = row * n + column;
            }
        }
        digest ^= row_digest;
    }
    require(han_allreduce(HAN_IN_PLACE, &furthest, 1, HAN_2INT, HAN_MAXLOC, world));
    require(han_allreduce(HAN_IN_PLACE, &unreachable, 1, HAN_UINT64, HAN_SUM, world));
    require(han_allreduce(HAN_IN_PLACE, &digest, 1, HAN_UINT64, HAN_BXOR, world));
    if (rank == 0) {
        printf("longest of the shortest paths: %s to %s, %d.%03d km\n", airports[furthest.index / n].name,
               airports[furthest.index % n].name, furthest.value / 1000, furthest.value % 1000);
        printf("pairs without a path: %llu\n", (unsigned long long)unreachable);
        printf("digest of the %d x %d distances: %016llx\n", n, n, (unsigned long long)digest);
    }
}

/* Prints the times, as means over the ranks. */
static void report_times(double total, double communicating) {
    double times[2] = {total, communicating};
    require(han_allreduce(HAN_IN_PLACE, times, 2, HAN_DOUBLE, HAN_SUM, world));
    total = times[0] / size;
    communicating = times[1] / size;
    if (rank == 0)
        printf("%d ranks, %.3f s: computing %.3f s, communicating %.3f s (%.0f %%)\n", size, total,
               total - communicating, communicating, 100.0 * communicating / total);
}

/* Takes `--alloc private` or `--alloc shared` off the end of the arguments; true if it was `shared`. */
static int wants_shared(int *argc, char **argv) {
    if (*argc < 3 || strcmp(argv[*argc - 2], "--alloc")) return 0;
    int shared = !strcmp(argv[*argc - 1], "shared");
    if (!shared && strcmp(argv[*argc - 1], "private")) {
        fprintf(stderr, "asp: --alloc %s: private or shared\n", argv[*argc - 1]);
        exit(1);
    }
    *argc -= 2;
    return shared;
}

int main(int argc, char **argv) {
    int shared = wants_shared(&argc, argv);
    int most = argc > 2 ? atoi(argv[2]) : MOST_AIRPORTS;
    int neighbours = argc > 3 ? atoi(argv[3]) : 8;
    if (argc > 4 || most < 2 || neighbours < 1) {
        fprintf(stderr, "usage: asp [AIRPORTS_CSV [AIRPORTS [NEIGHBOURS]]] [--alloc private|shared], with AIRPORTS "
                        "from 2\n");
        return 1;
    }
    int n = read_airports(argc > 1 ? argv[1] : "examples/data/airports.csv", most);
    if (neighbours > n - 1) neighbours = n - 1;
    require(han_init());
    require(han_comm_world(&world));
    require(han_comm_rank(world, &rank));
    require(han_comm_size(world, &size));

    int first = first_row(n, rank), last = first_row(n, rank + 1);
    int *metres = allocate((size_t)(last - first) * (size_t)n, sizeof *metres);
    load(n, neighbours, first, last, metres);
    void *row_k;
    if (shared) {
        require(han_malloc((size_t)n * sizeof(int), &row_k));
    } else {
        row_k = allocate((size_t)n, sizeof(int));
    }
    double start = seconds();
    double communicating = floyd_warshall(n, first, last, metres, row_k);
    double total = seconds() - start;
    if (shared) {
        require(han_free(row_k));
    } else {
        free(row_k);
    }
    report(n, first, last, metres);
    report_times(total, communicating);
    free(metres);
    require(han_finalize());
    return 0;
}

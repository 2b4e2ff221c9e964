/*
 * Data-parallel training, as Horovod does it: every rank computes the gradient over its share of the
 * images, an allreduce adds the gradients up, and so all ranks take the same step.
 *
 * The model is softmax regression on the UCI handwritten digits (8 x 8 pixels, 10 classes), the
 * method plain gradient descent on all training images. Every fifth image is kept for the test.
 * src/bin/gradient is the same program in Rust; compiled with -ffp-contract=off, this one computes
 * the same bits.
 *
 *   cc -O2 -ffp-contract=off gradient.c -o gradient $(pkg-config --cflags --libs han) -lm
 *   han run -n 4 -- ./gradient [DIGITS_CSV [STEPS]] [--alloc private|shared]
 *
 * `--alloc shared` keeps the gradient in memory that the other ranks can map.
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

enum { IMAGES = 1797, PIXELS = 64, FEATURES = PIXELS + 1, CLASSES = 10, WEIGHTS = FEATURES * CLASSES };
static const double STEP = 2.5;

static int numbers[IMAGES][PIXELS + 1];   /* as in the file: pixels, label */
static double features[IMAGES][FEATURES]; /* of this rank's images; the last one is the constant 1 */
static double weights[FEATURES][CLASSES];
static double private_sums[WEIGHTS + 1];
static double *sums = private_sums;       /* the gradient, and behind it the loss */
static const size_t SUMS_BYTES = sizeof private_sums;

static han_comm_t world;
static int rank, size;

/* Ends the program if a han function failed. */
static void require(int error) {
    if (error == HAN_SUCCESS) return;
    fprintf(stderr, "gradient: %s\n", han_last_error_message());
    exit(1);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int is_test(int image) { return image % 5 == 4; }

static void read_digits(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "gradient: cannot read %s: %s; give its path as the first argument\n", path,
                strerror(errno));
        exit(1);
    }
    for (int i = 0; i < IMAGES; i++) {
        for (int j = 0; j <= PIXELS; j++) {
            if (fscanf(file, "%d%*[,\n]", &numbers[i][j]) != 1) {
                fprintf(stderr, "gradient: %s: line %d has no number %d\n", path, i + 1, j + 1);
                exit(1);
            }
        }
        int label = numbers[i][PIXELS];
        if (label < 0 || label >= CLASSES) {
            fprintf(stderr, "gradient: %s: line %d: label %d is not in 0 to %d\n", path, i + 1, label, CLASSES - 1);
            exit(1);
        }
    }
    fclose(file);
}

/* Moves the pixels' means over all training images to zero; returns the number of those images. */
static double centre(int first, int last) {
    /* Sum of each pixel, and how many images: integers, so exact whatever the number of ranks. */
    uint32_t sum[PIXELS + 1] = {0};
    for (int i = first; i < last; i++) {
        if (is_test(i)) continue;
        for (int j = 0; j < PIXELS; j++) sum[j] += (uint32_t)numbers[i][j];
        sum[PIXELS] += 1;
    }
    require(han_allreduce(HAN_IN_PLACE, sum, PIXELS + 1, HAN_UINT32, HAN_SUM, world));
    double total = sum[PIXELS];
    for (int i = first; i < last; i++) {
        for (int j = 0; j < PIXELS; j++) features[i][j] = (numbers[i][j] * total - sum[j]) / (16.0 * total);
        features[i][PIXELS] = 1.0;
    }
    return total;
}

/* The score of each class for an image; returns the highest. */
static double score(int image, double scores[CLASSES]) {
    for (int c = 0; c < CLASSES; c++) scores[c] = 0.0;
    for (int f = 0; f < FEATURES; f++)
        for (int c = 0; c < CLASSES; c++) scores[c] += features[image][f] * weights[f][c];
    double highest = scores[0];
    for (int c = 1; c < CLASSES; c++)
        if (scores[c] > highest) highest = scores[c];
    return highest;
}

/* Adds one image's gradient and loss to `sums`. */
static void add_gradient(int image) {
    double scores[CLASSES], slopes[CLASSES], total = 0.0;
    int label = numbers[image][PIXELS];
    double highest = score(image, scores);
    for (int c = 0; c < CLASSES; c++) {
        slopes[c] = exp(scores[c] - highest);
        total += slopes[c];
    }
    for (int c = 0; c < CLASSES; c++) slopes[c] /= total;
    slopes[label] -= 1.0;
    for (int f = 0; f < FEATURES; f++)
        for (int c = 0; c < CLASSES; c++) sums[f * CLASSES + c] += features[image][f] * slopes[c];
    sums[WEIGHTS] += log(total) - (scores[label] - highest);
}

/* FNV-1a */
static uint64_t digest(uint64_t digest, double number) {
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (digest ^ bits) * UINT64_C(0x100000001b3);
}

/* Fails unless `bits`, a digest of all results, is the same on all ranks. */
static void verify_same_bits(uint64_t bits) {
    uint64_t least, greatest;
    require(han_allreduce(&bits, &least, 1, HAN_UINT64, HAN_MIN, world));
    require(han_allreduce(&bits, &greatest, 1, HAN_UINT64, HAN_MAX, world));
    if (least != greatest) {
        fprintf(stderr, "gradient: the ranks' losses or weights differ, but should have the same bits\n");
        exit(1);
    }
}

static void report_accuracy(int first, int last) {
    uint64_t tally[2] = {0, 0};
    for (int i = first; i < last; i++) {
        if (!is_test(i)) continue;
        double scores[CLASSES], highest = score(i, scores);
        tally[0] += scores[numbers[i][PIXELS]] == highest;
        tally[1] += 1;
    }
    require(han_allreduce(HAN_IN_PLACE, tally, 2, HAN_UINT64, HAN_SUM, world));
    if (rank == 0)
        printf("test accuracy %.1f %% (%d of %d)\n", 100.0 * (double)tally[0] / (double)tally[1],
               (int)tally[0], (int)tally[1]);
}

/* Prints the times, as means over the ranks. */
static void report_times(double total, double communicating, int steps) {
    double times[2] = {total, communicating};
    require(han_allreduce(HAN_IN_PLACE, times, 2, HAN_DOUBLE, HAN_SUM, world));
    total = times[0] / size;
    communicating = times[1] / size;
    if (rank == 0)
        printf("%d ranks, %.3f s: computing %.3f s, communicating %.3f s (%.0f %%), "
               "allreduce %d x %zu bytes\n",
               size, total, total - communicating, communicating, 100.0 * communicating / total, steps,
               SUMS_BYTES);
}

/* Takes `--alloc private` or `--alloc shared` off the end of the arguments; true if it was `shared`. */
static int wants_shared(int *argc, char **argv) {
    if (*argc < 3 || strcmp(argv[*argc - 2], "--alloc")) return 0;
    int shared = !strcmp(argv[*argc - 1], "shared");
    if (!shared && strcmp(argv[*argc - 1], "private")) {
        fprintf(stderr, "gradient: --alloc %s: private or shared\n", argv[*argc - 1]);
        exit(1);
    }
    *argc -= 2;
    return shared;
}

int main(int argc, char **argv) {
    int shared = wants_shared(&argc, argv);
    int steps = argc > 2 ? atoi(argv[2]) : 400;
    if (argc > 3 || steps < 1) {
        fprintf(stderr, "usage: gradient [DIGITS_CSV [STEPS]] [--alloc private|shared], with STEPS from 1\n");
        return 1;
    }
    read_digits(argc > 1 ? argv[1] : "examples/data/digits.csv");
    require(han_init());
    require(han_comm_world(&world));
    require(han_comm_rank(world, &rank));
    require(han_comm_size(world, &size));
    if (shared) {
        void *memory;
        require(han_malloc(SUMS_BYTES, &memory));
        sums = memory;
    }

    /* Contiguous shares that differ by one image at most. */
    int first = (int)((long)IMAGES * rank / size), last = (int)((long)IMAGES * (rank + 1) / size);
    double train_total = centre(first, last), communicating = 0.0;
    if (rank == 0) printf("%.0f training images on %d ranks\n", train_total, size);
    double start = seconds();
    uint64_t bits = UINT64_C(0xcbf29ce484222325);
    int interval = (steps + 7) / 8;
    for (int step = 0; step < steps; step++) {
        memset(sums, 0, SUMS_BYTES);
        for (int i = first; i < last; i++)
            if (!is_test(i)) add_gradient(i);
        double computed = seconds();
        require(han_allreduce(HAN_IN_PLACE, sums, WEIGHTS + 1, HAN_DOUBLE, HAN_SUM, world));
        communicating += seconds() - computed;

        for (int f = 0; f < FEATURES; f++)
            for (int c = 0; c < CLASSES; c++) weights[f][c] -= STEP * (sums[f * CLASSES + c] / train_total);
        double loss = sums[WEIGHTS] / train_total;
        bits = digest(bits, loss);
        if (rank == 0 && step % interval == 0) printf("step %4d  loss %.6f\n", step, loss);
    }
    double total = seconds() - start, loss = sums[WEIGHTS] / train_total;
    for (int f = 0; f < FEATURES; f++)
        for (int c = 0; c < CLASSES; c++) bits = digest(bits, weights[f][c]);
    verify_same_bits(bits);
    if (rank == 0) {
        uint64_t loss_bits;
        memcpy(&loss_bits, &loss, sizeof loss_bits);
        printf("step %4d  loss %.6f = 0x%016llx on every rank\n", steps - 1, loss,
               (unsigned long long)loss_bits);
    }
    report_accuracy(first, last);
    report_times(total, communicating, steps);
    if (shared) require(han_free(sums));
    require(han_finalize());
    return 0;
}

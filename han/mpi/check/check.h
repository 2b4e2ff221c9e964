/* What the programs of this directory share: MPI is started, results are noted, and rank 0 prints all notes at the end.
 *
 * A program `expect`s what it can compute itself, and notes the rest: make check-mpi runs it with and without
 * libhan_mpi.so, and what it prints must be the same to the last letter. So notes hold no times, addresses or handles.
 * Notes travel by point-to-point messages: collectives are under test. */
#ifndef CHECK_H
#define CHECK_H

#ifndef CHECK_NO_MPI_H /* the interface of the MPI standard has a header of its own */
#include <mpi.h>
#endif
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What this MPI has: Open MPI 5 has persistent collectives, though it calls itself 3.1. */
#define HAS_LARGE_COUNTS (MPI_VERSION >= 4)
#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)
#define HAS_PERSISTENT 1
#else
#define HAS_PERSISTENT 0
#endif

/* MPICH 4 ends programs, where others return an error or go on. */
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION < 50000000 && !defined I_MPI_VERSION
#define IS_MPICH_4 1
#else
#define IS_MPICH_4 0
#endif

/* The exit status of a program whose subject this MPI does not have. */
#define NOT_IN_THIS_MPI 77

static int rank, ranks;
static int failures;
static char *notes;
static size_t notes_length, notes_room;

static void vnote(const char *format, va_list arguments) {
    char line[256];
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    size_t bytes = length < (int)sizeof line - 1 ? (size_t)length : sizeof line - 2;
    line[bytes++] = '\n';
    if (notes_length + bytes > notes_room) {
        notes_room = 2 * notes_room + 4096;
        notes = realloc(notes, notes_room);
        if (!notes) abort();
    }
    memcpy(notes + notes_length, line, bytes);
    notes_length += bytes;
}

/* Adds a line to what this rank reports. */
__attribute__((format(printf, 1, 2), unused)) static void note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vnote(format, arguments);
    va_end(arguments);
}

/* Fails the program, and says so in its notes, unless `holds`. */
__attribute__((format(printf, 2, 3), unused)) static void expect(int holds, const char *format, ...) {
    if (holds || failures++ > 20) return;
    char wrong[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(wrong, sizeof wrong, format, arguments);
    va_end(arguments);
    note("WRONG: %s", wrong);
    fprintf(stderr, "WRONG on rank %d of %d: %s\n", rank, ranks, wrong);
}

/* FNV-1a, to be begun with and carried on from: one word for any number of results. */
#define DIGEST_START 0xcbf29ce484222325u
__attribute__((unused)) static uint64_t digest(uint64_t so_far, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) so_far = (so_far ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return so_far;
}

/* The class of an error code: codes themselves may differ from run to run. */
__attribute__((unused)) static int class_of(int code) {
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

/* A number that depends on who gives it and where it stands; sums over ranks stay small. */
__attribute__((unused)) static int element(int from, int index, int seed) { return (from * 7 + index * 3 + seed) % 101; }

/* The sum of all ranks' elements at `index`, for `size` ranks. */
__attribute__((unused)) static int sum_of(int size, int index, int seed) {
    int sum = 0;
    for (int from = 0; from < size; from++) sum += element(from, index, seed);
    return sum;
}

__attribute__((unused)) static void know_ranks(void) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

__attribute__((unused)) static void start(int *argc, char ***argv) {
    MPI_Init(argc, argv);
    know_ranks();
}

/* Rank 0 prints everybody's notes in the order of ranks; whether anybody failed. */
__attribute__((unused)) static int report(void) {
    int failed = failures != 0;
    if (rank != 0) {
        int length = (int)notes_length;
        int head[2] = {length, failed};
        MPI_Send(head, 2, MPI_INT, 0, 991, MPI_COMM_WORLD);
        MPI_Send(notes, length, MPI_CHAR, 0, 992, MPI_COMM_WORLD);
        return failed;
    }
    for (int from = 0; from < ranks; from++) {
        int head[2] = {(int)notes_length, 0};
        char *text = notes;
        if (from) {
            MPI_Recv(head, 2, MPI_INT, from, 991, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            text = malloc((size_t)head[0] + 1);
            if (!text) abort();
            MPI_Recv(text, head[0], MPI_CHAR, from, 992, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            failed |= head[1];
        }
        char *end = text + head[0];
        for (char *line = text; line < end;) {
            char *stop = memchr(line, '\n', (size_t)(end - line));
            printf("note %d %.*s\n", from, (int)(stop - line), line);
            line = stop + 1;
        }
        if (from) free(text);
    }
    fflush(stdout);
    return failed;
}

/* The program's last words and its exit status. */
__attribute__((unused)) static int finish(void) {
    int failed = report();
    MPI_Finalize();
    free(notes);
    return failed;
}

/* The end of a program whose subject is missing here. */
__attribute__((unused)) static int not_in_this_mpi(const char *subject) {
    if (rank == 0) printf("note 0 this MPI has no %s\n", subject);
    fflush(stdout);
    MPI_Finalize();
    return NOT_IN_THIS_MPI;
}

#endif

/* Elements of more than INT_MAX bytes, as MPI_Type_size cannot tell them, against shorter ones of the same signature:
 * on two ranks, which take 6 GiB between them; other numbers have barriers alone. */
#include "check.h"

#define PART ((size_t)512 << 20)
#define GAP 4096
enum { PARTS = 4, STEP = 1 << 20 };

static char *buffer;

/* Where a byte of the data is, if there is a gap of so many bytes in the middle. */
static size_t place(size_t byte, size_t gap) { return byte + (byte < PARTS / 2 * PART ? 0 : gap); }

static void check_bcast(const char *name, int count, MPI_Datatype type, size_t gap, int root) {
    const size_t bytes = PARTS * PART;
    memset(buffer, 0, STEP);
    for (size_t i = 0; i < bytes; i += STEP) {
        int value = rank == root ? element(1, (int)(i / STEP), root) : -1;
        memcpy(buffer + place(i, gap), &value, sizeof value);
    }
    MPI_Bcast(buffer, count, type, root, MPI_COMM_WORLD);
    for (size_t i = 0; i < bytes; i += STEP) {
        int value;
        memcpy(&value, buffer + place(i, gap), sizeof value);
        expect(value == element(1, (int)(i / STEP), root), "%s from %d: %d at byte %zu", name, root, value, i);
    }
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    for (int i = 0; i < 5; i++) MPI_Barrier(MPI_COMM_WORLD);
    if (ranks != 2) return finish();
    buffer = malloc(PARTS * PART + GAP);
    if (!buffer) abort();
    MPI_Datatype part, dense, gap;
    MPI_Type_contiguous(PART, MPI_BYTE, &part);
    MPI_Type_contiguous(PARTS, part, &dense);
    MPI_Type_create_hvector(2, PARTS / 2, PARTS / 2 * PART + GAP, part, &gap);
    MPI_Type_commit(&part);
    MPI_Type_commit(&dense);
    MPI_Type_commit(&gap);
    if (rank == 0) check_bcast("dense", 1, dense, 0, 0);
    else check_bcast("parts of a dense one", PARTS, part, 0, 0);
    for (int root = 0; root < 2; root++) {
        if (rank == 0) check_bcast("one with a gap", 1, gap, GAP, root);
        else check_bcast("parts of one with a gap", PARTS, part, 0, root);
    }
    MPI_Type_free(&part);
    MPI_Type_free(&dense);
    MPI_Type_free(&gap);
    free(buffer);
    return finish();
}

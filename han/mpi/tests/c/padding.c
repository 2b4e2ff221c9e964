/* Pairs of a value and an index, in whose padding the program keeps something of its own: no reduction writes to it. */
#include "check.h"

enum { OTHER = 77, MOST = 20000 };

struct of_double { double value; int index, own; };
struct of_long { long value; int index, own; };
struct of_short { short value, own; int index; };

/* The index of the greater value, as MPI_MAXLOC has it. */
static void greater(void *left, void *right, int *count, MPI_Datatype *datatype) {
    struct of_double *a = left, *b = right;
    (void)datatype;
    for (int i = 0; i < *count; i++)
        if (a[i].value > b[i].value) b[i].value = a[i].value, b[i].index = a[i].index;
}

/* Every way to reduce `count` pairs, of which rank `i % size` has the greatest one. */
#define REDUCTIONS(pair, type, op) do { \
    static struct pair mine[MOST], all[MOST]; \
    for (int way = 0; way < 5; way++) { \
        for (int i = 0; i < count; i++) { \
            mine[i] = (struct pair){.value = i % size == rank, .index = rank, .own = 100 + rank}; \
            all[i] = way == 1 || way == 3 ? mine[i] : (struct pair){.own = OTHER}; \
        } \
        MPI_Request request = MPI_REQUEST_NULL; \
        if (way == 0) MPI_Allreduce(mine, all, count, type, op, MPI_COMM_WORLD); \
        if (way == 1) MPI_Allreduce(MPI_IN_PLACE, all, count, type, op, MPI_COMM_WORLD); \
        if (way == 2) MPI_Reduce(mine, all, count, type, op, size - 1, MPI_COMM_WORLD); \
        if (way == 3) MPI_Iallreduce(MPI_IN_PLACE, all, count, type, op, MPI_COMM_WORLD, &request); \
        if (way == 4) MPI_Ireduce(mine, all, count, type, op, 0, MPI_COMM_WORLD, &request); \
        MPI_Wait(&request, MPI_STATUS_IGNORE); \
        int has_result = way == 2 ? rank == size - 1 : way == 4 ? rank == 0 : 1; \
        for (int i = 0; i < count; i++) { \
            CHECK(!has_result || (all[i].value == 1 && all[i].index == i % size)); \
            CHECK(all[i].own == (way == 1 || way == 3 ? 100 + rank : OTHER) && mine[i].own == 100 + rank); \
        } \
    } \
} while (0)

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    begin();
    MPI_Op op;
    MPI_Op_create(greater, 1, &op);
    static const int counts[] = {1, 7, 300, MOST};
    for (int c = 0; c < 4; c++) {
        int count = counts[c];
        REDUCTIONS(of_double, MPI_DOUBLE_INT, MPI_MAXLOC);
        REDUCTIONS(of_long, MPI_LONG_INT, MPI_MAXLOC);
        REDUCTIONS(of_short, MPI_SHORT_INT, MPI_MAXLOC);
        REDUCTIONS(of_double, MPI_DOUBLE_INT, op);
    }
    MPI_Op_free(&op);
    return finish();
}

/* Elements of predefined datatypes that have no gaps are broadcast from where they are: nobody makes a copy of them, whether or not
 * the library can reduce them. */
#include "check.h"
#include <sys/resource.h>
#include <string.h>

enum { MIB = 1 << 20, BYTES = 64 * MIB };

/* The most memory that this rank has had, in MiB. */
static long most(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss / 1024;
}

/* How much the most grows in a bcast of that type. */
static long grown(unsigned char *data, MPI_Datatype type) {
    int bytes;
    MPI_Type_size(type, &bytes);
    memset(data, rank == 0 ? 42 : 0, BYTES);
    long before = most();
    MPI_Bcast(data, BYTES / bytes, type, 0, MPI_COMM_WORLD);
    for (int i = 0; i < BYTES; i += MIB / 2 + 1) CHECK(data[i] == 42);
    return most() - before;
}

int main(int argc, char **argv) {
    MPI_Datatype four, kind;
    MPI_Init(&argc, &argv);
    begin();
    unsigned char *data = malloc(BYTES);
    if (!data) abort();
    MPI_Type_contiguous(4, MPI_C_LONG_DOUBLE_COMPLEX, &four);
    MPI_Type_commit(&four);
    MPI_Type_create_f90_real(15, MPI_UNDEFINED, &kind);
    MPI_Datatype types[] = {MPI_BYTE, MPI_C_LONG_DOUBLE_COMPLEX, four, kind};
    for (int i = 0; i < 4; i++) {
        long more = grown(data, types[i]);
        if (i > 0 && more > 16) {
            printf("rank %d: type %d takes %ld MiB more\n", rank, i, more);
            failures++;
        }
    }
    MPI_Type_free(&four);
    free(data);
    return finish();
}

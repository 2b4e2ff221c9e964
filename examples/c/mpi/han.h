/*
 * The calls of han.h that the programs of this folder's parent make, spelled with MPI: the same source is
 * then an MPI program, which does the same beside other libraries.
 *
 *   mpicc -O3 -ffp-contract=off -Impi asp.c -o asp-mpi -lm
 */
#ifndef HAN_OVER_MPI_H
#define HAN_OVER_MPI_H

#include <limits.h>
#include <mpi.h>
#include <stddef.h>
#include <stdlib.h>

#define HAN_SUCCESS MPI_SUCCESS
#define HAN_IN_PLACE MPI_IN_PLACE
#define HAN_INT32 MPI_INT32_T
#define HAN_UINT32 MPI_UINT32_T
#define HAN_UINT64 MPI_UINT64_T
#define HAN_DOUBLE MPI_DOUBLE
#define HAN_2INT MPI_2INT
#define HAN_SUM MPI_SUM
#define HAN_MIN MPI_MIN
#define HAN_MAX MPI_MAX
#define HAN_BXOR MPI_BXOR
#define HAN_MAXLOC MPI_MAXLOC

typedef MPI_Comm han_comm_t;
typedef MPI_Datatype han_datatype_t;
typedef MPI_Op han_op_t;

/* MPI's default error handler has ended the program before this is asked for. */
static inline const char *han_last_error_message(void) { return "an MPI call failed"; }

static inline int han_init(void) { return MPI_Init(NULL, NULL); }
static inline int han_finalize(void) { return MPI_Finalize(); }

static inline int han_comm_world(han_comm_t *comm) {
    *comm = MPI_COMM_WORLD;
    return MPI_SUCCESS;
}

static inline int han_comm_rank(han_comm_t comm, int *rank) { return MPI_Comm_rank(comm, rank); }
static inline int han_comm_size(han_comm_t comm, int *size) { return MPI_Comm_size(comm, size); }

static inline int han_bcast(void *buffer, size_t count, han_datatype_t datatype, int root, han_comm_t comm) {
    return count > INT_MAX ? MPI_ERR_COUNT : MPI_Bcast(buffer, (int)count, datatype, root, comm);
}

static inline int han_allreduce(const void *sendbuf, void *recvbuf, size_t count, han_datatype_t datatype,
                                han_op_t op, han_comm_t comm) {
    return count > INT_MAX ? MPI_ERR_COUNT : MPI_Allreduce(sendbuf, recvbuf, (int)count, datatype, op, comm);
}

/* Memory that peers can reach is ordinary memory here. */
static inline int han_malloc(size_t bytes, void **memory) {
    *memory = malloc(bytes);
    return *memory ? MPI_SUCCESS : MPI_ERR_NO_MEM;
}

static inline int han_free(void *memory) {
    free(memory);
    return MPI_SUCCESS;
}

#endif

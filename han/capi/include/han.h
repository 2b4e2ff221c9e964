/*
 * han: collective communication between the processes of a parallel program.
 *
 * A program
 *
 *     #include <han.h>
 *     #include <stdio.h>
 *
 *     int main(void) {
 *         han_comm_t world;
 *         int rank;
 *         if (han_init() != HAN_SUCCESS) {
 *             fprintf(stderr, "%s\n", han_last_error_message());
 *             return 1;
 *         }
 *         han_comm_world(&world);
 *         han_comm_rank(world, &rank);
 *         double mine = rank + 1, sum = 0;
 *         han_allreduce(&mine, &sum, 1, HAN_DOUBLE, HAN_SUM, world);
 *         printf("rank %d: the sum is %g\n", rank, sum);
 *         return han_finalize();
 *     }
 *
 * is built with `cc prog.c $(pkg-config --cflags --libs han)` and started with `han run -n 4 -- ./a.out`
 * or `mpiexec -n 4 ./a.out` (Hydra). Started alone, it is a world of one rank.
 *
 * Rules that hold for every function
 *
 * - It returns 0 (HAN_SUCCESS) or an error code of `enum han_error`. han_strerror() gives the code's
 *   meaning, han_last_error_message() the full sentence: which argument, rank or process, and what
 *   would be right. Where a call fails, a handle or pointer that it would have given is null, and the
 *   flag of han_test is 0 unless the operation is complete. A failed call has no other effect than what
 *   is said of the function, except that HAN_ERR_PEER_DIED, HAN_ERR_MISMATCH, HAN_ERR_ABORTED,
 *   HAN_ERR_TIMEOUT and a collective's HAN_ERR_SYSTEM end the job's communication: every later call
 *   that communicates returns the same error, on every rank.
 * - Wrong arguments (a null pointer, a negative rank, a handle that was freed or never existed, an
 *   unknown datatype) give an error code, not a crash. What cannot be checked is a pointer's target:
 *   a buffer must have room for `count` elements, a result pointer must be valid or NULL.
 * - Collective functions must be called by every rank of the communicator, in the same order, with
 *   the same root, count, datatype and operator. If they disagree, every rank receives
 *   HAN_ERR_MISMATCH with a message that shows both sides: from this operation, or from the next one in which
 *   it needs something of another. Ranks that only send, such as a root, run at most 128 operations ahead.
 * - Threads: at most one thread may be in a han function at a time (MPI_THREAD_SERIALIZED), and
 *   calls from different threads must be ordered by the program (a mutex, a join). A call that finds
 *   another one in progress, also from within a callback, fails with HAN_ERR_THREAD.
 *   Free of this rule are han_strerror, han_last_error_message, han_version and han_initialized.
 *   No thread is cancelled (pthread_cancel) while it is in a han function, and none leaves one by longjmp.
 *   The main thread does not end (pthread_exit) before han_finalize has returned: peers reach the memory
 *   of the process by it.
 * - Arguments stand in MPI's order. Counts are elements, not bytes, and may exceed 2^31. A buffer
 *   may be NULL when the count is 0. Send and receive buffers must not overlap; HAN_IN_PLACE as the
 *   send buffer takes the input from the receive buffer.
 * - Every rank receives the same bits.
 *
 * Environment: HAN_LOG, HAN_TRACE, HAN_TUNING, HAN_WATCHDOG, HAN_REPRODUCIBLE, HAN_PROVIDER,
 * HAN_INTERFACE, HAN_SET; `han info` lists their values and meaning. They are read once, by han_init.
 */
#ifndef HAN_H
#define HAN_H

#include <stddef.h>
#include <stdint.h>

#define HAN_VERSION_MAJOR 0
#define HAN_VERSION_MINOR 1
#define HAN_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Handles --------------------------------------------------------------------------------
 * Handles are values to compare and to pass on; they point at nothing. A freed handle never comes
 * to stand for another object.
 */

/* A communicator: an ordered group of ranks. */
typedef struct han_comm *han_comm_t;
/* An operation that has been started, or a persistent one. */
typedef struct han_request *han_request_t;
/* A reduction operator. */
typedef struct han_op *han_op_t;

#define HAN_COMM_NULL ((han_comm_t)0)
#define HAN_REQUEST_NULL ((han_request_t)0)
#define HAN_OP_NULL ((han_op_t)0)

/* As the send buffer: the input is in the receive buffer, which the result replaces. */
#define HAN_IN_PLACE ((void *)(intptr_t)-1)

/* As the colour in han_comm_split: this rank joins no new communicator. */
#define HAN_UNDEFINED (-32766)

/* ---- Error codes ---------------------------------------------------------------------------- */

enum han_error {
    HAN_SUCCESS = 0,
    HAN_ERR_ARG = 1,             /* an argument that no other code describes, such as a null pointer */
    HAN_ERR_BUFFER = 2,          /* a null buffer, buffers that overlap, HAN_IN_PLACE out of place */
    HAN_ERR_COUNT = 3,           /* a count whose bytes exceed the address space, or negative (Fortran) */
    HAN_ERR_DATATYPE = 4,        /* not a datatype */
    HAN_ERR_OP = 5,              /* not an operator, or not one for this datatype */
    HAN_ERR_ROOT = 6,            /* a root outside the communicator */
    HAN_ERR_COMM = 7,            /* not a communicator, or one that was freed */
    HAN_ERR_REQUEST = 8,         /* not a request, or not in the state that the call needs */
    HAN_ERR_TRUNCATE = 9,        /* the caller's text buffer is too small */
    HAN_ERR_NOT_INITIALIZED = 10, /* before han_init, after han_finalize, in a forked child */
    HAN_ERR_INITIALIZED = 11,    /* han_init more than once in a process */
    HAN_ERR_THREAD = 12,         /* another han call is in progress */
    HAN_ERR_CONFIG = 13,         /* a bad value in the environment; the message lists the valid ones */
    HAN_ERR_BOOTSTRAP = 14,      /* the ranks could not find each other */
    HAN_ERR_PEER_DIED = 15,      /* a rank ended without han_finalize, or cannot be reached */
    HAN_ERR_MISMATCH = 16,       /* the ranks disagree on what is being done */
    HAN_ERR_ABORTED = 17,        /* a rank called han_abort, or the job is being ended */
    HAN_ERR_TIMEOUT = 18,        /* a wait exceeded the configured limit */
    HAN_ERR_UNSUPPORTED = 19,    /* not available in this build or on this machine */
    HAN_ERR_SYSTEM = 20,         /* a system call failed; the message names it */
    HAN_ERR_NO_MEMORY = 21,      /* out of memory */
    HAN_ERR_INTERNAL = 22        /* a fault in han itself; the job has ended, han cannot be used any more */
};

/* What an error code means, in a few words. Never NULL. */
const char *han_strerror(int error);

/*
 * The full sentence about the last call on this thread that failed; empty if none did. Never NULL;
 * valid until two more calls on this thread have failed.
 */
const char *han_last_error_message(void);

/* ---- Start and end -------------------------------------------------------------------------- */

/*
 * Starts han in this process; once per process, and collective over the job. The launcher is found
 * by its environment (HAN_RENDEZVOUS with HAN_RANK and HAN_SIZE; PMI-1: `han run`, Hydra's mpiexec,
 * `srun --mpi=pmi2`; PMIx: mpirun, prterun, `srun --mpi=pmix`); without one, the world is this rank alone.
 */
int han_init(void);

/*
 * An allgather that the caller provides: every rank gives `bytes` bytes at `send`, and receives those
 * of all ranks, in rank order, at `recv` (size * bytes). `bytes` is the same on every rank. Returns 0
 * for success, and only then. han believes what it gathers, which are processes and addresses among
 * other things. It must not call han functions, and must not end by longjmp or a C++ exception.
 */
typedef int (*han_allgather_function)(const void *send, size_t bytes, void *recv, void *ctx);

/*
 * Starts han without a launcher. `allgather` is called with `ctx` several times, from within han
 * functions that are collective over the world, until han_finalize has returned.
 */
int han_init_oob(int rank, int size, han_allgather_function allgather, void *ctx);

/* *flag = 1 between a successful han_init and han_finalize, else 0; also 0 in a forked child, which is no rank. */
int han_initialized(int *flag);

/*
 * Ends han; collective over the world. Requests that were started must have been completed, else it returns
 * HAN_ERR_REQUEST, and han goes on. Persistent requests, communicators, operators and memory of han_malloc that still
 * exist are freed, registered memory becomes private. All of this is done as well where it returns that a rank has died
 * or another error of the job, or HAN_ERR_SYSTEM because the file of HAN_TRACE cannot be written. A process that exits
 * without it counts as dead, and its peers receive HAN_ERR_PEER_DIED.
 */
int han_finalize(void);

/*
 * Ends the whole job: this process exits with `code`, peers receive HAN_ERR_ABORTED, or, if another han call
 * is in progress (around a callback, or on another thread), HAN_ERR_PEER_DIED. Does not return. Of a code
 * the system keeps the lowest eight bits; where these are 0 and `code` is not, it is 1.
 */
int han_abort(int code);

/* The version of the library; compare with HAN_VERSION_*. Each pointer may be NULL. */
int han_version(int *major, int *minor, int *patch);

/* ---- Communicators -------------------------------------------------------------------------- */

/* The communicator of all ranks. It cannot be freed. */
int han_comm_world(han_comm_t *comm);

/* This process's rank in the communicator, from 0. */
int han_comm_rank(han_comm_t comm, int *rank);

/* The number of ranks. */
int han_comm_size(han_comm_t comm, int *size);

/* A communicator of the same ranks in the same order, separate from `comm`. Collective. */
int han_comm_dup(han_comm_t comm, han_comm_t *newcomm);

/*
 * One communicator for each colour, of the ranks that gave it, ordered by key and then by rank in
 * `comm`. `color` is not negative, or HAN_UNDEFINED, which gives HAN_COMM_NULL. Collective.
 */
int han_comm_split(han_comm_t comm, int color, int key, han_comm_t *newcomm);

/*
 * Frees the communicator and sets *comm = HAN_COMM_NULL. Every rank calls it; it does not wait.
 * Operations that were started on it may still be completed.
 */
int han_comm_free(han_comm_t *comm);

/*
 * Writes what was chosen for this communicator, and why, as text of several lines into
 * `text[0 .. size)`, always ended by NUL. HAN_ERR_TRUNCATE if it was cut; the message tells the size.
 */
int han_comm_describe(han_comm_t comm, char *text, size_t size);

/* ---- Datatypes ------------------------------------------------------------------------------
 *
 * Beside those of the enumeration there are records: HAN_RECORD(bytes), of 1 to 1024 bytes, stands
 * for any type of that size which holds no pointers, for instance HAN_RECORD(sizeof(struct particle)).
 * Only operators of the program's own reduce records; han_bcast carries them.
 */

typedef enum han_datatype {
    HAN_DATATYPE_NULL = -1,
    HAN_INT8 = 0,
    HAN_INT16 = 1,           /* short */
    HAN_INT32 = 2,           /* int */
    HAN_INT64 = 3,           /* long and long long */
    HAN_UINT8 = 4,
    HAN_UINT16 = 5,
    HAN_UINT32 = 6,
    HAN_UINT64 = 7,
    HAN_FLOAT16 = 8,         /* IEEE binary16; sums and products in float on a node, rounded between nodes */
    HAN_BFLOAT16 = 9,        /* the upper half of a float; the same */
    HAN_FLOAT = 10,
    HAN_DOUBLE = 11,
    HAN_COMPLEX_FLOAT = 12,  /* float _Complex, std::complex<float> */
    HAN_COMPLEX_DOUBLE = 13, /* double _Complex, std::complex<double> */
    HAN_BOOL = 14,           /* _Bool, C++ bool */
    HAN_BYTE = 15,           /* 8 bits without arithmetic */
    HAN_FLOAT_INT = 16,      /* struct { float value; int index; } */
    HAN_DOUBLE_INT = 17,     /* struct { double value; int index; } */
    HAN_LONG_INT = 18,       /* struct { long value; int index; } */
    HAN_2INT = 19,           /* struct { int value; int index; } */
    HAN_SHORT_INT = 20,      /* struct { short value; int index; } */
    HAN_RECORD_LARGEST = 5120 /* HAN_RECORD(1024) */
} han_datatype_t;

#define HAN_RECORD(bytes) ((han_datatype_t)(4096 + (bytes)))

/* Bytes from one element to the next. */
int han_datatype_size(han_datatype_t datatype, size_t *bytes);

/* ---- Operators ------------------------------------------------------------------------------
 *
 *   datatypes                      operators
 *   HAN_INT8 .. HAN_UINT64         all but MINLOC and MAXLOC; sums and products wrap
 *   HAN_FLOAT16 .. HAN_DOUBLE      SUM PROD MIN MAX
 *   HAN_COMPLEX_*                  SUM PROD
 *   HAN_BOOL                       LAND LOR LXOR
 *   HAN_BYTE                       BAND BOR BXOR
 *   pairs (HAN_FLOAT_INT, ...)     MINLOC MAXLOC; among equal values the least index
 *   HAN_RECORD(bytes)              none but those of han_op_create
 *
 * MIN, MAX, MINLOC and MAXLOC keep a NaN that stands on the left of a comparison and pass over one on the
 * right: where ranks have NaNs, the result depends on which ranks these are, and on the form that was chosen.
 */
#define HAN_SUM ((han_op_t)1)
#define HAN_PROD ((han_op_t)2)
#define HAN_MIN ((han_op_t)3)
#define HAN_MAX ((han_op_t)4)
#define HAN_LAND ((han_op_t)5)
#define HAN_LOR ((han_op_t)6)
#define HAN_LXOR ((han_op_t)7)
#define HAN_BAND ((han_op_t)8)
#define HAN_BOR ((han_op_t)9)
#define HAN_BXOR ((han_op_t)10)
#define HAN_MINLOC ((han_op_t)11)
#define HAN_MAXLOC ((han_op_t)12)

/*
 * An operator of the program's: inout[i] = in[i] op inout[i] for `count` elements, `in` being the
 * operand on the left. The arrays are aligned for the datatype (for a record to the largest power of
 * two that divides its size, at most 16) and do not overlap. `count` may be a part of the collective's
 * count. It must not call han functions other than han_abort, and must not end by longjmp or a C++
 * exception. A child that is forked in it is ended when it returns.
 */
typedef void (*han_op_function)(const void *in, void *inout, size_t count, han_datatype_t datatype,
                                void *ctx);

/*
 * Makes an operator of an associative function, which is called with `ctx`. If `commutative` is 0,
 * operands are combined in the order of their ranks; otherwise in any order. Local.
 */
int han_op_create(han_op_function function, void *ctx, int commutative, han_op_t *op);

/*
 * Frees an operator and sets *op = HAN_OP_NULL. Operations that were started with it may still be
 * completed, and persistent ones started: `function` and `ctx` must live until then.
 */
int han_op_free(han_op_t *op);

/* ---- Blocking collectives ------------------------------------------------------------------- */

/* Returns when every rank has called it. */
int han_barrier(han_comm_t comm);

/* The root's `buffer` is copied into that of every rank. */
int han_bcast(void *buffer, size_t count, han_datatype_t datatype, int root, han_comm_t comm);

/*
 * recvbuf[i] = sendbuf[i] of rank 0 op sendbuf[i] of rank 1 op ..., on the root. `recvbuf` is not used
 * on other ranks and may be NULL there. The root may pass HAN_IN_PLACE as `sendbuf`; the others may not.
 */
int han_reduce(const void *sendbuf, void *recvbuf, size_t count, han_datatype_t datatype, han_op_t op,
               int root, han_comm_t comm);

/* As han_reduce, with the result on every rank. Each rank may pass HAN_IN_PLACE, whether others do or not. */
int han_allreduce(const void *sendbuf, void *recvbuf, size_t count, han_datatype_t datatype, han_op_t op,
                  han_comm_t comm);

/* ---- Non-blocking collectives ---------------------------------------------------------------
 * They start the operation and return a request. Until the request is complete, the program must not
 * write to the buffers, nor read those that receive. Several may be outstanding on a communicator;
 * they are started in the same order on every rank and completed in any order. Progress is made
 * within han functions. If one returns an error, *request = HAN_REQUEST_NULL.
 */
int han_ibarrier(han_comm_t comm, han_request_t *request);
int han_ibcast(void *buffer, size_t count, han_datatype_t datatype, int root, han_comm_t comm,
               han_request_t *request);
int han_ireduce(const void *sendbuf, void *recvbuf, size_t count, han_datatype_t datatype, han_op_t op,
                int root, han_comm_t comm, han_request_t *request);
int han_iallreduce(const void *sendbuf, void *recvbuf, size_t count, han_datatype_t datatype, han_op_t op,
                   han_comm_t comm, han_request_t *request);

/*
 * *flag = 1 if the operation is complete, else 0. A complete request is released and
 * *request = HAN_REQUEST_NULL; a persistent one stays and becomes inactive. HAN_REQUEST_NULL and an
 * inactive request are complete. An error of the operation is returned here and completes it.
 */
int han_test(han_request_t *request, int *flag);

/* Waits until the operation is complete; then as han_test. */
int han_wait(han_request_t *request);

/*
 * Waits until all are complete, in whatever order. Returns the first error, in the array's order. No request stands
 * in the array twice, but HAN_REQUEST_NULL may.
 */
int han_waitall(size_t count, han_request_t requests[]);

/* ---- Persistent collectives -----------------------------------------------------------------
 * They check and record the arguments once (local). han_start starts the operation with them, as the
 * non-blocking function would; han_wait or han_test completes it; then it may be started again.
 */
int han_barrier_init(han_comm_t comm, han_request_t *request);
int han_bcast_init(void *buffer, size_t count, han_datatype_t datatype, int root, han_comm_t comm,
                   han_request_t *request);
int han_reduce_init(const void *sendbuf, void *recvbuf, size_t count, han_datatype_t datatype, han_op_t op,
                    int root, han_comm_t comm, han_request_t *request);
int han_allreduce_init(const void *sendbuf, void *recvbuf, size_t count, han_datatype_t datatype,
                       han_op_t op, han_comm_t comm, han_request_t *request);

/* Starts a persistent request that is inactive. */
int han_start(han_request_t *request);

/* Frees a persistent request that is inactive and sets *request = HAN_REQUEST_NULL. */
int han_request_free(han_request_t *request);

/* ---- Memory --------------------------------------------------------------------------------- */

/*
 * Memory for buffers: aligned to pages from 4096 bytes on, to 128 bytes below; its contents undefined. Any
 * memory may be a buffer; this is the memory that the other ranks of the node read and write directly
 * where they can map it (han_comm_describe tells; elsewhere it is ordinary memory). Pages are placed near
 * the core that touches them first. A forked child shares it with its parent. 0 bytes give NULL.
 */
int han_malloc(size_t bytes, void **pointer);

/*
 * Frees memory of han_malloc that no operation uses; NULL is allowed. Up to 32 MiB are kept for the next han_malloc, which is
 * quick then.
 */
int han_free(void *pointer);

/* han_register and han_unregister exist. */
#define HAN_HAS_REGISTER 1

/*
 * Lets the other ranks of the node read and write ordinary memory directly, as if it came from han_malloc:
 * memory of malloc or of an anonymous private mmap, of any size and alignment. Not collective. Address and
 * contents stay; the pages that the buffer lies on are moved into shared memory, also what else is on the
 * first and the last of them. Buffers may have such pages in common.
 *
 * Rules: until it returns, no other thread writes to these pages (not even to other data on the first and
 * the last). han_unregister comes before the memory is freed, moved by realloc or mapped over. Memory that is pinned for a device
 * must not be registered. What madvise was told of the pages (MADV_WIPEONFORK, MADV_DONTFORK, MADV_DONTDUMP, MADV_MERGEABLE,
 * MADV_HUGEPAGE, MADV_NOHUGEPAGE) is lost, also once they are private again. After fork, the child has the memory as it was, and what it
 * writes is its own; what its parent writes later may show in the child. After a fork, memory that is private again stays in use until nothing
 * is registered any more. A child of a bare clone() is not protected so. In a process of
 * several threads, fork works on locks of the C library's in the child; if one lies on the first or the last page
 * (that of a FILE, or of the arena from which a thread's malloc takes small blocks), the child ends by SIGSEGV
 * before fork returns in it, and its parent is unharmed. Programs that fork and have threads register buffers of
 * whole pages, or take han_malloc.
 *
 * Registered memory has huge pages only where the system gives them to all shared memory
 * (/sys/kernel/mm/transparent_hugepage/shmem_enabled: always or within_size), memory of han_malloc also where it says advise;
 * once it is private again it has them where it fills them. Both calls place pages that were touched before near the core of the
 * thread that calls. A rank on several NUMA nodes registers before it touches the memory, or each part by a thread of its node.
 *
 * HAN_ERR_ARG with the reason, and nothing has changed: a stack, a mapping of a file, memory that is
 * read-only, shared, locked (mlock) or not mapped, memory of han_malloc (which needs it not), a buffer that is registered;
 * and pages on which a vector of an operation that is under way lies, if others may be working on it there.
 * HAN_ERR_NO_MEMORY if 256 buffers of this rank are registered already: register one large buffer, not many of its parts.
 * HAN_ERR_SYSTEM if the system does not tell what memory it is, or refuses to share it; so it does where files have a limit
 * (ulimit -f), as registered memory lies in a file as long as the address space; or if the program has closed that file's
 * descriptor, until all buffers are unregistered.
 * Where ranks cannot map memory it returns 0 and has no effect.
 */
int han_register(void *pointer, size_t bytes);

/*
 * Makes memory private again that was registered with this `pointer`; its contents stay. No operation may use
 * it, and until this returns no other thread may access the pages that it lies on. han_finalize does the
 * same with what is still registered.
 *
 * HAN_ERR_ARG if no registered buffer begins there; or if it was freed before, and then it is registered no more.
 * HAN_ERR_SYSTEM if the system does not tell whether it was freed, and it stays registered; or if it cannot make all
 * of the pages private (the message names mmap), and it is registered no more.
 */
int han_unregister(void *pointer);

#ifdef __cplusplus
}
#endif

#endif /* HAN_H */

/* Wrong arguments of every kind give the code that han.h states, change nothing and crash nothing:
 * at the end, everything still works. */
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <unistd.h>

#define NOWHERE ((void *)(intptr_t)0x1234567) /* an address that is not mapped */

static double a[100], b[100];

static void before_init(void) {
    han_comm_t comm = NOWHERE;
    han_request_t request = NOWHERE;
    int flag = 7, major = -1;
    OK(han_initialized(&flag));
    CHECK(flag == 0);
    EXPECT(HAN_ERR_ARG, han_initialized(NULL));
    OK(han_version(&major, NULL, NULL));
    CHECK(major == HAN_VERSION_MAJOR);
    EXPECT(HAN_ERR_NOT_INITIALIZED, han_comm_world(&comm));
    CHECK(comm == HAN_COMM_NULL);
    EXPECT(HAN_ERR_NOT_INITIALIZED, han_barrier(comm));
    EXPECT(HAN_ERR_NOT_INITIALIZED, han_ibarrier(comm, &request));
    CHECK(request == HAN_REQUEST_NULL);
    EXPECT(HAN_ERR_NOT_INITIALIZED, han_finalize());
    EXPECT(HAN_ERR_ARG, han_init_oob(0, 1, NULL, NULL));
    setenv("HAN_SET", "no_such_key=1", 1);
    EXPECT(HAN_ERR_CONFIG, han_init());
    CHECK(strstr(han_last_error_message(), "no_such_key") != NULL);
    unsetenv("HAN_SET"); /* and han_init may be tried again */
}

static void unknown_handles(void) {
    han_comm_t comms[] = {HAN_COMM_NULL, NOWHERE, (han_comm_t)HAN_SUM, (han_comm_t)(intptr_t)-1,
                          (han_comm_t)&rank, (han_comm_t)(intptr_t)((uintptr_t)world + 1)};
    int n = -5;
    for (size_t k = 0; k < sizeof comms / sizeof *comms; k++) {
        han_comm_t comm = comms[k], other = NOWHERE;
        han_request_t request = NOWHERE;
        EXPECT(HAN_ERR_COMM, han_comm_rank(comm, &n));
        EXPECT(HAN_ERR_COMM, han_comm_size(comm, &n));
        EXPECT(HAN_ERR_COMM, han_comm_dup(comm, &other));
        CHECK(other == HAN_COMM_NULL);
        EXPECT(HAN_ERR_COMM, han_comm_split(comm, 0, 0, &other));
        EXPECT(HAN_ERR_COMM, han_comm_free(&comm));
        EXPECT(HAN_ERR_COMM, han_barrier(comm));
        EXPECT(HAN_ERR_COMM, han_bcast(a, 1, HAN_DOUBLE, 0, comm));
        EXPECT(HAN_ERR_COMM, han_reduce(a, b, 1, HAN_DOUBLE, HAN_SUM, 0, comm));
        EXPECT(HAN_ERR_COMM, han_allreduce(a, b, 1, HAN_DOUBLE, HAN_SUM, comm));
        EXPECT(HAN_ERR_COMM, han_iallreduce(a, b, 1, HAN_DOUBLE, HAN_SUM, comm, &request));
        CHECK(request == HAN_REQUEST_NULL);
        EXPECT(HAN_ERR_COMM, han_allreduce_init(a, b, 1, HAN_DOUBLE, HAN_SUM, comm, &request));
        CHECK(n == -5);
    }
    han_op_t ops[] = {HAN_OP_NULL, NOWHERE, (han_op_t)13, (han_op_t)world, (han_op_t)(intptr_t)-1};
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        EXPECT(HAN_ERR_OP, han_allreduce(a, b, 1, HAN_DOUBLE, ops[k], world));
        EXPECT(HAN_ERR_OP, han_reduce(a, b, 0, HAN_DOUBLE, ops[k], 0, world));
        EXPECT(HAN_ERR_OP, han_op_free(&ops[k]));
    }
    han_request_t requests[] = {NOWHERE, (han_request_t)world, (han_request_t)(intptr_t)-1};
    for (size_t k = 0; k < sizeof requests / sizeof *requests; k++) {
        EXPECT(HAN_ERR_REQUEST, han_wait(&requests[k]));
        EXPECT(HAN_ERR_REQUEST, han_test(&requests[k], &n));
        EXPECT(HAN_ERR_REQUEST, han_start(&requests[k]));
        EXPECT(HAN_ERR_REQUEST, han_request_free(&requests[k]));
    }
    EXPECT(HAN_ERR_REQUEST, han_waitall(3, requests));
    han_request_t null = HAN_REQUEST_NULL;
    EXPECT(HAN_ERR_REQUEST, han_start(&null));
    EXPECT(HAN_ERR_REQUEST, han_request_free(&null));
    han_op_t sum = HAN_SUM;
    EXPECT(HAN_ERR_OP, han_op_free(&sum));
    han_comm_t everyone = world;
    EXPECT(HAN_ERR_COMM, han_comm_free(&everyone));
}

static void unknown_datatypes(void) {
    int codes[] = {-1, 21, 255, 256, 10 + 256, -2147483647};
    size_t bytes = 77;
    for (size_t k = 0; k < sizeof codes / sizeof *codes; k++) {
        han_datatype_t datatype = (han_datatype_t)codes[k];
        EXPECT(HAN_ERR_DATATYPE, han_bcast(a, 1, datatype, 0, world));
        EXPECT(HAN_ERR_DATATYPE, han_reduce(a, b, 1, datatype, HAN_SUM, 0, world));
        EXPECT(HAN_ERR_DATATYPE, han_allreduce(a, b, 0, datatype, HAN_SUM, world));
        EXPECT(HAN_ERR_DATATYPE, han_datatype_size(datatype, &bytes));
    }
    CHECK(bytes == 77);
    EXPECT(HAN_ERR_OP, han_allreduce(a, b, 1, HAN_DOUBLE, HAN_BAND, world));
    const char *of_double = "operator HAN_BAND is not defined for the datatype HAN_DOUBLE, which has HAN_SUM, HAN_PROD, ";
    CHECK(strstr(han_last_error_message(), of_double));
    EXPECT(HAN_ERR_OP, han_allreduce(a, b, 1, HAN_LONG_INT, HAN_SUM, world));
    const char *of_pair = "datatype HAN_LONG_INT, which has HAN_MINLOC, HAN_MAXLOC; HAN_INT64 is that of a value without";
    CHECK(strstr(han_last_error_message(), of_pair));
    EXPECT(HAN_ERR_OP, han_allreduce(a, b, 1, HAN_RECORD(24), HAN_SUM, world));
    CHECK(strstr(han_last_error_message(), "datatype HAN_RECORD(24), which has those of han_op_create alone"));
    EXPECT(HAN_ERR_OP, han_allreduce(a, b, 1, HAN_DOUBLE_INT, HAN_SUM, world));
    EXPECT(HAN_ERR_OP, han_allreduce(a, b, 1, HAN_BYTE, HAN_SUM, world));
}

static void null_pointers(void) {
    han_request_t request;
    EXPECT(HAN_ERR_ARG, han_comm_world(NULL));
    EXPECT(HAN_ERR_ARG, han_comm_rank(world, NULL));
    EXPECT(HAN_ERR_ARG, han_comm_size(world, NULL));
    EXPECT(HAN_ERR_ARG, han_comm_dup(world, NULL));
    EXPECT(HAN_ERR_ARG, han_comm_split(world, 0, 0, NULL));
    EXPECT(HAN_ERR_ARG, han_comm_free(NULL));
    EXPECT(HAN_ERR_ARG, han_comm_describe(world, NULL, 10));
    EXPECT(HAN_ERR_ARG, han_datatype_size(HAN_INT8, NULL));
    EXPECT(HAN_ERR_ARG, han_op_create(NULL, NULL, 1, (han_op_t[1]){0}));
    EXPECT(HAN_ERR_ARG, han_op_free(NULL));
    EXPECT(HAN_ERR_ARG, han_ibarrier(world, NULL));
    EXPECT(HAN_ERR_ARG, han_ibcast(a, 1, HAN_DOUBLE, 0, world, NULL));
    EXPECT(HAN_ERR_ARG, han_iallreduce(a, b, 1, HAN_DOUBLE, HAN_SUM, world, NULL));
    EXPECT(HAN_ERR_ARG, han_barrier_init(world, NULL));
    EXPECT(HAN_ERR_ARG, han_test(&request, NULL));
    EXPECT(HAN_ERR_ARG, han_test(NULL, &rank));
    CHECK(rank == 0); /* it stores 0: not complete */
    OK(han_comm_rank(world, &rank));
    EXPECT(HAN_ERR_ARG, han_wait(NULL));
    EXPECT(HAN_ERR_ARG, han_waitall(2, NULL));
    EXPECT(HAN_ERR_COUNT, han_waitall(SIZE_MAX, &request));
    EXPECT(HAN_ERR_ARG, han_start(NULL));
    EXPECT(HAN_ERR_ARG, han_request_free(NULL));
    EXPECT(HAN_ERR_ARG, han_malloc(10, NULL));

    EXPECT(HAN_ERR_BUFFER, han_bcast(NULL, 1, HAN_DOUBLE, 0, world));
    EXPECT(HAN_ERR_BUFFER, han_allreduce(NULL, b, 1, HAN_DOUBLE, HAN_SUM, world));
    EXPECT(HAN_ERR_BUFFER, han_allreduce(a, NULL, 1, HAN_DOUBLE, HAN_SUM, world));
    EXPECT(HAN_ERR_BUFFER, han_reduce(NULL, b, 1, HAN_DOUBLE, HAN_SUM, 0, world));
    EXPECT(HAN_ERR_BUFFER, han_reduce(a, NULL, 1, HAN_DOUBLE, HAN_SUM, rank, world));
}

static void buffers_and_numbers(void) {
    EXPECT(HAN_ERR_BUFFER, han_allreduce(a, a, 10, HAN_DOUBLE, HAN_SUM, world));
    CHECK(strstr(han_last_error_message(), "HAN_IN_PLACE") != NULL);
    EXPECT(HAN_ERR_BUFFER, han_allreduce(a, a + 9, 10, HAN_DOUBLE, HAN_SUM, world));
    EXPECT(HAN_ERR_BUFFER, han_reduce(a + 9, a, 10, HAN_DOUBLE, HAN_SUM, rank, world));
    EXPECT(HAN_ERR_BUFFER, han_allreduce(a, HAN_IN_PLACE, 1, HAN_DOUBLE, HAN_SUM, world));
    EXPECT(HAN_ERR_BUFFER, han_bcast(HAN_IN_PLACE, 1, HAN_DOUBLE, 0, world));
    if (size > 1) {
        EXPECT(HAN_ERR_BUFFER, han_reduce(HAN_IN_PLACE, b, 1, HAN_DOUBLE, HAN_SUM, (rank + 1) % size, world));
    }
    size_t counts[] = {SIZE_MAX, SIZE_MAX / 8 + 1, SIZE_MAX / 16 + 1, (size_t)-5, SIZE_MAX / 16, (size_t)1 << 54};
    for (int k = 0; k < 6; k++) {
        EXPECT(HAN_ERR_COUNT, han_bcast(a, counts[k], HAN_DOUBLE, 0, world));
        EXPECT(HAN_ERR_COUNT, han_allreduce(a, b, counts[k], HAN_DOUBLE, HAN_SUM, world));
    }
    int roots[] = {-1, size, -2147483647 - 1, 2147483647};
    for (int k = 0; k < 4; k++) {
        EXPECT(HAN_ERR_ROOT, han_bcast(a, 1, HAN_DOUBLE, roots[k], world));
        EXPECT(HAN_ERR_ROOT, han_reduce(a, b, 1, HAN_DOUBLE, HAN_SUM, roots[k], world));
        EXPECT(HAN_ERR_ROOT, han_bcast(NULL, 0, HAN_DOUBLE, roots[k], world));
    }
    han_comm_t comm;
    EXPECT(HAN_ERR_ARG, han_comm_split(world, -1, 0, &comm));
    EXPECT(HAN_ERR_ARG, han_comm_split(world, -32765, 0, &comm));
}

static void memory(void) {
    void *p = NOWHERE, *q;
    OK(han_malloc(10000, &p));
    CHECK(p != NULL && (uintptr_t)p % 4096 == 0);
    memset(p, 1, 10000);
    q = p;
    OK(han_free(p));
    EXPECT(HAN_ERR_ARG, han_free(q));
    EXPECT(HAN_ERR_ARG, han_free(a));
    OK(han_free(NULL));
    OK(han_malloc(0, &p));
    CHECK(p == NULL);
    p = NOWHERE;
    EXPECT(HAN_ERR_NO_MEMORY, han_malloc(SIZE_MAX, &p));
    CHECK(p == NULL);
    EXPECT(HAN_ERR_NO_MEMORY, han_malloc(SIZE_MAX / 2 - 8192, &p));
    OK(han_malloc(100, &p)); /* left to han_finalize */
}

/* A request that stands in an array twice: nothing is waited for. */
static void waits(void) {
    han_request_t requests[] = {HAN_REQUEST_NULL, HAN_REQUEST_NULL, HAN_REQUEST_NULL};
    OK(han_ibarrier(world, &requests[0]));
    requests[2] = requests[0];
    EXPECT(HAN_ERR_REQUEST, han_waitall(3, requests));
    requests[2] = HAN_REQUEST_NULL;
    OK(han_waitall(3, requests));
    CHECK(requests[0] == HAN_REQUEST_NULL);
}

/* From within a callback, no han function can be called: not by this thread, nor by another. */
static int refused;
static void *intrude(void *unused) {
    int n;
    (void)unused;
    refused += han_comm_rank(world, &n) == HAN_ERR_THREAD && strlen(han_last_error_message()) > 0;
    return NULL;
}
static void intruding_sum(const void *in, void *inout, size_t count, han_datatype_t datatype, void *ctx) {
    pthread_t thread;
    (void)datatype, (void)ctx;
    for (size_t i = 0; i < count; i++) ((int *)inout)[i] += ((const int *)in)[i];
    intrude(NULL);
    pthread_create(&thread, NULL, intrude, NULL);
    pthread_join(thread, NULL);
}

static void *ordered(void *unused) {
    int one = 1, n = 0;
    (void)unused;
    OK(han_allreduce(&one, &n, 1, HAN_INT32, HAN_SUM, world));
    CHECK(n == size);
    return NULL;
}

static void threads(void) {
    pthread_t thread;
    int one = 1, n = 0;
    han_op_t op;
    OK(han_op_create(intruding_sum, NULL, 1, &op));
    OK(han_allreduce(&one, &n, 1, HAN_INT32, op, world));
    CHECK(n == size);
    OK(han_op_free(&op));
    OK(han_allreduce(HAN_IN_PLACE, &refused, 1, HAN_INT32, HAN_SUM, world));
    CHECK(size == 1 || refused >= 2);
    /* Other threads may call han as long as the calls follow one another. */
    pthread_create(&thread, NULL, ordered, NULL);
    pthread_join(thread, NULL);
    ordered(NULL);
}

/* The message of a failure is there until the process has ended. */
static void at_exit(void) {
    if (han_comm_rank(world, NULL) == HAN_SUCCESS || strlen(han_last_error_message()) == 0) _exit(1);
}

int main(void) {
    CHECK(atexit(at_exit) == 0);
    for (int code = -3; code < 30; code++) CHECK(strlen(han_strerror(code)) > 3);
    CHECK(han_last_error_message()[0] == '\0');
    before_init();
    start();
    EXPECT(HAN_ERR_INITIALIZED, han_init());
    unknown_handles();
    unknown_datatypes();
    null_pointers();
    buffers_and_numbers();
    memory();
    waits();
    threads();

    int one = 1, n = 0, flag = 0;
    OK(han_allreduce(&one, &n, 1, HAN_INT32, HAN_SUM, world));
    CHECK(n == size);
    OK(han_initialized(&flag));
    CHECK(flag == 1);
    end();
    OK(han_initialized(&flag));
    CHECK(flag == 0);
    EXPECT(HAN_ERR_NOT_INITIALIZED, han_barrier(world));
    EXPECT(HAN_ERR_NOT_INITIALIZED, han_finalize());
    EXPECT(HAN_ERR_INITIALIZED, han_init());
    return 0;
}

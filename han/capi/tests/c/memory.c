/* Memory that peers can reach: of han_malloc, and registered. */
#define _DEFAULT_SOURCE
#include "check.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT 200000

static void fill(double *v, size_t count) {
    for (size_t i = 0; i < count; i++) v[i] = (double)(rank + 1) * (double)(i % 1000);
}

/* The buffers hold what the collectives say they do. */
static void collectives(double *send, double *recv, size_t count) {
    fill(send, count);
    OK(han_allreduce(send, recv, count, HAN_DOUBLE, HAN_SUM, world));
    double ranks = size * (size + 1) / 2.0;
    for (size_t i = 0; i < count; i++) CHECK(recv[i] == ranks * (double)(i % 1000));
    for (int root = 0; root < size; root++) {
        fill(send, count);
        OK(han_bcast(send, count, HAN_DOUBLE, root, world));
        for (size_t i = 0; i < count; i++) CHECK(send[i] == (double)(root + 1) * (double)(i % 1000));
        OK(han_barrier(world));
    }
}

static void allocated(void) {
    void *send, *recv, *small[100];
    OK(han_malloc(COUNT * sizeof(double), &send));
    OK(han_malloc(COUNT * sizeof(double), &recv));
    void *none = send;
    EXPECT(HAN_ERR_NO_MEMORY, han_malloc((size_t)1 << 46, &none));
    CHECK(strstr(han_last_error_message(), "this machine has") != NULL);
    for (int k = 0; k < 100; k++) {
        OK(han_malloc(1 + k, &small[k]));
        CHECK((uintptr_t)small[k] % 128 == 0);
        memset(small[k], k, 1 + k);
    }
    for (int k = 0; k < 100; k++) {
        for (int i = 0; i <= k; i++) CHECK(((char *)small[k])[i] == k);
        OK(han_free(small[k]));
    }
    collectives(send, recv, COUNT);
    OK(han_free(send));
    OK(han_free(recv));
}

static void registered(void) {
    /* The second is not aligned to anything, and ends where other memory of malloc begins. */
    double *send = malloc(COUNT * sizeof(double)), *other = malloc(5000 * sizeof(double));
    CHECK(send != NULL && other != NULL);
    fill(send, COUNT);
    OK(han_register(send, COUNT * sizeof(double)));
    OK(han_register(other + 1, 4000 * sizeof(double)));
    for (size_t i = 0; i < COUNT; i++) CHECK(send[i] == (double)(rank + 1) * (double)(i % 1000));
    collectives(send, other + 1, 4000);
    for (int k = 0; k < 1000; k++) free(malloc(1 + k)); /* malloc's books may lie on these pages */
    OK(han_unregister(other + 1));
    collectives(send, other + 1, 4000);
    OK(han_unregister(send));
    collectives(send, other + 1, 4000);
    free(send);
    free(other);
}

/* A child that writes everywhere changes nothing here. */
static void forked(void) {
    double *buffer = malloc(COUNT * sizeof(double));
    CHECK(buffer != NULL);
    OK(han_register(buffer, COUNT * sizeof(double)));
    fill(buffer, COUNT);
    pid_t child = fork();
    if (child == 0) {
        int same = 1;
        for (size_t i = 0; i < COUNT; i++) same &= buffer[i] == (double)(rank + 1) * (double)(i % 1000);
        memset(buffer, 0, COUNT * sizeof(double));
        for (int k = 0; k < 1000; k++) free(malloc(100000));
        same &= han_free(NULL) == HAN_ERR_NOT_INITIALIZED; /* the rank is its parent */
        _exit(same ? 42 : 1);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    for (size_t i = 0; i < COUNT; i++) CHECK(buffer[i] == (double)(rank + 1) * (double)(i % 1000));
    OK(han_unregister(buffer));
    free(buffer);
}

static void refused(void) {
    double local[4] = {0};
    void *p;
    EXPECT(HAN_ERR_ARG, han_register(NULL, 10));
    EXPECT(HAN_ERR_ARG, han_unregister(NULL));
    EXPECT(HAN_ERR_ARG, han_register(local, sizeof local));
    CHECK(strstr(han_last_error_message(), "it lies on a stack") != NULL);
    EXPECT(HAN_ERR_ARG, han_register((void *)"constant", 8));
    CHECK(strstr(han_last_error_message(), "a mapping of the file") != NULL);
    OK(han_malloc(100, &p));
    EXPECT(HAN_ERR_ARG, han_register(p, 100));
    OK(han_free(p));
    p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED);
    EXPECT(HAN_ERR_ARG, han_register(p, 0));
    EXPECT(HAN_ERR_ARG, han_register(p, SIZE_MAX));
    OK(han_register(p, 8192));
    EXPECT(HAN_ERR_ARG, han_register(p, 10));
    CHECK(strstr(han_last_error_message(), "registered already") != NULL);
    OK(han_unregister(p));
    EXPECT(HAN_ERR_ARG, han_unregister(p));
    OK(han_register(p, 8192)); /* left to han_finalize */
    memset(p, rank, 8192);
}

int main(void) {
    start();
    allocated();
    registered();
    forked();
    refused();
    void *left;
    OK(han_malloc(100000, &left)); /* as well */
    end();
    return 0;
}

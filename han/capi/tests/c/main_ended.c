/* The main thread ends before han_finalize, against the rules: registered memory keeps its contents. */
#include "check.h"
#include <pthread.h>
#include <sched.h>

#define COUNT 1000000

static int *buffers[2];

/* The kernel calls a process whose main thread has ended a zombie. */
static int main_has_ended(void) {
    char text[4096];
    FILE *file = fopen("/proc/self/stat", "r");
    CHECK(file != NULL);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return strstr(text, ") Z ") != NULL;
}

static void fill(int *v) {
    for (int i = 0; i < COUNT; i++) v[i] = rank + i;
}

static void check(const int *v) {
    for (int i = 0; i < COUNT; i++) CHECK(v[i] == rank + i);
}

static void *go_on(void *unused) {
    (void)unused;
    while (!main_has_ended()) sched_yield();
    for (int k = 0; k < 2; k++) fill(buffers[k]);
    OK(han_unregister(buffers[0]));
    check(buffers[0]);
    OK(han_register(buffers[0] + 1, (COUNT - 1) * sizeof(int)));
    check(buffers[0]);
    OK(han_unregister(buffers[0] + 1));
    check(buffers[0]);
    OK(han_finalize()); /* the other one is left to it */
    check(buffers[1]);
    if (rank == 0) printf("passed on %d ranks\n", size);
    exit(0);
}

int main(void) {
    pthread_t thread;
    start();
    for (int k = 0; k < 2; k++) {
        buffers[k] = malloc(COUNT * sizeof(int));
        CHECK(buffers[k] != NULL);
        OK(han_register(buffers[k], COUNT * sizeof(int)));
    }
    CHECK(pthread_create(&thread, NULL, go_on, NULL) == 0);
    pthread_exit(NULL);
}

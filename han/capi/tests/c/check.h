/* What the test programs share: every CHECK that fails says where, and ends the whole job. */
#ifndef CHECK_H
#define CHECK_H

#include <han.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank = -1, size = -1;
static han_comm_t world;

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: rank %d of %d: not so: %s\n", __FILE__, __LINE__, rank, size, \
                    #condition);                                                                  \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

/* The call returns this code, and if that is an error, leaves a message. */
#define EXPECT(code, call)                                                                        \
    do {                                                                                          \
        int returned_ = (call);                                                                   \
        if (returned_ != (code)) {                                                                \
            fprintf(stderr, "%s:%d: rank %d of %d: %s returned %d (%s: %s), not %s\n", __FILE__,  \
                    __LINE__, rank, size, #call, returned_, han_strerror(returned_),              \
                    han_last_error_message(), #code);                                             \
            exit(1);                                                                              \
        }                                                                                         \
        if (returned_ != HAN_SUCCESS && han_last_error_message()[0] == '\0') {                    \
            fprintf(stderr, "%s:%d: %s failed without a message\n", __FILE__, __LINE__, #call);   \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

#define OK(call) EXPECT(HAN_SUCCESS, call)

static inline void find_world(void) {
    OK(han_comm_world(&world));
    OK(han_comm_rank(world, &rank));
    OK(han_comm_size(world, &size));
}

static inline void start(void) {
    OK(han_init());
    find_world();
}

static inline void end(void) {
    OK(han_finalize());
    if (rank == 0) printf("passed on %d ranks\n", size);
}

#endif

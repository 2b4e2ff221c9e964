/* What peers see when a rank dies, disagrees, or aborts. 
 * Usage: failures died|mismatch|abort|callback */
#include "check.h"
#include <unistd.h>

static void aborting_op(const void *in, void *inout, size_t count, han_datatype_t datatype, void *ctx) {
    (void)in, (void)inout, (void)count, (void)datatype, (void)ctx;
    han_abort(9);
}

/* The first operation, in which a rank that is late may hear already what has become of the others. */
static void meet(const char *mode) {
    int expected = strcmp(mode, "mismatch") == 0 ? HAN_ERR_MISMATCH
                   : strcmp(mode, "abort") == 0  ? HAN_ERR_ABORTED
                                                 : HAN_ERR_PEER_DIED;
    int code = han_barrier(world);
    CHECK(code == HAN_SUCCESS || code == expected);
}

int main(int argc, char **argv) {
    int one = 1, n = 0;
    han_request_t request;
    CHECK(argc == 2);
    start();
    CHECK(size >= 2);
    meet(argv[1]);
    if (strcmp(argv[1], "died") == 0) {
        if (rank == size - 1) _exit(0);
        EXPECT(HAN_ERR_PEER_DIED, han_allreduce(&one, &n, 1, HAN_INT32, HAN_SUM, world));
        char name[32];
        snprintf(name, sizeof name, "rank %d", size - 1);
        CHECK(strstr(han_last_error_message(), name) != NULL);
        EXPECT(HAN_ERR_PEER_DIED, han_barrier(world));
        EXPECT(HAN_ERR_PEER_DIED, han_ibarrier(world, &request));
        CHECK(request == HAN_REQUEST_NULL);
    } else if (strcmp(argv[1], "mismatch") == 0) {
        double x[4] = {0};
        int code = han_bcast(x, rank == 1 ? 3 : 4, HAN_DOUBLE, 0, world);
        CHECK(code == HAN_SUCCESS || code == HAN_ERR_MISMATCH); /* the root does not wait for readers */
        EXPECT(HAN_ERR_MISMATCH, han_barrier(world));
        CHECK(strstr(han_last_error_message(), "count 3") != NULL);
        CHECK(strstr(han_last_error_message(), "count 4") != NULL);
    } else if (strcmp(argv[1], "callback") == 0) {
        han_op_t op;
        OK(han_op_create(aborting_op, NULL, 1, &op));
        OK(han_reduce(&one, &n, 1, HAN_INT32, op, 0, world)); /* the root never leaves it */
        EXPECT(HAN_ERR_PEER_DIED, han_barrier(world));
    } else {
        if (rank == 1) han_abort(7);
        EXPECT(HAN_ERR_ABORTED, han_barrier(world));
        CHECK(strstr(han_last_error_message(), "rank 1") != NULL);
    }
    printf("saw it: %s\n", han_last_error_message());
    fflush(stdout);
    return 0; /* without han_finalize: the job is over */
}

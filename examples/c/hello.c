/* The first program: every rank says hello, and all add up their ranks. */
#include <han.h>
#include <stdio.h>

int main(void) {
    han_comm_t world;
    int rank, size;
    if (han_init() || han_comm_world(&world) || han_comm_rank(world, &rank) || han_comm_size(world, &size)) {
        fprintf(stderr, "hello: %s\n", han_last_error_message());
        return 1;
    }
    printf("hello from rank %d of %d\n", rank, size);
    int sum = rank;
    if (han_allreduce(HAN_IN_PLACE, &sum, 1, HAN_INT32, HAN_SUM, world) != HAN_SUCCESS) {
        fprintf(stderr, "hello: %s\n", han_last_error_message());
        return 1;
    }
    if (rank == 0) printf("the ranks add up to %d\n", sum);
    return han_finalize();
}

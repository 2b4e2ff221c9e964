// An operator that throws: C's callers have no way to be told.
#include <han.h>
#include <stdexcept>

static void thrower(const void *, void *, size_t, han_datatype_t, void *) { throw std::runtime_error("thrown"); }

int main() {
    han_comm_t world;
    han_op_t op;
    int one = 1, n = 0;
    if (han_init() || han_comm_world(&world) || han_op_create(thrower, NULL, 1, &op)) return 2;
    try {
        han_allreduce(&one, &n, 1, HAN_INT32, op, world);
    } catch (...) {
    }
    return 0;
}

// The header in C++, where handles and datatypes are types of their own.
#include <han.h>

#include <complex>
#include <cstdio>
#include <vector>

static_assert(sizeof(han_comm_t) == sizeof(void *), "handles are pointers");
static const han_op_t table[] = {HAN_SUM, HAN_MAXLOC};

struct Particle {
    double place[3];
    int charge;
};
static_assert(HAN_RECORD(sizeof(Particle)) != HAN_RECORD(31) && HAN_RECORD(1024) == HAN_RECORD_LARGEST, "constants");

int main() {
    han_comm_t world = HAN_COMM_NULL;
    std::vector<std::complex<double>> mine(10, {1.0, -2.0}), total(10);
    int rank = -1, size = 0;
    Particle particle = {{1, 2, 3}, 4};
    if (han_init() != HAN_SUCCESS || han_comm_world(&world) || han_comm_size(world, &size) ||
        han_comm_rank(world, &rank) ||
        han_allreduce(mine.data(), total.data(), mine.size(), HAN_COMPLEX_DOUBLE, table[0], world) ||
        han_bcast(&particle, 1, HAN_RECORD(sizeof particle), size - 1, world) ||
        han_allreduce(HAN_IN_PLACE, mine.data(), mine.size(), HAN_COMPLEX_DOUBLE, HAN_SUM, world)) {
        std::fprintf(stderr, "%s\n", han_last_error_message());
        return 1;
    }
    for (std::size_t i = 0; i < mine.size(); i++) {
        if (total[i] != std::complex<double>(size, -2.0 * size) || total[i] != mine[i]) return 2;
    }
    if (han_finalize() != HAN_SUCCESS) return 3;
    if (rank == 0) std::printf("passed on %d ranks\n", size);
    return 0;
}

// A handler of errors throws: the program catches it, and goes on, whoever has found the error.
#include "check.h"
#include <stdexcept>

static void handler(MPI_Comm *, int *, ...) { throw std::runtime_error("an error"); }

// Whether a call ends with the handler's exception.
template <typename Call> static bool throws(Call call) {
    try {
        call();
        return false;
    } catch (const std::runtime_error &) {
        return true;
    }
}

int main(int argc, char **argv) {
    int number = 1, result = 0, got = -1;
    MPI_Errhandler throwing;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    begin();
    MPI_Comm_create_errhandler(handler, &throwing);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, throwing);
    MPI_Errhandler_free(&throwing);
    auto reduce = [&](MPI_Op op) { MPI_Allreduce(&number, &result, 1, MPI_INT, op, MPI_COMM_WORLD); };
    CHECK(throws([&] { MPI_Bcast(&number, 1, MPI_INT, size, MPI_COMM_WORLD); }));
    MPI_Iallreduce(&number, &result, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    CHECK(throws([&] { MPI_Send(&number, 1, MPI_INT, size, 0, MPI_COMM_WORLD); }));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(result == size);
    // From here on, when that is over everywhere, the ranks disagree.
    int everybody[64];
    MPI_Allgather(&rank, 1, MPI_INT, everybody, 1, MPI_INT, MPI_COMM_WORLD);
    CHECK(throws([&] { reduce(rank ? MPI_SUM : MPI_MAX); }));
    CHECK(throws([&] { reduce(MPI_SUM); }));
    CHECK(throws([&] { MPI_Ibarrier(MPI_COMM_WORLD, &request); MPI_Wait(&request, MPI_STATUS_IGNORE); }));
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    MPI_Sendrecv(&rank, 1, MPI_INT, next, 3, &got, 1, MPI_INT, last, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got == last);
    return finish();
}

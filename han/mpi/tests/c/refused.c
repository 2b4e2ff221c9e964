/* A rank has a collective under way and calls MPI_Sendrecv, whose send is refused: its receive takes no message that comes
 * later, and one that fails leaves no send behind. */
#include "check.h"
#include <unistd.h>

int main(int argc, char **argv) {
    enum { FEW = 2, MANY = 20 };
    int one = 1, sum = 0, got = 0, later = 0, few[FEW], many[MANY] = {0};
    MPI_Request request;
    MPI_Init(&argc, &argv);
    begin();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    alarm(60);
    if (rank == 0) {
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        CHECK(MPI_Sendrecv(&one, 1, MPI_INT, size, 7, &later, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MPI_Send(NULL, 0, MPI_INT, 1, 6, MPI_COMM_WORLD);
        MPI_Recv(&got, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(got == 42 && later == 0);
        MPI_Send(NULL, 0, MPI_INT, 1, 8, MPI_COMM_WORLD);
        CHECK(MPI_Sendrecv(&one, 1, MPI_INT, 1, 9, few, FEW, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    } else if (rank == 1) {
        int answer = 42;
        MPI_Recv(NULL, 0, MPI_INT, 0, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&answer, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_INT, 0, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(many, MANY, MPI_INT, 0, 9, MPI_COMM_WORLD);
        MPI_Recv(&got, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(got == 1);
    }
    if (rank) MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum == size);
    return finish();
}

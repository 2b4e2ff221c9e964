/* Rank 0 alone makes calls that the MPI refuses, on communicators that are not taken over yet. They are taken over all the same,
 * when all ranks have made as many good calls. */
#include "check.h"
#include <unistd.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    begin();
    alarm(60);
    for (int way = 0; way < 3; way++) {
        int one = 1, sum = 0;
        MPI_Comm comm;
        MPI_Request request;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        for (int i = 0; i < 10; i++) {
            int code = MPI_ERR_OTHER;
            if (rank == 0 && way == 0) code = MPI_Bcast(&one, -1, MPI_INT, 0, comm);
            if (rank == 0 && way == 1) code = MPI_Ibcast(&one, 1, MPI_INT, size, comm, &request);
            if (rank == 0 && way == 2) code = MPI_Bcast_init(&one, 1, MPI_DATATYPE_NULL, 0, comm, MPI_INFO_NULL, &request);
            CHECK(code != MPI_SUCCESS);
            CHECK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS && sum == size);
        }
        MPI_Comm_free(&comm);
    }
    return finish();
}

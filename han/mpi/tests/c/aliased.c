/* The root of a reduction gives one buffer as input and result, which MPI forbids, to an MPI that has been told not to mind. On
 * other ranks that get no result a second buffer means nothing, so they cannot know. */
#include "check.h"
#include <unistd.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    begin();
    alarm(60);
    for (int root = 0; root < size; root++) {
        int data[3], unused = -1, is_root = rank == root, sum = size * (size + 1) / 2;
        void *recv = is_root ? data : &unused;
        MPI_Request request;
        for (int way = 0; way < 3; way++) {
            for (int i = 0; i < 3; i++) data[i] = rank + 1;
            if (way == 0) {
                MPI_Reduce(data, recv, 3, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD);
            } else {
                if (way == 1) MPI_Ireduce(data, recv, 3, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD, &request);
                if (way == 2) MPI_Reduce_init(data, recv, 3, MPI_INT, MPI_SUM, root, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
                if (way == 2) MPI_Start(&request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
                if (way == 2) MPI_Request_free(&request);
            }
            for (int i = 0; i < 3; i++) CHECK(data[i] == (is_root ? sum : rank + 1));
        }
        MPI_Allreduce(data, data, 3, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        for (int i = 0; i < 3; i++) CHECK(data[i] == (size > 1 ? sum : 1));
    }
    return finish();
}

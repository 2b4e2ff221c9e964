/* A rank that waits in a collective takes what others must get rid of before they come there; and who has left one
   owes the others nothing. */
#include "check.h"

enum { COUNT = 1 << 17 };
static double big[COUNT], room[COUNT];

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    begin();
    for (int round = 0; round < 8 && size > 1; round++) {
        int to = round % size, from = (to + 1) % size, sum = 1;
        MPI_Request request = MPI_REQUEST_NULL;
        room[COUNT - 1] = 0, big[COUNT - 1] = round + 1;
        if (rank == to) MPI_Irecv(room, COUNT, MPI_DOUBLE, from, 1, MPI_COMM_WORLD, &request);
        if (rank == from) MPI_Ssend(big, COUNT, MPI_DOUBLE, to, 1, MPI_COMM_WORLD);
        switch (round % 4) {
        case 0: MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD); break;
        case 1: MPI_Bcast(&sum, 1, MPI_INT, from, MPI_COMM_WORLD); break;
        case 2: MPI_Reduce(&sum, room, 1, MPI_INT, MPI_SUM, to, MPI_COMM_WORLD); break;
        case 3: MPI_Barrier(MPI_COMM_WORLD); break;
        }
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(rank != to || room[COUNT - 1] == round + 1);
    }
    for (int count = 1; count <= COUNT && size > 1; count *= 16) {
        MPI_Bcast(big, count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (rank == 0) MPI_Recv(room, 1, MPI_DOUBLE, size - 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == size - 1) MPI_Send(big, 1, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD);
        MPI_Reduce(big, room, count, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == size - 1) MPI_Recv(room, 1, MPI_DOUBLE, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 0) MPI_Send(big, 1, MPI_DOUBLE, size - 1, 2, MPI_COMM_WORLD);
    }
    return finish();
}

/* What was sent before a collective is there after it, for who asks once. */
#include "check.h"

enum { ROUNDS = 40 };

int main(int argc, char **argv) {
    MPI_Comm world = MPI_COMM_WORLD;
    MPI_Status status, statuses[8];
    MPI_Message message;
    MPI_Win window;
    MPI_Group all, other;
    int word = 7, flag, room[8];
    MPI_Init(&argc, &argv);
    begin();
    for (int round = 0; round < ROUNDS; round++) {
        /* The last rank's is asked for first. */
        if (rank) MPI_Send(&word, 1, MPI_INT, 0, 1, world), MPI_Send(&word, 1, MPI_INT, 0, 2, world);
        MPI_Barrier(world);
        for (int peer = size - 1; rank == 0 && peer > 0; peer--) {
            MPI_Iprobe(peer, 2, world, &flag, MPI_STATUS_IGNORE);
            CHECK(flag);
            MPI_Recv(room, 1, MPI_INT, peer, 2, world, MPI_STATUS_IGNORE);
            MPI_Improbe(peer, 1, world, &flag, &message, MPI_STATUS_IGNORE);
            CHECK(flag);
            if (flag) MPI_Mrecv(room, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
            else MPI_Recv(room, 1, MPI_INT, peer, 1, world, MPI_STATUS_IGNORE);
        }
    }
    MPI_Request requests[8];
    for (int round = 0; round < ROUNDS; round++) {
        for (int peer = 1; rank == 0 && peer < size; peer++) {
            MPI_Irecv(&room[peer], 1, MPI_INT, peer, 3, world, &requests[peer - 1]);
        }
        MPI_Barrier(world);
        if (rank) MPI_Send(&word, 1, MPI_INT, 0, 3, world);
        MPI_Allreduce(MPI_IN_PLACE, &word, 1, MPI_INT, MPI_MAX, world);
        if (rank == 0 && round % 2) {
            MPI_Testall(size - 1, requests, &flag, statuses);
            CHECK(flag);
            if (!flag) MPI_Waitall(size - 1, requests, statuses);
        } else if (rank == 0) {
            /* A receive that its message has reached is not cancelled any more. */
            for (int peer = 1; peer < size; peer++) {
                MPI_Cancel(&requests[peer - 1]);
                MPI_Wait(&requests[peer - 1], &status);
                MPI_Test_cancelled(&status, &flag);
                CHECK(!flag);
                if (flag) MPI_Recv(room, 1, MPI_INT, peer, 3, world, MPI_STATUS_IGNORE);
            }
        }
    }
    MPI_Win_create(room, sizeof room, 1, MPI_INFO_NULL, world, &window);
    MPI_Comm_group(world, &all);
    MPI_Group_incl(all, 1, (int[]){!rank}, &other);
    for (int round = 0; round < ROUNDS && size > 1; round++) {
        if (rank == 1) MPI_Win_post(other, 0, window);
        if (rank == 0) MPI_Win_start(other, 0, window), MPI_Win_complete(window);
        MPI_Barrier(world);
        if (rank == 1) {
            MPI_Win_test(window, &flag);
            CHECK(flag);
            if (!flag) MPI_Win_wait(window);
        }
    }
    MPI_Win_free(&window);
    MPI_Group_free(&other);
    MPI_Group_free(&all);
    return finish();
}

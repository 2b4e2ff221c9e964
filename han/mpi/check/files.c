/* Requests of files among those that a program waits for, while a collective is under way that is not one of them, or is. MPICH ends
 * programs that test such requests together (MPI_Testall), so waiting must not be testing. */
#include "check.h"
#include <stdlib.h>
#include <unistd.h>

enum { BYTES = 4096, ROUNDS = 60 };

static char written[BYTES], read_back[BYTES];

static void check_file(MPI_File file, int is_among_them) {
    for (int round = 0; round < ROUNDS; round++) {
        int one = 1, sum = 0, left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks, token = -1;
        MPI_Request requests[4], *collective = &requests[3];
        MPI_Offset place = (MPI_Offset)BYTES * (round * ranks + rank);
        for (int i = 0; i < BYTES; i++) written[i] = (char)element(rank, i, round);
        if (rank == round % ranks) usleep(300);
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, collective);
        MPI_File_iwrite_at(file, place, written, BYTES, MPI_CHAR, &requests[0]);
        MPI_Irecv(&token, 1, MPI_INT, left, round, MPI_COMM_WORLD, &requests[1]);
        MPI_Isend(&rank, 1, MPI_INT, right, round, MPI_COMM_WORLD, &requests[2]);
        MPI_Waitall(is_among_them ? 4 : 3, requests, MPI_STATUSES_IGNORE);
        if (!is_among_them) MPI_Wait(collective, MPI_STATUS_IGNORE);
        MPI_File_read_at(file, place, read_back, BYTES, MPI_CHAR, MPI_STATUS_IGNORE);
        int is_same = 1;
        for (int i = 0; i < BYTES; i++) is_same &= read_back[i] == written[i];
        expect(sum == ranks && token == left && is_same, "round %d: sum %d, token %d, same %d", round, sum, token, is_same);
    }
}

int main(int argc, char **argv) {
    char name[64] = "/tmp/han-check-XXXXXX";
    MPI_File file;
    start(&argc, &argv);
    if (rank == 0) close(mkstemp(name));
    MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    int code = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file);
    expect(code == MPI_SUCCESS, "the file cannot be opened");
    check_file(file, 0);
    check_file(file, 1);
    MPI_File_close(&file);
    return finish();
}

/* Start-up without a launcher: the ranks are children of this program, and their allgather goes
 * through the parent over socket pairs. Usage: oob SIZE */
#include "check.h"
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void transfer(ssize_t (*io)(int, void *, size_t), int fd, void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = io(fd, (char *)data + done, bytes - done);
        if (n <= 0) exit(3);
        done += (size_t)n;
    }
}
static ssize_t put(int fd, void *data, size_t bytes) { return write(fd, data, bytes); }
static ssize_t get(int fd, void *data, size_t bytes) { return read(fd, data, bytes); }

static int fails_after = -1, entered;

/* An allgather whose second rank gives this many bytes, in words. */
static int lie(const void *send, size_t bytes, void *recv, void *ctx) {
    memset(recv, 0, 2 * bytes);
    memcpy(recv, send, bytes);
    memcpy((char *)recv + bytes, ctx, bytes < 8 ? bytes : 8);
    return 0;
}

static int allgather(const void *send, size_t bytes, void *recv, void *ctx) {
    int fd = *(int *)ctx, n;
    CHECK(han_comm_rank(world, &n) == HAN_ERR_THREAD || han_comm_rank(world, &n) == HAN_ERR_NOT_INITIALIZED);
    if (fails_after >= 0 && entered++ >= fails_after) return 99;
    transfer(put, fd, &bytes, sizeof bytes);
    transfer(put, fd, (void *)send, bytes);
    transfer(get, fd, recv, bytes * (size_t)size);
    return 0;
}

/* Gathers rounds of equal blocks until the ranks hang up. */
static void serve(int ranks, const int *fds) {
    for (;;) {
        size_t bytes = 0;
        char *all = NULL;
        for (int r = 0; r < ranks; r++) {
            size_t announced;
            if (read(fds[r], &announced, sizeof announced) != sizeof announced) {
                free(all);
                return;
            }
            if (r == 0) bytes = announced, all = malloc(bytes * (size_t)ranks + 1);
            CHECK(announced == bytes);
            transfer(get, fds[r], all + (size_t)r * bytes, bytes);
        }
        for (int r = 0; r < ranks; r++) transfer(put, fds[r], all, bytes * (size_t)ranks);
        free(all);
    }
}

static void be_rank(int fd) {
    int one = 1, n = 0, r;
    EXPECT(HAN_ERR_ARG, han_init_oob(-1, size, allgather, &fd));
    EXPECT(HAN_ERR_ARG, han_init_oob(size, size, allgather, &fd));
    EXPECT(HAN_ERR_ARG, han_init_oob(0, 0, allgather, &fd));
    EXPECT(HAN_ERR_ARG, han_init_oob(0, 2147483647, allgather, &fd));
    uint64_t lengths[] = {0, 1 << 20, (uint64_t)1 << 46, UINT64_MAX};
    for (int k = 0; k < 4; k++) EXPECT(HAN_ERR_BOOTSTRAP, han_init_oob(0, 2, lie, &lengths[k]));
    fails_after = 0;
    EXPECT(HAN_ERR_BOOTSTRAP, han_init_oob(rank, size, allgather, &fd));
    CHECK(strstr(han_last_error_message(), "99") != NULL);
    fails_after = -1;
    OK(han_init_oob(rank, size, allgather, &fd));
    OK(han_comm_world(&world));
    OK(han_comm_rank(world, &r));
    OK(han_comm_size(world, &n));
    CHECK(r == rank && n == size);
    OK(han_allreduce(&one, &n, 1, HAN_INT32, HAN_SUM, world));
    CHECK(n == size);
    han_comm_t half;
    OK(han_comm_split(world, rank % 2, 0, &half));
    OK(han_allreduce(&one, &n, 1, HAN_INT32, HAN_SUM, half));
    CHECK(n == (size + 1 - rank % 2) / 2);
    OK(han_finalize());
}

int main(int argc, char **argv) {
    int fds[64];
    pid_t children[64];
    CHECK(argc == 2);
    size = atoi(argv[1]);
    for (int r = 0; r < size; r++) {
        int pair[2];
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
        children[r] = fork();
        if (children[r] == 0) {
            for (int k = 0; k < r; k++) close(fds[k]);
            close(pair[0]);
            rank = r;
            be_rank(pair[1]);
            exit(0);
        }
        close(pair[1]);
        fds[r] = pair[0];
    }
    serve(size, fds);
    for (int r = 0; r < size; r++) {
        int status = -1;
        close(fds[r]);
        CHECK(waitpid(children[r], &status, 0) == children[r]);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    printf("passed on %d ranks\n", size);
    return 0;
}

/* A program that closes all descriptors from 3 on, han's among them, and opens files of its own. */
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { FILES = 64 };

int main(void) {
    int files[FILES], sum = 1;
    struct stat seen;
    start();
    CHECK(size == 2);
    OK(han_allreduce(HAN_IN_PLACE, &sum, 1, HAN_INT32, HAN_SUM, world));
    CHECK(syscall(SYS_close_range, 3, ~0U, 0) == 0);
    for (int k = 0; k < FILES; k++) CHECK((files[k] = open("/tmp", O_TMPFILE | O_RDWR, 0600)) == 3 + k);
    OK(han_allreduce(HAN_IN_PLACE, &sum, 1, HAN_INT32, HAN_SUM, world));
    CHECK(sum == 4);
    EXPECT(HAN_ERR_BOOTSTRAP, han_finalize());
    CHECK(strstr(han_last_error_message(), "the program has closed han's connection to the launcher") != NULL);
    for (int k = 0; k < FILES; k++) CHECK(fstat(files[k], &seen) == 0 && seen.st_size == 0);
    printf("passed\n");
    return 0;
}

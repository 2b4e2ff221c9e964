/* What a han_finalize that fails leaves. Usage: finalize_fails FOLDER OTHER_NAME, with HAN_TRACE in that folder */
#include "check.h"

enum { BYTES = 1 << 16 };

/* Whether other processes can see the memory at this address, as what the system says of it. */
static int is_shared(const void *address) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096], rights[5] = "";
    unsigned long begin, end, here = (unsigned long)address;
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        CHECK(sscanf(line, "%lx-%lx %4s", &begin, &end, rights) == 3);
        if (begin <= here && here < end) break;
    }
    fclose(maps);
    return rights[3] == 's';
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    char *own = malloc(BYTES);
    void *lent;
    int flag = 1;
    CHECK(own != NULL);
    memset(own, 7, BYTES);
    start();
    OK(han_malloc(BYTES, &lent));
    OK(han_register(own, BYTES));
    OK(han_barrier(world));
    int was_shared = is_shared(own + BYTES / 2);

    CHECK(rename(argv[1], argv[2]) == 0);
    EXPECT(HAN_ERR_SYSTEM, han_finalize());
    CHECK(strstr(han_last_error_message(), "han_finalize: HAN_TRACE: rank 0 cannot write ") != NULL);

    OK(han_initialized(&flag));
    CHECK(flag == 0);
    EXPECT(HAN_ERR_NOT_INITIALIZED, han_barrier(world));
    EXPECT(HAN_ERR_NOT_INITIALIZED, han_finalize());
    CHECK(!is_shared(own + BYTES / 2));
    for (int k = 0; k < BYTES; k++) CHECK(own[k] == 7);
    free(own);
    printf("passed%s\n", was_shared ? ", its memory was shared before" : "");
    return 0;
}

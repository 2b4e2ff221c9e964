/* han_abort also ends a process that han_abort is ending, which has no rank any more. With an argument it is the code of
 * a process that is none yet. */
#include "check.h"

static void at_exit(void) {
    int flag = 1;
    han_initialized(&flag);
    han_abort(flag ? 1 : 7);
}

int main(int argc, char **argv) {
    if (argc > 1) han_abort(atoi(argv[1]));
    CHECK(atexit(at_exit) == 0);
    start();
    han_abort(5);
}

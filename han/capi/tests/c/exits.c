/* han_abort also ends a process that han_abort is ending, which has no rank any more. */
#include "check.h"

static void at_exit(void) {
    int flag = 1;
    han_initialized(&flag);
    han_abort(flag ? 1 : 7);
}

int main(void) {
    CHECK(atexit(at_exit) == 0);
    start();
    han_abort(5);
}

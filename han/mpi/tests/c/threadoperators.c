/* MPI_THREAD_MULTIPLE: threads reduce at the same time, each with an operator of its own, which no other thread may apply, as it may
 * hold what the operator waits for. With ONE_THREAD set a rank has no such level, and one thread. */
#include "check.h"
#include <pthread.h>
#include <unistd.h>

enum { THREADS = 3, ROUNDS = 60 };

static pthread_t owners[THREADS];
static MPI_Comm comms[THREADS];
static volatile int elsewhere;

static void add(int owner, int *in, int *inout, int length) {
    if (!pthread_equal(pthread_self(), owners[owner])) elsewhere = 1;
    for (int i = 0; i < length; i++) inout[i] += in[i];
}

static void add0(void *in, void *inout, int *length, MPI_Datatype *type) { (void)type, add(0, in, inout, *length); }
static void add1(void *in, void *inout, int *length, MPI_Datatype *type) { (void)type, add(1, in, inout, *length); }
static void add2(void *in, void *inout, int *length, MPI_Datatype *type) { (void)type, add(2, in, inout, *length); }

static MPI_User_function *const functions[THREADS] = {add0, add1, add2};

static void *reduce(void *argument) {
    int self = *(int *)argument, failed = 0;
    MPI_Op op;
    owners[self] = pthread_self();
    MPI_Op_create(functions[self], 1, &op);
    for (int round = 0; round < ROUNDS; round++) {
        int number = round + self, sum = 0;
        if ((round + rank + self) % 16 == 0) usleep(200);
        MPI_Allreduce(&number, &sum, 1, MPI_INT, op, comms[self]);
        failed += sum != size * number;
        MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, comms[self]);
        failed += sum != size * number;
    }
    MPI_Op_free(&op);
    CHECK(!failed);
    return NULL;
}

int main(int argc, char **argv) {
    int provided, selves[THREADS];
    pthread_t threads[THREADS];
    int is_single = getenv("ONE_THREAD") != NULL;
    MPI_Init_thread(&argc, &argv, is_single ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &provided);
    begin();
    CHECK((provided == MPI_THREAD_MULTIPLE) == !is_single);
    for (int i = 0; i < THREADS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < THREADS; i++) {
        selves[i] = i;
        if (is_single) reduce(&selves[i]);
        else CHECK(!pthread_create(&threads[i], NULL, reduce, &selves[i]));
    }
    for (int i = 0; i < THREADS && !is_single; i++) pthread_join(threads[i], NULL);
    CHECK(!elsewhere);
    for (int i = 0; i < THREADS; i++) MPI_Comm_free(&comms[i]);
    return finish();
}

/* The MPI calls the program back, and the program calls MPI from there: from operators, from functions of attributes, from
 * error handlers. */
#include "check.h"

static int copied, deleted, handled;

/* What MPI allows in an operator: nothing that communicates. */
static void add(void *in, void *inout, int *length, MPI_Datatype *type) {
    MPI_Request none = MPI_REQUEST_NULL;
    MPI_Aint lower, extent;
    int flag = 0, size;
    MPI_Type_get_extent(*type, &lower, &extent);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Test(&none, &flag, MPI_STATUS_IGNORE);
    MPI_Startall(0, &none);
    expect(flag && extent == sizeof(int) && size == ranks, "in an operator: flag %d, %d ranks", flag, size);
    for (int i = 0; i < *length; i++) ((int *)inout)[i] += ((int *)in)[i];
}

static void check_operator(void) {
    enum { COUNT = 3000 };
    static int numbers[COUNT], sums[COUNT];
    MPI_Op op;
    MPI_Op_create(add, 0, &op);
    for (int round = 0; round < 20; round++) {
        int count = round % 3 ? COUNT : 1;
        for (int i = 0; i < count; i++) numbers[i] = element(rank, i, round);
        MPI_Allreduce(numbers, sums, count, MPI_INT, op, MPI_COMM_WORLD);
        for (int i = 0; i < count; i++) expect(sums[i] == sum_of(ranks, i, round), "round %d: sum %d is %d", round, i, sums[i]);
    }
    MPI_Op_free(&op);
}

/* Functions of attributes, called while a communicator is made or freed: they may communicate. */
static int copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag) {
    (void)key, (void)extra;
    int sum = 1;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
    expect(sum == ranks, "while an attribute is copied: %d", sum);
    *(void **)out = in;
    *flag = 1;
    copied++;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value, (void)extra;
    int word = rank ? -1 : 6;
    MPI_Bcast(&word, 1, MPI_INT, 0, MPI_COMM_WORLD);
    expect(word == 6, "while an attribute is deleted: %d", word);
    deleted++;
    return MPI_SUCCESS;
}

static void check_attributes(void) {
    int key;
    MPI_Comm first, second;
    MPI_Comm_create_keyval(copy, delete, &key, NULL);
    MPI_Comm_dup(MPI_COMM_WORLD, &first);
    MPI_Comm_set_attr(first, key, &key);
    for (int round = 0; round < 10; round++) {
        MPI_Comm_dup(first, &second);
        int sum = 2;
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, second);
        expect(sum == 2 * ranks, "a copied communicator's sum is %d", sum);
        MPI_Comm_free(&second);
    }
    MPI_Comm_free(&first);
    MPI_Comm_free_keyval(&key);
    note("%d copied, %d deleted", copied, deleted);
}

/* A function of an attribute that calls collectives on the communicator that is being freed, which is soon another's handle. Ranks
 * have set the attribute before or after the communicator's first collectives. */
static int leave(MPI_Comm comm, int key, void *value, void *extra) {
    (void)key, (void)value, (void)extra;
    int size, sum = 1;
    MPI_Comm_size(comm, &size);
    for (int call = 0; call < 3; call++, sum = 1) {
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
        expect(sum == size, "while it is freed, a communicator of %d ranks has %d", size, sum);
    }
    MPI_Barrier(comm);
    deleted++;
    return MPI_SUCCESS;
}

static void check_freed(void) {
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, leave, &key, NULL);
    deleted = 0;
    for (int round = 0; round < 40; round++) {
        MPI_Comm comm;
        int size, is_early = (round / 4 + rank) % 2;
        MPI_Comm_split(MPI_COMM_WORLD, round % 4 == 1 ? rank % 2 : round % 4 == 2 ? rank == 0 : 0, rank, &comm);
        MPI_Comm_size(comm, &size);
        if (is_early) MPI_Comm_set_attr(comm, key, &key);
        for (int call = 0; call < 12; call++) {
            int sum = 1;
            MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
            expect(sum == size, "round %d: a communicator of %d ranks has %d", round, size, sum);
        }
        if (!is_early) MPI_Comm_set_attr(comm, key, &key);
        if (round % 2) MPI_Comm_free(&comm);
        else MPI_Comm_disconnect(&comm);
    }
    MPI_Comm_free_keyval(&key);
    note("%d freed", deleted);
}

/* A handler that calls collectives; what it is called for is wrong on all ranks. */
static void handler(MPI_Comm *comm, int *code, ...) {
    char text[MPI_MAX_ERROR_STRING];
    int length, sum = 1;
    MPI_Error_string(*code, text, &length);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, *comm);
    expect(sum == ranks && length > 0, "in an error handler: %d", sum);
    handled++;
}

static void check_handler(void) {
    MPI_Errhandler own;
    int word = 0;
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, own);
    for (int round = 0; round < 5; round++) MPI_Bcast(&word, 1, MPI_INT, ranks + round, MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&own);
    note("%d handled", handled);
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    check_operator();
    check_attributes();
    check_freed();
    check_handler();
    return finish();
}

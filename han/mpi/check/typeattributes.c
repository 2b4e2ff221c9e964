/* Datatypes with attributes, whose functions the MPI calls when the program duplicates or frees one, and only then: not where a
 * bcast outlives the datatype. And such functions may refuse. */
#include "check.h"

enum { INTS = 8 };

static int copied, deleted, refuses;

static int copy(MPI_Datatype type, int key, void *extra, void *in, void *out, int *flag) {
    (void)type, (void)key, (void)extra;
    copied++;
    *(void **)out = in;
    *flag = 1;
    return refuses ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int delete(MPI_Datatype type, int key, void *value, void *extra) {
    (void)type, (void)key, (void)value, (void)extra;
    deleted++;
    return MPI_SUCCESS;
}

/* Every second int, with room of an int before it. */
static MPI_Datatype made(int key) {
    MPI_Datatype gaps, type;
    MPI_Type_vector(INTS / 2, 1, 2, MPI_INT, &gaps);
    MPI_Type_create_resized(gaps, -(MPI_Aint)sizeof(int), (INTS + 2) * sizeof(int), &type);
    MPI_Type_free(&gaps);
    MPI_Type_commit(&type);
    MPI_Type_set_attr(type, key, &copied);
    return type;
}

static void fill(int *numbers, int count, int round) {
    for (int i = 0; i < count; i++) numbers[i] = element(rank, i, round);
}

static void check_numbers(const int *numbers, int count, int round, int root) {
    for (int i = 0; i < count; i++) {
        int of = i % (INTS + 2), is_sent = of < INTS && of % 2 == 0;
        expect(numbers[i] == element(is_sent ? root : rank, i, round), "round %d: number %d is %d", round, i, numbers[i]);
    }
}

static void check_bcasts(int key, int root) {
    enum { COUNT = 3, ALL = COUNT * (INTS + 2) };
    int numbers[ALL];
    MPI_Request request;
    MPI_Datatype type = made(key);
    fill(numbers, ALL, 0);
    MPI_Ibcast(numbers, COUNT, type, root, MPI_COMM_WORLD, &request);
    MPI_Type_free(&type);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_numbers(numbers, ALL, 0, root);
#if HAS_PERSISTENT
    type = made(key);
    MPI_Bcast_init(numbers, COUNT, type, root, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
#ifndef OMPI_MAJOR_VERSION /* which ends then */
    MPI_Type_free(&type);
#endif
    for (int round = 1; round < 4; round++) {
        fill(numbers, ALL, round);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_numbers(numbers, ALL, round, root);
    }
    MPI_Request_free(&request);
#ifdef OMPI_MAJOR_VERSION
    MPI_Type_free(&type);
#endif
#endif
}

int main(int argc, char **argv) {
    int key;
    start(&argc, &argv);
    MPI_Type_create_keyval(copy, delete, &key, NULL);
    for (refuses = 0; refuses < 2; refuses++)
        for (int root = 0; root < ranks; root++) check_bcasts(key, root);
    note("%d copied, %d deleted", copied, deleted);
    MPI_Type_free_keyval(&key);
    return finish();
}

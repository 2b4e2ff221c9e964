/* Derived datatypes in bcast: dense and scattered ones, described differently on root and others, freed and made anew,
 * or with addresses in them. */
#include "check.h"

#define ROOM 4096
static int got[ROOM], wanted[ROOM];

/* Both buffers hold what no bcast brings; the root's holds its numbers everywhere. */
static void prepare(int root) {
    for (int i = 0; i < ROOM; i++) wanted[i] = got[i] = rank == root ? element(root, i, 4) : -1 - i;
}

/* One bcast of a type with gaps: the rest of the buffer stays as it was. */
static void check_type(const char *name, MPI_Datatype type, int count, int root) {
    prepare(root);
    MPI_Bcast(got, count, type, root, MPI_COMM_WORLD);
    /* What a pack and an unpack would bring. */
    int bytes, at = 0, from = 0;
    static int packed[2 * ROOM], source[ROOM];
    for (int i = 0; i < ROOM; i++) source[i] = element(root, i, 4);
    MPI_Pack_size(count, type, MPI_COMM_WORLD, &bytes);
    expect((size_t)bytes <= sizeof packed, "%s: packs to %d bytes", name, bytes);
    MPI_Pack(source, count, type, packed, sizeof packed, &at, MPI_COMM_WORLD);
    if (rank != root) MPI_Unpack(packed, sizeof packed, &from, wanted, count, type, MPI_COMM_WORLD);
    expect(!memcmp(got, wanted, sizeof got), "%s x %d from %d", name, count, root);
}

static void check_and_free(const char *name, MPI_Datatype type) {
    MPI_Type_commit(&type);
    for (int root = 0; root < ranks; root++)
        for (int count = 0; count <= 5; count++) check_type(name, type, count, root);
    MPI_Type_free(&type);
}

/* Types of Fortran's kinds are predefined, though they have no names: whoever takes a type apart may not free them. */
static void check_kinds(void) {
    MPI_Datatype kinds[3], type;
    MPI_Type_create_f90_real(6, 30, &kinds[0]);
    MPI_Type_create_f90_complex(6, 30, &kinds[1]);
    MPI_Type_create_f90_integer(9, &kinds[2]);
    for (int i = 0; i < 3; i++) {
        for (int again = 0; again < 3; again++) {
            MPI_Type_contiguous(4, kinds[i], &type);
            check_and_free("contiguous of a kind of Fortran's", type);
        }
        MPI_Type_dup(kinds[i], &type);
        check_and_free("dup of a kind of Fortran's", type);
        for (int root = 0; root < ranks; root++) check_type("kind of Fortran's", kinds[i], 5, root);
    }
}

#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
/* So are those of pairs, with names or without. */
static void check_pairs(void) {
    MPI_Datatype values[] = {MPI_DOUBLE, MPI_LONG_LONG, MPI_FLOAT}, indices[] = {MPI_INT, MPI_LONG, MPI_INT64_T}, pair, type;
    for (int i = 0; i < 9; i++) {
        MPI_Type_get_value_index(values[i / 3], indices[i % 3], &pair);
        if (pair == MPI_DATATYPE_NULL) continue;
        for (int again = 0; again < 3; again++) {
            MPI_Type_contiguous(4, pair, &type);
            check_and_free("contiguous of a pair", type);
        }
        MPI_Type_dup(pair, &type);
        check_and_free("dup of a pair", type);
        for (int root = 0; root < ranks; root++) check_type("pair", pair, 5, root);
    }
}
#endif

static void check_all_types(void) {
    MPI_Datatype type, inner;
    MPI_Type_contiguous(7, MPI_INT, &type);
    check_and_free("contiguous", type);
    MPI_Type_contiguous(3, MPI_SHORT, &inner);
    MPI_Type_contiguous(6, inner, &type);
    check_and_free("contiguous of contiguous", type);
    MPI_Type_free(&inner);
    MPI_Type_dup(MPI_DOUBLE, &type);
    check_and_free("dup", type);
    MPI_Type_vector(4, 2, 5, MPI_INT, &type);
    check_and_free("vector", type);
    MPI_Type_vector(4, 5, 5, MPI_INT, &type);
    check_and_free("dense vector", type);
    MPI_Type_indexed(3, (int[]){1, 3, 2}, (int[]){9, 0, 5}, MPI_INT, &type);
    check_and_free("indexed backwards", type);
    MPI_Type_create_hindexed(2, (int[]){2, 2}, (MPI_Aint[]){0, 8}, MPI_INT, &type);
    check_and_free("dense hindexed", type);
    MPI_Type_create_struct(2, (int[]){1, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE}, &type);
    check_and_free("struct with a gap", type);
    MPI_Type_create_struct(2, (int[]){2, 1}, (MPI_Aint[]){0, 8}, (MPI_Datatype[]){MPI_INT, MPI_DOUBLE}, &type);
    check_and_free("dense struct", type);
    MPI_Type_create_resized(MPI_INT, 0, 12, &type);
    check_and_free("resized", type);
    MPI_Type_create_resized(MPI_INT, 0, 4, &type);
    check_and_free("resized to itself", type);
    MPI_Type_create_subarray(2, (int[]){6, 8}, (int[]){2, 3}, (int[]){1, 4}, MPI_ORDER_C, MPI_INT, &type);
    check_and_free("subarray", type);
    if (!IS_MPICH_4) {
        MPI_Type_contiguous(0, MPI_INT, &type);
        check_and_free("empty", type);
    }
    MPI_Type_create_hvector(3, 1, sizeof(int), MPI_INT, &type);
    check_and_free("dense hvector", type);
    check_kinds();
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    check_pairs();
#endif
}

/* MPI compares signatures: 4 x 3 ints are 12 ints. */
static void check_other_descriptions(void) {
    MPI_Datatype three, strided;
    MPI_Type_contiguous(3, MPI_INT, &three);
    MPI_Type_vector(12, 1, 2, MPI_INT, &strided);
    MPI_Type_commit(&three);
    MPI_Type_commit(&strided);
    for (int root = 0; root < ranks; root++)
        for (int on_root = 0; on_root < 2; on_root++) {
            prepare(root);
            if ((rank == root) == on_root) MPI_Bcast(got, 12, MPI_INT, root, MPI_COMM_WORLD);
            else MPI_Bcast(got, 4, three, root, MPI_COMM_WORLD);
            for (int i = 0; i < 12; i++) expect(got[i] == element(root, i, 4), "12 ints as 4 x 3, from %d: %d", root, i);
            prepare(root);
            if ((rank == root) == on_root) MPI_Bcast(got, 12, MPI_INT, root, MPI_COMM_WORLD);
            else MPI_Bcast(got, 1, strided, root, MPI_COMM_WORLD);
            int from_step = on_root ? 1 : 2, step = rank == root ? from_step : 3 - from_step;
            for (int i = 0; i < 12; i++)
                expect(got[i * step] == element(root, i * from_step, 4), "12 ints as a vector, from %d: %d", root, i);
        }
    MPI_Type_free(&three);
    MPI_Type_free(&strided);
}

/* A handle that is given out again stands for another size, and is sometimes dense. */
static void check_recycling(void) {
    for (int i = 0; i < 120; i++) {
        MPI_Datatype type;
        if (i % 4 == 3) MPI_Type_vector(1 + i % 5, 1, 2, MPI_INT, &type);
        else MPI_Type_contiguous(1 + i % 7, MPI_INT, &type);
        MPI_Type_commit(&type);
        check_type(i % 4 == 3 ? "recycled vector" : "recycled", type, 2, i % ranks);
        MPI_Type_free(&type);
    }
}

/* The ints of an element that `bottom_type` describes. */
static const int bottom_places[] = {3, 4, 9, 12, 13, 14};
enum { BOTTOM_INTS = 6, BOTTOM_EXTENT = 20 };

/* Six ints of an element of twenty, by their addresses. */
static MPI_Datatype bottom_type(void) {
    MPI_Datatype scattered, type;
    MPI_Aint places[3], start;
    MPI_Get_address(&got[0], &start);
    MPI_Get_address(&got[3], &places[0]);
    MPI_Get_address(&got[9], &places[1]);
    MPI_Get_address(&got[12], &places[2]);
    MPI_Type_create_hindexed(3, (int[]){2, 1, 3}, places, MPI_INT, &scattered);
    MPI_Type_create_resized(scattered, start, BOTTOM_EXTENT * sizeof(int), &type);
    MPI_Type_free(&scattered);
    MPI_Type_commit(&type);
    return type;
}

static void check_bottom_result(const char *how, int count, int root) {
    for (int of = 0; of < count; of++)
        for (int i = 0; i < BOTTOM_INTS; i++) {
            int place = of * BOTTOM_EXTENT + bottom_places[i];
            wanted[place] = element(root, place, 4);
        }
    expect(!memcmp(got, wanted, sizeof got), "%s from MPI_BOTTOM, %d elements from %d", how, count, root);
}

#if HAS_PERSISTENT
static void check_persistent_bottom(int count, int root) {
    MPI_Request request;
    MPI_Datatype type = bottom_type();
    MPI_Bcast_init(MPI_BOTTOM, count, type, root, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int round = 0; round < 3; round++) {
        prepare(root);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check_bottom_result("persistent", count, root);
    }
    MPI_Request_free(&request);
    MPI_Type_free(&type); /* not before: Open MPI 5 crashes then */
}
#endif

/* Datatypes whose displacements are addresses. */
static void check_bottom(int count, int root) {
    MPI_Datatype type = bottom_type();
    prepare(root);
    MPI_Bcast(MPI_BOTTOM, count, type, root, MPI_COMM_WORLD);
    check_bottom_result("blocking", count, root);
    MPI_Request request;
    prepare(root);
    MPI_Ibcast(MPI_BOTTOM, count, type, root, MPI_COMM_WORLD, &request);
    MPI_Type_free(&type);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check_bottom_result("non-blocking", count, root);
#if HAS_PERSISTENT
    check_persistent_bottom(count, root);
#endif
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    check_all_types();
    check_other_descriptions();
    check_recycling();
    for (int root = 0; root < ranks; root++)
        for (int count = 1; count <= 3; count += 2) check_bottom(count, root);
    return finish();
}

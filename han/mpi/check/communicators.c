/* Communicators made in every way, used and freed, in loops: results are right, attributes are copied and deleted as MPI
 * says, and neither descriptors nor mappings pile up. */
#include "check.h"
#include <dirent.h>

/* Right on any communicator: who takes part adds up, and the last rank's word comes to all. */
static void use(const char *name, MPI_Comm comm) {
    int me, size;
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &size);
    int sum = 0, given = me + 1, word = me == size - 1 ? 4711 + size : -1, top = -1;
    MPI_Allreduce(&given, &sum, 1, MPI_INT, MPI_SUM, comm);
    expect(sum == size * (size + 1) / 2, "%s: allreduce on %d of %d gives %d", name, me, size, sum);
    MPI_Bcast(&word, 1, MPI_INT, size - 1, comm);
    expect(word == 4711 + size, "%s: bcast on %d of %d gives %d", name, me, size, word);
    MPI_Reduce(&given, &top, 1, MPI_INT, MPI_MAX, size / 2, comm);
    expect(me != size / 2 || top == size, "%s: reduce on %d of %d gives %d", name, me, size, top);
    MPI_Barrier(comm);
}

static void use_and_free(const char *name, MPI_Comm *comm) {
    if (*comm == MPI_COMM_NULL) return;
    use(name, *comm);
    MPI_Comm_free(comm);
    expect(*comm == MPI_COMM_NULL, "%s: a freed handle is not MPI_COMM_NULL", name);
}

static MPI_Group group_of(int first, int step) {
    MPI_Group world, group;
    int range[1][3] = {{first, step > 0 ? ranks - 1 : 0, step}};
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_range_incl(world, 1, range, &group);
    MPI_Group_free(&world);
    return group;
}

static void make_all_kinds(int round) {
    MPI_Comm comm, inner;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_split(comm, rank % 2, -rank, &inner);
    use_and_free("split", &inner);
    MPI_Comm_split(comm, rank == round % ranks ? MPI_UNDEFINED : 7, rank, &inner);
    use_and_free("split without one", &inner);
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &inner);
    use_and_free("split_type", &inner);
    MPI_Comm_dup_with_info(comm, MPI_INFO_NULL, &inner);
    use_and_free("dup_with_info", &inner);
    MPI_Request request;
    MPI_Comm_idup(comm, &inner, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    use_and_free("idup", &inner);

    MPI_Group reversed = group_of(ranks - 1, -1), thinned = group_of(0, 2);
    MPI_Comm_create(comm, reversed, &inner);
    use_and_free("create", &inner);
    MPI_Comm_create(comm, thinned, &inner);
    use_and_free("create of every second", &inner);
    /* Only the members take part in this one; MPICH 4 crashes. */
    if (rank % 2 == 0 && !IS_MPICH_4) {
        MPI_Comm_create_group(comm, thinned, round, &inner);
        use_and_free("create_group", &inner);
    }
    MPI_Group_free(&reversed);
    MPI_Group_free(&thinned);

    MPI_Cart_create(comm, 1, &ranks, (int[]){1}, 1, &inner);
    use_and_free("cart_create", &inner);
    use_and_free("dup", &comm);
}

/* ---- attributes -------------------------------------------------------------------------------- */

static int copies, deletions;

static int copy(MPI_Comm comm, int key, void *extra, void *value, void *copied, int *flag) {
    (void)comm, (void)key;
    copies += *(int *)extra;
    *(void **)copied = (char *)value + 1;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value, void *extra) {
    (void)comm, (void)key, (void)value;
    deletions += *(int *)extra;
    return MPI_SUCCESS;
}

static void check_attributes(void) {
    int key, found, one = 1;
    char place[8];
    void *value = NULL;
    MPI_Comm first, second, third;
    MPI_Comm_create_keyval(copy, delete, &key, &one);
    MPI_Comm_dup(MPI_COMM_WORLD, &first);
    use("before its attribute", first);
    MPI_Comm_set_attr(first, key, place);
    MPI_Comm_dup(first, &second);
    MPI_Comm_split(second, 0, rank, &third);
    MPI_Comm_get_attr(second, key, &value, &found);
    expect(found && value == place + 1, "dup has copied the attribute: %d", found);
    MPI_Comm_get_attr(third, key, &value, &found);
    expect(!found, "split has copied the attribute");
    use("with an attribute", second);
    use("without an attribute", third);
    expect(copies == 1 && deletions == 0, "%d copies, %d deletions", copies, deletions);
    MPI_Comm_delete_attr(second, key);
    MPI_Comm_free(&first);
    use("attribute deleted", second);
    MPI_Comm_free(&second);
    MPI_Comm_free(&third);
    MPI_Comm_free_keyval(&key);
    expect(copies == 1 && deletions == 2, "%d copies, %d deletions after all", copies, deletions);
    int *most, is_set;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &is_set);
    note("tag_ub %d", is_set);
}

/* ---- leaks ------------------------------------------------------------------------------------- */

static int descriptors(void) {
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    while (all && readdir(all)) count++;
    if (all) closedir(all);
    return count;
}

static int mappings(void) {
    int count = 0, character;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && (character = fgetc(maps)) != EOF) count += character == '\n';
    if (maps) fclose(maps);
    return count;
}

static void check_leaks(void) {
    MPI_Comm comm;
    int before[2] = {0, 0}, rounds = 60;
    for (int round = 0; round < rounds; round++) {
        if (round == rounds / 3) before[0] = descriptors(), before[1] = mappings();
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        use_and_free("dup in a loop", &comm);
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm);
        use_and_free("split in a loop", &comm);
    }
    int more[2] = {descriptors() - before[0], mappings() - before[1]};
    expect(more[0] < 8, "%d more descriptors after %d rounds", more[0], 2 * rounds / 3);
    expect(more[1] < 16, "%d more mappings after %d rounds", more[1], 2 * rounds / 3);
}

/* Communicators that are used before, while and after others live. */
static void check_many(void) {
    enum { MANY = 24 };
    MPI_Comm all[MANY];
    for (int i = 0; i < MANY; i++) MPI_Comm_split(i % 3 ? all[i - 1] : MPI_COMM_WORLD, 0, i % 2 ? -rank : rank, &all[i]);
    for (int i = MANY - 1; i >= 0; i--) use("one of many", all[i]);
    for (int i = 0; i < MANY; i += 2) use_and_free("freed among many", &all[i]);
    for (int i = 1; i < MANY; i += 2) use_and_free("left of many", &all[i]);
}

int main(int argc, char **argv) {
    start(&argc, &argv);
    use("self", MPI_COMM_SELF);
    for (int round = 0; round < 3; round++) make_all_kinds(round);
    check_attributes();
    check_leaks();
    check_many();
    use("world", MPI_COMM_WORLD);
    use("self at the end", MPI_COMM_SELF);
    return finish();
}

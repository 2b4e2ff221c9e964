/* MPI 4's sessions: communicators of theirs before, beside and after the world. */
#include "check.h"

#if MPI_VERSION >= 4 || (defined OMPI_MAJOR_VERSION && OMPI_MAJOR_VERSION >= 5)

static void use(MPI_Comm comm, const char *when) {
    int own, size, sum, word;
    MPI_Request request;
    MPI_Comm_rank(comm, &own);
    MPI_Comm_size(comm, &size);
    for (int round = 0; round < 30; round++) {
        MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm);
        expect(sum == size * (size - 1) / 2, "%s: the sum of %d ranks is %d", when, size, sum);
        word = own ? -1 : round;
        MPI_Ibcast(&word, 1, MPI_INT, 0, comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(word == round, "%s: word %d instead of %d", when, word, round);
        MPI_Barrier(comm);
    }
}

static MPI_Session open_session(MPI_Comm *comm, const char *tag) {
    MPI_Session session;
    MPI_Group group;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    int code = MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    if (code != MPI_SUCCESS) abort();
    code = MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, comm);
    if (code != MPI_SUCCESS) abort();
    MPI_Group_free(&group);
    return session;
}

static void close_session(MPI_Session *session, MPI_Comm *comm) {
    MPI_Comm_free(comm);
    MPI_Session_finalize(session);
}

static void world_sums(void) {
    for (int round = 0; round < 10; round++) {
        int sum = 1;
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        expect(sum == ranks, "the world's sum is %d", sum);
    }
}

/* Intel MPI takes a session for the only start that there is. */
static int is_intel(void) {
    char version[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(version, &length);
    return strstr(version, "Intel") != NULL;
}

int main(int argc, char **argv) {
    MPI_Comm before, beside;
    MPI_Session first, second;
    int has_before = !is_intel();
    if (has_before) {
        first = open_session(&before, "han-check-before");
        use(before, "before the world");
    }
    start(&argc, &argv);
    world_sums();
    if (has_before) use(before, "made before the world");
    second = open_session(&beside, "han-check-beside");
    use(beside, "beside the world");
    world_sums();
    close_session(&second, &beside);
    world_sums();
    int failed = report();
    MPI_Finalize();
    if (has_before) {
        use(before, "after the world");
        close_session(&first, &before);
    }
    free(notes);
    return failed || failures;
}

#else

int main(int argc, char **argv) {
    start(&argc, &argv);
    return not_in_this_mpi("sessions");
}

#endif

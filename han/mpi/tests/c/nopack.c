/* Under a program, behind the library: an MPI that cannot pack or unpack any elements. */
#include <mpi.h>

static int refuse(MPI_Comm comm, MPI_Count count) {
    return count == 0 ? MPI_SUCCESS : (PMPI_Comm_call_errhandler(comm, MPI_ERR_TRUNCATE), MPI_ERR_TRUNCATE);
}

int PMPI_Pack(const void *in, int count, MPI_Datatype type, void *out, int room, int *position, MPI_Comm comm) {
    (void)in, (void)type, (void)out, (void)room, (void)position;
    return refuse(comm, count);
}

int PMPI_Pack_c(const void *in, MPI_Count count, MPI_Datatype type, void *out, MPI_Count room, MPI_Count *position,
                MPI_Comm comm) {
    (void)in, (void)type, (void)out, (void)room, (void)position;
    return refuse(comm, count);
}

int PMPI_Unpack_c(const void *in, MPI_Count size, MPI_Count *position, void *out, MPI_Count count, MPI_Datatype type,
                  MPI_Comm comm) {
    (void)in, (void)size, (void)position, (void)out, (void)type;
    return refuse(comm, count);
}

/* A tool that sees every call of some functions before the MPI does. */
#include <mpi.h>

static int calls;

int tool_calls(void) { return calls; }

int MPI_Init(int *argc, char ***argv) { return calls++, PMPI_Init(argc, argv); }

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    return calls++, PMPI_Allreduce(send, recv, count, datatype, op, comm);
}

int MPI_Waitall(int count, MPI_Request *requests, MPI_Status *statuses)
{
    return calls++, PMPI_Waitall(count, requests, statuses);
}

int MPI_Scan(const void *send, void *recv, int count, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm)
{
    return calls++, PMPI_Scan(send, recv, count, datatype, op, comm);
}

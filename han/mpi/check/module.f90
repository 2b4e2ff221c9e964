! Fortran 90 with `use mpi`: what fixed.f does, on allocated arrays and with requests of several kinds at once.
program module_mpi
  use mpi
  implicit none
  integer, parameter :: n = 4097
  integer :: rank, ranks, ierror, i, root, wrong, total, comm
  integer :: requests(4), statuses(MPI_STATUS_SIZE, 4), got
  integer, allocatable :: a(:), b(:)
  real, allocatable :: x(:)
  integer(kind=8) :: long(2)

  call MPI_Init_thread(MPI_THREAD_FUNNELED, i, ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  call MPI_Comm_split(MPI_COMM_WORLD, 0, rank, comm, ierror)
  allocate(a(n), b(n), x(n))
  wrong = 0
  do root = 0, ranks - 1
    a = [(rank + i, i = 1, n)]
    x = merge(real(root), -1.0, rank == root)
    call MPI_Allreduce(a, b, n, MPI_INTEGER, MPI_SUM, comm, ierror)
    wrong = wrong + count(b /= [(ranks * (ranks - 1) / 2 + ranks * i, i = 1, n)])
    call MPI_Bcast(x, n, MPI_REAL, root, comm, ierror)
    wrong = wrong + count(x /= real(root))
    call MPI_Reduce(a, b, n, MPI_INTEGER, MPI_MIN, root, comm, ierror)
    if (rank == root) wrong = wrong + count(b /= [(i, i = 1, n)])
    call MPI_Barrier(comm, ierror)

    got = -1
    b = -1
    call MPI_Irecv(got, 1, MPI_INTEGER, modulo(rank - 1, ranks), 4, comm, requests(1), ierror)
    call MPI_Iallreduce(a, b, n, MPI_INTEGER, MPI_MAX, comm, requests(2), ierror)
    call MPI_Ibarrier(comm, requests(3), ierror)
    call MPI_Ibcast(x, n, MPI_REAL, root, comm, requests(4), ierror)
    call MPI_Send(root, 1, MPI_INTEGER, modulo(rank + 1, ranks), 4, comm, ierror)
    call MPI_Waitall(4, requests, statuses, ierror)
    wrong = wrong + count(requests /= MPI_REQUEST_NULL) + count(b /= [(ranks - 1 + i, i = 1, n)])
    if (got /= root .or. statuses(MPI_TAG, 1) /= 4) wrong = wrong + 1
  end do
  long = [2_8**40, int(rank, 8)]
  call MPI_Allreduce(MPI_IN_PLACE, long, 2, MPI_INTEGER8, MPI_SUM, comm, ierror)
  if (long(1) /= ranks * 2_8**40 .or. long(2) /= ranks * (ranks - 1) / 2) wrong = wrong + 1
  call MPI_Comm_free(comm, ierror)
  call MPI_Reduce(wrong, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD, ierror)
  if (rank == 0) print '(a,i0)', 'note 0 wrong: ', total
  call MPI_Finalize(ierror)
  if (wrong /= 0) error stop 1
end program

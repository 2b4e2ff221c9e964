! Fortran 2008 with `use mpi_f08`: handles of their own types, optional error codes, sections that are not contiguous.
module operators
  use mpi_f08
  implicit none
contains
  ! The first of two: does not commute.
  subroutine keep(invec, inoutvec, length, datatype)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    type(c_ptr), value :: invec, inoutvec
    integer :: length
    type(MPI_Datatype) :: datatype
    integer, pointer :: a(:), b(:)
    if (datatype /= MPI_INTEGER) error stop 2
    call c_f_pointer(invec, a, [length])
    call c_f_pointer(inoutvec, b, [length])
    b = a
  end subroutine
end module

program module_mpi_f08
  use operators
  implicit none
  integer, parameter :: n = 999
  integer :: rank, ranks, i, root, wrong, total, got
  integer :: a(n), b(n), grid(4, 6)
  double precision :: x(n)
  type(MPI_Comm) :: comm
  type(MPI_Op) :: op
  type(MPI_Request) :: requests(3)
  type(MPI_Status) :: statuses(3)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  wrong = 0
  do root = 0, ranks - 1
    a = [(rank + i, i = 1, n)]
    call MPI_Allreduce(a, b, n, MPI_INTEGER, MPI_SUM, comm)
    wrong = wrong + count(b /= [(ranks * (ranks - 1) / 2 + ranks * i, i = 1, n)])
    x = rank
    call MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE_PRECISION, MPI_MAX, comm)
    wrong = wrong + count(x /= ranks - 1)
    call MPI_Reduce(a, b, n, MPI_INTEGER, MPI_SUM, root, comm)
    if (rank == root) wrong = wrong + count(b /= [(ranks * (ranks - 1) / 2 + ranks * i, i = 1, n)])
    call MPI_Bcast(a, n, MPI_INTEGER, root, comm)
    wrong = wrong + count(a /= [(root + i, i = 1, n)])
    call MPI_Barrier(comm)

    b = -1
    call MPI_Irecv(got, 1, MPI_INTEGER, modulo(rank - 1, ranks), 4, comm, requests(1))
    call MPI_Iallreduce(a, b, n, MPI_INTEGER, MPI_SUM, comm, requests(2))
    call MPI_Ibarrier(comm, requests(3))
    call MPI_Send(root, 1, MPI_INTEGER, modulo(rank + 1, ranks), 4, comm)
    call MPI_Waitall(3, requests, statuses)
    wrong = wrong + count(b /= [(ranks * (root + i), i = 1, n)])
    if (got /= root .or. statuses(1)%MPI_TAG /= 4 .or. any([(requests(i) /= MPI_REQUEST_NULL, i = 1, 3)])) &
      wrong = wrong + 1
  end do
  ! A row of a matrix: every fourth element.
  grid = reshape([(rank * 100 + i, i = 1, 24)], [4, 6])
  if (MPI_SUBARRAYS_SUPPORTED) then
    call MPI_Bcast(grid(2, :), 6, MPI_INTEGER, ranks - 1, comm)
    wrong = wrong + count(grid(2, :) /= [((ranks - 1) * 100 + 4 * i - 2, i = 1, 6)])
    wrong = wrong + count(grid(3, :) /= [(rank * 100 + 4 * i - 1, i = 1, 6)])
  end if
  call MPI_Op_create(keep, .false., op)
  a(1) = rank + 5
  call MPI_Allreduce(MPI_IN_PLACE, a, 1, MPI_INTEGER, op, comm)
  if (a(1) /= 5) wrong = wrong + 1
  call MPI_Op_free(op)
  call MPI_Comm_free(comm)
  call MPI_Reduce(wrong, total, 1, MPI_INTEGER, MPI_SUM, 0, MPI_COMM_WORLD)
  if (rank == 0) print '(a,i0)', 'note 0 wrong: ', total
  call MPI_Finalize()
  if (wrong /= 0) error stop 1
end program

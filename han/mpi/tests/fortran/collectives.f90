! The module mpi_f08: its functions have ways of their own to the library.
program collectives
  use mpi_f08
  implicit none
  integer :: rank, size, numbers(3), sums(3), total
  logical :: all_of_them
  double precision :: vector(1000)
  type(MPI_Op) :: op

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  numbers = [rank, 1, 2]
  call MPI_Allreduce(numbers, sums, 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (any(sums /= [size * (size - 1) / 2, size, 2 * size])) error stop 'allreduce'
  call MPI_Allreduce(MPI_IN_PLACE, numbers, 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (any(numbers /= sums)) error stop 'allreduce in place'
  call MPI_Allreduce(rank /= 0, all_of_them, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD)
  if (all_of_them) error stop 'logical and'
  vector = rank
  call MPI_Bcast(vector, 1000, MPI_DOUBLE_PRECISION, size - 1, MPI_COMM_WORLD)
  if (any(vector /= size - 1)) error stop 'bcast'
  call MPI_Reduce(rank, total, 1, MPI_INTEGER, MPI_MAX, 0, MPI_COMM_WORLD)
  if (rank == 0 .and. total /= size - 1) error stop 'reduce'
  call MPI_Op_create(add, .true., op)
  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, op, MPI_COMM_WORLD)
  if (total /= size * (size - 1) / 2) error stop 'user operator'
  call MPI_Barrier(MPI_COMM_WORLD)
  if (rank == 0) print '(a,i0,a)', 'passed on ', size, ' ranks'
  call MPI_Finalize()

contains

  subroutine add(left, right, count, datatype)
    use, intrinsic :: iso_c_binding, only: c_ptr, c_f_pointer
    type(c_ptr), value :: left, right
    integer :: count
    type(MPI_Datatype) :: datatype
    integer, pointer :: from(:), to(:)

    if (datatype /= MPI_INTEGER) error stop 'datatype'
    call c_f_pointer(left, from, [count])
    call c_f_pointer(right, to, [count])
    to = from + to
  end subroutine
end program

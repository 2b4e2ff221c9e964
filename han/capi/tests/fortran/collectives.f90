! Blocking collectives on scalars, arrays, sections and derived types; both kinds of counts; error
! codes and messages.
program collectives
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int8, int64, real32, real64
  use han
  implicit none

  type, bind(C) :: double_int
    real(c_double) :: value
    integer(c_int) :: index
  end type

  type(han_comm_t) :: world
  integer :: rank, ranks

  call start()
  call scalars_and_arrays()
  call kinds()
  call in_place_and_roots()
  call errors()
  call out_of_place()
  call end_well()

contains

  subroutine scalars_and_arrays()
    real(real64) :: mine, total, matrix(7, 5), sums(7, 5)
    integer :: vector(1000), i
    mine = rank + 1
    total = 0
    call han_allreduce(mine, total, 1, HAN_DOUBLE, HAN_SUM, world)
    call check(total == ranks * (ranks + 1) / 2, 'sum of scalars')

    matrix = rank
    matrix(3, 4) = 10 * rank
    call han_allreduce(matrix, sums, 35, HAN_DOUBLE, HAN_MAX, world)
    call check(sums(1, 1) == ranks - 1 .and. sums(3, 4) == 10 * (ranks - 1), 'maximum of a matrix')

    ! A section with a stride is copied by the compiler, in and out.
    matrix = -1
    if (rank == 0) matrix(2, :) = [1, 2, 3, 4, 5]
    call han_bcast(matrix(2, :), 5, HAN_DOUBLE, 0, world)
    call check(all(matrix(2, :) == [1, 2, 3, 4, 5]) .and. all(matrix(1, :) == -1), 'bcast of a row')

    vector = [(i, i=1, 1000)] * merge(1, 0, rank == ranks - 1)
    call han_bcast(vector, size(vector, kind=int64), HAN_INT32, ranks - 1, world)
    call check(all(vector == [(i, i=1, 1000)]), 'bcast with a 64-bit count')
    call han_barrier(world)
    call han_bcast(vector, 0, HAN_INT32, 0, world)
  end subroutine scalars_and_arrays

  subroutine kinds()
    integer(int8) :: bytes(3), byte_sum(3)
    integer(int64) :: long, long_product
    real(real32) :: single(2), single_min(2)
    complex(real64) :: z, z_sum
    logical(c_bool) :: yes, any_yes
    type(double_int) :: pair, least
    integer(c_size_t) :: width

    bytes = [1_int8, 2_int8, 3_int8]
    call han_allreduce(bytes, byte_sum, 3, HAN_INT8, HAN_SUM, world)
    call check(all(byte_sum == bytes * ranks), 'int8')
    long = 3
    call han_allreduce(long, long_product, 1, HAN_INT64, HAN_PROD, world)
    call check(long_product == 3_int64**ranks, 'int64')
    single = [real(rank, real32), -real(rank, real32)]
    call han_allreduce(single, single_min, 2, HAN_FLOAT, HAN_MIN, world)
    call check(all(single_min == [0.0, real(1 - ranks, real32)]), 'real32')
    z = cmplx(1, rank, real64)
    call han_allreduce(z, z_sum, 1, HAN_COMPLEX_DOUBLE, HAN_SUM, world)
    call check(z_sum == cmplx(ranks, ranks * (ranks - 1) / 2, real64), 'complex')
    yes = rank == ranks - 1
    call han_allreduce(yes, any_yes, 1, HAN_BOOL, HAN_LOR, world)
    call check(logical(any_yes), 'logical')
    pair = double_int(abs(rank - 1), rank)
    call han_allreduce(pair, least, 1, HAN_DOUBLE_INT, HAN_MINLOC, world)
    call check(least%index == merge(1, 0, ranks > 1), 'minloc')
    call han_datatype_size(HAN_COMPLEX_DOUBLE, width)
    call check(width == 16, 'datatype size')
    call check(logical(HAN_SUM == HAN_SUM .and. HAN_SUM /= HAN_PROD), 'comparison of operators')
    call check(logical(HAN_INT8 /= HAN_INT16), 'comparison of datatypes')
  end subroutine kinds

  subroutine in_place_and_roots()
    integer :: numbers(100), result(100), root
    do root = 0, ranks - 1
      numbers = rank + root
      result = -1
      call han_reduce(numbers, result, 100, HAN_INT32, HAN_SUM, root, world)
      if (rank == root) then
        call check(all(result == ranks * (ranks - 1) / 2 + ranks * root), 'reduce')
        call han_reduce(HAN_IN_PLACE, numbers, 100, HAN_INT32, HAN_SUM, root, world)
        call check(all(numbers == result), 'reduce in place')
      else
        call check(all(result == -1), 'reduce off the root')
        call han_reduce(numbers, result, 100, HAN_INT32, HAN_SUM, root, world)
      end if
    end do
    numbers = rank
    call han_allreduce(HAN_IN_PLACE, numbers, 100_int64, HAN_INT32, HAN_SUM, world)
    call check(all(numbers == ranks * (ranks - 1) / 2), 'allreduce in place')
  end subroutine in_place_and_roots

  subroutine errors()
    integer :: code, number
    character(200) :: text
    character(5) :: short
    type(han_comm_t) :: nowhere
    number = 1
    call han_bcast(number, -1, HAN_INT32, 0, world, code)
    call check(code == HAN_ERR_COUNT, 'negative count')
    call han_last_error_message(text, len(text))
    call check(index(text, 'negative') > 0 .and. text(200:200) == ' ', 'message')
    call han_bcast(number, -1_int64, HAN_INT32, 0, world, code)
    call check(code == HAN_ERR_COUNT, 'negative 64-bit count')
    call han_bcast(number, 1, HAN_DATATYPE_NULL, 0, world, code)
    call check(code == HAN_ERR_DATATYPE, 'no datatype')
    call han_bcast(number, 1, HAN_INT32, ranks, world, ierror=code)
    call check(code == HAN_ERR_ROOT, 'no root')
    call han_allreduce(number, number, 1, HAN_INT32, HAN_SUM, world, code)
    call check(code == HAN_ERR_BUFFER, 'aliased buffers')
    call han_comm_rank(nowhere, number, code)
    call check(code == HAN_ERR_COMM .and. nowhere == HAN_COMM_NULL, 'no communicator')
    call han_strerror(HAN_ERR_ROOT, short, len(short))
    call check(short == 'inval', 'meaning of a code, cut')
    call han_comm_describe(world, text, 20, code)
    call check(code == HAN_ERR_TRUNCATE .and. text(1:12) == 'communicator', 'description, cut')
    call han_barrier(world, code)
    call check(code == HAN_SUCCESS, 'all is well')
  end subroutine errors

  ! HAN_IN_PLACE where only a buffer of the program's can be.
  subroutine out_of_place()
    type(han_request_t) :: request
    integer :: codes(9), mine
    mine = 1
    call han_bcast(HAN_IN_PLACE, 1, HAN_INT32, 0, world, codes(1))
    call han_ibcast(HAN_IN_PLACE, 1, HAN_INT32, 0, world, request, codes(2))
    call han_bcast_init(HAN_IN_PLACE, 1, HAN_INT32, 0, world, request, codes(3))
    call han_reduce(mine, HAN_IN_PLACE, 1, HAN_INT32, HAN_SUM, rank, world, codes(4))
    call han_ireduce(mine, HAN_IN_PLACE, 1, HAN_INT32, HAN_SUM, rank, world, request, codes(5))
    call han_reduce_init(mine, HAN_IN_PLACE, 1, HAN_INT32, HAN_SUM, rank, world, request, codes(6))
    call han_allreduce(mine, HAN_IN_PLACE, 1, HAN_INT32, HAN_SUM, world, codes(7))
    call han_iallreduce(mine, HAN_IN_PLACE, 1, HAN_INT32, HAN_SUM, world, request, codes(8))
    call han_allreduce_init(mine, HAN_IN_PLACE, 1, HAN_INT32, HAN_SUM, world, request, codes(9))
    call check(all(codes == HAN_ERR_BUFFER), 'in place as a result')
    call han_register(HAN_IN_PLACE, 4_int64, codes(1))
    call check(codes(1) == HAN_ERR_ARG, 'registered in place')
  end subroutine out_of_place

  include 'checks.inc'
end program collectives

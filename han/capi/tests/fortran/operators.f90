! An operator in Fortran that does not commute, and communicators.
module affine_maps
  use, intrinsic :: iso_c_binding
  use han
  implicit none
  integer, parameter :: modulus = 32749

  ! x -> a x + b, modulo a prime.
  type, bind(C) :: affine
    integer(c_int) :: a, b
  end type

  type, bind(C) :: counted
    type(affine) :: map
    integer(c_int) :: maps
  end type

contains

  ! First f, then g.
  pure function compose(f, g) result(h)
    type(affine), intent(in) :: f, g
    type(affine) :: h
    h%a = mod(g%a * f%a, modulus)
    h%b = mod(g%a * f%b + g%b, modulus)
  end function compose

  ! Two integers stand for a map: the count is even.
  subroutine compose_op(in, inout, count, datatype, ctx) bind(C)
    type(c_ptr), value :: in, inout
    integer(c_size_t), value :: count
    type(han_datatype_t), value :: datatype
    type(c_ptr), value :: ctx
    type(affine), pointer :: left(:), right(:)
    integer, pointer :: calls
    integer :: i
    if (datatype /= HAN_INT64) error stop 'another datatype'
    call c_f_pointer(ctx, calls)
    call c_f_pointer(in, left, [count])
    call c_f_pointer(inout, right, [count])
    do i = 1, size(right)
      right(i) = compose(left(i), right(i))
    end do
    calls = calls + 1
  end subroutine compose_op

  ! The same maps with a third number, which counts the maps: 12 bytes.
  subroutine compose_records(in, inout, count, datatype, ctx) bind(C)
    type(c_ptr), value :: in, inout
    integer(c_size_t), value :: count
    type(han_datatype_t), value :: datatype
    type(c_ptr), value :: ctx
    type(counted), pointer :: left(:), right(:)
    integer :: i
    if (datatype /= han_record(12) .or. c_associated(ctx)) error stop 'another datatype'
    call c_f_pointer(in, left, [count])
    call c_f_pointer(inout, right, [count])
    do i = 1, size(right)
      right(i) = counted(compose(left(i)%map, right(i)%map), left(i)%maps + right(i)%maps)
    end do
  end subroutine compose_records

  elemental function sample(rank, i) result(f)
    integer, intent(in) :: rank, i
    type(affine) :: f
    f = affine(mod(3 * rank + 2 * i + 1, modulus), mod(rank + 7 + i, modulus))
  end function sample
end module affine_maps

program operators
  use affine_maps
  implicit none
  integer, parameter :: n = 3000
  type(han_comm_t) :: world
  integer :: rank, ranks

  call start()
  call ordered()
  call records()
  call halves()
  call end_well()

contains

  subroutine ordered()
    integer, target :: calls
    integer :: i, r, code
    type(affine) :: mine(n), all_of(n), want
    type(han_op_t) :: op
    calls = 0
    call han_op_create(compose_op, c_loc(calls), .false._c_bool, op)
    mine = [(sample(rank, i), i=1, n)]
    call han_allreduce(mine, all_of, n, HAN_INT64, op, world)
    do i = 1, n
      want = sample(0, i)
      do r = 1, ranks - 1
        want = compose(want, sample(r, i))
      end do
      call check(all_of(i)%a == want%a .and. all_of(i)%b == want%b, 'composition in rank order')
    end do
    call han_allreduce(HAN_IN_PLACE, calls, 1, HAN_INT32, HAN_MAX, world)
    call check(ranks == 1 .or. calls > 0, 'the operator was called')
    call han_op_free(op)
    call check(logical(op == HAN_OP_NULL), 'freed')
    call han_op_free(op, code)
    call check(code == HAN_ERR_OP, 'freed twice')
  end subroutine ordered

  subroutine records()
    integer :: i, r, code
    integer(c_size_t) :: bytes
    type(counted) :: mine(n), all_of(n)
    type(affine) :: want
    type(han_op_t) :: op
    call han_datatype_size(han_record(c_sizeof(mine(1))), bytes)
    call check(bytes == 12, 'size of a record')
    call han_op_create(compose_records, c_null_ptr, .false._c_bool, op)
    mine = [(counted(sample(rank, i), 1), i=1, n)]
    call han_allreduce(mine, all_of, n, han_record(12), op, world)
    do i = 1, n
      want = sample(0, i)
      do r = 1, ranks - 1
        want = compose(want, sample(r, i))
      end do
      call check(all_of(i)%map%a == want%a .and. all_of(i)%map%b == want%b, 'records in rank order')
      call check(all_of(i)%maps == ranks, 'each rank once')
    end do
    call han_op_free(op)
    call han_bcast(mine, n, han_record(0), 0, world, code)
    call check(code == HAN_ERR_DATATYPE, 'no bytes')
    call han_bcast(mine, n, han_record(-1), 0, world, code)
    call check(code == HAN_ERR_DATATYPE, 'negative')
  end subroutine records

  subroutine halves()
    type(han_comm_t) :: half, none, copy
    integer :: members, place, total
    call han_comm_split(world, mod(rank, 2), -rank, half)
    call han_comm_size(half, members)
    call han_comm_rank(half, place)
    call check(members == (ranks + 1 - mod(rank, 2)) / 2, 'size of a half')
    call check(place == members - 1 - rank / 2, 'order by key')
    call han_comm_dup(half, copy)
    call han_allreduce(1, total, 1, HAN_INT32, HAN_SUM, copy)
    call check(total == members, 'sum over a half')
    call han_comm_free(copy)
    call han_comm_free(half)
    call check(logical(half == HAN_COMM_NULL), 'freed')
    call han_comm_split(world, HAN_UNDEFINED, 0, none)
    call check(logical(none == HAN_COMM_NULL), 'no colour, no communicator')
  end subroutine halves

  include 'checks.inc'
end program operators

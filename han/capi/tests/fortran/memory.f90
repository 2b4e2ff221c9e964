! Memory that peers can reach: of han_malloc, and registered.
program memory
  use, intrinsic :: iso_c_binding
  use han
  implicit none
  integer, parameter :: n = 50000
  type(han_comm_t) :: world
  integer :: rank, ranks

  call start()
  call allocated()
  call allocated_and_begun()
  call registered()
  call end_well()

contains

  subroutine sums(mine, total)
    double precision, intent(inout) :: mine(:), total(:)
    integer :: k
    mine = [(dble(mod(k, 100) * (rank + 1)), k = 1, size(mine))]
    call han_allreduce(mine, total, size(mine), HAN_DOUBLE, HAN_SUM, world)
    call check(all(total == [(dble(mod(k, 100) * (ranks * (ranks + 1) / 2)), k = 1, size(mine))]), 'sum')
  end subroutine sums

  subroutine allocated()
    type(c_ptr) :: place
    double precision, pointer, contiguous :: mine(:)
    double precision, allocatable :: total(:)
    allocate (total(n))
    call han_malloc(8_c_int64_t * n, place)
    call c_f_pointer(place, mine, [n])
    call sums(mine, total)
    call han_free(place)
  end subroutine allocated

  subroutine allocated_and_begun()
    type(c_ptr) :: place
    type(han_request_t) :: request
    double precision, pointer, contiguous, asynchronous :: mine(:)
    integer :: turn
    call han_malloc(8_c_int64_t * n, place)
    call c_f_pointer(place, mine, [n])
    call han_allreduce_init(HAN_IN_PLACE, mine, n, HAN_DOUBLE, HAN_SUM, world, request)
    do turn = 1, 3
      mine = dble(turn * (rank + 1))
      call han_start(request)
      call han_wait(request)
      call check(all(mine == dble(turn * (ranks * (ranks + 1) / 2))), 'persistent sum')
    end do
    call han_request_free(request)
    call han_free(place)
  end subroutine allocated_and_begun

  subroutine registered()
    double precision, allocatable, target :: mine(:), total(:)
    integer :: code
    allocate (mine(n), total(n))
    mine = 7
    call han_register(mine, 8_c_int64_t * n)
    call check(all(mine == 7), 'contents stay')
    call han_register(total, 8_c_int64_t * n)
    call sums(mine, total)
    call han_register(mine, 8_c_int64_t * n, code)
    call check(code == HAN_ERR_ARG, 'registered twice')
    call han_unregister(mine)
    call sums(mine, total)
    call han_unregister(total)
    call han_unregister(total, code)
    call check(code == HAN_ERR_ARG, 'unregistered twice')
    call check(HAN_HAS_REGISTER == 1, 'the constant')
  end subroutine registered

  include 'checks.inc'
end program memory

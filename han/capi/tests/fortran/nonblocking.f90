! Non-blocking and persistent operations; the buffers have the ASYNCHRONOUS attribute.
program nonblocking
  use, intrinsic :: iso_c_binding
  use han
  implicit none
  integer, parameter :: many = 6, n = 1000
  type(han_comm_t) :: world
  integer :: rank, ranks

  call start()
  call overlapping()
  call persistent()
  call end_well()

contains

  subroutine overlapping()
    double precision, asynchronous :: mine(n, many), sums(n, many)
    integer, asynchronous :: token
    integer :: k, turn
    type(han_request_t) :: requests(many + 2)
    logical(c_bool) :: done
    do k = 1, many
      mine(:, k) = k * (rank + 1)
    end do
    sums = -1
    token = merge(77, 0, rank == ranks - 1)
    do k = 1, many
      call han_iallreduce(mine(:, k), sums(:, k), n, HAN_DOUBLE, HAN_SUM, world, requests(k))
    end do
    call han_ibcast(token, 1, HAN_INT32, ranks - 1, world, requests(many + 1))
    call han_ibarrier(world, requests(many + 2))
    do turn = 1, many / 2
      k = merge(turn, many + 1 - turn, mod(rank, 2) == 0)
      call han_wait(requests(k))
      call check(logical(requests(k) == HAN_REQUEST_NULL), 'released')
      call check(all(sums(:, k) == k * ranks * (ranks + 1) / 2), 'sum after wait')
    end do
    done = .false._c_bool
    do while (.not. done)
      call han_test(requests(many + 1), done)
    end do
    call check(token == 77, 'token')
    call han_waitall(many + 2, requests)
    do k = 1, many
      call check(all(sums(:, k) == k * ranks * (ranks + 1) / 2), 'sum after waitall')
    end do
  end subroutine overlapping

  subroutine persistent()
    integer, asynchronous :: mine, most
    integer :: round, code
    type(han_request_t) :: request
    call han_allreduce_init(mine, most, 1, HAN_INT32, HAN_MAX, world, request)
    do round = 1, 10
      mine = rank * round
      call han_start(request)
      call han_wait(request)
      call check(most == (ranks - 1) * round, 'persistent maximum')
    end do
    call han_start(request)
    call han_start(request, code)
    call check(code == HAN_ERR_REQUEST, 'started twice')
    call han_wait(request)
    call han_request_free(request)
    call check(logical(request == HAN_REQUEST_NULL), 'freed')
  end subroutine persistent

  include 'checks.inc'
end program nonblocking

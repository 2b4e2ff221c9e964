! A failure without `ierror`: the program ends here.
program failure
  use han
  implicit none
  type(han_comm_t) :: world
  integer :: number = 1
  call han_init()
  call han_comm_world(world)
  call han_bcast(number, 1, HAN_INT32, 99, world)
  print *, 'went on'
end program failure

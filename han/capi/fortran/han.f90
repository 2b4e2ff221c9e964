! han for Fortran 2008 with TS 29113 (Fortran 2018): interfaces and constants over libhan.
!
!   program hello
!     use han
!     implicit none
!     type(han_comm_t) :: world
!     integer :: rank
!     double precision :: mine, total
!     call han_init()
!     call han_comm_world(world)
!     call han_comm_rank(world, rank)
!     mine = rank + 1
!     call han_allreduce(mine, total, 1, HAN_DOUBLE, HAN_SUM, world)
!     print *, 'rank', rank, 'the sum is', total
!     call han_finalize()
!   end program
!
!   gfortran hello.f90 $(pkg-config --cflags --libs han) && han run -n 4 -- ./a.out
!
! The rules are those of han.h, which says what each procedure does. What differs here:
!
! - Procedures are subroutines whose last argument, `ierror`, is optional. With it, the program
!   gets the code (HAN_SUCCESS or HAN_ERR_*). Without it, a failure prints its message and ends the
!   job.
! - `count`, but for that of han_waitall, and the bytes of han_record are 32-bit or 64-bit integers.
!   The bytes of han_malloc and han_register are of kind c_int64_t, those that han_datatype_size gives
!   of kind c_size_t. Other integers are of kind c_int, the default kind.
! - Logical arguments and the results of == and /= are of kind c_bool: `.true._c_bool`.
! - A buffer is any contiguous variable of a type that has a datatype, scalar or array. The buffers
!   of non-blocking and persistent operations must have the ASYNCHRONOUS (or TARGET) attribute in the
!   calling program until the operation is complete, and must not be array sections with strides; a
!   pointer, as to memory of han_malloc, must be CONTIGUOUS besides (without it compilers say that
!   there is no specific subroutine).
! - HAN_IN_PLACE as `sendbuf` takes the input from `recvbuf`.
!
!   Fortran type                          datatype
!   integer(int8) .. integer(int64)       HAN_INT8, HAN_INT16, HAN_INT32, HAN_INT64
!   real(real32), real(real64)            HAN_FLOAT, HAN_DOUBLE
!   complex(real32), complex(real64)      HAN_COMPLEX_FLOAT, HAN_COMPLEX_DOUBLE
!   logical(c_bool)                       HAN_BOOL
!   type, bind(C) of value and integer    HAN_FLOAT_INT, HAN_DOUBLE_INT, HAN_2INT, ...
!   any other type, bind(C)               han_record(bytes), of 1 to 1024 bytes: han_record(c_sizeof(x));
!                                         only operators of the program's own reduce it
!
! This file compiles to nothing that needs linking: any compiler can make its own `han.mod` of it.
module han
  use, intrinsic :: iso_c_binding, only: c_bool, c_char, c_int, c_int32_t, c_int64_t, &
                                         c_intptr_t, c_ptr, c_size_t
  implicit none
  private

  ! ---- handles -------------------------------------------------------------------------------
  type, bind(C), public :: han_comm_t
    integer(c_intptr_t) :: handle = 0
  end type
  type, bind(C), public :: han_request_t
    integer(c_intptr_t) :: handle = 0
  end type
  type, bind(C), public :: han_op_t
    integer(c_intptr_t) :: handle = 0
  end type
  type, bind(C), public :: han_datatype_t
    integer(c_int) :: code = -1
  end type

  type(han_comm_t), parameter, public :: HAN_COMM_NULL = han_comm_t(0)
  type(han_request_t), parameter, public :: HAN_REQUEST_NULL = han_request_t(0)
  type(han_op_t), parameter, public :: HAN_OP_NULL = han_op_t(0)
  type(han_datatype_t), parameter, public :: HAN_DATATYPE_NULL = han_datatype_t(-1)

  ! ---- constants -----------------------------------------------------------------------------
  integer(c_int), parameter, public :: HAN_VERSION_MAJOR = 0
  integer(c_int), parameter, public :: HAN_VERSION_MINOR = 1
  integer(c_int), parameter, public :: HAN_VERSION_PATCH = 0
  ! han_register and han_unregister exist.
  integer(c_int), parameter, public :: HAN_HAS_REGISTER = 1

  integer(c_int), parameter, public :: HAN_UNDEFINED = -32766

  integer(c_int), bind(C, name="han_fortran_in_place"), protected, public :: HAN_IN_PLACE

  ! error codes
  integer(c_int), parameter, public :: HAN_SUCCESS = 0
  integer(c_int), parameter, public :: HAN_ERR_ARG = 1
  integer(c_int), parameter, public :: HAN_ERR_BUFFER = 2
  integer(c_int), parameter, public :: HAN_ERR_COUNT = 3
  integer(c_int), parameter, public :: HAN_ERR_DATATYPE = 4
  integer(c_int), parameter, public :: HAN_ERR_OP = 5
  integer(c_int), parameter, public :: HAN_ERR_ROOT = 6
  integer(c_int), parameter, public :: HAN_ERR_COMM = 7
  integer(c_int), parameter, public :: HAN_ERR_REQUEST = 8
  integer(c_int), parameter, public :: HAN_ERR_TRUNCATE = 9
  integer(c_int), parameter, public :: HAN_ERR_NOT_INITIALIZED = 10
  integer(c_int), parameter, public :: HAN_ERR_INITIALIZED = 11
  integer(c_int), parameter, public :: HAN_ERR_THREAD = 12
  integer(c_int), parameter, public :: HAN_ERR_CONFIG = 13
  integer(c_int), parameter, public :: HAN_ERR_BOOTSTRAP = 14
  integer(c_int), parameter, public :: HAN_ERR_PEER_DIED = 15
  integer(c_int), parameter, public :: HAN_ERR_MISMATCH = 16
  integer(c_int), parameter, public :: HAN_ERR_ABORTED = 17
  integer(c_int), parameter, public :: HAN_ERR_TIMEOUT = 18
  integer(c_int), parameter, public :: HAN_ERR_UNSUPPORTED = 19
  integer(c_int), parameter, public :: HAN_ERR_SYSTEM = 20
  integer(c_int), parameter, public :: HAN_ERR_NO_MEMORY = 21
  integer(c_int), parameter, public :: HAN_ERR_INTERNAL = 22

  ! datatypes
  type(han_datatype_t), parameter, public :: HAN_INT8 = han_datatype_t(0)
  type(han_datatype_t), parameter, public :: HAN_INT16 = han_datatype_t(1)
  type(han_datatype_t), parameter, public :: HAN_INT32 = han_datatype_t(2)
  type(han_datatype_t), parameter, public :: HAN_INT64 = han_datatype_t(3)
  type(han_datatype_t), parameter, public :: HAN_UINT8 = han_datatype_t(4)
  type(han_datatype_t), parameter, public :: HAN_UINT16 = han_datatype_t(5)
  type(han_datatype_t), parameter, public :: HAN_UINT32 = han_datatype_t(6)
  type(han_datatype_t), parameter, public :: HAN_UINT64 = han_datatype_t(7)
  type(han_datatype_t), parameter, public :: HAN_FLOAT16 = han_datatype_t(8)
  type(han_datatype_t), parameter, public :: HAN_BFLOAT16 = han_datatype_t(9)
  type(han_datatype_t), parameter, public :: HAN_FLOAT = han_datatype_t(10)
  type(han_datatype_t), parameter, public :: HAN_DOUBLE = han_datatype_t(11)
  type(han_datatype_t), parameter, public :: HAN_COMPLEX_FLOAT = han_datatype_t(12)
  type(han_datatype_t), parameter, public :: HAN_COMPLEX_DOUBLE = han_datatype_t(13)
  type(han_datatype_t), parameter, public :: HAN_BOOL = han_datatype_t(14)
  type(han_datatype_t), parameter, public :: HAN_BYTE = han_datatype_t(15)
  type(han_datatype_t), parameter, public :: HAN_FLOAT_INT = han_datatype_t(16)
  type(han_datatype_t), parameter, public :: HAN_DOUBLE_INT = han_datatype_t(17)
  type(han_datatype_t), parameter, public :: HAN_LONG_INT = han_datatype_t(18)
  type(han_datatype_t), parameter, public :: HAN_2INT = han_datatype_t(19)
  type(han_datatype_t), parameter, public :: HAN_SHORT_INT = han_datatype_t(20)
  type(han_datatype_t), parameter, public :: HAN_RECORD_LARGEST = han_datatype_t(5120)

  ! operators
  type(han_op_t), parameter, public :: HAN_SUM = han_op_t(1)
  type(han_op_t), parameter, public :: HAN_PROD = han_op_t(2)
  type(han_op_t), parameter, public :: HAN_MIN = han_op_t(3)
  type(han_op_t), parameter, public :: HAN_MAX = han_op_t(4)
  type(han_op_t), parameter, public :: HAN_LAND = han_op_t(5)
  type(han_op_t), parameter, public :: HAN_LOR = han_op_t(6)
  type(han_op_t), parameter, public :: HAN_LXOR = han_op_t(7)
  type(han_op_t), parameter, public :: HAN_BAND = han_op_t(8)
  type(han_op_t), parameter, public :: HAN_BOR = han_op_t(9)
  type(han_op_t), parameter, public :: HAN_BXOR = han_op_t(10)
  type(han_op_t), parameter, public :: HAN_MINLOC = han_op_t(11)
  type(han_op_t), parameter, public :: HAN_MAXLOC = han_op_t(12)

  public :: operator(==), operator(/=)
  public :: han_init, han_init_oob, han_initialized, han_finalize, han_abort, han_version
  public :: han_last_error_message, han_strerror, han_comm_world, han_comm_rank, han_comm_size
  public :: han_comm_dup, han_comm_split, han_comm_free, han_comm_describe, han_datatype_size
  public :: han_record
  public :: han_op_create, han_op_free, han_barrier, han_bcast, han_reduce, han_allreduce
  public :: han_ibarrier, han_ibcast, han_ireduce, han_iallreduce, han_barrier_init
  public :: han_bcast_init, han_reduce_init, han_allreduce_init, han_start, han_request_free
  public :: han_test, han_wait, han_waitall, han_malloc, han_free, han_register, han_unregister

  ! ---- procedures that the program provides ----------------------------------------------------
  abstract interface
    ! inout(i) = in(i) op inout(i) for i = 1 .. count, `in` being the operand on the left; use
    ! c_f_pointer to get at the arrays.
    subroutine han_op_function(in, inout, count, datatype, ctx) bind(C)
      import :: c_ptr, c_size_t, han_datatype_t
      type(c_ptr), value :: in, inout
      integer(c_size_t), value :: count
      type(han_datatype_t), value :: datatype
      type(c_ptr), value :: ctx
    end subroutine

    ! Gathers `bytes` bytes of every rank, at `send`, into `recv`, in rank order; 0 is success.
    function han_allgather_function(send, bytes, recv, ctx) result(code) bind(C)
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: send
      integer(c_size_t), value :: bytes
      type(c_ptr), value :: recv, ctx
      integer(c_int) :: code
    end function
  end interface
  public :: han_op_function, han_allgather_function

  ! ---- start and end -----------------------------------------------------------------------
  interface
    subroutine han_init(ierror) &
        bind(C, name="han_fortran_init")
      import :: c_int
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_init_oob(rank, size, allgather, ctx, ierror) &
        bind(C, name="han_fortran_init_oob")
      import :: c_int, c_ptr, han_allgather_function
      integer(c_int), value :: rank, size
      procedure(han_allgather_function) :: allgather
      type(c_ptr), value :: ctx
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_initialized(flag, ierror) &
        bind(C, name="han_fortran_initialized")
      import :: c_bool, c_int
      logical(c_bool), intent(out) :: flag
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_finalize(ierror) &
        bind(C, name="han_fortran_finalize")
      import :: c_int
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    ! Does not return.
    subroutine han_abort(code) &
        bind(C, name="han_fortran_abort")
      import :: c_int
      integer(c_int), value :: code
    end subroutine

    ! The sentence about the last failure, or the meaning of a code, filled up with blanks:
    ! call han_last_error_message(text, len(text))
    subroutine han_last_error_message(text, length) &
        bind(C, name="han_fortran_last_error_message")
      import :: c_char, c_int
      character(kind=c_char), intent(out) :: text(*)
      integer(c_int), value :: length
    end subroutine

    subroutine han_strerror(error, text, length) &
        bind(C, name="han_fortran_strerror")
      import :: c_char, c_int
      integer(c_int), value :: error
      character(kind=c_char), intent(out) :: text(*)
      integer(c_int), value :: length
    end subroutine
  end interface

  ! ---- communicators -----------------------------------------------------------------------
  interface
    subroutine han_comm_world(comm, ierror) &
        bind(C, name="han_fortran_comm_world")
      import :: c_int, han_comm_t
      type(han_comm_t), intent(out) :: comm
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_version(major, minor, patch, ierror) &
        bind(C, name="han_fortran_version")
      import :: c_int
      integer(c_int), optional, intent(out) :: major, minor, patch
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_comm_rank(comm, rank, ierror) &
        bind(C, name="han_fortran_comm_rank")
      import :: c_int, han_comm_t
      type(han_comm_t), value :: comm
      integer(c_int), intent(out) :: rank
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_comm_size(comm, size, ierror) &
        bind(C, name="han_fortran_comm_size")
      import :: c_int, han_comm_t
      type(han_comm_t), value :: comm
      integer(c_int), intent(out) :: size
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_comm_dup(comm, newcomm, ierror) &
        bind(C, name="han_fortran_comm_dup")
      import :: c_int, han_comm_t
      type(han_comm_t), value :: comm
      type(han_comm_t), intent(out) :: newcomm
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_comm_split(comm, color, key, newcomm, ierror) &
        bind(C, name="han_fortran_comm_split")
      import :: c_int, han_comm_t
      type(han_comm_t), value :: comm
      integer(c_int), value :: color
      integer(c_int), value :: key
      type(han_comm_t), intent(out) :: newcomm
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_comm_free(comm, ierror) &
        bind(C, name="han_fortran_comm_free")
      import :: c_int, han_comm_t
      type(han_comm_t), intent(inout) :: comm
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_comm_describe(comm, text, length, ierror) &
        bind(C, name="han_fortran_comm_describe")
      import :: c_char, c_int, han_comm_t
      type(han_comm_t), value :: comm
      character(kind=c_char), intent(out) :: text(*)
      integer(c_int), value :: length
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  ! ---- datatypes and operators -------------------------------------------------------------
  ! The datatype of a record of so many bytes.
  interface han_record
    pure function han_record_i32(bytes) result(datatype) &
        bind(C, name="han_fortran_record_i32")
      import :: c_int32_t, han_datatype_t
      integer(c_int32_t), value, intent(in) :: bytes
      type(han_datatype_t) :: datatype
    end function

    pure function han_record_i64(bytes) result(datatype) &
        bind(C, name="han_fortran_record_i64")
      import :: c_int64_t, han_datatype_t
      integer(c_int64_t), value, intent(in) :: bytes
      type(han_datatype_t) :: datatype
    end function
  end interface

  interface
    subroutine han_datatype_size(datatype, bytes, ierror) &
        bind(C, name="han_fortran_datatype_size")
      import :: c_int, c_size_t, han_datatype_t
      type(han_datatype_t), value :: datatype
      integer(c_size_t), intent(out) :: bytes
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_op_create(function, ctx, commutative, op, ierror) &
        bind(C, name="han_fortran_op_create")
      import :: c_bool, c_int, c_ptr, han_op_function, han_op_t
      procedure(han_op_function) :: function
      type(c_ptr), value :: ctx
      logical(c_bool), value :: commutative
      type(han_op_t), intent(out) :: op
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_op_free(op, ierror) &
        bind(C, name="han_fortran_op_free")
      import :: c_int, han_op_t
      type(han_op_t), intent(inout) :: op
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  ! ---- blocking collectives ----------------------------------------------------------------
  interface
    subroutine han_barrier(comm, ierror) &
        bind(C, name="han_fortran_barrier")
      import :: c_int, han_comm_t
      type(han_comm_t), value :: comm
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  interface han_bcast
    subroutine han_bcast_i32(buffer, count, datatype, root, comm, ierror) &
        bind(C, name="han_fortran_bcast_i32")
      import :: c_int, c_int32_t, han_comm_t, han_datatype_t
      type(*), dimension(*) :: buffer
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      !DIR$ IGNORE_TKR buffer
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      integer(c_int32_t), value :: count
      type(han_datatype_t), value :: datatype
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_bcast_i64(buffer, count, datatype, root, comm, ierror) &
        bind(C, name="han_fortran_bcast_i64")
      import :: c_int, c_int64_t, han_comm_t, han_datatype_t
      type(*), dimension(*) :: buffer
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      !DIR$ IGNORE_TKR buffer
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      integer(c_int64_t), value :: count
      type(han_datatype_t), value :: datatype
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  interface han_reduce
    subroutine han_reduce_i32(sendbuf, recvbuf, count, datatype, op, root, comm, ierror) &
        bind(C, name="han_fortran_reduce_i32")
      import :: c_int, c_int32_t, han_comm_t, han_datatype_t, han_op_t
      type(*), dimension(*), intent(in) :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*) :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int32_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_reduce_i64(sendbuf, recvbuf, count, datatype, op, root, comm, ierror) &
        bind(C, name="han_fortran_reduce_i64")
      import :: c_int, c_int64_t, han_comm_t, han_datatype_t, han_op_t
      type(*), dimension(*), intent(in) :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*) :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int64_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  interface han_allreduce
    subroutine han_allreduce_i32(sendbuf, recvbuf, count, datatype, op, comm, ierror) &
        bind(C, name="han_fortran_allreduce_i32")
      import :: c_int, c_int32_t, han_comm_t, han_datatype_t, han_op_t
      type(*), dimension(*), intent(in) :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*) :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int32_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      type(han_comm_t), value :: comm
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_allreduce_i64(sendbuf, recvbuf, count, datatype, op, comm, ierror) &
        bind(C, name="han_fortran_allreduce_i64")
      import :: c_int, c_int64_t, han_comm_t, han_datatype_t, han_op_t
      type(*), dimension(*), intent(in) :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*) :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int64_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      type(han_comm_t), value :: comm
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  ! ---- non-blocking collectives ------------------------------------------------------------
  interface
    subroutine han_ibarrier(comm, request, ierror) &
        bind(C, name="han_fortran_ibarrier")
      import :: c_int, han_comm_t, han_request_t
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  interface han_ibcast
    subroutine han_ibcast_i32(buffer, count, datatype, root, comm, request, ierror) &
        bind(C, name="han_fortran_ibcast_i32")
      import :: c_int, c_int32_t, han_comm_t, han_datatype_t, han_request_t
      type(*), dimension(*), asynchronous :: buffer
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      !DIR$ IGNORE_TKR buffer
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      integer(c_int32_t), value :: count
      type(han_datatype_t), value :: datatype
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_ibcast_i64(buffer, count, datatype, root, comm, request, ierror) &
        bind(C, name="han_fortran_ibcast_i64")
      import :: c_int, c_int64_t, han_comm_t, han_datatype_t, han_request_t
      type(*), dimension(*), asynchronous :: buffer
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      !DIR$ IGNORE_TKR buffer
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      integer(c_int64_t), value :: count
      type(han_datatype_t), value :: datatype
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  interface han_ireduce
    subroutine han_ireduce_i32(sendbuf, recvbuf, count, datatype, op, root, comm, request, ierror) &
        bind(C, name="han_fortran_ireduce_i32")
      import :: c_int, c_int32_t, han_comm_t, han_datatype_t, han_op_t, han_request_t
      type(*), dimension(*), intent(in), asynchronous :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*), asynchronous :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int32_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_ireduce_i64(sendbuf, recvbuf, count, datatype, op, root, comm, request, ierror) &
        bind(C, name="han_fortran_ireduce_i64")
      import :: c_int, c_int64_t, han_comm_t, han_datatype_t, han_op_t, han_request_t
      type(*), dimension(*), intent(in), asynchronous :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*), asynchronous :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int64_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  interface han_iallreduce
    subroutine han_iallreduce_i32(sendbuf, recvbuf, count, datatype, op, comm, request, ierror) &
        bind(C, name="han_fortran_iallreduce_i32")
      import :: c_int, c_int32_t, han_comm_t, han_datatype_t, han_op_t, han_request_t
      type(*), dimension(*), intent(in), asynchronous :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*), asynchronous :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int32_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_iallreduce_i64(sendbuf, recvbuf, count, datatype, op, comm, request, ierror) &
        bind(C, name="han_fortran_iallreduce_i64")
      import :: c_int, c_int64_t, han_comm_t, han_datatype_t, han_op_t, han_request_t
      type(*), dimension(*), intent(in), asynchronous :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*), asynchronous :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int64_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  ! ---- persistent collectives --------------------------------------------------------------
  interface
    subroutine han_barrier_init(comm, request, ierror) &
        bind(C, name="han_fortran_barrier_init")
      import :: c_int, han_comm_t, han_request_t
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  interface han_bcast_init
    subroutine han_bcast_init_i32(buffer, count, datatype, root, comm, request, ierror) &
        bind(C, name="han_fortran_bcast_init_i32")
      import :: c_int, c_int32_t, han_comm_t, han_datatype_t, han_request_t
      type(*), dimension(*), asynchronous :: buffer
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      !DIR$ IGNORE_TKR buffer
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      integer(c_int32_t), value :: count
      type(han_datatype_t), value :: datatype
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_bcast_init_i64(buffer, count, datatype, root, comm, request, ierror) &
        bind(C, name="han_fortran_bcast_init_i64")
      import :: c_int, c_int64_t, han_comm_t, han_datatype_t, han_request_t
      type(*), dimension(*), asynchronous :: buffer
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      !DIR$ IGNORE_TKR buffer
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      integer(c_int64_t), value :: count
      type(han_datatype_t), value :: datatype
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  interface han_reduce_init
    subroutine han_reduce_init_i32(sendbuf, recvbuf, count, datatype, op, &
        root, comm, request, ierror) &
        bind(C, name="han_fortran_reduce_init_i32")
      import :: c_int, c_int32_t, han_comm_t, han_datatype_t, han_op_t, han_request_t
      type(*), dimension(*), intent(in), asynchronous :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*), asynchronous :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int32_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_reduce_init_i64(sendbuf, recvbuf, count, datatype, op, &
        root, comm, request, ierror) &
        bind(C, name="han_fortran_reduce_init_i64")
      import :: c_int, c_int64_t, han_comm_t, han_datatype_t, han_op_t, han_request_t
      type(*), dimension(*), intent(in), asynchronous :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*), asynchronous :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int64_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      integer(c_int), value :: root
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  interface han_allreduce_init
    subroutine han_allreduce_init_i32(sendbuf, recvbuf, count, datatype, op, &
        comm, request, ierror) &
        bind(C, name="han_fortran_allreduce_init_i32")
      import :: c_int, c_int32_t, han_comm_t, han_datatype_t, han_op_t, han_request_t
      type(*), dimension(*), intent(in), asynchronous :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*), asynchronous :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int32_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_allreduce_init_i64(sendbuf, recvbuf, count, datatype, op, &
        comm, request, ierror) &
        bind(C, name="han_fortran_allreduce_init_i64")
      import :: c_int, c_int64_t, han_comm_t, han_datatype_t, han_op_t, han_request_t
      type(*), dimension(*), intent(in), asynchronous :: sendbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      !DIR$ IGNORE_TKR sendbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: sendbuf
      type(*), dimension(*), asynchronous :: recvbuf
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      !DIR$ IGNORE_TKR recvbuf
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: recvbuf
      integer(c_int64_t), value :: count
      type(han_datatype_t), value :: datatype
      type(han_op_t), value :: op
      type(han_comm_t), value :: comm
      type(han_request_t), intent(out) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  ! ---- requests ----------------------------------------------------------------------------
  interface
    subroutine han_start(request, ierror) &
        bind(C, name="han_fortran_start")
      import :: c_int, han_request_t
      type(han_request_t), intent(inout) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_request_free(request, ierror) &
        bind(C, name="han_fortran_request_free")
      import :: c_int, han_request_t
      type(han_request_t), intent(inout) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_test(request, flag, ierror) &
        bind(C, name="han_fortran_test")
      import :: c_bool, c_int, han_request_t
      type(han_request_t), intent(inout) :: request
      logical(c_bool), intent(out) :: flag
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_wait(request, ierror) &
        bind(C, name="han_fortran_wait")
      import :: c_int, han_request_t
      type(han_request_t), intent(inout) :: request
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_waitall(count, requests, ierror) &
        bind(C, name="han_fortran_waitall")
      import :: c_int, han_request_t
      integer(c_int), value :: count
      type(han_request_t), intent(inout) :: requests(*)
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  ! ---- memory ------------------------------------------------------------------------------
  interface
    subroutine han_malloc(bytes, pointer, ierror) &
        bind(C, name="han_fortran_malloc")
      import :: c_int, c_int64_t, c_ptr
      integer(c_int64_t), value :: bytes
      type(c_ptr), intent(out) :: pointer
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_free(pointer, ierror) &
        bind(C, name="han_fortran_free")
      import :: c_int, c_ptr
      type(c_ptr), value :: pointer
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    ! The buffer must be contiguous, and the actual argument itself: no expression, no array section
    ! that the compiler would copy. It must live, and not be reallocated, until it is unregistered.
    subroutine han_register(buffer, bytes, ierror) &
        bind(C, name="han_fortran_register")
      import :: c_int, c_int64_t
      type(*), dimension(*), target :: buffer
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      !DIR$ IGNORE_TKR buffer
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      integer(c_int64_t), value :: bytes
      integer(c_int), optional, intent(out) :: ierror
    end subroutine

    subroutine han_unregister(buffer, ierror) &
        bind(C, name="han_fortran_unregister")
      import :: c_int
      type(*), dimension(*), target :: buffer
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      !DIR$ IGNORE_TKR buffer
      !DEC$ ATTRIBUTES NO_ARG_CHECK :: buffer
      integer(c_int), optional, intent(out) :: ierror
    end subroutine
  end interface

  ! ---- comparison of handles ---------------------------------------------------------------
  interface operator(==)
    pure function han_comm_eq(left, right) result(holds) &
        bind(C, name="han_fortran_comm_eq")
      import :: c_bool, han_comm_t
      type(han_comm_t), value, intent(in) :: left, right
      logical(c_bool) :: holds
    end function

    pure function han_request_eq(left, right) result(holds) &
        bind(C, name="han_fortran_request_eq")
      import :: c_bool, han_request_t
      type(han_request_t), value, intent(in) :: left, right
      logical(c_bool) :: holds
    end function

    pure function han_op_eq(left, right) result(holds) &
        bind(C, name="han_fortran_op_eq")
      import :: c_bool, han_op_t
      type(han_op_t), value, intent(in) :: left, right
      logical(c_bool) :: holds
    end function

    pure function han_datatype_eq(left, right) result(holds) &
        bind(C, name="han_fortran_datatype_eq")
      import :: c_bool, han_datatype_t
      type(han_datatype_t), value, intent(in) :: left, right
      logical(c_bool) :: holds
    end function
  end interface

  interface operator(/=)
    pure function han_comm_ne(left, right) result(holds) &
        bind(C, name="han_fortran_comm_ne")
      import :: c_bool, han_comm_t
      type(han_comm_t), value, intent(in) :: left, right
      logical(c_bool) :: holds
    end function

    pure function han_request_ne(left, right) result(holds) &
        bind(C, name="han_fortran_request_ne")
      import :: c_bool, han_request_t
      type(han_request_t), value, intent(in) :: left, right
      logical(c_bool) :: holds
    end function

    pure function han_op_ne(left, right) result(holds) &
        bind(C, name="han_fortran_op_ne")
      import :: c_bool, han_op_t
      type(han_op_t), value, intent(in) :: left, right
      logical(c_bool) :: holds
    end function

    pure function han_datatype_ne(left, right) result(holds) &
        bind(C, name="han_fortran_datatype_ne")
      import :: c_bool, han_datatype_t
      type(han_datatype_t), value, intent(in) :: left, right
      logical(c_bool) :: holds
    end function
  end interface
end module han

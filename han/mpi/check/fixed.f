C     Fortran 77 with mpif.h: the four collectives with Fortran's datatypes, in place, with an operator of the
C     program's own, and without blocking. Every result is compared with what this program computes.
      program fixed
      implicit none
      include 'mpif.h'
      integer n
      parameter (n = 1001)
      integer rank, ranks, ierror, i, root, wrong, op, comm
      integer request, status(MPI_STATUS_SIZE)
      integer a(n), b(n)
      double precision x(n), y(n)
      complex z(3), w(3)
      logical l(2), m(2)
      external keep
      call MPI_Init(ierror)
      call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
      call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
      call MPI_Comm_dup(MPI_COMM_WORLD, comm, ierror)
      wrong = 0
      do 40 root = 0, ranks - 1
        do 10 i = 1, n
          a(i) = rank + i
          x(i) = dble(rank) * i
          b(i) = -1
   10   continue
        call MPI_Allreduce(a, b, n, MPI_INTEGER, MPI_SUM, comm, ierror)
        call MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_DOUBLE_PRECISION,
     &                     MPI_SUM, comm, ierror)
        do 20 i = 1, n
          if (b(i) .ne. ranks * (ranks - 1) / 2 + ranks * i)
     &      wrong = wrong + 1
          if (x(i) .ne. dble(ranks * (ranks - 1) / 2) * i)
     &      wrong = wrong + 1
   20   continue
        if (rank .eq. root) then
          call MPI_Reduce(MPI_IN_PLACE, a, n, MPI_INTEGER, MPI_MAX,
     &                    root, comm, ierror)
        else
          call MPI_Reduce(a, b, n, MPI_INTEGER, MPI_MAX, root, comm,
     &                    ierror)
        end if
        do 30 i = 1, n
          if (rank .eq. root .and. a(i) .ne. ranks - 1 + i)
     &      wrong = wrong + 1
          y(i) = -1
          if (rank .eq. root) y(i) = root + i
   30   continue
        call MPI_Bcast(y, n, MPI_DOUBLE_PRECISION, root, comm, ierror)
        if (y(1) .ne. root + 1 .or. y(n) .ne. root + n)
     &    wrong = wrong + 1
        call MPI_Barrier(comm, ierror)
   40 continue
      z(1) = cmplx(rank, 1)
      z(2) = cmplx(0, rank)
      z(3) = cmplx(1, -1)
      call MPI_Allreduce(z, w, 3, MPI_COMPLEX, MPI_SUM, comm, ierror)
      if (w(1) .ne. cmplx(ranks * (ranks - 1) / 2, ranks))
     &  wrong = wrong + 1
      l(1) = rank .eq. 0
      l(2) = .true.
      call MPI_Allreduce(l, m, 2, MPI_LOGICAL, MPI_LAND, comm, ierror)
      if ((m(1) .and. ranks .gt. 1) .or. .not. m(2)) wrong = wrong + 1
      call MPI_Op_create(keep, .false., op, ierror)
      a(1) = rank + 5
      call MPI_Allreduce(a, b, 1, MPI_INTEGER, op, comm, ierror)
      if (b(1) .ne. 5) wrong = wrong + 1
      call MPI_Op_free(op, ierror)
      a(1) = 1
      call MPI_Iallreduce(MPI_IN_PLACE, a, 1, MPI_INTEGER, MPI_SUM,
     &                    comm, request, ierror)
      call MPI_Wait(request, status, ierror)
      if (a(1) .ne. ranks) wrong = wrong + 1
      call MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN, ierror)
      call MPI_Bcast(a, 1, MPI_INTEGER, ranks, comm, ierror)
      call MPI_Error_class(ierror, i, ierror)
      call MPI_Comm_free(comm, ierror)
      call MPI_Reduce(wrong, b, 1, MPI_INTEGER, MPI_SUM, 0,
     &                MPI_COMM_WORLD, ierror)
      if (rank .eq. 0) print '(a,i0,a,i0)', 'note 0 wrong: ', b(1),
     &  ', class of a wrong root: ', i
      call MPI_Finalize(ierror)
      if (wrong .ne. 0) stop 1
      end

C     The first of two: does not commute.
      subroutine keep(in, inout, length, datatype)
      integer length, datatype, in(length), inout(length), i
      do 50 i = 1, length
        inout(i) = in(i)
   50 continue
      end

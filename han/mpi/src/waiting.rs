//! Calls of the MPI in which a rank may wait for others while it has collectives under way here.
//!
//! The others may wait in turn for a collective to go on. So while anything is under way, these calls are begun without
//! blocking, and completed by testing; otherwise they go straight to the MPI.
#![allow(unsafe_code)] // Exports MPI's functions and calls the MPI library's.

use std::ffi::{c_int, c_void};

use crate::abi::Word;
use crate::completion::until;
use crate::export::export;
use crate::real::{SUCCESS, theirs};
use crate::request;

type Input = *const c_void;
type Output = *mut c_void;
type Numbers = *const c_int;
type Types = *const c_void;
type Status = *mut c_void;
type TestFn = unsafe extern "C" fn(*mut Word, *mut c_int, Status) -> c_int;

/// Room for an `MPI_Status` of any binary interface.
#[repr(align(16))]
struct Ignored {
    _bytes: [u8; 256],
}

/// Waits for a request of the MPI's.
fn wait(mut request: Word, status: Status) -> c_int {
    let test = theirs!(c"PMPI_Test", TestFn);
    // SAFETY: the request was begun by the caller; there is room for flag and status.
    until(|flag| unsafe { test(&raw mut request, flag, status) })
}

/// The same for one whose status nobody wants.
pub(crate) fn wait_for(request: Word) -> c_int {
    let mut ignored = Ignored { _bytes: [0; 256] };
    wait(request, (&raw mut ignored).cast())
}

/// Calls a function of the MPI library that may wait, or while anything is under way here the one that begins the same.
macro_rules! wait_in {
    ($real:literal, $begun:literal ($($argument:expr => $kind:ty),*)) => {
        if $crate::request::any() {
            let begin = $crate::real::theirs!($begun, unsafe extern "C" fn($($kind),*, *mut Word) -> c_int);
            let mut request: Word = 0;
            // SAFETY: the arguments are the program's own; there is room for a handle.
            let code = unsafe { begin($($argument),*, &raw mut request) };
            if code == $crate::real::SUCCESS { $crate::waiting::wait_for(request) } else { code }
        } else {
            let real = $crate::real::theirs!($real, unsafe extern "C" fn($($kind),*) -> c_int);
            // SAFETY: as above.
            unsafe { real($($argument),*) }
        }
    };
}

pub(crate) use wait_in;

macro_rules! waiting {
    ($($name:ident, $profiled:ident, $real:literal, $begun:literal ($($argument:ident: $kind:ty),*);)*) => {export! {$(
        fn $name, $profiled($($argument: $kind),*) {
            wait_in!($real, $begun ($($argument => $kind),*))
        }
    )*}};
}

waiting! {
    MPI_Send, PMPI_Send, c"PMPI_Send", c"PMPI_Isend" (b: Input, n: c_int, t: Word, to: c_int, tag: c_int, comm: Word);
    MPI_Ssend, PMPI_Ssend, c"PMPI_Ssend", c"PMPI_Issend" (b: Input, n: c_int, t: Word, to: c_int, tag: c_int, comm: Word);
    MPI_Rsend, PMPI_Rsend, c"PMPI_Rsend", c"PMPI_Irsend" (b: Input, n: c_int, t: Word, to: c_int, tag: c_int, comm: Word);
    MPI_Gather, PMPI_Gather, c"PMPI_Gather", c"PMPI_Igather"
        (s: Input, sn: c_int, st: Word, r: Output, rn: c_int, rt: Word, root: c_int, comm: Word);
    MPI_Gatherv, PMPI_Gatherv, c"PMPI_Gatherv", c"PMPI_Igatherv"
        (s: Input, sn: c_int, st: Word, r: Output, rn: Numbers, at: Numbers, rt: Word, root: c_int, comm: Word);
    MPI_Scatter, PMPI_Scatter, c"PMPI_Scatter", c"PMPI_Iscatter"
        (s: Input, sn: c_int, st: Word, r: Output, rn: c_int, rt: Word, root: c_int, comm: Word);
    MPI_Scatterv, PMPI_Scatterv, c"PMPI_Scatterv", c"PMPI_Iscatterv"
        (s: Input, sn: Numbers, at: Numbers, st: Word, r: Output, rn: c_int, rt: Word, root: c_int, comm: Word);
    MPI_Allgather, PMPI_Allgather, c"PMPI_Allgather", c"PMPI_Iallgather"
        (s: Input, sn: c_int, st: Word, r: Output, rn: c_int, rt: Word, comm: Word);
    MPI_Allgatherv, PMPI_Allgatherv, c"PMPI_Allgatherv", c"PMPI_Iallgatherv"
        (s: Input, sn: c_int, st: Word, r: Output, rn: Numbers, at: Numbers, rt: Word, comm: Word);
    MPI_Alltoall, PMPI_Alltoall, c"PMPI_Alltoall", c"PMPI_Ialltoall"
        (s: Input, sn: c_int, st: Word, r: Output, rn: c_int, rt: Word, comm: Word);
    MPI_Alltoallv, PMPI_Alltoallv, c"PMPI_Alltoallv", c"PMPI_Ialltoallv"
        (s: Input, sn: Numbers, sat: Numbers, st: Word, r: Output, rn: Numbers, rat: Numbers, rt: Word, comm: Word);
    MPI_Alltoallw, PMPI_Alltoallw, c"PMPI_Alltoallw", c"PMPI_Ialltoallw"
        (s: Input, sn: Numbers, sat: Numbers, st: Types, r: Output, rn: Numbers, rat: Numbers, rt: Types, comm: Word);
    MPI_Reduce_scatter, PMPI_Reduce_scatter, c"PMPI_Reduce_scatter", c"PMPI_Ireduce_scatter"
        (s: Input, r: Output, n: Numbers, t: Word, op: Word, comm: Word);
    MPI_Reduce_scatter_block, PMPI_Reduce_scatter_block, c"PMPI_Reduce_scatter_block", c"PMPI_Ireduce_scatter_block"
        (s: Input, r: Output, n: c_int, t: Word, op: Word, comm: Word);
    MPI_Scan, PMPI_Scan, c"PMPI_Scan", c"PMPI_Iscan" (s: Input, r: Output, n: c_int, t: Word, op: Word, comm: Word);
    MPI_Exscan, PMPI_Exscan, c"PMPI_Exscan", c"PMPI_Iexscan" (s: Input, r: Output, n: c_int, t: Word, op: Word, comm: Word);
}

type RecvFn = unsafe extern "C" fn(Output, c_int, Word, c_int, c_int, Word, Status) -> c_int;
type IrecvFn = unsafe extern "C" fn(Output, c_int, Word, c_int, c_int, Word, *mut Word) -> c_int;
type IsendFn = unsafe extern "C" fn(Input, c_int, Word, c_int, c_int, Word, *mut Word) -> c_int;
type SendrecvFn =
    unsafe extern "C" fn(Input, c_int, Word, c_int, c_int, Output, c_int, Word, c_int, c_int, Word, Status) -> c_int;
type ProbeFn = unsafe extern "C" fn(c_int, c_int, Word, Status) -> c_int;
type IprobeFn = unsafe extern "C" fn(c_int, c_int, Word, *mut c_int, Status) -> c_int;
type MprobeFn = unsafe extern "C" fn(c_int, c_int, Word, *mut Word, Status) -> c_int;
type ImprobeFn = unsafe extern "C" fn(c_int, c_int, Word, *mut c_int, *mut Word, Status) -> c_int;

export! {
    fn MPI_Recv, PMPI_Recv(b: Output, n: c_int, t: Word, from: c_int, tag: c_int, comm: Word, status: Status) {
        if !request::any() {
            let real = theirs!(c"PMPI_Recv", RecvFn);
            // SAFETY: the arguments are the caller's own, here and below.
            return unsafe { real(b, n, t, from, tag, comm, status) };
        }
        let mut request: Word = 0;
        let real = theirs!(c"PMPI_Irecv", IrecvFn);
        // SAFETY: as above; there is room for a handle.
        let code = unsafe { real(b, n, t, from, tag, comm, &raw mut request) };
        if code == SUCCESS { wait(request, status) } else { code }
    }

    fn MPI_Sendrecv, PMPI_Sendrecv(
        s: Input, sn: c_int, st: Word, to: c_int, stag: c_int,
        r: Output, rn: c_int, rt: Word, from: c_int, rtag: c_int, comm: Word, status: Status
    ) {
        if !request::any() {
            let real = theirs!(c"PMPI_Sendrecv", SendrecvFn);
            // SAFETY: as above.
            return unsafe { real(s, sn, st, to, stag, r, rn, rt, from, rtag, comm, status) };
        }
        let (mut received, mut sent): (Word, Word) = (0, 0);
        let real = theirs!(c"PMPI_Irecv", IrecvFn);
        // SAFETY: as above.
        let code = unsafe { real(r, rn, rt, from, rtag, comm, &raw mut received) };
        if code != SUCCESS {
            return code;
        }
        let real = theirs!(c"PMPI_Isend", IsendFn);
        // SAFETY: as above.
        let code = unsafe { real(s, sn, st, to, stag, comm, &raw mut sent) };
        if code != SUCCESS {
            return code;
        }
        match wait(received, status) {
            SUCCESS => wait_for(sent),
            code => code,
        }
    }

    fn MPI_Probe, PMPI_Probe(from: c_int, tag: c_int, comm: Word, status: Status) {
        if !request::any() {
            let real = theirs!(c"PMPI_Probe", ProbeFn);
            // SAFETY: as above.
            return unsafe { real(from, tag, comm, status) };
        }
        let probe = theirs!(c"PMPI_Iprobe", IprobeFn);
        // SAFETY: as above.
        until(|flag| unsafe { probe(from, tag, comm, flag, status) })
    }

    fn MPI_Mprobe, PMPI_Mprobe(from: c_int, tag: c_int, comm: Word, message: *mut Word, status: Status) {
        if !request::any() {
            let real = theirs!(c"PMPI_Mprobe", MprobeFn);
            // SAFETY: as above.
            return unsafe { real(from, tag, comm, message, status) };
        }
        let probe = theirs!(c"PMPI_Improbe", ImprobeFn);
        // SAFETY: as above.
        until(|flag| unsafe { probe(from, tag, comm, flag, message, status) })
    }
}

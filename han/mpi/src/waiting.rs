//! Messages of the MPI that a rank may wait for while it has collectives under way here.
//!
//! Whoever it waits for may wait in turn for a collective to go on. So while anything is under way, these calls are begun
//! without blocking, and completed by testing; otherwise they go straight to the MPI, with the [deputy](crate::deputy)'s
//! knowledge. What cannot be begun so is in [`lengthy`](crate::lengthy).
#![allow(unsafe_code)] // Exports MPI's functions and calls the MPI library's.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;

use crate::abi::Word;
use crate::completion::until;
use crate::deputy;
use crate::export::export;
use crate::gate;
use crate::handler::{Ended, Noting};
use crate::older::On;
use crate::real::{SUCCESS, StatusRoom, real, theirs};
use crate::request;

type Input = *const c_void;
type Output = *mut c_void;
type Status = *mut c_void;
type TestFn = unsafe extern "C-unwind" fn(*mut Word, *mut c_int, Status) -> c_int;

/// What begins a message; the code to return if that is refused. Where a program's own error handler comes back, the code may be
/// that of no error (MPICH 5), but what is stored, if anything, is no request.
fn begin(begin: impl FnOnce(*mut Word) -> c_int) -> Result<Word, c_int> {
    let null = gate::inside(|process| process.abi.request_null).unwrap_or(0);
    let mut request: Word = 0;
    match begin(&raw mut request) {
        SUCCESS if request != 0 && request != null => Ok(request),
        code => Err(code),
    }
}

/// Waits for a request that a call on `comm` has begun; gives the code of the call.
fn wait(begun: Result<Word, c_int>, comm: Word, status: Status) -> c_int {
    match begun {
        Ok(request) => complete(request, comm, status).heard(comm),
        Err(code) => code,
    }
}

/// Waits for a request that was begun on `comm`.
///
/// What is wrong with a message some MPIs (MPICH 4, Intel MPI) report to the error handler of `MPI_COMM_WORLD` when its
/// request is tested, and to that of its communicator only in calls that receive. So no handler is called meanwhile, unless
/// threads may call at the same time: one that another sets would be lost.
fn complete(mut request: Word, comm: Word, status: Status) -> Ended {
    let test = theirs!(c"PMPI_Test", TestFn);
    let noting =
        if gate::is_multiple() { None } else { gate::inside(|process| Noting::begin(process, comm)).flatten() };
    // SAFETY: the request was begun by the caller; there is room for flag and status.
    let code = until(|flag| unsafe { test(&raw mut request, flag, status) });
    noting.map_or(Ended { raised: SUCCESS, returned: code }, |noting| noting.end(code))
}

impl Ended {
    fn is_success(self) -> bool {
        self.raised == SUCCESS && self.returned == SUCCESS
    }

    /// The error handler of `comm` hears of it; gives the code to return if it comes back.
    fn heard(self, comm: Word) -> c_int {
        if self.raised != SUCCESS {
            On::Comm(comm).raise(self.raised);
        }
        self.returned
    }
}

/// Tests such a request once; the error code if it has failed.
pub(crate) fn has_ended(request: &mut Word) -> Result<bool, c_int> {
    let (mut ignored, mut flag) = (StatusRoom::new(), 0);
    // SAFETY: the request was begun by the caller; there is room for flag and status.
    match unsafe { (real().test)(request, &raw mut flag, ignored.place()) } {
        SUCCESS => Ok(flag != 0),
        code => Err(code),
    }
}

/// A receive that was posted for a call and is not waited for: unless it is [taken](Self::take), it is given up, as when the
/// send beside it is refused, or the program's error handler throws an exception because of that.
struct Posted {
    request: Word,
    comm: Word,
}

impl Posted {
    fn take(self) -> Word {
        ManuallyDrop::new(self).request
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        let cancel = theirs!(c"PMPI_Cancel", unsafe extern "C-unwind" fn(*mut Word) -> c_int);
        // SAFETY: the request is there, and it is a receive's. A message that it has taken already is the failed call's.
        unsafe { cancel(&raw mut self.request) };
        complete(self.request, self.comm, StatusRoom::new().place());
    }
}

/// Sends, or while anything is under way here what begins the same.
macro_rules! sends {
    ($($name:ident, $profiled:ident, $real:literal, $begun:literal;)*) => {export! {$(
        fn $name, $profiled(b: Input, n: c_int, t: Word, to: c_int, tag: c_int, comm: Word) {
            if !request::any() {
                let real = theirs!($real, SendFn);
                // SAFETY: the arguments are the caller's own, here and below.
                return deputy::during(|| unsafe { real(b, n, t, to, tag, comm) });
            }
            let real = theirs!($begun, IsendFn);
            // SAFETY: as above; there is room for a handle.
            let begun = begin(|request| unsafe { real(b, n, t, to, tag, comm, request) });
            wait(begun, comm, StatusRoom::new().place())
        }
    )*}};
}

sends! {
    MPI_Send, PMPI_Send, c"PMPI_Send", c"PMPI_Isend";
    MPI_Ssend, PMPI_Ssend, c"PMPI_Ssend", c"PMPI_Issend";
    MPI_Rsend, PMPI_Rsend, c"PMPI_Rsend", c"PMPI_Irsend";
}

type SendFn = unsafe extern "C-unwind" fn(Input, c_int, Word, c_int, c_int, Word) -> c_int;
type RecvFn = unsafe extern "C-unwind" fn(Output, c_int, Word, c_int, c_int, Word, Status) -> c_int;
type IrecvFn = unsafe extern "C-unwind" fn(Output, c_int, Word, c_int, c_int, Word, *mut Word) -> c_int;
type IsendFn = unsafe extern "C-unwind" fn(Input, c_int, Word, c_int, c_int, Word, *mut Word) -> c_int;
type SendrecvFn = unsafe extern "C-unwind" fn(
    Input,
    c_int,
    Word,
    c_int,
    c_int,
    Output,
    c_int,
    Word,
    c_int,
    c_int,
    Word,
    Status,
) -> c_int;
type ProbeFn = unsafe extern "C-unwind" fn(c_int, c_int, Word, Status) -> c_int;
type IprobeFn = unsafe extern "C-unwind" fn(c_int, c_int, Word, *mut c_int, Status) -> c_int;
type MprobeFn = unsafe extern "C-unwind" fn(c_int, c_int, Word, *mut Word, Status) -> c_int;
type ImprobeFn = unsafe extern "C-unwind" fn(c_int, c_int, Word, *mut c_int, *mut Word, Status) -> c_int;

export! {
    fn MPI_Recv, PMPI_Recv(b: Output, n: c_int, t: Word, from: c_int, tag: c_int, comm: Word, status: Status) {
        if !request::any() {
            let real = theirs!(c"PMPI_Recv", RecvFn);
            // SAFETY: the arguments are the caller's own, here and below.
            return deputy::during(|| unsafe { real(b, n, t, from, tag, comm, status) });
        }
        let real = theirs!(c"PMPI_Irecv", IrecvFn);
        // SAFETY: as above; there is room for a handle.
        wait(begin(|request| unsafe { real(b, n, t, from, tag, comm, request) }), comm, status)
    }

    fn MPI_Sendrecv, PMPI_Sendrecv(
        s: Input, sn: c_int, st: Word, to: c_int, stag: c_int,
        r: Output, rn: c_int, rt: Word, from: c_int, rtag: c_int, comm: Word, status: Status
    ) {
        if !request::any() {
            let real = theirs!(c"PMPI_Sendrecv", SendrecvFn);
            // SAFETY: as above.
            return deputy::during(|| unsafe { real(s, sn, st, to, stag, r, rn, rt, from, rtag, comm, status) });
        }
        let real = theirs!(c"PMPI_Irecv", IrecvFn);
        // SAFETY: as above.
        let received = match begin(|request| unsafe { real(r, rn, rt, from, rtag, comm, request) }) {
            Ok(request) => Posted { request, comm },
            Err(code) => return code,
        };
        let real = theirs!(c"PMPI_Isend", IsendFn);
        // SAFETY: as above.
        let sent = match begin(|request| unsafe { real(s, sn, st, to, stag, comm, request) }) {
            Ok(request) => request,
            Err(code) => return code,
        };
        // One that fails has ended, too; the other one is not left behind.
        let received = complete(received.take(), comm, status);
        let sent = complete(sent, comm, StatusRoom::new().place());
        if received.is_success() { sent.heard(comm) } else { received.heard(comm) }
    }

    fn MPI_Probe, PMPI_Probe(from: c_int, tag: c_int, comm: Word, status: Status) {
        if !request::any() {
            let real = theirs!(c"PMPI_Probe", ProbeFn);
            // SAFETY: as above.
            return deputy::during(|| unsafe { real(from, tag, comm, status) });
        }
        let probe = theirs!(c"PMPI_Iprobe", IprobeFn);
        // SAFETY: as above.
        until(|flag| unsafe { probe(from, tag, comm, flag, status) })
    }

    fn MPI_Mprobe, PMPI_Mprobe(from: c_int, tag: c_int, comm: Word, message: *mut Word, status: Status) {
        if !request::any() {
            let real = theirs!(c"PMPI_Mprobe", MprobeFn);
            // SAFETY: as above.
            return deputy::during(|| unsafe { real(from, tag, comm, message, status) });
        }
        let probe = theirs!(c"PMPI_Improbe", ImprobeFn);
        // SAFETY: as above.
        until(|flag| unsafe { probe(from, tag, comm, flag, message, status) })
    }
}

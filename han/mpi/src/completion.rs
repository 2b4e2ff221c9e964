//! The functions that complete requests: the MPI's own, and this library's operations go on meanwhile.
//!
//! While nothing is under way here they go straight to the MPI. Otherwise waiting is testing again and again.
#![allow(unsafe_code)] // Exports MPI's functions and calls the MPI library's.

use std::ffi::{c_int, c_void};
use std::hint::spin_loop;
use std::thread::yield_now;

use crate::abi::Word;
use crate::export::export;
use crate::gate;
use crate::real::{SUCCESS, handle_at, theirs};
use crate::request;

type Request = *mut Word;
type Requests = *mut c_void;
type Status = *mut c_void;
type Number = *mut c_int;

/// Tests before others may have the core.
const TESTS: u32 = 64;

/// Calls `test` until it sets its flag or fails; everything under way here goes on. Gives the code to return.
pub(crate) fn until(mut test: impl FnMut(Number) -> c_int) -> c_int {
    let mut failed = SUCCESS;
    loop {
        for _ in 0..TESTS {
            let code = request::advance();
            if failed == SUCCESS {
                failed = code;
            }
            let mut flag = 0;
            let code = test(&raw mut flag);
            if code != SUCCESS {
                return code;
            }
            if flag != 0 {
                return failed;
            }
            spin_loop();
        }
        yield_now();
    }
}

/// What a test that succeeded returns if going on has `failed`.
pub(crate) fn either(failed: c_int, code: c_int) -> c_int {
    if code == SUCCESS { failed } else { code }
}

type TestFn = unsafe extern "C" fn(Request, Number, Status) -> c_int;
type TestallFn = unsafe extern "C" fn(c_int, Requests, Number, Status) -> c_int;
type TestanyFn = unsafe extern "C" fn(c_int, Requests, Number, Number, Status) -> c_int;
type TestsomeFn = unsafe extern "C" fn(c_int, Requests, Number, Number, Status) -> c_int;
type GetStatusFn = unsafe extern "C" fn(Word, Number, Status) -> c_int;
type WaitFn = unsafe extern "C" fn(Request, Status) -> c_int;
type WaitallFn = unsafe extern "C" fn(c_int, Requests, Status) -> c_int;
type WaitanyFn = unsafe extern "C" fn(c_int, Requests, Number, Status) -> c_int;

export! {
    fn MPI_Wait, PMPI_Wait(request: Request, status: Status) {
        if !request::any() {
            let real = theirs!(c"PMPI_Wait", WaitFn);
            // SAFETY: the arguments are the caller's own, here and below.
            return unsafe { real(request, status) };
        }
        let test = theirs!(c"PMPI_Test", TestFn);
        // SAFETY: as above; there is room for the flag.
        until(|flag| unsafe { test(request, flag, status) })
    }

    fn MPI_Waitall, PMPI_Waitall(count: c_int, requests: Requests, statuses: Status) {
        if !request::any() {
            let real = theirs!(c"PMPI_Waitall", WaitallFn);
            // SAFETY: as above.
            return unsafe { real(count, requests, statuses) };
        }
        let test = theirs!(c"PMPI_Testall", TestallFn);
        // SAFETY: as above.
        until(|flag| unsafe { test(count, requests, flag, statuses) })
    }

    fn MPI_Waitany, PMPI_Waitany(count: c_int, requests: Requests, index: Number, status: Status) {
        if !request::any() {
            let real = theirs!(c"PMPI_Waitany", WaitanyFn);
            // SAFETY: as above.
            return unsafe { real(count, requests, index, status) };
        }
        let test = theirs!(c"PMPI_Testany", TestanyFn);
        // SAFETY: as above.
        until(|flag| unsafe { test(count, requests, index, flag, status) })
    }

    fn MPI_Waitsome, PMPI_Waitsome(
        count: c_int, requests: Requests, completed: Number, indices: Number, statuses: Status
    ) {
        if !request::any() {
            let real = theirs!(c"PMPI_Waitsome", TestsomeFn);
            // SAFETY: as above.
            return unsafe { real(count, requests, completed, indices, statuses) };
        }
        let test = theirs!(c"PMPI_Testsome", TestsomeFn);
        until(|flag| {
            // SAFETY: as above.
            let code = unsafe { test(count, requests, completed, indices, statuses) };
            if code == SUCCESS {
                // Some have completed, or there are none to wait for.
                // SAFETY: the library has stored a number there.
                let number = unsafe { completed.read() };
                // SAFETY: `until` has room for the flag.
                unsafe { flag.write(number) };
            }
            code
        })
    }

    fn MPI_Test, PMPI_Test(request: Request, flag: Number, status: Status) {
        let failed = request::advance();
        let real = theirs!(c"PMPI_Test", TestFn);
        // SAFETY: as above.
        either(failed, unsafe { real(request, flag, status) })
    }

    fn MPI_Testall, PMPI_Testall(count: c_int, requests: Requests, flag: Number, statuses: Status) {
        let failed = request::advance();
        let real = theirs!(c"PMPI_Testall", TestallFn);
        // SAFETY: as above.
        either(failed, unsafe { real(count, requests, flag, statuses) })
    }

    fn MPI_Testany, PMPI_Testany(count: c_int, requests: Requests, index: Number, flag: Number, status: Status) {
        let failed = request::advance();
        let real = theirs!(c"PMPI_Testany", TestanyFn);
        // SAFETY: as above.
        either(failed, unsafe { real(count, requests, index, flag, status) })
    }

    fn MPI_Testsome, PMPI_Testsome(
        count: c_int, requests: Requests, completed: Number, indices: Number, statuses: Status
    ) {
        let failed = request::advance();
        let real = theirs!(c"PMPI_Testsome", TestsomeFn);
        // SAFETY: as above.
        either(failed, unsafe { real(count, requests, completed, indices, statuses) })
    }

    fn MPI_Request_get_status, PMPI_Request_get_status(request: Word, flag: Number, status: Status) {
        let failed = request::advance();
        let real = theirs!(c"PMPI_Request_get_status", GetStatusFn);
        // SAFETY: as above.
        either(failed, unsafe { real(request, flag, status) })
    }

    fn MPI_Start, PMPI_Start(request: Request) {
        let real = theirs!(c"PMPI_Start", unsafe extern "C" fn(Request) -> c_int);
        // SAFETY: as above.
        let code = unsafe { real(request) };
        if code != SUCCESS || !request::any_persistent() {
            return code;
        }
        let started = gate::inside(|process| {
            // SAFETY: the library has taken it for a request.
            let handle = unsafe { handle_at(request, process.abi.flavour) };
            process.requests.start_again(process, handle)
        });
        started.unwrap_or(SUCCESS)
    }

    fn MPI_Startall, PMPI_Startall(count: c_int, requests: Requests) {
        let flavour = gate::inside(|process| process.abi.flavour).filter(|_| request::any_persistent());
        let Some(flavour) = flavour else {
            let real = theirs!(c"PMPI_Startall", unsafe extern "C" fn(c_int, Requests) -> c_int);
            // SAFETY: as above.
            return unsafe { real(count, requests) };
        };
        let mut failed = SUCCESS;
        for place in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the caller's array has as many handles.
            let code = unsafe { MPI_Start(flavour.element(requests.cast(), place)) };
            failed = either(code, failed);
        }
        failed
    }

    fn MPI_Request_free, PMPI_Request_free(request: Request) {
        if request::any_persistent() {
            gate::inside(|process| {
                // SAFETY: the caller says that it is a request.
                process.requests.forget(unsafe { handle_at(request, process.abi.flavour) });
            });
        }
        let real = theirs!(c"PMPI_Request_free", unsafe extern "C" fn(Request) -> c_int);
        // SAFETY: as above.
        unsafe { real(request) }
    }
}

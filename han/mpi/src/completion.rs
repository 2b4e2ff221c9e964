//! The functions that complete requests: the MPI's own, and this library's operations go on meanwhile.
//!
//! While nothing is under way here they go straight to the MPI, and the [deputy](crate::deputy) knows of those that wait, for
//! another thread may begin something. Otherwise waiting is testing again and again; for all requests of an array, until those of
//! this library are complete.
#![allow(unsafe_code)] // Exports MPI's functions and calls the MPI library's.

use std::ffi::{c_int, c_void};
use std::hint::spin_loop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::yield_now;
use std::time::{Duration, Instant};

use crate::abi::{UNDEFINED, Word};
use crate::deputy;
use crate::export::export;
use crate::failed::Tested;
use crate::gate;
use crate::lengthy::is_none;
use crate::older::On;
use crate::progress::{ask, catch_up};
use crate::real::{SUCCESS, StatusRoom, handle_at, perhaps, put_handle, theirs};
use crate::request;

type Request = *mut Word;
type Requests = *mut c_void;
type Status = *mut c_void;
type Number = *mut c_int;

/// Tests before others may have the core, at most.
const TESTS: u32 = 64;
/// Tests before others may have the core: one where ranks share cores.
static TESTS_HERE: AtomicU32 = AtomicU32::new(TESTS);

/// How often whoever waits polls before others may have the core.
#[inline]
pub(crate) fn polls() -> u32 {
    TESTS_HERE.load(Ordering::Relaxed) // a number that orders nothing
}

/// Ranks wait with so many polls in han's own collectives.
pub(crate) fn poll_as(spins: u32) {
    TESTS_HERE.store(spins.clamp(1, TESTS), Ordering::Relaxed); // as above
}

/// Calls `test` until it sets its flag or fails; everything under way here goes on. Gives the code to return.
pub(crate) fn until(mut test: impl FnMut(Number) -> c_int) -> c_int {
    loop {
        for _ in 0..polls() {
            request::advance();
            // Where a program's error handler comes back, a call that was refused may return no error; it stores nothing.
            let mut flag = 1;
            let code = test(&raw mut flag);
            if code != SUCCESS || flag != 0 {
                return code;
            }
            spin_loop();
        }
        yield_now();
    }
}

type TestFn = unsafe extern "C-unwind" fn(Request, Number, Status) -> c_int;
type TestallFn = unsafe extern "C-unwind" fn(c_int, Requests, Number, Status) -> c_int;
type TestanyFn = unsafe extern "C-unwind" fn(c_int, Requests, Number, Number, Status) -> c_int;
type TestsomeFn = unsafe extern "C-unwind" fn(c_int, Requests, Number, Number, Status) -> c_int;
type GetStatusFn = unsafe extern "C-unwind" fn(Word, Number, Status) -> c_int;
type WaitFn = unsafe extern "C-unwind" fn(Request, Status) -> c_int;
type WaitallFn = unsafe extern "C-unwind" fn(c_int, Requests, Status) -> c_int;
type WaitanyFn = unsafe extern "C-unwind" fn(c_int, Requests, Number, Status) -> c_int;

/// Which of its requests a call completes, and where it says so.
enum Completed {
    /// The only one.
    One,
    /// That of an index.
    Any(Number),
    /// All, with their statuses.
    All(Status),
    /// Those of the indices, with their statuses.
    Listed(Number, Status),
}

/// The first `number` indices at `indices`.
fn listed(number: c_int, indices: Number) -> impl Iterator<Item = c_int> {
    // `MPI_UNDEFINED`, that there are none, is negative.
    let places = 0..usize::try_from(number).unwrap_or(0);
    // SAFETY: the callers' library has stored as many indices, or the program's array has room for them.
    places.map(move |place| unsafe { indices.wrapping_add(place).read() })
}

/// Calls `test`, which stores into `flag` how many requests it has completed, or whether; gives the code to return, which is
/// another one than the MPI's if a collective among them has failed.
fn tested(count: c_int, requests: Requests, flag: Number, completed: Completed, test: impl FnOnce() -> c_int) -> c_int {
    let tested = Tested::new(count, requests);
    let code = test();
    // A failure that completes a request is noted before, so the MPI library's own synchronisation orders this read.
    if tested.is_empty() || !request::any_failed() {
        return code;
    }
    if code != SUCCESS {
        match completed {
            Completed::One | Completed::Any(_) => tested.beside(0..count, None),
            Completed::All(statuses) => tested.beside(0..count, Some(statuses)),
            Completed::Listed(indices, _) if flag.is_null() || indices.is_null() => {} // the call was refused
            Completed::Listed(indices, statuses) => {
                // SAFETY: the program gives room for a number, and what it is without one does no harm.
                let number = unsafe { flag.read() }.min(count);
                tested.beside(listed(number, indices), Some(statuses));
            }
        }
        return code;
    }
    // SAFETY: the callers' pointers are to room for a number, and the library has stored one.
    match (unsafe { flag.read() }, completed) {
        (0, _) => SUCCESS,
        (_, Completed::One) => tested.one(0),
        // SAFETY: the library has stored an index there, or `MPI_UNDEFINED`, which is nobody's.
        (_, Completed::Any(index)) => tested.one(unsafe { index.read() }),
        (_, Completed::All(statuses)) => tested.several(0..count, statuses),
        (number, Completed::Listed(indices, statuses)) => tested.several(listed(number, indices), statuses),
    }
}

fn test(request: Request, flag: Number, status: Status) -> c_int {
    let real = theirs!(c"PMPI_Test", TestFn);
    // SAFETY: the arguments are those of the program's call, here and below.
    let test = || ask(|| unsafe { real(request, flag, status) }, || is_none(flag));
    tested(1, request.cast(), flag, Completed::One, test)
}

fn testall(count: c_int, requests: Requests, flag: Number, statuses: Status) -> c_int {
    let real = theirs!(c"PMPI_Testall", TestallFn);
    // SAFETY: as above.
    let test = || ask(|| unsafe { real(count, requests, flag, statuses) }, || is_none(flag));
    tested(count, requests, flag, Completed::All(statuses), test)
}

/// Waits for all of them, in the MPI: it knows what to do about errors, and with requests that it does not like to be tested
/// (MPICH ends programs that test those of files). It would wait for ever for collectives under way here, so these are
/// completed before.
fn wait_for_all(count: c_int, requests: Requests, statuses: Status) -> c_int {
    let real = theirs!(c"PMPI_Waitall", WaitallFn);
    // SAFETY: the arguments are those of the program's call.
    let wait = || unsafe { real(count, requests, statuses) };
    // Where every call is the MPI's, and for arguments that it refuses.
    let (Some(flavour), Ok(number), false) =
        (gate::inside(|process| process.abi.flavour), usize::try_from(count), requests.is_null())
    else {
        return wait();
    };
    // SAFETY: the program's array has as many handles.
    let handle = |index| unsafe { handle_at(flavour.element(requests.cast(), index), flavour) };
    complete_own((0..number).map(handle));
    let wait = || if are_complete((0..number).map(handle)) { wait() } else { deputy::during(wait) };
    let mut all = 1;
    tested(count, requests, &raw mut all, Completed::All(statuses), wait)
}

/// How long collectives are waited for before the MPI's messages go on, too: other ranks may wait for these.
const IDLE: Duration = Duration::from_micros(100);

/// Goes on until no collective under way here has any of these requests.
fn complete_own(handles: impl Iterator<Item = Word>) {
    let Some(awaited) = request::awaited(handles) else { return };
    gate::inside(|process| process.progress.wait_begins());
    let (mut left, mut since) = (awaited.left(), Instant::now());
    until(|flag| {
        let now_left = awaited.left();
        if now_left != left {
            (left, since) = (now_left, Instant::now());
        } else if since.elapsed() > IDLE {
            gate::inside(|process| process.progress.look());
        }
        // SAFETY: `until` has room for the flag.
        unsafe { flag.write((left == 0).into()) };
        SUCCESS
    });
}

/// How long one request is looked at before the rest is left to the MPI and the [deputy](crate::deputy).
const PATIENCE: Duration = Duration::from_millis(10);

/// Goes on with other collectives, while there are any, until the MPI has completed all of these requests; whether it has. Gives up
/// if that takes long, because some it completes only when it is asked to wait.
fn are_complete(requests: impl Iterator<Item = Word>) -> bool {
    let mut requests = requests.peekable();
    let mut since = Instant::now();
    until(|flag| {
        while request::any() && requests.next_if(|&request| is_complete(request)).is_some() {
            since = Instant::now();
        }
        let is_over = !request::any() || requests.peek().is_none() || since.elapsed() > PATIENCE;
        // SAFETY: `until` has room for the flag.
        unsafe { flag.write(is_over.into()) };
        SUCCESS
    });
    requests.peek().is_none()
}

/// Whether the MPI has completed a request, or can say no more about it.
fn is_complete(request: Word) -> bool {
    let real = theirs!(c"PMPI_Request_get_status", GetStatusFn);
    let (mut flag, mut status) = (1, StatusRoom::new());
    // SAFETY: the handle is the program's, and there is room for both answers.
    let code = unsafe { real(request, &raw mut flag, status.place()) };
    code != SUCCESS || flag != 0
}

fn testany(count: c_int, requests: Requests, index: Number, flag: Number, status: Status) -> c_int {
    let real = theirs!(c"PMPI_Testany", TestanyFn);
    // SAFETY: as above.
    let test = || ask(|| unsafe { real(count, requests, index, flag, status) }, || is_none(flag));
    tested(count, requests, flag, Completed::Any(index), test)
}

fn testsome(count: c_int, requests: Requests, completed: Number, indices: Number, statuses: Status) -> c_int {
    let real = theirs!(c"PMPI_Testsome", TestsomeFn);
    // SAFETY: as above.
    let test = || ask(|| unsafe { real(count, requests, completed, indices, statuses) }, || is_none(completed));
    tested(count, requests, completed, Completed::Listed(indices, statuses), test)
}

/// Begins those persistent collectives once more whose receives the MPI library has started.
fn start_again(count: c_int, requests: Requests) -> c_int {
    if requests.is_null() {
        return SUCCESS; // there are none, or the library has told the program's error handler
    }
    let started = gate::inside(|process| {
        let flavour = process.abi.flavour;
        let places = (0..usize::try_from(count).unwrap_or(0)).map(|index| flavour.element(requests.cast(), index));
        places.fold(SUCCESS, |before, place| {
            // SAFETY: the library has taken it for an array of so many requests.
            let code = process.requests.start_again(process, unsafe { handle_at(place, flavour) });
            if before == SUCCESS { code } else { before }
        })
    });
    started.unwrap_or(SUCCESS)
}

export! {
    fn MPI_Wait, PMPI_Wait(request: Request, status: Status) {
        if request::any() {
            return until(|flag| test(request, flag, status));
        }
        let real = theirs!(c"PMPI_Wait", WaitFn);
        // SAFETY: the arguments are the caller's own, here and below.
        deputy::during(|| unsafe { real(request, status) })
    }

    fn MPI_Waitall, PMPI_Waitall(count: c_int, requests: Requests, statuses: Status) {
        if request::any() {
            return wait_for_all(count, requests, statuses);
        }
        let real = theirs!(c"PMPI_Waitall", WaitallFn);
        // SAFETY: as above.
        deputy::during(|| unsafe { real(count, requests, statuses) })
    }

    fn MPI_Waitany, PMPI_Waitany(count: c_int, requests: Requests, index: Number, status: Status) {
        if request::any() {
            return until(|flag| testany(count, requests, index, flag, status));
        }
        let real = theirs!(c"PMPI_Waitany", WaitanyFn);
        // SAFETY: as above.
        deputy::during(|| unsafe { real(count, requests, index, status) })
    }

    fn MPI_Waitsome, PMPI_Waitsome(
        count: c_int, requests: Requests, completed: Number, indices: Number, statuses: Status
    ) {
        if !request::any() {
            let real = theirs!(c"PMPI_Waitsome", TestsomeFn);
            // SAFETY: as above.
            return deputy::during(|| unsafe { real(count, requests, completed, indices, statuses) });
        }
        if !completed.is_null() {
            // SAFETY: the program gives room for a number, which `until` looks for as it does for its flag.
            unsafe { completed.write(UNDEFINED) };
        }
        until(|flag| {
            let code = testsome(count, requests, completed, indices, statuses);
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
        request::advance();
        test(request, flag, status)
    }

    fn MPI_Testall, PMPI_Testall(count: c_int, requests: Requests, flag: Number, statuses: Status) {
        request::advance();
        testall(count, requests, flag, statuses)
    }

    fn MPI_Testany, PMPI_Testany(count: c_int, requests: Requests, index: Number, flag: Number, status: Status) {
        request::advance();
        testany(count, requests, index, flag, status)
    }

    fn MPI_Testsome, PMPI_Testsome(
        count: c_int, requests: Requests, completed: Number, indices: Number, statuses: Status
    ) {
        request::advance();
        testsome(count, requests, completed, indices, statuses)
    }

    fn MPI_Request_get_status, PMPI_Request_get_status(request: Word, flag: Number, status: Status) {
        request::advance();
        let real = theirs!(c"PMPI_Request_get_status", GetStatusFn);
        // SAFETY: as above.
        ask(|| unsafe { real(request, flag, status) }, || is_none(flag))
    }

    // MPICH's own since 4.2: to look at requests without progress, and to make progress without a request.
    fn MPIX_Request_is_complete, PMPIX_Request_is_complete(request: Word) {
        request::advance();
        match perhaps!(c"PMPIX_Request_is_complete", unsafe extern "C-unwind" fn(Word) -> c_int) {
            // SAFETY: as above.
            Some(real) => unsafe { real(request) },
            None => is_complete(request).into(),
        }
    }

    fn MPIX_Stream_progress, PMPIX_Stream_progress(stream: Word) {
        request::advance();
        match perhaps!(c"PMPIX_Stream_progress", unsafe extern "C-unwind" fn(Word) -> c_int) {
            // SAFETY: as above.
            Some(real) => unsafe { real(stream) },
            None => On::Nothing.lacks(c"PMPIX_Stream_progress"),
        }
    }

    fn MPI_Start, PMPI_Start(request: Request) {
        let real = theirs!(c"PMPI_Start", unsafe extern "C-unwind" fn(Request) -> c_int);
        // SAFETY: as above.
        let code = unsafe { real(request) };
        if code != SUCCESS || !request::any_persistent() {
            return code;
        }
        start_again(1, request.cast())
    }

    fn MPI_Startall, PMPI_Startall(count: c_int, requests: Requests) {
        let real = theirs!(c"PMPI_Startall", unsafe extern "C-unwind" fn(c_int, Requests) -> c_int);
        // SAFETY: as above.
        let code = unsafe { real(count, requests) };
        if code != SUCCESS || !request::any_persistent() {
            return code;
        }
        start_again(count, requests)
    }

    fn MPI_Cancel, PMPI_Cancel(request: Request) {
        let mut request = request;
        let mut nothing: Word = 0;
        if !request.is_null() && (request::any() || request::any_persistent()) {
            gate::inside(|process| {
                // SAFETY: the caller says that it is a request.
                if process.requests.has(unsafe { handle_at(request, process.abi.flavour) }) {
                    // Collectives cannot be cancelled, and the receive that stands for one must not be. That it is no
                    // request to cancel, the MPI reports in its own way.
                    nothing = process.abi.request_null;
                    request = &raw mut nothing;
                }
            });
        }
        catch_up();
        let real = theirs!(c"PMPI_Cancel", unsafe extern "C-unwind" fn(Request) -> c_int);
        // SAFETY: as above.
        unsafe { real(request) }
    }

    fn MPI_Request_free, PMPI_Request_free(request: Request) {
        if !request.is_null() && (request::any() || request::any_persistent()) {
            let is_kept = gate::inside(|process| {
                // SAFETY: the caller says that it is a request.
                let is_kept = process.requests.forget(unsafe { handle_at(request, process.abi.flavour) });
                if is_kept {
                    // SAFETY: the request was read from there.
                    unsafe { put_handle(request, process.abi.flavour, process.abi.request_null) };
                }
                is_kept
            });
            if is_kept == Some(true) {
                return SUCCESS;
            }
        }
        let real = theirs!(c"PMPI_Request_free", unsafe extern "C-unwind" fn(Request) -> c_int);
        // SAFETY: as above.
        unsafe { real(request) }
    }
}

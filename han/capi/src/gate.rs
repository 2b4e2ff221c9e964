//! The door through which every exported function enters: one call at a time, and no way out by
//! unwinding.
//!
//! C has no value that could own a [`Process`], so it lives in a static here. `Context` and `Communicator` are
//! neither `Send` nor `Sync`; what makes them usable from C's threads all the same is that the phase
//! below is a lock that is only ever tried:
//!
//! - a call enters by the transition `READY -> BUSY` (acquire, C2) and leaves by `BUSY -> READY` (release, C1),
//!   so at most one thread has access to the process, and what it did happens before what the next
//!   caller does; a call that finds `BUSY` is refused, it does not wait;
//! - nothing of crate `han` keeps to its thread: no thread-local storage, no lock guards held between
//!   calls, only owned memory, file descriptors and mappings, which every thread may use in turn.
#![allow(unsafe_code)] // Shares the process state between C's threads.

use crate::error::{Code, Failure, Outcome, SUCCESS, report};
use crate::process::Process;
use shm_core::say;
use shm_core::sys::process::end_now;
use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// Before `han_init`.
const ASLEEP: u8 = 0;
/// `han_init` is running.
const STARTING: u8 = 1;
/// Initialised, and nobody is inside.
const READY: u8 = 2;
/// Initialised, and a call is inside.
const BUSY: u8 = 3;
/// After `han_finalize`, or when the process is about to exit by `han_abort`.
const FINALIZED: u8 = 4;
/// A call has panicked; the job was ended, and the process state is not touched any more.
const BROKEN: u8 = 5;
/// This process is a forked child of a rank: the state is a copy of its parent's, who is the rank.
const FORKED: u8 = 6;

struct Gate {
    phase: AtomicU8,
    /// `Some` in the phases `READY` and `BUSY`.
    process: UnsafeCell<Option<Process>>,
}

// SAFETY: `process` is accessed only by the call that has changed `phase` to `STARTING` or `BUSY`, from
// which only that same call changes it to one that lets another in: accesses never overlap. The change back is a release and
// the change that lets the next call in an acquire, so they are ordered. Handing the values, which are
// not `Send`, from thread to thread is sound because nothing in them depends on the thread (see the
// module's documentation).
unsafe impl Sync for Gate {}

static GATE: Gate = Gate { phase: AtomicU8::new(ASLEEP), process: UnsafeCell::new(None) };

/// In a forked child: what it did with the copy of the state would be done in its parent's name.
extern "C" fn leave_to_parent() {
    if matches!(GATE.phase.load(Ordering::Relaxed), STARTING | READY | BUSY) {
        GATE.phase.store(FORKED, Ordering::Relaxed);
    }
}

/// To be called when a function of the program's has returned within a call: ends a child that was forked in it, which
/// would go on with what its parent is doing.
pub(crate) fn end_forked_child() {
    if is_forked() {
        say("han: a user operator returned in a child that it had forked: ending the child");
        end_now(1);
    }
}

/// Whether this is a forked child of a rank.
pub(crate) fn is_forked() -> bool {
    GATE.phase.load(Ordering::Relaxed) == FORKED
}

/// Runs the body of an exported function on the process state; gives the code to return.
#[inline]
pub(crate) fn call(function: &'static str, body: impl FnOnce(&mut Process) -> Outcome) -> c_int {
    if let Err(found) = enter(READY, BUSY) {
        return refuse(function, found);
    }
    // SAFETY: this call has changed `READY` to `BUSY`, so until it leaves it has the only access.
    let process = unsafe { &mut *GATE.process.get() };
    let run = || match process {
        Some(process) => body(process),
        None => Err(Failure::new(Code::Internal, "no process state in the phase READY")),
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => {
            leave(BUSY, READY);
            SUCCESS
        }
        Ok(Err(failure)) => fail(function, &failure),
        Err(_) => {
            if let Some(process) = process {
                give_up(process, function);
            }
            broken(function)
        }
    }
}

/// Ends the job: peers may be at work on vectors of the call that has panicked, which are the program's when it returns.
#[cold]
fn give_up(process: &Process, function: &'static str) {
    let end = || process.context.give_up(&format!("{function} has panicked"));
    // A forked child's job is its parent's to end.
    if !is_forked() && catch_unwind(AssertUnwindSafe(end)).is_err() {
        say("han: it panicked again while it ended the job: ending the process");
        std::process::abort();
    }
}

/// Starts the process; the phase stays `ASLEEP` if that fails, so that it may be tried again.
pub(crate) fn start(function: &'static str, body: impl FnOnce() -> Outcome<Process>) -> c_int {
    static FORKS_ARE_SEEN: OnceLock<bool> = OnceLock::new();
    if !FORKS_ARE_SEEN.get_or_init(|| shm_core::sys::fork::in_children(leave_to_parent)) {
        return report(function, &Failure::new(Code::NoMemory, "pthread_atfork is refused"));
    }
    match enter(ASLEEP, STARTING) {
        Ok(()) => {}
        Err(ASLEEP | STARTING) => return refuse(function, STARTING),
        Err(found @ (BROKEN | FORKED)) => return refuse(function, found),
        Err(_) => {
            let why = "han can be initialized once in a process; this one has done so before";
            return report(function, &Failure::new(Code::Initialized, why));
        }
    }
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(process)) => {
            // SAFETY: this call has changed `ASLEEP` to `STARTING`, so it has the only access.
            unsafe { *GATE.process.get() = Some(process) };
            leave(STARTING, READY);
            SUCCESS
        }
        Ok(Err(failure)) => {
            leave(STARTING, ASLEEP);
            report(function, &failure)
        }
        Err(_) => broken(function),
    }
}

/// Ends the process: if `ready` agrees, gives its state away to `end` and is `FINALIZED` from then on.
pub(crate) fn finish(
    function: &'static str,
    ready: impl FnOnce(&Process) -> Outcome,
    end: impl FnOnce(Process) -> Outcome,
) -> c_int {
    let mut taken = None;
    let code = call_and_leave(function, &mut taken, ready);
    let Some(process) = taken else { return code };
    match catch_unwind(AssertUnwindSafe(|| end(process))) {
        Ok(outcome) => {
            leave(BUSY, FINALIZED);
            outcome.map_or_else(|failure| report(function, &failure), |()| SUCCESS)
        }
        Err(_) => broken(function),
    }
}

/// As [`call`], but on success takes the state out and stays `BUSY`.
fn call_and_leave(
    function: &'static str,
    taken: &mut Option<Process>,
    ready: impl FnOnce(&Process) -> Outcome,
) -> c_int {
    if let Err(found) = enter(READY, BUSY) {
        return refuse(function, found);
    }
    // SAFETY: this call has changed `READY` to `BUSY`, so it has the only access.
    let process = unsafe { &mut *GATE.process.get() };
    match process.as_ref().map(ready) {
        Some(Err(failure)) => fail(function, &failure),
        _ => {
            *taken = process.take();
            SUCCESS
        }
    }
}

/// Lets nobody in any more, and whoever is inside out only.
pub(crate) fn close() {
    GATE.phase.store(FINALIZED, Ordering::Relaxed);
}

/// Whether `han_init` has succeeded and `han_finalize` has not.
pub(crate) fn is_initialized() -> bool {
    matches!(GATE.phase.load(Ordering::Relaxed), READY | BUSY)
}

#[inline]
fn enter(from: u8, to: u8) -> Result<(), u8> {
    // C2 (Acquire): pairs with C1.
    let change = GATE.phase.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
    change.map(|_| ())
}

/// Changes the phase back, but not that of a child which was forked meanwhile, nor that of a gate that was closed.
#[inline]
fn leave(from: u8, to: u8) {
    // Two steps, as one that is atomic costs as much as a small call: forks are this thread's own, and where the gate is
    // closed in between, the process is ending.
    if GATE.phase.load(Ordering::Relaxed) == from {
        // C1 (Release): the process state is as the next call shall find it. Pairs with C2.
        GATE.phase.store(to, Ordering::Release);
    }
}

#[cold]
fn fail(function: &'static str, failure: &Failure) -> c_int {
    let code = report(function, failure);
    leave(BUSY, READY);
    code
}

#[cold]
fn broken(function: &'static str) -> c_int {
    GATE.phase.store(BROKEN, Ordering::Relaxed);
    let why = "han has panicked (see stderr) and cannot be used any more in this process";
    report(function, &Failure::new(Code::Internal, why))
}

#[cold]
fn refuse(function: &'static str, found: u8) -> c_int {
    let (code, why) = match found {
        ASLEEP => (Code::NotInitialized, "han is not initialized; call han_init first"),
        FINALIZED => (Code::NotInitialized, "han_finalize or han_abort has been called; han has ended"),
        FORKED => (Code::NotInitialized, "this process was forked by a rank, which alone can call han"),
        BROKEN => (Code::Internal, "han has panicked before and cannot be used any more"),
        _ => {
            let why = "another han call is in progress, on another thread or around this callback; \
                       calls must follow one another";
            (Code::Thread, why)
        }
    };
    report(function, &Failure::new(code, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::{han_finalize, han_init};
    use han::Call;
    use std::env;
    use std::io::{Error, ErrorKind};
    use std::net::TcpListener;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Rank 0 panics within a call; to both the job has ended.
    #[test]
    fn a_panic_ends_the_job() {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
        let rank = |rank: &str| {
            let mut command = Command::new(env::current_exe().expect("this program"));
            command.args(["gate::tests::play_a_rank", "--exact", "--ignored", "--nocapture"]);
            command.env("HAN_RANK", rank).env("HAN_SIZE", "2").env("HAN_SET", "timeout_s=200");
            command.env("HAN_RENDEZVOUS", port.to_string()).env("HAN_SECRET", "of this test alone");
            command.spawn().expect("a rank")
        };
        for mut rank in ["0", "1"].map(rank) {
            assert!(rank.wait().expect("its end").success());
        }
    }

    #[test]
    #[ignore = "a rank of the test above"]
    fn play_a_rank() {
        let Ok(rank) = env::var("HAN_RANK") else { return };
        assert_eq!(han_init(), SUCCESS);
        if rank == "0" {
            let panics = |_: &mut Process| panic!("as the test wants it");
            assert_eq!(call("a function", panics), Code::Internal as c_int);
            assert_eq!(call("another one", |_| Ok(())), Code::Internal as c_int);
        } else {
            let code = call("a barrier", |process| Ok(process.context.world().run(Call::BARRIER)?));
            assert_eq!(code, Code::Aborted as c_int);
        }
    }

    #[test]
    fn a_forked_child_is_no_rank() {
        assert_eq!(han_init(), SUCCESS);
        let look = || {
            let refused = call("a child", |_| Ok(())) == Code::NotInitialized as c_int;
            let refused = refused && han_init() == Code::NotInitialized as c_int;
            if refused && !is_initialized() { Ok(()) } else { Err(Error::from(ErrorKind::PermissionDenied)) }
        };
        let mut child = Command::new("true");
        // SAFETY: the child makes a message of the refusal; allocating is allowed there, as the C library sees to
        // its own locks at forks.
        unsafe { child.pre_exec(look) };
        let ended = child.status().expect("the child was refused and went on");
        assert!(ended.success());
        assert_eq!(call("its parent", |_| Ok(())), SUCCESS);
        assert_eq!(han_finalize(), SUCCESS);
    }
}

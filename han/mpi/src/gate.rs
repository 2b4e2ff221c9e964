//! The door to what this library keeps for its process: one thread at a time.
//!
//! `Context` and `Communicator` are neither `Send` nor `Sync`. Between MPI's threads they can be used all the same,
//! because a thread that has them holds the lock below, and nothing of crate `han` keeps to a thread: there is no
//! thread-local storage, only memory, file descriptors and mappings.
//!
//! A program that may call MPI from several threads at a time (`MPI_THREAD_MULTIPLE`) can have collectives under way on
//! several communicators, each waiting for other ranks' threads. So a thread that waits must let others in: it gives the
//! lock up around every call of the MPI library that may wait ([`outside`]), and between two polls of an operation.
//! What it holds meanwhile are shared references and counted handles, so another thread's call is to it what a call
//! from within a callback would be.
//!
//! The MPI library calls the program back while a thread is inside: its operators, functions of its attributes, its error
//! handlers. These may call MPI again. Before an error handler the thread steps out ([`aside`]). Whoever else comes again
//! while it is inside finds the gate shut, and its call is the MPI's: one thread at a time means that it meets itself, and
//! where several may come, the gate knows who is inside.
#![allow(unsafe_code)] // Shares the process state between the program's threads.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::process::Process;

struct Gate {
    /// Somebody is inside.
    taken: AtomicBool,
    /// Threads of the program's may come at the same time.
    multiple: AtomicBool,
    /// Threads may come at the same time, the [deputy](crate::deputy) among them, so who is inside is noted.
    is_watched: AtomicBool,
    /// The thread inside, or the last that was.
    inside: AtomicUsize,
    /// Threads that have stepped out, and will come back to what they held.
    aside: AtomicUsize,
    /// Between the starts of MPI and of its end, if any call is to be taken.
    process: UnsafeCell<Option<Process>>,
}

// SAFETY: `process` is accessed only by the thread that has changed `taken` to true and not back. The change is an
// acquire and the change back a release, so accesses never overlap and are ordered. Handing what is in it from thread to
// thread is sound because nothing in it depends on the thread (see the module's documentation).
unsafe impl Sync for Gate {}

static GATE: Gate = Gate {
    taken: AtomicBool::new(false),
    multiple: AtomicBool::new(false),
    is_watched: AtomicBool::new(false),
    inside: AtomicUsize::new(0),
    aside: AtomicUsize::new(0),
    process: UnsafeCell::new(None),
};

/// Whether there is a process state to ask at all: looked at within the lock.
static OPEN: AtomicBool = AtomicBool::new(false);

/// Does `work` with the process state; `None` where every call is the MPI's, and if this thread is inside already.
#[inline]
pub(crate) fn inside<T>(work: impl FnOnce(&Process) -> T) -> Option<T> {
    if !OPEN.load(Ordering::Relaxed) || !(try_enter() || enter()) {
        return None;
    }
    let _inside = Inside;
    // SAFETY: this thread has the lock.
    unsafe { with(work) }
}

/// The same, and `None` if anybody is inside.
pub(crate) fn inside_if_free<T>(work: impl FnOnce(&Process) -> T) -> Option<T> {
    if !OPEN.load(Ordering::Relaxed) || !try_enter() {
        return None;
    }
    let _inside = Inside;
    // SAFETY: this thread has the lock.
    unsafe { with(work) }
}

/// Leaves at the end of a visit, which may be an exception of the program's.
struct Inside;

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        leave();
    }
}

/// Does `work` with the process state, if there is one.
///
/// # Safety
/// This thread has the lock.
#[inline]
unsafe fn with<T>(work: impl FnOnce(&Process) -> T) -> Option<T> {
    // SAFETY: this thread has the lock, and nobody makes a unique reference while others are inside: `open` and `close`
    // are called where MPI allows no other call.
    let process = unsafe { &*GATE.process.get() };
    process.as_ref().map(work)
}

/// Does `wait`, which may take as long as other threads like, while they may come in.
#[inline]
pub(crate) fn outside<T>(wait: impl FnOnce() -> T) -> T {
    if is_multiple() { aside(wait) } else { wait() }
}

/// Does `work`, in which this thread may come in again, and others may.
#[inline]
pub(crate) fn aside<T>(work: impl FnOnce() -> T) -> T {
    GATE.aside.fetch_add(1, Ordering::Relaxed);
    leave();
    let _aside = Aside;
    work()
}

/// Comes in again after a step aside, however that ends.
struct Aside;

impl Drop for Aside {
    #[inline]
    fn drop(&mut self) {
        while !try_enter() {
            std::thread::yield_now();
        }
        GATE.aside.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether threads may come at the same time.
#[inline]
pub(crate) fn is_multiple() -> bool {
    GATE.multiple.load(Ordering::Relaxed)
}

/// From now on threads may come at the same time, though the program's do not; false if this one is inside.
pub(crate) fn watch() -> bool {
    if !GATE.is_watched.load(Ordering::Relaxed) {
        if GATE.taken.load(Ordering::Relaxed) {
            return false;
        }
        GATE.is_watched.store(true, Ordering::Relaxed);
    }
    !is_inside()
}

/// Whether the process state is there.
pub(crate) fn is_open() -> bool {
    OPEN.load(Ordering::Relaxed)
}

/// Puts the process state there; called while MPI is being initialised. Threads of the program's may come at the same time if
/// they are `multiple`, and the deputy may come at any time if it is `watched`.
pub(crate) fn open(process: Process, multiple: bool, watched: bool) {
    GATE.multiple.store(multiple, Ordering::Relaxed);
    GATE.is_watched.store(multiple || watched, Ordering::Relaxed);
    if !enter() {
        return;
    }
    // SAFETY: this thread has the lock, and MPI allows no call of another thread before its initialisation is over.
    unsafe { *GATE.process.get() = Some(process) };
    leave();
    OPEN.store(true, Ordering::Relaxed);
}

/// Takes the process state away; called when MPI is being finalised. It stays where it is if a thread will come back to
/// it: an error handler may end MPI.
pub(crate) fn close() -> Option<Process> {
    if !OPEN.swap(false, Ordering::Relaxed) || GATE.aside.load(Ordering::Relaxed) > 0 || !(try_enter() || enter()) {
        return None;
    }
    // SAFETY: this thread has the lock, and MPI allows no call of another thread during its finalisation.
    let process = unsafe { (*GATE.process.get()).take() };
    GATE.multiple.store(false, Ordering::Relaxed);
    leave();
    process
}

/// Waits until nobody is inside, for as long as others may take for a poll; not if this thread is.
pub(crate) fn visit() {
    if enter_soon() {
        leave();
    }
}

/// A child that is forked while another thread is inside would find that thread there for ever: forks wait until it has left.
pub(crate) fn keep_free_at_forks() {
    static HOLDS: AtomicBool = AtomicBool::new(false);
    extern "C" fn hold() {
        if enter_soon() {
            HOLDS.store(true, Ordering::Relaxed);
        }
    }
    extern "C" fn let_go() {
        // Not another thread's, for which this one has not waited long enough.
        if HOLDS.load(Ordering::Relaxed) && is_inside() {
            HOLDS.store(false, Ordering::Relaxed);
            leave();
        }
    }
    // SAFETY: the functions take nothing and give nothing, and stay as long as the process.
    unsafe { libc::pthread_atfork(Some(hold), Some(let_go), Some(let_go)) };
}

/// Enters, unless this thread is inside, or another one stays there for a second.
fn enter_soon() -> bool {
    let until = Instant::now() + Duration::from_secs(1);
    while !is_inside() && Instant::now() < until {
        if try_enter() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// This thread's number: an address that no other has.
pub(crate) fn own() -> usize {
    thread_local!(static PLACE: u8 = const { 0 });
    PLACE.with(|place| ptr::from_ref(place).addr())
}

/// Whether this thread is inside, where that is noted.
fn is_inside() -> bool {
    GATE.taken.load(Ordering::Relaxed) && GATE.inside.load(Ordering::Relaxed) == own()
}

#[inline]
fn try_enter() -> bool {
    // E2 (Acquire): pairs with E1. No compare_exchange_weak: a failure means that somebody is inside.
    let entered = GATE.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
    if entered && GATE.is_watched.load(Ordering::Relaxed) {
        GATE.inside.store(own(), Ordering::Relaxed);
    }
    entered
}

/// Waits until nobody is inside; false if that is this thread itself.
#[cold]
fn enter() -> bool {
    while !try_enter() {
        if !GATE.is_watched.load(Ordering::Relaxed) || is_inside() {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[inline]
fn leave() {
    if GATE.is_watched.load(Ordering::Relaxed) {
        GATE.inside.store(0, Ordering::Relaxed);
    }
    // E1 (Release): the process state is as the next thread shall find it. Pairs with E2.
    GATE.taken.store(false, Ordering::Release);
}

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
#![allow(unsafe_code)] // Shares the process state between the program's threads.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::process::Process;

struct Gate {
    /// Somebody is inside.
    taken: AtomicBool,
    /// Threads may come at the same time.
    multiple: AtomicBool,
    /// Between the starts of MPI and of its end, if any call is to be taken.
    process: UnsafeCell<Option<Process>>,
}

// SAFETY: `process` is accessed only by the thread that has changed `taken` to true and not back. The change is an
// acquire and the change back a release, so accesses never overlap and are ordered. Handing what is in it from thread to
// thread is sound because nothing in it depends on the thread (see the module's documentation).
unsafe impl Sync for Gate {}

static GATE: Gate =
    Gate { taken: AtomicBool::new(false), multiple: AtomicBool::new(false), process: UnsafeCell::new(None) };

/// Whether there is a process state to ask at all.
static OPEN: AtomicBool = AtomicBool::new(false);

/// Does `work` with the process state; `None` where every call is the MPI's.
#[inline]
pub(crate) fn inside<T>(work: impl FnOnce(&Process) -> T) -> Option<T> {
    if !OPEN.load(Ordering::Acquire) {
        return None;
    }
    enter();
    // SAFETY: this thread has the lock, and nobody makes a unique reference while others are inside: `open` and `close`
    // are called where MPI allows no other call.
    let process = unsafe { &*GATE.process.get() };
    let result = process.as_ref().map(work);
    leave();
    result
}

/// Does `wait`, which may take as long as other threads like, while they may come in.
#[inline]
pub(crate) fn outside<T>(wait: impl FnOnce() -> T) -> T {
    if !is_multiple() {
        return wait();
    }
    leave();
    let result = wait();
    enter();
    result
}

/// Whether threads may come at the same time.
#[inline]
pub(crate) fn is_multiple() -> bool {
    GATE.multiple.load(Ordering::Relaxed)
}

/// Whether the process state is there.
pub(crate) fn is_open() -> bool {
    OPEN.load(Ordering::Acquire)
}

/// Puts the process state there; called while MPI is being initialised.
pub(crate) fn open(process: Process, multiple: bool) {
    GATE.multiple.store(multiple, Ordering::Relaxed);
    enter();
    // SAFETY: this thread has the lock, and MPI allows no call of another thread before its initialisation is over.
    unsafe { *GATE.process.get() = Some(process) };
    leave();
    OPEN.store(true, Ordering::Release);
}

/// Takes the process state away; called when MPI is being finalised.
pub(crate) fn close() -> Option<Process> {
    if !OPEN.swap(false, Ordering::AcqRel) {
        return None;
    }
    enter();
    // SAFETY: this thread has the lock, and MPI allows no call of another thread during its finalisation.
    let process = unsafe { (*GATE.process.get()).take() };
    GATE.multiple.store(false, Ordering::Relaxed);
    leave();
    process
}

#[inline]
fn enter() {
    while GATE.taken.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::thread::yield_now();
    }
}

#[inline]
fn leave() {
    GATE.taken.store(false, Ordering::Release);
}

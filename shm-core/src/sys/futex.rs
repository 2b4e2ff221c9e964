//! Sleeping on a word of shared memory, waking who sleeps there, and the barrier that makes the
//! fast path free of fences.
#![allow(unsafe_code)] // futex and membarrier have no safe wrapper in nix

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `expected`, at most `limit`; may return early for no reason.
///
/// The word may lie in memory that other processes map, so the futex is not a private one.
pub fn wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(limit.subsec_nanos().cast_signed()),
    };
    // SAFETY: the word is valid for the whole call because it is borrowed, the timeout lives on this
    // stack, and FUTEX_WAIT only reads both. Every outcome (woken, changed, timed out, interrupted)
    // is one that callers must expect, so the result is not needed.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const timeout,
            std::ptr::null::<u32>(),
            0u32,
        );
    }
}

/// Wakes everybody who sleeps on `word`.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: FUTEX_WAKE uses the word's address as a name only; it is valid while borrowed.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX);
    }
}

/// Registers this process for [`barrier_all`] of others; false where the kernel refuses.
#[must_use]
pub fn register_barrier() -> bool {
    // SAFETY: membarrier takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0u32, 0) == 0 }
}

/// A full memory barrier on every running thread of every registered process.
///
/// False where the kernel refuses: then nothing was ordered.
pub fn barrier_all() -> bool {
    // SAFETY: membarrier takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0u32, 0) == 0 }
}

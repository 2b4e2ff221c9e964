//! Sleeping on a word of shared memory, waking who sleeps there, and the barrier that makes the
//! fast path free of fences.
#![allow(unsafe_code)] // futex and membarrier have no safe wrapper in nix

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::sys::clock;

/// Whoever wakes: who sleeps names by bits who may wake it, and is woken by who has one of them.
pub const ANYBODY: u32 = u32::MAX;

/// Sleeps while `word` holds `expected`, until one of `wakers` wakes, at most `limit`; may return early for no reason.
///
/// The word may lie in memory that other processes map, so the futex is not a private one.
pub fn wait(word: &AtomicU32, expected: u32, wakers: u32, limit: Duration) {
    // This one takes a point in time.
    let until = Duration::from_nanos(clock::now_ns()).saturating_add(limit);
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(until.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(until.subsec_nanos().cast_signed()),
    };
    // SAFETY: the word is valid for the whole call because it is borrowed, the timeout lives on this
    // stack, and FUTEX_WAIT_BITSET only reads both. Every outcome (woken, changed, timed out, interrupted)
    // is one that callers must expect, so the result is not needed.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            expected,
            &raw const timeout,
            std::ptr::null::<u32>(),
            wakers,
        );
    }
}

/// Wakes everybody who sleeps on `word` until one of `wakers` does.
pub fn wake(word: &AtomicU32, wakers: u32) {
    let none = std::ptr::null::<u32>();
    // SAFETY: FUTEX_WAKE_BITSET uses the word's address as a name only; it is valid while borrowed.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE_BITSET, i32::MAX, none, none, wakers);
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread::{scope, sleep};

    use super::*;

    #[test]
    fn who_is_not_named_does_not_wake() {
        let (word, awake) = (AtomicU32::new(7), AtomicBool::new(false));
        scope(|scope| {
            scope.spawn(|| {
                wait(&word, 7, 0b10, Duration::from_secs(60));
                awake.store(true, Ordering::Relaxed);
            });
            for _ in 0..50 {
                wake(&word, !0b10);
                sleep(Duration::from_millis(1));
            }
            assert!(!awake.load(Ordering::Relaxed), "woken by others");
            while !awake.load(Ordering::Relaxed) {
                wake(&word, 0b110);
                sleep(Duration::from_millis(1));
            }
        });
    }

    #[test]
    fn a_word_that_has_changed_and_a_time_that_is_over_end_it() {
        let word = AtomicU32::new(7);
        wait(&word, 8, ANYBODY, Duration::from_secs(3600));
        wait(&word, 7, ANYBODY, Duration::from_millis(1));
    }
}

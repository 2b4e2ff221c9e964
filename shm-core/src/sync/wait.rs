//! How a rank waits: spin, pause, yield, sleep, chosen from ranks against usable cores.

use std::time::Duration;

use super::Bell;
use crate::sys::{affinity, futex};

/// How long each kind of waiting lasts before the next begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Polls of the operation, a pause instruction after each, before the core is first given away.
    pub spins: u32,
    /// Times that the core is given away, one poll after each, before sleeping.
    pub yields: u32,
    /// Longest single sleep on the bell.
    pub sleep_us: u32,
}

impl Patience {
    /// For a rank that has a core to itself: nobody gains from its yielding.
    pub const OWN_CORE: Self = Self { spins: 20_000, yields: 2_000, sleep_us: 1_000 };
    /// For ranks that share cores: the peer that is waited for may need this very core.
    pub const SHARED_CORE: Self = Self { spins: 1, yields: 2_000, sleep_us: 1_000 };
}

/// One wait in progress: counts what was tried and escalates.
#[derive(Debug)]
pub struct Waiter {
    patience: Patience,
    yielded: u32,
}

impl Waiter {
    /// A wait that has not begun.
    #[must_use]
    pub fn new(patience: Patience) -> Self {
        Self { patience, yielded: 0 }
    }

    /// Polls `ready` for the spinning part; true as soon as it holds.
    #[inline]
    pub fn spin<E>(&self, mut ready: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        for _ in 0..self.patience.spins {
            if ready()? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Gives the core away once: yields, or later sleeps until a peer rings `bell`.
    ///
    /// Returns true if it slept, which is when the caller can afford slow checks.
    pub fn rest(&mut self, bell: &Bell, ready: impl FnOnce() -> bool) -> bool {
        if self.yielded < self.patience.yields {
            self.yielded += 1;
            affinity::yield_now();
            return self.yielded % 256 == 0;
        }
        let limit = Duration::from_micros(u64::from(self.patience.sleep_us));
        // If membarrier is refused a ring can be missed; the sleep's limit then bounds the delay.
        let barrier = || {
            let _ = futex::barrier_all();
        };
        bell.sleep_unless(ready, barrier, |word, seen| futex::wait(word, seen, limit));
        true
    }
}

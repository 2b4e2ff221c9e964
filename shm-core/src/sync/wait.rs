//! How a rank waits: spin, pause, yield, sleep, chosen from ranks against usable cores.
#![allow(unsafe_code)] // an intrinsic

use std::time::Duration;

use super::Bell;
use crate::sys::{affinity, futex};

/// How long each kind of waiting lasts before the next begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Polls of the operation before the core is first given away to a rank that may need it.
    pub spins: u32,
    /// Polls before the core is given away while a rank on another core is waited for.
    pub spins_apart: u32,
    /// Times that the core is given away, one poll after each, before sleeping.
    pub yields: u32,
    /// Longest single sleep on the bell.
    pub sleep_us: u32,
}

/// Polls before the first pause instruction, which alone can take longer than a flag's way.
const EAGER_SPINS: u32 = 32;
/// Yields between two looks at the job.
const LOOK_EVERY: u32 = 16;
/// Polls between two rests.
const SPINS_AFTER_REST: u32 = 64;

impl Patience {
    /// For a rank that has a core to itself: nobody gains from its yielding.
    pub const OWN_CORE: Self = Self { spins: 20_000, spins_apart: 20_000, yields: 2_000, sleep_us: 1_000 };
    /// For ranks that share cores: the peer that is waited for may need this very core.
    pub const SHARED_CORE: Self = Self { spins: 1, spins_apart: 100, yields: 2_000, sleep_us: 1_000 };
}

impl Patience {
    /// The same for a rank that has other things to do now and then while it waits.
    #[must_use]
    pub fn attentive(self) -> Self {
        const SPINS: u32 = 256;
        let (spins, spins_apart) = (self.spins.min(SPINS), self.spins_apart.min(SPINS));
        Self { spins, spins_apart, sleep_us: self.sleep_us.min(100), ..self }
    }
}

/// A short rest between two polls of a line that a peer is about to write: about half a line's way.
///
/// Without it the processor has looked ahead at the line many times when it is taken away, drops all that,
/// and asks for it again while the peer is still writing. A pause instruction takes longer than the line's way.
#[inline]
pub(crate) fn breathe() {
    #[cfg(target_arch = "x86_64")]
    for _ in 0..3 {
        // SAFETY: orders this thread's loads, and nothing else.
        unsafe { core::arch::x86_64::_mm_lfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::spin_loop();
}

/// One wait in progress: counts what was tried and escalates.
#[derive(Debug)]
pub struct Waiter {
    patience: Patience,
    /// Times that the core was given away.
    rested: u32,
}

impl Waiter {
    /// A wait that has not begun.
    #[must_use]
    pub fn new(patience: Patience) -> Self {
        Self { patience, rested: 0 }
    }

    /// Polls `ready` for the spinning part; true as soon as it holds. `apart`: whoever is waited for
    /// does not need this core.
    ///
    /// # Errors
    /// Those of `ready`.
    #[inline]
    pub fn spin<E>(&self, apart: bool, mut ready: impl FnMut() -> Result<bool, E>) -> Result<bool, E> {
        let first = if apart { self.patience.spins_apart } else { self.patience.spins };
        let spins = if self.rested == 0 { first } else { first.min(SPINS_AFTER_REST) };
        for spin in 0..spins {
            if ready()? {
                return Ok(true);
            }
            if spin >= EAGER_SPINS {
                std::hint::spin_loop();
            }
        }
        Ok(false)
    }

    /// Gives the core away once: yields, or later sleeps until a peer rings `bell`.
    ///
    /// Returns true now and then, and whenever it slept: the caller can afford slow checks.
    pub fn rest(&mut self, bell: &Bell, ready: impl FnOnce() -> bool) -> bool {
        self.rested = self.rested.saturating_add(1);
        if self.rested <= self.patience.yields {
            affinity::yield_now();
            return self.rested.is_multiple_of(LOOK_EVERY);
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

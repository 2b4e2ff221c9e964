//! Sleeping until somebody publishes something, without a fence on the publisher's fast path.

use std::sync::atomic::compiler_fence;

use super::primitive::{AtomicU32, Ordering};

/// Whose rings end a sleep: a bit for every 32nd rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wakers(u32);

impl Wakers {
    /// Whoever rings.
    pub const ALL: Self = Self(u32::MAX);

    /// This rank alone, and those that have the same bit.
    #[must_use]
    pub fn of(rank: usize) -> Self {
        Self(1 << (rank % 32))
    }

    /// These and those.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// As the kernel takes them.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }
}

/// An event count for all ranks of a node.
///
/// A publisher stores its flag and then looks at `sleepers` with a plain load. What makes this safe
/// against a sleeper that has just looked at the flag is the sleeper's barrier, which runs on every
/// publisher's core between the two (`membarrier`; see `README.md`). Sleeps are bounded besides.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Bell {
    sleepers: AtomicU32,
    rings: AtomicU32,
}

impl Bell {
    /// Nobody sleeps; the same as zeroed memory.
    #[must_use]
    pub fn new() -> Self {
        Self { sleepers: AtomicU32::new(0), rings: AtomicU32::new(0) }
    }

    /// To be called after every store that somebody may wait for; calls `wake` if there are sleepers.
    #[inline]
    pub fn ring(&self, wake: impl FnOnce(&AtomicU32)) {
        // The compiler must not move the look before the caller's store; the processor is ordered by
        // the sleeper's barrier.
        compiler_fence(Ordering::SeqCst);
        // B1 (Relaxed): ordered after the caller's flag by the sleeper's barrier between B3 and its look at the flag.
        if self.sleepers.load(Ordering::Relaxed) != 0 {
            self.ring_slowly(wake);
        }
    }

    #[cold]
    fn ring_slowly(&self, wake: impl FnOnce(&AtomicU32)) {
        // B4 (Release): a sleeper that sees the new count (B3) sees the flag that was stored before.
        self.rings.fetch_add(1, Ordering::Release);
        wake(&self.rings);
    }

    /// Sleeps once, unless `look` finds what is waited for; else it tells who alone can bring it.
    ///
    /// `barrier` must order this thread's announcement before its look at the flag, and on every
    /// other rank that rank's flag before its look at `sleepers`. `sleep(word, value, wakers)` sleeps while
    /// `word` holds `value`, until one of these rings, for a bounded time.
    pub fn sleep_unless(
        &self,
        look: impl FnOnce() -> Option<Wakers>,
        barrier: impl FnOnce(),
        sleep: impl FnOnce(&AtomicU32, u32, Wakers),
    ) {
        // B2: announced before the look at the flag. Test: bell_loses_no_ring.
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        // B3 (Acquire): taken before the look, so a ring after the look changes the word. Pairs with B4.
        let rings = self.rings.load(Ordering::Acquire);
        barrier();
        if let Some(wakers) = look() {
            sleep(&self.rings, rings, wakers);
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

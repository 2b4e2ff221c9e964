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

/// Bits of [`Sources`].
const SOURCES: usize = u16::BITS as usize;

/// Communicators whose news a sleeper waits for: a bit for every 16th.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sources(u16);

impl Sources {
    /// All communicators.
    pub const ALL: Self = Self(u16::MAX);

    /// The communicator of this number, and those that have the same bit.
    #[must_use]
    pub fn of(communicator: u32) -> Self {
        Self(1 << (communicator as usize % SOURCES))
    }

    /// These and those.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    fn each(self) -> impl Iterator<Item = usize> {
        (0..SOURCES).filter(move |place| self.0 >> place & 1 != 0)
    }
}

/// An event count for all ranks of a node.
///
/// A publisher stores its flag and then looks at the count of its communicator's sleepers with a plain load. What makes this
/// safe against a sleeper that has just looked at the flag is the sleeper's barrier, which runs on every
/// publisher's core between the two (`membarrier`; see `README.md`). Sleeps are bounded besides.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Bell {
    /// By bit of [`Sources`]: who waits for one communicator makes publishing on others no slower.
    sleepers: [AtomicU32; SOURCES],
    rings: AtomicU32,
}

impl Bell {
    /// Nobody sleeps; the same as zeroed memory.
    #[must_use]
    pub fn new() -> Self {
        Self { sleepers: std::array::from_fn(|_| AtomicU32::new(0)), rings: AtomicU32::new(0) }
    }

    /// To be called after every store that somebody may wait for on `communicator`; calls `wake` if there are sleepers.
    #[inline]
    pub fn ring(&self, communicator: u32, wake: impl FnOnce(&AtomicU32)) {
        // The compiler must not move the look before the caller's store; the processor is ordered by
        // the sleeper's barrier.
        compiler_fence(Ordering::SeqCst);
        // B1 (Relaxed): ordered after the caller's flag by the sleeper's barrier between B2 and its look at the flag.
        if self.sleepers[communicator as usize % SOURCES].load(Ordering::Relaxed) != 0 {
            self.ring_for_all(wake);
        }
    }

    /// To be called after a store that anybody may wait for.
    #[cold]
    pub fn ring_for_all(&self, wake: impl FnOnce(&AtomicU32)) {
        // B4 (Release): a sleeper that sees the new count (B3) sees the flag that was stored before.
        self.rings.fetch_add(1, Ordering::Release);
        wake(&self.rings);
    }

    /// Announces a sleeper, until it is dropped, to all who publish on these communicators.
    ///
    /// `barrier` must order the announcement before this thread's later looks at flags, and on every
    /// other rank that rank's flag before its look at the announcement.
    pub fn announce(&self, sources: Sources, barrier: impl FnOnce()) -> Sleeper<'_> {
        // B2: announced before any look at the flag. Test: bell_loses_no_ring.
        for place in sources.each() {
            self.sleepers[place].fetch_add(1, Ordering::Relaxed);
        }
        barrier();
        Sleeper { bell: self, sources }
    }
}

/// Somebody who sleeps now and then, until what it waits for is there: announced once, as the barrier costs all others.
#[derive(Debug)]
pub struct Sleeper<'a> {
    bell: &'a Bell,
    sources: Sources,
}

impl Sleeper<'_> {
    /// Sleeps once, unless `look` finds what is waited for; else it tells who alone can bring it.
    ///
    /// `sleep(word, value, wakers)` sleeps while `word` holds `value`, until one of these rings, for a bounded time.
    pub fn sleep_unless(&self, look: impl FnOnce() -> Option<Wakers>, sleep: impl FnOnce(&AtomicU32, u32, Wakers)) {
        // B3 (Acquire): taken before the look, so a ring after the look changes the word. Pairs with B4.
        let rings = self.bell.rings.load(Ordering::Acquire);
        if let Some(wakers) = look() {
            sleep(&self.bell.rings, rings, wakers);
        }
    }
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        for place in self.sources.each() {
            self.bell.sleepers[place].fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

//! Whether a rank is at work on its peers' own memory: what an owner waits for before it takes its memory
//! back from an operation that has failed.

use super::primitive::{AtomicU32, Ordering, fence};

/// Set by one rank while it reads or writes memory of its peers.
///
/// An operation that completes needs it not: there the watermarks tell. But once the job has ended no mark
/// moves any more, and a peer may not have noticed yet.
#[derive(Debug)]
#[repr(transparent)]
pub struct Reaching(AtomicU32);

impl Reaching {
    /// At work on nothing; the same as zeroed memory.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Begins to work on peers' memory, unless `has_ended` says that the job has; true if it may. Counted, as
    /// work may stand within other work.
    #[inline]
    pub fn begin(&self, has_ended: impl FnOnce() -> bool) -> bool {
        // One writer, so no exchange.
        let depth = self.0.load(Ordering::Relaxed);
        self.0.store(depth.wrapping_add(1), Ordering::Relaxed);
        // R1 (SeqCst fence): the announcement comes before the look at the job. Pairs with R2: either this
        // rank sees the job's end, or the owner sees the announcement. Test: an_owner_takes_its_memory_back.
        fence(Ordering::SeqCst);
        let may = !has_ended();
        if !may {
            self.end();
        }
        may
    }

    /// Ends what [`begin`](Self::begin) has begun.
    #[inline]
    pub fn end(&self) {
        let depth = self.0.load(Ordering::Relaxed);
        // R3 (Release): the work on peers' memory comes before it. Pairs with R4.
        self.0.store(depth.wrapping_sub(1), Ordering::Release);
    }

    /// True if the rank works on nobody's memory and will not begin again; for who has seen that the job has
    /// ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        // R2 (SeqCst fence): the end of the job comes before the look. Pairs with R1.
        fence(Ordering::SeqCst);
        // R4 (Acquire): pairs with R3; the caller's later accesses come after the rank's.
        self.0.load(Ordering::Acquire) == 0
    }
}

impl Default for Reaching {
    fn default() -> Self {
        Self::new()
    }
}

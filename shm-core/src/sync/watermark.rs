//! How far a rank has read: what lets its peers use their slots and cells again.

use super::before;
use super::primitive::{AtomicU32, Ordering};

/// All steps before the watermark have been consumed by its owner, which will not read them again.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Watermark(AtomicU32);

impl Watermark {
    /// Nothing consumed; the same as zeroed memory.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The owner has consumed every step before `step`.
    #[inline]
    pub fn advance(&self, step: u32) {
        // W1 (Release): the owner's reads of those steps come before it. Pairs with W2.
        // Test: watermark_protects_readers.
        self.0.store(step, Ordering::Release);
    }

    /// The step up to which the owner has consumed everything.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u32 {
        // W2 (Acquire): pairs with W1; the caller's later stores come after the owner's reads.
        self.0.load(Ordering::Acquire)
    }

    /// True if everything before `step` was consumed.
    #[inline]
    #[must_use]
    pub fn reached(&self, step: u32) -> bool {
        !before(self.get(), step)
    }
}

impl Default for Watermark {
    fn default() -> Self {
        Self::new()
    }
}

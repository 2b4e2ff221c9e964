//! What a rank is doing, for peers that compare or report.

use super::primitive::{AtomicU32, AtomicU64, Ordering, fence};

/// What a rank says of one of its operations, for peers that compare or report.
#[derive(Debug)]
#[repr(C, align(32))]
pub struct OpRecord {
    sequence: AtomicU32,
    chain: AtomicU32,
    packed: AtomicU64,
    count: AtomicU64,
}

impl OpRecord {
    /// No operation; the same as zeroed memory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            sequence: AtomicU32::new(0),
            chain: AtomicU32::new(0),
            packed: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    /// Enters an operation: `sequence` counts from 1, `chain` covers it and all before.
    #[inline]
    pub fn enter(&self, sequence: u32, chain: u32, packed: u64, count: u64) {
        self.packed.store(packed, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
        self.chain.store(chain, Ordering::Relaxed);
        // H1 (Release): publishes the signature. Pairs with H2.
        // Test: record_is_whole.
        self.sequence.store(sequence, Ordering::Release);
    }

    /// The same in place of an operation that a peer may be looking at: it finds the old one whole, or none.
    pub fn replace(&self, sequence: u32, chain: u32, packed: u64, count: u64) {
        self.sequence.store(0, Ordering::Relaxed);
        // H3 (Release fence): who sees a new word also sees that the old operation is gone. Pairs with H4.
        // Test: record_is_replaced.
        fence(Ordering::Release);
        self.enter(sequence, chain, packed, count);
    }

    /// `(chain, packed, count)` of operation `sequence`, if this record still holds it.
    ///
    /// Must not be asked for an operation so old that the owner may be writing over it with [`enter`](Self::enter).
    #[must_use]
    pub fn get(&self, sequence: u32) -> Option<(u32, u64, u64)> {
        // H2 (Acquire): pairs with H1. A record that is empty, or being replaced, has number 0.
        if sequence == 0 || self.sequence.load(Ordering::Acquire) != sequence {
            return None;
        }
        // H4 (Acquire): keeps the second look at the sequence behind them. Pairs with H3.
        let packed = self.packed.load(Ordering::Acquire);
        let count = self.count.load(Ordering::Acquire);
        let chain = self.chain.load(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == sequence).then_some((chain, packed, count))
    }
}

impl Default for OpRecord {
    fn default() -> Self {
        Self::new()
    }
}

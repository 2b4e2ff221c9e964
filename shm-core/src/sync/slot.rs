//! A flag with its payload in the same cache lines: one transfer carries both.
#![allow(unsafe_code)] // shares a cell between processes; the protocol keeps accesses apart

use super::primitive::{AtomicU64, Ordering, UnsafeCell};

/// One step's flag of one rank: a control word, then `8 * WORDS` bytes of payload.
///
/// The control word holds the step (plus one, so that zeroed memory means "none yet") and the
/// writer's check value, which is never 0. Only the owning rank writes. A slot is used again only after every rank's
/// [`Watermark`](super::Watermark) has passed its last step, so a reader never sees two steps mixed.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Slot<const WORDS: usize> {
    control: AtomicU64,
    payload: UnsafeCell<[u64; WORDS]>,
}

// SAFETY: the payload is written by one rank before S1 and read by others after S2; the watermarks
// (W1, W2) keep the next writing behind the last reading. Who calls `write` and `read` promises that
// order.
unsafe impl<const WORDS: usize> Sync for Slot<WORDS> {}

impl<const WORDS: usize> Slot<WORDS> {
    /// An empty slot, the same as zeroed memory.
    #[must_use]
    pub fn new() -> Self {
        Self { control: AtomicU64::new(0), payload: UnsafeCell::new([0; WORDS]) }
    }

    /// Lets the owner write the payload of the step that it publishes next.
    ///
    /// Sound only while no rank reads: every watermark has passed this slot's last step.
    #[inline]
    pub fn write<R>(&self, change: impl FnOnce(*mut u8) -> R) -> R {
        self.payload.with_mut(|words| change(words.cast()))
    }

    /// Lets a rank read the payload of a step that [`published`](Self::published) has shown, until
    /// its watermark passes that step.
    #[inline]
    pub fn read<R>(&self, look: impl FnOnce(*const u8) -> R) -> R {
        self.payload.with(|words| look(words.cast()))
    }

    /// Announces `step`: everything that this rank wrote before can be read by who sees it.
    #[inline]
    pub fn publish(&self, step: u32, check: u32) {
        let control = (u64::from(step.wrapping_add(1)) << 32) | u64::from(check);
        // S1 (Release): publishes the payload and the step's cells. Pairs with S2.
        // Test: slot_payload_is_whole.
        self.control.store(control, Ordering::Release);
    }

    /// Lets the owner empty the slot if the step that it shows, which nobody reads any more, `is_past`.
    ///
    /// Steps come again after 2^32, and a rank that only ever reads announces none for as long as it likes.
    pub fn retire(&self, is_past: impl FnOnce(u32) -> bool) {
        // Relaxed: who finds the slot empty reads nothing on the strength of it.
        let control = self.control.load(Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation)] // the upper half of the word
        let shown = ((control >> 32) as u32).wrapping_sub(1);
        if control != 0 && is_past(shown) {
            self.control.store(0, Ordering::Relaxed);
        }
    }

    /// The writer's check value if it has announced `step`, else `None`.
    #[inline]
    #[must_use]
    pub fn published(&self, step: u32) -> Option<u32> {
        // S2 (Acquire): pairs with S1.
        let control = self.control.load(Ordering::Acquire);
        #[allow(clippy::cast_possible_truncation)] // the two halves of the word
        let (seen, check) = ((control >> 32) as u32, control as u32);
        (seen == step.wrapping_add(1) && control != 0).then_some(check)
    }
}

impl<const WORDS: usize> Default for Slot<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

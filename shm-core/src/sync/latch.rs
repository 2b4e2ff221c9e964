//! A record that the first writer fills and everybody else can only read.

use super::primitive::{AtomicU32, AtomicU64, Ordering};

const EMPTY: u32 = 0;
/// Added to the writer's number, which stands above these two bits.
const WRITING: u32 = 1;
const SET: u32 = 2;
const BITS: u32 = 2;

/// Written once, by whoever comes first; `WORDS` words of content.
///
/// It holds why a job ended, so that all ranks report the same reason.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Latch<const WORDS: usize> {
    state: AtomicU32,
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Latch<WORDS> {
    /// Empty; the same as zeroed memory.
    #[must_use]
    pub fn new() -> Self {
        Self { state: AtomicU32::new(EMPTY), words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// True once somebody has begun to fill it: one relaxed load, cheap enough for every operation.
    #[inline]
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.state.load(Ordering::Relaxed) != EMPTY
    }

    /// The number of who has taken it; meaningless before somebody has.
    #[must_use]
    pub fn writer(&self) -> usize {
        (self.state.load(Ordering::Relaxed) >> BITS) as usize
    }

    /// Fills it with `content`, unless somebody else was first; true if this call was first.
    pub fn set(&self, writer: usize, content: &[u64; WORDS]) -> bool {
        let writer = u32::try_from(writer).unwrap_or(0) << BITS;
        // L0: the exchange lets one writer in; it publishes nothing.
        if self.state.compare_exchange(EMPTY, writer | WRITING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        for (word, value) in self.words.iter().zip(content) {
            word.store(*value, Ordering::Relaxed);
        }
        // L1 (Release): publishes the words. Pairs with L2. Test: latch_first_writer_wins.
        self.state.store(writer | SET, Ordering::Release);
        true
    }

    /// The content, once it is whole.
    #[must_use]
    pub fn get(&self) -> Option<[u64; WORDS]> {
        // L2 (Acquire): pairs with L1.
        if self.state.load(Ordering::Acquire) & SET == 0 {
            return None;
        }
        Some(std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed)))
    }
}

impl<const WORDS: usize> Default for Latch<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}

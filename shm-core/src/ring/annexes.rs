//! Places beside the slots, one for each in use: for payloads that do not fit beside a flag but need no cell.

use crate::sys::map;

/// Every rank's annexes.
#[derive(Debug)]
pub(super) struct Annexes {
    /// Each rank's first one.
    first: Vec<*mut u8>,
    /// Length of one; 0 where there are none.
    bytes: usize,
    /// Payloads up to this length stand beside their flag.
    beside_bytes: usize,
    /// How many each rank has.
    depth: u32,
    /// This rank's are known to be in memory.
    touched: bool,
}

impl Annexes {
    /// Of ranks whose annexes begin at `first`; `depth` is a power of two.
    pub(super) fn new(first: Vec<*mut u8>, bytes: usize, beside_bytes: usize, depth: u32) -> Self {
        Self { first, bytes, beside_bytes, depth, touched: false }
    }

    /// Longest payload; 0 where there are no annexes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Longest payload that stands beside its flag.
    #[inline]
    pub(super) fn beside_bytes(&self) -> usize {
        self.beside_bytes
    }

    /// That of `rank`'s slot of `step`.
    #[inline]
    pub(super) fn at(&self, rank: usize, step: u32) -> *mut u8 {
        // In bounds: there are as many as slots.
        self.first[rank].wrapping_add((step & (self.depth - 1)) as usize * self.bytes)
    }

    /// The same of this rank, which is going to write there.
    #[inline]
    pub(super) fn own(&mut self, rank: usize, step: u32) -> *mut u8 {
        if !self.touched {
            self.touch(rank);
        }
        self.at(rank, step)
    }

    /// Takes the pages of `rank`'s own annexes at once. Without it each costs a fault of the writer and one of each reader,
    /// which else get 64 KiB with one.
    #[cold]
    fn touch(&mut self, rank: usize) {
        map::touch(self.first[rank], self.depth as usize * self.bytes);
        self.touched = true;
    }
}

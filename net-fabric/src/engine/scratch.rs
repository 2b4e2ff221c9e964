//! Memory of the operations' own, used again: transports that register memory know it already.
#![allow(unsafe_code)] // Allocates aligned memory.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::schedule::Schedule;

/// Blocks that are kept, and the bytes of them together.
const KEPT_BLOCKS: usize = 16;
const KEPT_BYTES: usize = 64 << 20;

/// A block of bytes, not initialized.
#[derive(Debug)]
pub(super) struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

impl Block {
    /// A block without bytes.
    pub(super) const fn empty() -> Self {
        Self { start: NonNull::dangling(), bytes: 0 }
    }

    fn new(bytes: usize) -> Self {
        let Some(layout) = Self::layout(bytes) else { return Self::empty() };
        // SAFETY: the layout has bytes.
        let start = unsafe { alloc(layout) };
        Self { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)), bytes }
    }

    /// None for no bytes, and for more than there can be, which a schedule has not.
    fn layout(bytes: usize) -> Option<Layout> {
        (bytes > 0).then(|| Layout::from_size_align(bytes, Schedule::SCRATCH_ALIGNMENT).ok()).flatten()
    }

    pub(super) fn start(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.bytes) {
            // SAFETY: `new` allocated it with this layout.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

/// Blocks that nobody uses.
#[derive(Debug, Default)]
pub(super) struct Pool {
    blocks: Vec<Block>,
}

impl Pool {
    /// A block of at least so many bytes: the smallest that fits.
    pub(super) fn take(&mut self, bytes: usize) -> Block {
        if bytes == 0 {
            return Block::empty();
        }
        let fitting = self.blocks.iter().enumerate().filter(|(_, block)| block.bytes >= bytes);
        match fitting.min_by_key(|(_, block)| block.bytes).map(|(index, _)| index) {
            Some(index) => self.blocks.swap_remove(index),
            None => Block::new(bytes.next_multiple_of(Schedule::SCRATCH_ALIGNMENT)),
        }
    }

    /// Keeps a block for later, unless there are enough.
    pub(super) fn give(&mut self, block: Block) {
        if block.bytes == 0 {
            return;
        }
        self.blocks.push(block);
        // The oldest go first.
        while self.blocks.len() > KEPT_BLOCKS || self.blocks.iter().map(|block| block.bytes).sum::<usize>() > KEPT_BYTES
        {
            self.blocks.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_and_used_again() {
        let mut pool = Pool::default();
        let (mut small, mut large) = (pool.take(10), pool.take(1000));
        let (at_small, at_large) = (small.start(), large.start());
        assert!(at_small.addr().is_multiple_of(64) && at_large.addr().is_multiple_of(64));
        pool.give(large);
        pool.give(small);
        assert_eq!(pool.take(64).start(), at_small, "the smallest that fits");
        assert_eq!(pool.take(64).start(), at_large);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut pool = Pool::default();
        for _ in 0..2 * KEPT_BLOCKS {
            pool.give(Block::new(64));
        }
        assert_eq!(pool.blocks.len(), KEPT_BLOCKS);
        pool.give(Block::new(KEPT_BYTES + 64));
        assert!(pool.blocks.is_empty());
    }
}

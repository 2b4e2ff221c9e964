//! Short messages that the provider does not take along: copied, so that their senders need not wait for completions.
//!
//! A completion is read in a call that also asks the kernel for news, which takes longer than the copy.
#![allow(unsafe_code)] // Memory that the provider reads.

use std::ptr;

/// The longest message that is copied.
const MOST_BYTES: usize = 4 << 10;
/// Messages that are under way at once; more are sent from where they are.
const COUNT: usize = 64;

/// Memory for such messages.
pub(super) struct Copies {
    /// It does not grow, so it does not move, and is reached by raw pointers alone.
    memory: Vec<u8>,
    /// The last one that was given back is taken first: it is in a cache.
    free: Vec<usize>,
}

impl Copies {
    /// No memory at all if none is wanted.
    pub(super) fn new(wanted: bool) -> Self {
        let count = if wanted { COUNT } else { 0 };
        // Pages that are never used do not exist.
        Self { memory: vec![0; count * MOST_BYTES], free: (0..count).rev().collect() }
    }

    /// A copy of `bytes` bytes from `data`, and where it is; none if there is no place.
    ///
    /// # Safety
    /// `data` is valid for reads of `bytes` bytes.
    pub(super) unsafe fn take(&mut self, data: *const u8, bytes: usize) -> Option<(usize, *mut u8)> {
        if bytes > MOST_BYTES {
            return None;
        }
        let place = self.free.pop()?;
        // SAFETY: places are numbered below `COUNT`, for which there is memory.
        let start = unsafe { self.memory.as_mut_ptr().add(place * MOST_BYTES) };
        // SAFETY: the place has room for so many bytes, nobody else uses it, and the rest is the caller's promise.
        unsafe { ptr::copy_nonoverlapping(data, start, bytes) };
        Some((place, start))
    }

    /// The copy at `place` is not needed any more.
    pub(super) fn give(&mut self, place: usize) {
        debug_assert!(!self.free.contains(&place));
        self.free.push(place);
    }
}

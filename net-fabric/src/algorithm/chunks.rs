//! Cuts vectors into pieces that hold whole elements.

use std::ops::Range;

/// The most chunks that a vector is cut into: beyond that chunks grow, so that schedules stay bounded.
pub(super) const MOST: usize = 4096;

/// A range of bytes cut into chunks of equal length; the last may be shorter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunks {
    start: usize,
    bytes: usize,
    chunk: usize,
}

impl Chunks {
    /// Cuts `range` into chunks of about `chunk_bytes`, at most `most` of them, of whole elements.
    pub(super) fn new(range: Range<usize>, element_bytes: usize, chunk_bytes: usize, most: usize) -> Self {
        let (element, bytes) = (element_bytes.max(1), range.len());
        let least = bytes.div_ceil(most.max(1)).div_ceil(element).saturating_mul(element);
        let asked = (chunk_bytes / element).max(1) * element;
        Self { start: range.start, bytes, chunk: asked.max(least) }
    }

    /// Number of chunks: none if there are no bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.div_ceil(self.chunk)
    }

    /// Bytes of the longest chunk.
    pub(super) fn longest(&self) -> usize {
        self.chunk.min(self.bytes)
    }

    /// The bytes of a chunk.
    pub(super) fn get(&self, index: usize) -> Range<usize> {
        let start = index * self.chunk;
        self.start + start..self.start + self.bytes.min(start + self.chunk)
    }
}

/// The bytes of block `index` of `count` blocks of a vector, as equal as whole elements allow.
pub(super) fn block(bytes: usize, element_bytes: usize, count: usize, index: usize) -> Range<usize> {
    let element = element_bytes.max(1);
    let (each, more) = (bytes / element / count, bytes / element % count);
    let border = |index: usize| (each * index + more.min(index)) * element;
    // What is no whole element, if anything, goes to the last block.
    border(index)..if index + 1 == count { bytes } else { border(index + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_range_and_split_no_element() {
        for (bytes, element, chunk, most) in
            [(0, 4, 8, 9), (4, 4, 1, 9), (100, 4, 30, 9), (1000, 8, 8, 3), (7 << 32, 8, 4096, MOST), (24, 24, 5, 1)]
        {
            let chunks = Chunks::new(40..40 + bytes, element, chunk, most);
            assert!(chunks.len() <= most);
            let mut end = 40;
            for index in 0..chunks.len() {
                let range = chunks.get(index);
                assert_eq!((range.start, range.len() % element), (end, 0));
                assert!(!range.is_empty() && range.len() <= chunks.longest());
                end = range.end;
            }
            assert_eq!(end, 40 + bytes);
        }
    }

    #[test]
    fn blocks_differ_by_an_element_at_most() {
        for (elements, count) in [(0, 3), (2, 5), (17, 4), (64, 64), ((1 << 33) + 5, 7)] {
            let lengths: Vec<usize> = (0..count).map(|index| block(elements * 8, 8, count, index).len()).collect();
            assert_eq!(lengths.iter().sum::<usize>(), elements * 8);
            assert!(lengths[0] - lengths[count - 1] <= 8 && lengths.is_sorted_by(|a, b| a >= b));
            assert_eq!(block(elements * 8, 8, count, count - 1).end, elements * 8);
        }
    }
}

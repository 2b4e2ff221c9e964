//! How a message is cut into chunks, and a chunk into one slice for each rank. Arithmetic only.

use std::ops::Range;

use crate::call::{Call, Collective};
use crate::ring::Ring;

/// Pieces of a message that are pipelined; all but the last are equally long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunks {
    total_bytes: usize,
    chunk_bytes: usize,
    element_bytes: usize,
}

impl Chunks {
    /// Chunks of at most the configured size, of which at least `spans` fit into the ring.
    pub(crate) fn new(ring: &mut Ring, call: &Call<'_>, spans: usize) -> Self {
        ring.mark();
        let chosen = ring.job().settings().chunk_bytes.unwrap_or_else(|| by_length(call));
        let chunk_bytes = chosen.min(ring.largest(spans));
        Self { total_bytes: call.bytes(), chunk_bytes, element_bytes: call.datatype.size() }
    }

    pub(crate) fn number(&self) -> usize {
        self.total_bytes.div_ceil(self.chunk_bytes)
    }

    pub(crate) fn offset(&self, chunk: usize) -> usize {
        chunk * self.chunk_bytes
    }

    pub(crate) fn bytes(&self, chunk: usize) -> usize {
        (self.total_bytes - self.offset(chunk)).min(self.chunk_bytes)
    }

    /// Bytes of chunk `chunk`, counted from its start, that rank `rank` of `size` reduces.
    ///
    /// Cut at cache lines, so that no two ranks write to the same one.
    pub(crate) fn slice(&self, chunk: usize, rank: usize, size: usize) -> Range<usize> {
        const LINE: usize = 64;
        let unit = LINE.max(self.element_bytes);
        let bytes = self.bytes(chunk);
        let units = bytes.div_ceil(unit);
        let at = |rank: usize| (units * rank / size * unit).min(bytes);
        at(rank)..at(rank + 1)
    }

    /// Largest slice of any rank of `size` in `chunk`.
    pub(crate) fn largest_slice(&self, chunk: usize, size: usize) -> usize {
        (0..size).map(|rank| self.slice(chunk, rank, size).len()).max().unwrap_or(0)
    }
}

/// Part of the message, between what hides a flag's way and what the first caches hold. A bcast's readers can
/// do nothing before the first chunk is there; a reduction's ranks all have theirs.
fn by_length(call: &Call<'_>) -> usize {
    let parts = if call.collective == Collective::Bcast { 16 } else { 2 };
    (call.bytes() / parts).clamp(16 * 1024, 64 * 1024).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_every_chunk_once() {
        for (total, chunk_bytes, element) in [(1, 4096, 1), (40_000, 16_384, 8), (16_384, 4096, 16), (65, 64, 1)] {
            let chunks = Chunks { total_bytes: total, chunk_bytes, element_bytes: element };
            let mut covered = 0;
            for chunk in 0..chunks.number() {
                assert_eq!(chunks.offset(chunk), covered);
                covered += chunks.bytes(chunk);
                for size in 1..20 {
                    let mut at = 0;
                    for rank in 0..size {
                        let slice = chunks.slice(chunk, rank, size);
                        assert_eq!((slice.start, slice.start % element), (at, 0));
                        assert!(slice.len() <= chunks.largest_slice(chunk, size));
                        at = slice.end;
                    }
                    assert_eq!(at, chunks.bytes(chunk));
                }
            }
            assert_eq!(covered, total);
        }
    }
}

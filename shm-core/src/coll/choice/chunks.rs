//! How a message is cut into chunks, and a chunk into one slice for each rank. Arithmetic only.

use std::ops::Range;

use crate::coll::choice::table::{LEAST_CHUNK_BYTES, LEAST_HALVED_BYTES, RELAYED_PARTS};
use crate::coll::choice::{Form, Terms};
use crate::copy::cico::LINE;
use crate::ring::Ring;
use reduce_kernels::{Call, Collective};

/// Bytes that are never cut apart: an element of a reduction, while a bcast's may be cut anywhere.
pub(crate) fn uncut_bytes(call: &Call<'_>) -> usize {
    if call.op.is_some() { call.datatype.size() } else { 1 }
}

/// As many elements of `element_bytes` as `bytes` hold, at least one, in bytes.
pub(crate) fn whole_elements(bytes: usize, element_bytes: usize) -> usize {
    (bytes / element_bytes).max(1) * element_bytes
}

/// Pieces of a message that are pipelined; all but the last are equally long. Elements are not cut apart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Chunks {
    total_bytes: usize,
    chunk_bytes: usize,
    /// Slices are cut at multiples of this: whole elements, and whole lines if elements divide these.
    unit_bytes: usize,
}

impl Chunks {
    /// Chunks for `form`, of the length that [`Cut`] tells, or the next lower one that is whole elements.
    pub(crate) fn new(ring: &mut Ring, call: &Call<'_>, form: Form) -> Self {
        ring.mark();
        let cut = Cut::new(ring.terms(), ring.job().settings().chunk_bytes, form, call.collective, call.bytes());
        Self::of(call.bytes(), cut.chunk_bytes, uncut_bytes(call))
    }

    /// Chunks in which each rank has a slice of `slice_bytes`, but in the last one.
    pub(crate) fn of_slices(ring: &mut Ring, call: &Call<'_>, slice_bytes: usize) -> Self {
        ring.mark();
        Self::of(call.bytes(), slice_bytes * ring.size(), uncut_bytes(call))
    }

    fn of(total_bytes: usize, most_bytes: usize, element_bytes: usize) -> Self {
        let chunk_bytes = whole_elements(most_bytes, element_bytes);
        Self { total_bytes, chunk_bytes, unit_bytes: LINE.next_multiple_of(element_bytes) }
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

    /// Bytes from one chunk to the next where several stand in cells at once: they begin at lines.
    pub(crate) fn stride(&self) -> usize {
        self.bytes(0).next_multiple_of(LINE)
    }

    /// Bytes of chunk `chunk`, counted from its start, that rank `rank` of `size` reduces.
    ///
    /// Cut at cache lines, so that no two ranks write to the same one, unless elements do not divide lines.
    pub(crate) fn slice(&self, chunk: usize, rank: usize, size: usize) -> Range<usize> {
        let (bytes, unit) = (self.bytes(chunk), self.unit_bytes);
        let units = bytes.div_ceil(unit);
        let at = |rank: usize| (units * rank / size * unit).min(bytes);
        at(rank)..at(rank + 1)
    }

    /// No slice of any rank of `size` in `chunk` is longer.
    pub(crate) fn largest_slice(&self, chunk: usize, size: usize) -> usize {
        let (bytes, unit) = (self.bytes(chunk), self.unit_bytes);
        (bytes.div_ceil(unit).div_ceil(size) * unit).min(bytes)
    }
}

/// How long chunks are, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) chunk_bytes: usize,
    pub(crate) because: CutBecause,
}

/// What has decided the length of chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutBecause {
    /// The setting.
    Set,
    /// One of so many parts of the message, within [`LEAST_CHUNK_BYTES`] and so many bytes.
    Parts(usize, usize),
    /// A bcast's would have been a single one, and ranks with a core each copy in and out at once.
    Halves,
    /// Not more of them would be in flight, if they were longer.
    Ring,
}

impl Cut {
    /// `set`: what the setting says, if it does.
    pub(crate) fn new(terms: &Terms, set: Option<usize>, form: Form, collective: Collective, bytes: usize) -> Self {
        let row = terms.row(collective);
        let parts = if form == Form::Tree { RELAYED_PARTS } else { row.chunks };
        let most = row.most_chunk_bytes();
        let (chosen, because) = match set {
            Some(set) => (set, CutBecause::Set),
            None => {
                let part = (bytes / parts).clamp(LEAST_CHUNK_BYTES, most).next_power_of_two();
                let is_halved = collective == Collective::Bcast && terms.own_cores && bytes >= LEAST_HALVED_BYTES;
                if is_halved && part >= bytes {
                    (bytes.div_ceil(2).next_multiple_of(LINE), CutBecause::Halves)
                } else {
                    (part, CutBecause::Parts(parts, most))
                }
            }
        };
        let largest = form.spans().map_or(usize::MAX, |spans| terms.largest(spans));
        if chosen > largest {
            Self { chunk_bytes: largest, because: CutBecause::Ring }
        } else {
            Self { chunk_bytes: chosen, because }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_very_long_vectors_follow_each_other() {
        let total = (6 << 30) + 77 * 8;
        let chunks = Chunks::of(total, 65_536, 8);
        let end = (0..chunks.number()).fold(0, |end, chunk| {
            assert_eq!(chunks.offset(chunk), end);
            end + chunks.bytes(chunk)
        });
        assert_eq!(end, total);
    }

    #[test]
    fn slices_cover_every_chunk_once() {
        for (total, most, element) in [
            (1, 4096, 1),
            (40_000, 16_384, 8),
            (16_384, 4096, 16),
            (65, 64, 1),
            (3 * 5000, 4096, 3),
            (24 * 700, 4096, 24),
            (1000 * 33, 4096, 1000),
            (1023 * 9, 1024, 1023),
            (13, 4096, 13),
        ] {
            let chunks = Chunks::of(total, most, element);
            assert!(chunks.bytes(0) <= most && chunks.stride() <= most.next_multiple_of(LINE));
            let mut covered = 0;
            for chunk in 0..chunks.number() {
                assert_eq!(chunks.offset(chunk), covered);
                covered += chunks.bytes(chunk);
                assert_eq!(chunks.bytes(chunk) % element, 0);
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

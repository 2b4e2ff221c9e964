//! A bcast of which each rank has the kernel copy a part, and hands it on through its cells: of one rank's pages the kernel lets
//! many ranks copy only in turn, however many cores there are. A step a chunk, of which each rank has a slice.
#![allow(unsafe_code)] // copies between user buffers and shared memory

use std::ops::Range;

use crate::coll::sm::chunks::Chunks;
use crate::coll::sm::copy_of;
use crate::copy::cico::copy;
use crate::error::Result;
use crate::ring::{Ring, Span};
use reduce_kernels::Call;

/// Fewer ranks read from the root.
pub(crate) const SPREAD_RANKS: usize = 4;
/// A rank's slice of a chunk. Longer ones leave ranks waiting for the first.
const SLICE_BYTES: usize = 16 << 10;
/// Chunks that a rank may be ahead of its own gathering.
const AHEAD: usize = 4;

#[derive(Debug)]
pub(crate) struct Spread {
    chunks: Chunks,
    /// Chunks whose steps are taken; their spans, by chunk modulo `AHEAD`.
    taken: usize,
    spans: [Span; AHEAD],
    /// Chunks of which this rank has published its slice.
    put: usize,
    /// Chunks that this rank has whole.
    got: usize,
    /// Index of the peer whose slice of chunk `got` is taken next.
    next: usize,
}

impl Spread {
    pub(crate) fn new(ring: &mut Ring, bytes: usize) -> Self {
        let chunks = Chunks::of_slices(ring, bytes, SLICE_BYTES);
        Self { chunks, taken: 0, spans: [Span::default(); AHEAD], put: 0, got: 0, next: 0 }
    }

    /// `slice` of `chunk`, counted from the begin of the vector.
    fn slice(&self, ring: &Ring, chunk: usize, rank: usize) -> Range<usize> {
        let (offset, slice) = (self.chunks.offset(chunk), self.chunks.slice(chunk, rank, ring.size()));
        offset + slice.start..offset + slice.end
    }

    /// Publishes this rank's slice of the next chunk, which `fetch` brings to its vector unless it is the root, if the ring has room.
    fn put(
        &mut self,
        ring: &mut Ring,
        call: &Call<'_>,
        fetch: &mut impl FnMut(&mut Ring, Range<usize>) -> Result<()>,
    ) -> Result<bool> {
        let chunk = self.put;
        if chunk == self.chunks.number() || chunk == self.got + AHEAD {
            return Ok(false);
        }
        if chunk == self.taken {
            self.spans[chunk % AHEAD] = ring.take(self.chunks.largest_slice(chunk, ring.size()));
            self.taken += 1;
        }
        let span = self.spans[chunk % AHEAD];
        if !ring.may_write(span)? {
            return Ok(false);
        }
        let slice = self.slice(ring, chunk, ring.rank());
        let from = if ring.rank() == call.root {
            call.send
        } else {
            fetch(ring, slice.clone())?;
            call.recv.cast_const()
        };
        // SAFETY: just allowed, not yet published; the span was taken for the longest slice, and this one is in the call's
        // buffer.
        unsafe { ring.put_cells(span, 0, from.wrapping_add(slice.start), slice.len()) };
        ring.publish(span);
        self.put += 1;
        Ok(true)
    }

    /// Copies the others' slices of the oldest chunk as far as they are published.
    fn gather(&mut self, ring: &mut Ring, call: &Call<'_>) -> Result<bool> {
        if self.got == self.put {
            return Ok(false);
        }
        let span = self.spans[self.got % AHEAD];
        let copy_out = copy_of(ring, call.bytes(), copy);
        while let Some(&peer) = ring.peers().get(self.next) {
            if !ring.published(peer, span)? {
                return Ok(false);
            }
            if ring.rank() != call.root {
                let slice = self.slice(ring, self.got, peer);
                // In the call's buffer.
                let to = call.recv.wrapping_add(slice.start);
                // SAFETY: published, and kept until this rank has consumed the span.
                unsafe { copy_out(to, ring.cells(peer, span), slice.len()) };
            }
            self.next += 1;
        }
        ring.consumed(span.end());
        self.got += 1;
        self.next = 0;
        Ok(true)
    }

    /// Goes on; true once this rank has the vector, and nobody needs more of the root's: all have published their last slice.
    pub(crate) fn is_complete(
        &mut self,
        ring: &mut Ring,
        call: &Call<'_>,
        mut fetch: impl FnMut(&mut Ring, Range<usize>) -> Result<()>,
    ) -> Result<bool> {
        while self.got < self.chunks.number() {
            let put = self.put(ring, call, &mut fetch)?;
            if !self.gather(ring, call)? && !put {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Index of the peer that this rank waits for, unless it waits for room.
    pub(crate) fn next(&self) -> Option<usize> {
        (self.got < self.put).then_some(self.next)
    }
}

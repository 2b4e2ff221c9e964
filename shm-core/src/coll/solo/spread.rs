//! Slices that are handed on: each rank makes its slice of a chunk, by having the kernel copy it from a bcast's root or by reducing
//! all ranks', and puts it into its cells, from where the others take it. Of one rank's pages the kernel lets many ranks
//! copy only in turn, however many cores there are; and what it writes to vectors that no cache holds, it reads first. A step a chunk.
#![allow(unsafe_code)] // copies between user buffers and shared memory

use std::ops::Range;

use crate::coll::choice::Chunks;
use crate::coll::choice::Terms;
use crate::coll::window::Window;
use crate::coll::{CopyBytes, copy_of};
use crate::copy::cico::{copy, copy_past_caches};
use crate::error::Result;
use crate::ring::{Ring, Span};
use reduce_kernels::{Call, Collective};

/// Fewer ranks read from the root, and write to each other.
const SPREAD_RANKS: usize = 4;
/// A rank's slice of a chunk of a bcast: longer ones leave ranks waiting for the first.
const BCAST_BYTES: usize = 16 << 10;
/// The same of an allreduce, for which the kernel copies as much from each rank.
const ALLREDUCE_BYTES: usize = 32 << 10;
/// Chunks that a rank may be ahead of its own gathering.
const AHEAD: usize = 4;

/// True if it pays to hand on what the kernel would copy otherwise: a bcast's vector, or results that go past the caches.
pub(crate) fn pays(terms: &Terms, collective: Collective, bytes: usize) -> bool {
    let is_long = || match collective {
        Collective::Bcast => true,
        Collective::Allreduce => !terms.keep_in_cache(3, bytes),
        Collective::Barrier | Collective::Reduce => false,
    };
    terms.ranks >= SPREAD_RANKS && is_long()
}

#[derive(Debug)]
pub(crate) struct Spread {
    chunks: Chunks,
    /// Where this rank's slices stand once they are made.
    from: *const u8,
    /// Where the others' are wanted; the root of a bcast has them.
    to: Option<*mut u8>,
    copy_out: CopyBytes,
    steps: Window<Span, AHEAD>,
    /// Chunks of which this rank has published its slice.
    put: usize,
    /// Chunks that this rank has whole.
    got: usize,
    /// Index of the peer whose slice of chunk `got` is taken next.
    next: usize,
}

impl Spread {
    pub(crate) fn new(ring: &mut Ring, call: &Call<'_>) -> Self {
        let is_source = call.collective == Collective::Bcast && ring.rank() == call.root;
        let (slice_bytes, copy_out): (_, CopyBytes) = match call.collective {
            Collective::Bcast => (BCAST_BYTES, copy_of(ring, call.bytes(), copy)),
            _ => (ALLREDUCE_BYTES, copy_past_caches),
        };
        let chunks = Chunks::of_slices(ring, call, slice_bytes);
        let from = if is_source { call.send } else { call.recv.cast_const() };
        let to = (!is_source).then_some(call.recv);
        Self { chunks, from, to, copy_out, steps: Window::new(), put: 0, got: 0, next: 0 }
    }

    /// `slice` of `chunk`, counted from the begin of the vector.
    fn slice(&self, ring: &Ring, chunk: usize, rank: usize) -> Range<usize> {
        let (offset, slice) = (self.chunks.offset(chunk), self.chunks.slice(chunk, rank, ring.size()));
        offset + slice.start..offset + slice.end
    }

    fn span(&mut self, ring: &mut Ring, chunk: usize) -> Span {
        self.steps.of(chunk, || ring.take(self.chunks.largest_slice(chunk, ring.size())))
    }

    /// Publishes this rank's slice of the next chunk, which `make` makes where it is to stand, if the ring has room.
    fn put(&mut self, ring: &mut Ring, make: &mut impl FnMut(&mut Ring, Range<usize>) -> Result<()>) -> Result<bool> {
        let chunk = self.put;
        if chunk == self.chunks.number() || chunk == self.got + AHEAD {
            return Ok(false);
        }
        let span = self.span(ring, chunk);
        if !ring.may_write(span)? {
            return Ok(false);
        }
        let slice = self.slice(ring, chunk, ring.rank());
        make(ring, slice.clone())?;
        // SAFETY: just allowed, not yet published; the span was taken for the longest slice, and this one is in the call's
        // buffer.
        unsafe { ring.put_cells(span, 0, self.from.wrapping_add(slice.start), slice.len()) };
        ring.publish(span);
        self.put += 1;
        Ok(true)
    }

    /// Copies the others' slices of the oldest chunk as far as they are published.
    fn gather(&mut self, ring: &mut Ring) -> Result<bool> {
        if self.got == self.put {
            return Ok(false);
        }
        let span = self.span(ring, self.got);
        while let Some(&peer) = ring.peers().get(self.next) {
            if !ring.published(peer, span)? {
                return Ok(false);
            }
            if let Some(to) = self.to {
                let slice = self.slice(ring, self.got, peer);
                // SAFETY: published, and kept until this rank has consumed the span; `slice` is in the call's buffer, where
                // nobody needs what stood there: its maker has read it.
                unsafe { (self.copy_out)(to.wrapping_add(slice.start), ring.cells(peer, span), slice.len()) };
            }
            self.next += 1;
        }
        ring.consumed(span.end());
        self.got += 1;
        self.next = 0;
        Ok(true)
    }

    /// Goes on; true once this rank has the vector, and all have published their last slice. `make` makes a slice of it where this
    /// rank's vector is.
    pub(crate) fn is_complete(
        &mut self,
        ring: &mut Ring,
        mut make: impl FnMut(&mut Ring, Range<usize>) -> Result<()>,
    ) -> Result<bool> {
        while self.got < self.chunks.number() {
            let put = self.put(ring, &mut make)?;
            if !self.gather(ring)? && !put {
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

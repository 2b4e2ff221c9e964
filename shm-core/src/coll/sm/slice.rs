//! Reduce and allreduce of large vectors by slices: of every chunk each rank reduces its own slice,
//! straight from all ranks' cells, and publishes the result; who receives gathers the slices. Two
//! steps a chunk, pipelined; each rank moves about 2 bytes per byte of the vector, whatever the
//! number of ranks (the movement-avoiding form over copy-in cells).
#![allow(unsafe_code)] // copies between user buffers and shared memory

use std::ops::Range;

use crate::call::{Call, Collective};
use crate::coll::sm::chunks::Chunks;
use crate::coll::sm::fold::fold;
use crate::coll::{Poll, Progress};
use crate::copy::cico::copy;
use crate::error::Result;
use crate::ring::{Ring, Span};

/// Chunks that a rank may be ahead of its own gathering.
const AHEAD: usize = 8;
/// Spans that must fit into the ring for two chunks to be in flight.
const SPANS: usize = 4;

#[derive(Debug)]
pub(crate) struct Reduce<'a> {
    call: Call<'a>,
    chunks: Chunks,
    /// Chunks whose steps are taken; their spans (parts, results), by chunk modulo `AHEAD`.
    taken: usize,
    spans: [(Span, Span); AHEAD],
    /// Chunks that this rank has published for the others to reduce.
    put: usize,
    /// Chunks of which this rank has reduced its slice.
    reduced: usize,
    /// Chunks of which this rank has all results that it needs.
    done: usize,
    /// Index of the peer whose part of chunk `reduced` is looked for next.
    next_part: usize,
    /// Index of the peer whose result of chunk `done` is taken next.
    next_result: usize,
    receives: bool,
}

impl<'a> Reduce<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let chunks = Chunks::new(ring, &call, SPANS);
        let receives = call.collective == Collective::Allreduce || ring.rank() == call.root;
        Self {
            call,
            chunks,
            taken: 0,
            spans: [(Span::default(), Span::default()); AHEAD],
            put: 0,
            reduced: 0,
            done: 0,
            next_part: 0,
            next_result: 0,
            receives,
        }
    }

    /// The steps of `chunk`; all ranks take them in the order of chunks.
    fn spans(&mut self, ring: &mut Ring, chunk: usize) -> (Span, Span) {
        if chunk == self.taken {
            let parts = ring.take(self.chunks.bytes(chunk));
            let results = ring.take(self.chunks.largest_slice(chunk, ring.size()));
            self.spans[chunk % AHEAD] = (parts, results);
            self.taken += 1;
        }
        self.spans[chunk % AHEAD]
    }

    /// Publishes the next chunk without this rank's own slice, if the ring has room.
    fn put(&mut self, ring: &mut Ring) -> Result<bool> {
        if self.put == self.chunks.number() || self.put == self.done + AHEAD {
            return Ok(false);
        }
        let (parts, _) = self.spans(ring, self.put);
        if !ring.may_write(parts)? {
            return Ok(false);
        }
        let own = self.chunks.slice(self.put, ring.rank(), ring.size());
        let offset = self.chunks.offset(self.put);
        for part in [0..own.start, own.end..self.chunks.bytes(self.put)] {
            // SAFETY: in the call's buffer, whose length the chunks were cut from.
            let from = unsafe { self.call.send.add(offset + part.start) };
            // SAFETY: just allowed, not yet published; the span was taken for the whole chunk.
            unsafe { ring.put_cells(parts, part.start, from, part.len()) };
        }
        ring.publish(parts);
        self.put += 1;
        Ok(true)
    }

    /// Reduces this rank's slice of the oldest chunk, if all ranks have published theirs.
    fn reduce(&mut self, ring: &mut Ring) -> Result<bool> {
        if self.reduced == self.put {
            return Ok(false);
        }
        let (parts, results) = self.spans(ring, self.reduced);
        if !ring.published_by_all(parts, &mut self.next_part)? {
            return Ok(false);
        }
        if !ring.may_write(results)? {
            return Ok(false);
        }
        let slice = self.chunks.slice(self.reduced, ring.rank(), ring.size());
        self.reduce_slice(ring, parts, results, slice);
        ring.publish(results);
        if self.reduced == 0 {
            ring.all_have_reached(parts.step);
        }
        self.reduced += 1;
        self.next_part = 0;
        if !self.receives {
            ring.consumed(results.end());
            self.done = self.reduced;
        }
        Ok(true)
    }

    fn reduce_slice(&self, ring: &mut Ring, parts: Span, results: Span, slice: Range<usize>) {
        let Some(op) = &self.call.op else { return };
        let at = self.chunks.offset(self.reduced) + slice.start;
        // SAFETY: in the call's buffer.
        let own = unsafe { self.call.send.add(at) };
        let cells = ring.cells(ring.rank(), results);
        // SAFETY: in the call's buffer, which this rank has if it receives.
        let result = if self.receives { unsafe { self.call.recv.add(at) } } else { cells };
        let from = ring.cell_sources(parts, slice.start, own);
        // SAFETY: every rank has published the chunk and keeps it until this rank has consumed it;
        // nobody reads the result's cells until they are published, and they are no source; `recv` is
        // `own` or apart from all sources.
        unsafe { fold(op, self.call.datatype, result, from, slice.len()) };
        if self.receives {
            // SAFETY: allowed before this was called, not yet published; the span was taken for a slice.
            unsafe { ring.put_cells(results, 0, result, slice.len()) };
        }
    }

    /// Copies the others' results of the oldest chunk as far as they are published.
    fn gather(&mut self, ring: &mut Ring) -> Result<bool> {
        if self.done == self.reduced {
            return Ok(false);
        }
        let (_, results) = self.spans(ring, self.done);
        while let Some(&peer) = ring.peers().get(self.next_result) {
            if !ring.published(peer, results)? {
                return Ok(false);
            }
            let slice = self.chunks.slice(self.done, peer, ring.size());
            // SAFETY: in the call's buffer, which this rank has because it receives.
            let to = unsafe { self.call.recv.add(self.chunks.offset(self.done) + slice.start) };
            // SAFETY: published, and kept until this rank has consumed the span.
            unsafe { copy(to, ring.cells(peer, results), slice.len()) };
            self.next_result += 1;
        }
        ring.consumed(results.end());
        self.done += 1;
        self.next_result = 0;
        Ok(true)
    }
}

impl Progress for Reduce<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        loop {
            let put = self.put(ring)?;
            let reduced = self.reduce(ring)?;
            let gathered = self.gather(ring)?;
            if self.done == self.chunks.number() {
                ring.leave();
                return Ok(Poll::Ready(()));
            }
            if !put && !reduced && !gathered {
                return Ok(Poll::Pending);
            }
        }
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        let gathering = self.done < self.reduced;
        let next = if gathering { self.next_result } else { self.next_part };
        ring.peers().get(next).copied().filter(|_| gathering || self.reduced < self.put)
    }
}

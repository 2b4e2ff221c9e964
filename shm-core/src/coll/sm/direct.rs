//! Reduce and allreduce of medium vectors: each rank copies its chunk into its cells; the root, or
//! every rank, reduces straight from all ranks' cells. One step a chunk, pipelined.
#![allow(unsafe_code)] // copies between user buffers and shared memory

use crate::coll::apart::{Apart, is_users};
use crate::coll::choice::Chunks;
use crate::coll::choice::Form;
use crate::coll::fold::fold;
use crate::coll::operands::Operands;
use crate::coll::window::Window;
use crate::coll::{Poll, Progress, wait_for};
use crate::error::Result;
use crate::ring::{Ring, Span};
use crate::sync::Wakers;
use reduce_kernels::{Call, Collective};

/// Chunks that a rank may be ahead of its own reading.
const AHEAD: usize = 16;

/// True if vectors can be read where they are: in place, a rank's result would overwrite what its peers have yet
/// to read, unless only the root has one.
pub(crate) fn may_lend(collective: Collective, in_place: bool) -> bool {
    collective == Collective::Reduce || !in_place
}

#[derive(Debug)]
pub(crate) struct Reduce<'a> {
    call: Call<'a>,
    chunks: Chunks,
    steps: Window<Span, AHEAD>,
    /// Chunks that this rank has published.
    put: usize,
    /// Chunks that this rank has reduced, or need not reduce.
    done: usize,
    /// Index of the peer whose part of chunk `done` is looked for next.
    next: usize,
    receives: bool,
    operands: Operands,
    /// Index of the peer that is seen next to have read this rank's vector, where it is lent.
    seen: usize,
}

impl<'a> Reduce<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let chunks = Chunks::new(ring, &call, Form::Direct);
        let receives = call.receives(ring.rank());
        let lends =
            !(call.collective == Collective::Reduce && receives) && may_lend(call.collective, call.is_in_place());
        let operands = Operands::new(ring, &call, lends);
        Self { call, chunks, steps: Window::new(), put: 0, done: 0, next: 0, receives, operands, seen: 0 }
    }

    fn span(&mut self, ring: &mut Ring, chunk: usize) -> Span {
        self.steps.of(chunk, || ring.take(self.chunks.bytes(chunk)))
    }

    /// Publishes the next chunk, if the ring has room; true if it did.
    fn put(&mut self, ring: &mut Ring) -> Result<bool> {
        if self.put == self.chunks.number() || self.put == self.done + AHEAD {
            return Ok(false);
        }
        let span = self.span(ring, self.put);
        let is_root = self.call.collective == Collective::Reduce && self.receives;
        if !is_root {
            if !ring.may_write(span)? {
                return Ok(false);
            }
            if !self.operands.own_are_reached() {
                // In the call's buffer, whose length the chunks were cut from.
                let from = self.call.send.wrapping_add(self.chunks.offset(self.put));
                // SAFETY: just allowed, not yet published; the span was taken for the chunk.
                unsafe { ring.put_cells(span, 0, from, self.chunks.bytes(self.put)) };
            }
            if self.put == 0 {
                self.operands.tell(ring, &self.call, span);
            }
            ring.publish(span);
            if self.put + 1 == self.chunks.number() && !self.operands.own_are_reached() {
                ring.expect_another(self.call.bytes(), self.chunks.bytes(0), !self.receives);
            }
        }
        self.put += 1;
        if !self.receives {
            ring.consumed(span.end());
            self.done = self.put;
        }
        Ok(true)
    }

    /// True once nobody reads this rank's vector where it is any more.
    fn is_given_back(&mut self, ring: &Ring) -> bool {
        if !self.operands.own_are_reached() {
            return true;
        }
        let end = self.steps.latest().end();
        if self.receives { ring.consumed_by_all(end, &mut self.seen) } else { ring.consumed_by(self.call.root, end) }
    }

    /// Reduces the oldest chunk, if all ranks have published it; true if it did.
    fn reduce(&mut self, ring: &mut Ring) -> Result<bool> {
        if self.done == self.put {
            return Ok(false);
        }
        let span = self.span(ring, self.done);
        if !ring.published_by_all(span, &mut self.next)? {
            return Ok(false);
        }
        if self.done == 0 {
            self.operands.learn_all(ring, span)?;
        }
        if let Some(op) = &self.call.op {
            let (offset, bytes) = (self.chunks.offset(self.done), self.chunks.bytes(self.done));
            // In the call's buffer.
            let own = self.call.send.wrapping_add(offset);
            // In the call's buffer, which this rank has because it receives.
            let to = self.call.recv.wrapping_add(offset);
            let at_work = self.operands.reach_out(ring)?;
            let from = self.operands.sources(ring, span, 0, own, offset, bytes)?;
            if at_work.is_some() && is_users(&self.call) {
                // SAFETY: every rank has published the chunk and keeps it until this rank has consumed it.
                let apart = unsafe { Apart::of(&self.operands, from, bytes) };
                drop(at_work);
                // SAFETY: these are in this rank's memory, or in cells, which stay; `to` as below.
                unsafe { fold(op, self.call.datatype, to, apart.sources(), bytes) };
            } else {
                // SAFETY: every rank has published the chunk and keeps it until this rank has consumed it;
                // `to` is either `own` or apart from all sources.
                unsafe { fold(op, self.call.datatype, to, from, bytes) };
                drop(at_work);
            }
        }
        if self.done == 0 {
            ring.all_have_reached(span.step());
        }
        ring.consumed(span.end());
        self.done += 1;
        self.next = 0;
        Ok(true)
    }
}

impl Progress for Reduce<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        loop {
            let put = self.put(ring)?;
            let reduced = self.reduce(ring)?;
            if self.done == self.chunks.number() {
                wait_for!(self.is_given_back(ring));
                ring.leave();
                return Ok(Poll::Ready(()));
            }
            if !put && !reduced {
                return Ok(Poll::Pending);
            }
        }
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        if self.done < self.chunks.number() {
            return ring.peers().get(self.next).copied().filter(|_| self.done < self.put);
        }
        if self.receives { ring.peers().get(self.seen).copied() } else { Some(self.call.root) }
    }

    fn wakers(&self, ring: &Ring) -> Wakers {
        // Whoever has chunks left to publish waits for room, too, unless the root of a reduce, which publishes nothing, has gone ahead.
        let puts = self.put < self.chunks.number() && self.put < self.done + AHEAD;
        if puts { Wakers::ALL } else { ring.waker(self.awaits(ring)) }
    }
}

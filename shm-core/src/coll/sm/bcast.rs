//! Bcast: flat beside the flag, in an annex or in one cell, or pipelined through the root's cells. The root
//! waits for nobody until its ring is full.
#![allow(unsafe_code)] // copies between user buffers and shared memory

use std::borrow::Borrow;

use crate::coll::choice::Chunks;
use crate::coll::choice::Form;
use crate::coll::operands::Operands;
use crate::coll::{PIECE_BYTES, copy_of};
use crate::coll::{Poll, Progress, wait_for};
use crate::copy::Access;
use crate::copy::cico::{copy, copy_from_shared};
use crate::error::Result;
use crate::ring::{Ring, Span};
use crate::sync::Wakers;
use reduce_kernels::Call;

/// One step: the root's flag carries the payload or announces where it is, all others read it.
#[derive(Debug)]
pub(crate) struct Flat<C> {
    call: C,
    span: Span,
    /// The root was looked for in vain.
    waited: bool,
}

impl<'a, C: Borrow<Call<'a>>> Flat<C> {
    #[inline]
    pub(crate) fn new(ring: &mut Ring, given: C) -> Self {
        let call = given.borrow();
        let span = ring.take_payload(call.bytes());
        if ring.rank() != call.root {
            ring.record();
        }
        Self { call: given, span, waited: false }
    }
}

impl<'a, C: Borrow<Call<'a>>> Progress for Flat<C> {
    #[inline(always)] // its outcome is a long type: polled in place, it stays in registers
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        let call = self.call.borrow();
        let bytes = call.bytes();
        if ring.rank() == call.root {
            wait_for!(ring.may_write(self.span)?);
            // SAFETY: just allowed, not yet published; the span was taken for `bytes`, which the call's
            // buffer holds.
            unsafe { ring.put_payload(self.span, call.send, bytes) };
            ring.publish_and_record(self.span);
            ring.expect_another(bytes, bytes, false);
        } else {
            if !ring.look_for_payload(call.root, self.span, bytes)? {
                self.waited = true;
                return Ok(Poll::Pending);
            }
            if !self.waited {
                ring.prefetch_ahead(call.root, self.span);
            }
            let from = ring.payload(call.root, self.span, bytes);
            // SAFETY: the root has published `bytes` there (same signature), and does not write again
            // before `leave`; the call's buffer is valid for writing them.
            unsafe { copy(call.recv, from, bytes) };
        }
        ring.leave();
        Ok(Poll::Ready(()))
    }

    /// The root waits for room, which anybody may make.
    fn awaits(&self, ring: &Ring) -> Option<usize> {
        Some(self.call.borrow().root).filter(|&root| root != ring.rank())
    }

    fn wakers(&self, ring: &Ring) -> Wakers {
        ring.waker(self.awaits(ring))
    }
}

/// A step for each chunk: the root copies in while the others copy out what came before. If they can reach
/// the root's buffer, the first step is the only one.
#[derive(Debug)]
pub(crate) struct Pipelined<'a> {
    call: Call<'a>,
    chunks: Chunks,
    operands: Operands,
    next: usize,
    span: Option<Span>,
    /// The root's buffer can be reached, and has been copied up to here.
    copied_bytes: usize,
    /// Index of the peer that the root sees next to have copied.
    seen: usize,
}

impl<'a> Pipelined<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let chunks = Chunks::new(ring, &call, Form::Direct);
        let operands = Operands::new(ring, &call, ring.rank() == call.root);
        Self { call, chunks, operands, next: 0, span: None, copied_bytes: 0, seen: 0 }
    }

    /// The root's part where the others copy from its buffer.
    fn lend(&mut self, ring: &mut Ring) -> Result<Poll> {
        let span = self.first_span(ring);
        if self.next == 0 {
            wait_for!(ring.may_write(span)?);
            self.operands.tell(ring, &self.call, span);
            ring.publish(span);
            self.next = 1;
        }
        wait_for!(ring.consumed_by_all(span.end(), &mut self.seen));
        ring.all_have_reached(span.end());
        ring.leave();
        Ok(Poll::Ready(()))
    }

    /// Another rank's part in that: a piece at a time, so that it can look after the job in between.
    fn borrow(&mut self, ring: &mut Ring, from: Access, span: Span) -> Result<Poll> {
        let bytes = (self.call.bytes() - self.copied_bytes).min(PIECE_BYTES);
        // In the call's buffer.
        let to = self.call.recv.wrapping_add(self.copied_bytes);
        let copy_out = copy_of(ring, self.call.bytes(), copy_from_shared);
        let at_work = ring.reach_out()?;
        match from {
            // SAFETY: the root has as many bytes there (same signature) and keeps them until this rank has
            // consumed the step; buffers of two ranks do not overlap.
            Access::Mapped(from) => unsafe { copy_out(to, from.wrapping_add(self.copied_bytes), bytes) },
            // SAFETY: as above.
            Access::Kernel(from) => unsafe { ring.job().reach().read(from, self.copied_bytes, to, bytes) }?,
        }
        drop(at_work);
        self.copied_bytes += bytes;
        if self.copied_bytes < self.call.bytes() {
            ring.work_is_left();
            return Ok(Poll::Pending);
        }
        ring.consumed(span.end());
        ring.leave();
        Ok(Poll::Ready(()))
    }

    fn first_span(&mut self, ring: &mut Ring) -> Span {
        *self.span.get_or_insert_with(|| ring.take(self.chunks.bytes(0)))
    }
}

impl Progress for Pipelined<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        if self.operands.own_are_reached() {
            return self.lend(ring);
        }
        if let (Some(from), Some(span)) = (self.operands.send(self.call.root), self.span) {
            return self.borrow(ring, from, span);
        }
        while self.next < self.chunks.number() {
            let bytes = self.chunks.bytes(self.next);
            let offset = self.chunks.offset(self.next);
            let span = *self.span.get_or_insert_with(|| ring.take(bytes));
            if ring.rank() == self.call.root {
                wait_for!(ring.may_write(span)?);
                // In the call's buffer, whose length the chunks were cut from.
                let from = self.call.send.wrapping_add(offset);
                // SAFETY: just allowed, not yet published; the span was taken for `bytes`.
                unsafe { ring.put_cells(span, 0, from, bytes) };
                if self.next == 0 {
                    self.operands.tell(ring, &self.call, span);
                }
                ring.publish(span);
                if self.next + 1 == self.chunks.number() {
                    ring.expect_another(self.call.bytes(), self.chunks.bytes(0), false);
                }
            } else {
                wait_for!(ring.published(self.call.root, span)?);
                if self.next == 0 {
                    self.operands.learn(ring, self.call.root, span)?;
                    if let Some(from) = self.operands.send(self.call.root) {
                        return self.borrow(ring, from, span);
                    }
                }
                // In the call's buffer, as above.
                let to = self.call.recv.wrapping_add(offset);
                let past_caches = ring.terms().is_beyond_caches(self.call.bytes());
                // SAFETY: published, and kept until this rank has consumed the span.
                unsafe { ring.take_cells(to, self.call.root, span, bytes, past_caches) };
            }
            // The root as well: its peers' next payloads come to the same cells.
            ring.consumed(span.end());
            self.span = None;
            self.next += 1;
        }
        ring.leave();
        Ok(Poll::Ready(()))
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        if ring.rank() != self.call.root {
            return Some(self.call.root);
        }
        ring.peers().get(self.seen).copied().filter(|_| self.operands.own_are_reached())
    }

    /// The root waits for room, which anybody may make, and who copies from its buffer for nobody.
    fn wakers(&self, ring: &Ring) -> Wakers {
        let root = self.call.root;
        let awaits_root = root != ring.rank() && self.operands.send(root).is_none();
        ring.waker(awaits_root.then_some(root))
    }
}

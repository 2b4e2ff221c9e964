//! Bcast: flat beside the flag or in one cell, or pipelined through the root's cells. The root waits for nobody
//! until its ring is full.
#![allow(unsafe_code)] // copies between user buffers and shared memory

use crate::call::Call;
use crate::coll::sm::chunks::Chunks;
use crate::coll::{Poll, Progress, wait_for};
use crate::copy::cico::copy;
use crate::error::Result;
use crate::ring::{Ring, Span};

/// One step: the root's flag carries the payload or announces its cell, all others read it.
#[derive(Debug)]
pub(crate) struct Flat<'a> {
    call: Call<'a>,
    span: Span,
    /// The root was looked for in vain.
    waited: bool,
}

impl<'a> Flat<'a> {
    #[inline]
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let span = ring.take_payload(call.bytes());
        if ring.rank() != call.root {
            ring.record();
        }
        Self { call, span, waited: false }
    }
}

impl Progress for Flat<'_> {
    #[inline]
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        let bytes = self.call.bytes();
        if ring.rank() == self.call.root {
            wait_for!(ring.may_write(self.span)?);
            // SAFETY: just allowed, not yet published; the span was taken for `bytes`, which the call's
            // buffer holds.
            unsafe { ring.put_payload(self.span, self.call.send, bytes) };
            ring.publish_and_record(self.span);
        } else {
            if !ring.published(self.call.root, self.span)? {
                self.waited = true;
                return Ok(Poll::Pending);
            }
            if !self.waited {
                ring.prefetch_ahead(self.call.root, self.span);
            }
            let from = ring.payload(self.call.root, self.span, bytes);
            // SAFETY: the root has published `bytes` there (same signature), and does not write again
            // before `leave`; the call's buffer is valid for writing them.
            unsafe { copy(self.call.recv, from, bytes) };
        }
        ring.leave();
        Ok(Poll::Ready(()))
    }

    fn awaits(&self, _: &Ring) -> Option<usize> {
        Some(self.call.root)
    }
}

/// A step for each chunk: the root copies in while the others copy out what came before.
#[derive(Debug)]
pub(crate) struct Pipelined<'a> {
    call: Call<'a>,
    chunks: Chunks,
    next: usize,
    span: Option<Span>,
}

impl<'a> Pipelined<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let chunks = Chunks::new(ring, &call, 2);
        Self { call, chunks, next: 0, span: None }
    }
}

impl Progress for Pipelined<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        while self.next < self.chunks.number() {
            let bytes = self.chunks.bytes(self.next);
            let offset = self.chunks.offset(self.next);
            let span = *self.span.get_or_insert_with(|| ring.take(bytes));
            if ring.rank() == self.call.root {
                wait_for!(ring.may_write(span)?);
                // SAFETY: in the call's buffer, whose length the chunks were cut from.
                let from = unsafe { self.call.send.add(offset) };
                // SAFETY: just allowed, not yet published; the span was taken for `bytes`.
                unsafe { ring.put_cells(span, 0, from, bytes) };
                ring.publish(span);
            } else {
                wait_for!(ring.published(self.call.root, span)?);
                // SAFETY: in the call's buffer, as above.
                let to = unsafe { self.call.recv.add(offset) };
                // SAFETY: published, and kept until this rank has consumed the span.
                unsafe { copy(to, ring.cells(self.call.root, span), bytes) };
                ring.consumed(span.end());
            }
            self.span = None;
            self.next += 1;
        }
        ring.leave();
        Ok(Poll::Ready(()))
    }

    fn awaits(&self, _: &Ring) -> Option<usize> {
        Some(self.call.root)
    }
}

//! Bcast of long messages down a tree that follows the machine: each leader copies a chunk once from the one that
//! it hangs on, and hands it on to those that hang on it, who are near. What lies between sockets or caches is
//! crossed once for each of these, not once for each rank. One step a chunk, pipelined.
#![allow(unsafe_code)] // copies between user buffers and shared memory

use std::rc::Rc;

use crate::coll::choice::Chunks;
use crate::coll::choice::Form;
use crate::coll::copy_of;
use crate::coll::operands::Operands;
use crate::coll::sm::family::Family;
use crate::coll::{Poll, Progress, wait_for};
use crate::copy::Access;
use crate::copy::cico::copy;
use crate::error::Result;
use crate::ring::{Ring, Span};
use reduce_kernels::Call;

#[derive(Debug)]
pub(crate) struct Bcast<'a> {
    call: Call<'a>,
    family: Rc<Family>,
    chunks: Chunks,
    operands: Operands,
    /// The chunk at hand, its step once that is taken, and whether this rank has it.
    next: usize,
    span: Option<Span>,
    has_it: bool,
    /// The step behind the last one taken.
    end: u32,
    /// Children that are seen to have copied everything.
    seen: usize,
}

impl<'a> Bcast<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let family = ring.family(call.root);
        let chunks = Chunks::new(ring, &call, Form::Tree);
        let operands = Operands::new(ring, &call, !family.children.is_empty());
        Self { call, family, chunks, operands, next: 0, span: None, has_it: false, end: 0, seen: 0 }
    }

    /// Copies the chunk at hand from where `parent` has it.
    fn copy(&self, ring: &Ring, parent: usize, span: Span) -> Result<()> {
        let (at, bytes) = (self.chunks.offset(self.next), self.chunks.bytes(self.next));
        // In the call's buffer, whose length the chunks were cut from.
        let to = self.call.recv.wrapping_add(at);
        let is_read_again = !self.family.children.is_empty();
        let copy_out = if is_read_again { copy } else { copy_of(ring, self.call.bytes(), copy) };
        let from = self.operands.send(parent);
        let _at_work = from.is_some().then(|| ring.reach_out()).transpose()?;
        match from {
            // SAFETY: published, and kept until this rank has marked the step.
            None => unsafe { copy_out(to, ring.cells(parent, span), bytes) },
            // SAFETY: the parent has this chunk in its buffer, which is as long (same signature), and keeps it
            // there until this rank has marked the step; buffers of two ranks do not overlap.
            Some(Access::Mapped(from)) => unsafe { copy_out(to, from.wrapping_add(at), bytes) },
            // SAFETY: the same.
            Some(Access::Kernel(from)) => unsafe { ring.job().reach().read(from, at, to, bytes) }?,
        }
        Ok(())
    }

    /// Hands the chunk at hand on to the children.
    fn hand_on(&mut self, ring: &mut Ring, span: Span) {
        if !self.operands.own_are_reached() {
            // In the call's buffer, which at the root is the one to send as well.
            let from = self.call.recv.wrapping_add(self.chunks.offset(self.next));
            // SAFETY: allowed and not yet published; the span was taken for the chunk.
            unsafe { ring.put_cells(span, 0, from, self.chunks.bytes(self.next)) };
        }
        if self.next == 0 {
            self.operands.tell(ring, &self.call, span);
        }
        ring.publish(span);
    }
}

impl Progress for Bcast<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        while self.next < self.chunks.number() {
            let span = *self.span.get_or_insert_with(|| ring.take(self.chunks.bytes(self.next)));
            if let (Some(parent), false) = (self.family.parent, self.has_it) {
                wait_for!(ring.published(parent, span)?);
                if self.next == 0 {
                    self.operands.learn(ring, parent, span)?;
                }
                self.copy(ring, parent, span)?;
                self.has_it = true;
            }
            if !self.family.children.is_empty() {
                wait_for!(ring.may_write(span)?);
                self.hand_on(ring, span);
            }
            // The root as well: who hands on may not write again before all have marked.
            ring.consumed(span.end());
            (self.end, self.span, self.has_it) = (span.end(), None, false);
            self.next += 1;
        }
        while let (true, Some(&child)) = (self.operands.own_are_reached(), self.family.children.get(self.seen)) {
            wait_for!(ring.consumed_by(child, self.end));
            self.seen += 1;
        }
        ring.leave();
        Ok(Poll::Ready(()))
    }

    fn awaits(&self, _: &Ring) -> Option<usize> {
        if self.next < self.chunks.number() {
            self.family.parent.filter(|_| !self.has_it)
        } else {
            self.family.children.get(self.seen).copied()
        }
    }
}

//! Small bcast, reduce and allreduce along trees, for many ranks with a core each: the flags of a
//! few neighbours a level instead of everybody's.
#![allow(unsafe_code)] // copies between user buffers and shared memory

use crate::call::{Call, Collective};
use crate::coll::sm::fold::fold;
use crate::coll::{Poll, Progress, wait_for};
use crate::error::Result;
use crate::ring::{Ring, Span};
use crate::segment::layout::INLINE_WORDS;
use crate::tree::{children, parent};

/// Flags that one rank reads at a level.
const RADIX: usize = 8;

/// One step: each rank hands on what it has from its parent.
#[derive(Debug)]
pub(crate) struct Bcast<'a> {
    call: Call<'a>,
    span: Span,
    awaits: Option<usize>,
    received: bool,
}

impl<'a> Bcast<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let span = ring.take(0);
        Self::down(ring, call, span)
    }

    fn down(ring: &Ring, call: Call<'a>, span: Span) -> Self {
        let (size, root) = (ring.size(), call.root);
        let up = parent((ring.rank() + size - root) % size, RADIX);
        Self { awaits: up.map(|up| (up + root) % size), received: up.is_none(), call, span }
    }

    /// Receives and hands on, without leaving the operation.
    fn advance(&mut self, ring: &mut Ring) -> Result<Poll> {
        let (size, bytes) = (ring.size(), self.call.bytes());
        if let (false, Some(up)) = (self.received, self.awaits) {
            wait_for!(ring.published(up, self.span)?);
            // SAFETY: the parent has published `bytes` and keeps them until this rank leaves; the
            // call's buffer is valid for writing them.
            unsafe { self.call.recv.copy_from_nonoverlapping(ring.inline(up, self.span), bytes) };
            self.received = true;
        }
        let relative = (ring.rank() + size - self.call.root) % size;
        if children(relative, size, RADIX).next().is_some() {
            wait_for!(ring.may_write(self.span)?);
            // SAFETY: just allowed, not yet published; at most INLINE_BYTES by the choice of the form.
            unsafe { ring.put_inline(self.span, self.call.recv, bytes) };
            ring.publish(self.span);
        }
        Ok(Poll::Ready(()))
    }
}

impl Progress for Bcast<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        let poll = self.advance(ring)?;
        if poll.is_ready() {
            ring.leave();
        }
        Ok(poll)
    }

    fn awaits(&self, _: &Ring) -> Option<usize> {
        self.awaits
    }
}

/// Up the tree to rank 0, then to the root (one more flag), or down the tree to all.
#[derive(Debug)]
pub(crate) struct Reduce<'a> {
    call: Call<'a>,
    up: Span,
    down: Span,
    /// Children that have been seen.
    seen: usize,
    stage: Stage<'a>,
    awaits: Option<usize>,
}

#[derive(Debug)]
enum Stage<'a> {
    Up,
    ToRoot,
    Down(Bcast<'a>),
}

impl<'a> Reduce<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let (up, down) = (ring.take(0), ring.take(0));
        Self { call, up, down, seen: 0, stage: Stage::Up, awaits: None }
    }

    /// Waits for the children, reduces, publishes the partial result.
    fn go_up(&mut self, ring: &mut Ring) -> Result<Poll> {
        let (rank, size) = (ring.rank(), ring.size());
        for child in children(rank, size, RADIX).skip(self.seen) {
            self.awaits = Some(child);
            wait_for!(ring.published(child, self.up)?);
            self.seen += 1;
        }
        self.awaits = None;
        wait_for!(ring.may_write(self.up)?);
        let bytes = self.call.bytes();
        let mut partial = [0u64; INLINE_WORDS];
        let partial = partial.as_mut_ptr().cast::<u8>();
        if let Some(op) = &self.call.op {
            let from = ring.inline_sources(self.up, self.call.send, children(rank, size, RADIX));
            // SAFETY: the children have published `bytes` each and keep them until this rank leaves;
            // `partial` is this function's own and has room, by the choice of the form.
            unsafe { fold(op, self.call.datatype, partial, from, bytes) };
        }
        // SAFETY: just allowed, not yet published; `partial` holds `bytes`.
        unsafe { ring.put_inline(self.up, partial, bytes) };
        ring.publish(self.up);
        let receives_here = rank == 0 && (self.call.collective == Collective::Allreduce || self.call.root == 0);
        if receives_here {
            // SAFETY: this rank's result buffer, valid for `bytes`.
            unsafe { self.call.recv.copy_from_nonoverlapping(partial, bytes) };
        }
        Ok(Poll::Ready(()))
    }
}

impl Progress for Reduce<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        loop {
            match &mut self.stage {
                Stage::Up => {
                    wait_for!(self.go_up(ring)?.is_ready());
                    self.stage = if self.call.collective == Collective::Allreduce {
                        let mut call = self.call.clone();
                        call.root = 0;
                        Stage::Down(Bcast::down(ring, call, self.down))
                    } else {
                        Stage::ToRoot
                    };
                }
                Stage::ToRoot => {
                    if ring.rank() == self.call.root && ring.rank() != 0 {
                        self.awaits = Some(0);
                        wait_for!(ring.published(0, self.up)?);
                        let from = ring.inline(0, self.up);
                        // SAFETY: rank 0 has published the result and keeps it until this rank leaves.
                        unsafe { self.call.recv.copy_from_nonoverlapping(from, self.call.bytes()) };
                    }
                    ring.leave();
                    return Ok(Poll::Ready(()));
                }
                Stage::Down(bcast) => {
                    self.awaits = bcast.awaits;
                    wait_for!(bcast.advance(ring)?.is_ready());
                    ring.all_have_reached(self.up.step);
                    ring.leave();
                    return Ok(Poll::Ready(()));
                }
            }
        }
    }

    fn awaits(&self, _: &Ring) -> Option<usize> {
        self.awaits
    }
}

//! Barrier and small bcast, reduce and allreduce along trees, for many ranks with a core each: the flags of a
//! few neighbours a level instead of everybody's. Trees follow the machine's levels where it has several.
#![allow(unsafe_code)] // copies between user buffers and shared memory

use std::rc::Rc;

use crate::coll::fold::fold;
use crate::coll::sm::family::Family;
use crate::coll::{Poll, Progress, wait_for};
use crate::error::Result;
use crate::ring::{Ring, Span};
use crate::segment::layout::INLINE_WORDS;
use reduce_kernels::{Call, Collective, Folding};

/// One step: each rank hands on what it has from its parent.
#[derive(Debug)]
pub(crate) struct Bcast<'a> {
    call: Call<'a>,
    span: Span,
    family: Rc<Family>,
    received: bool,
}

impl<'a> Bcast<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let (span, family) = (ring.take(0), ring.family(call.root));
        Self::down(family, call, span)
    }

    fn down(family: Rc<Family>, call: Call<'a>, span: Span) -> Self {
        Self { received: family.parent.is_none(), family, call, span }
    }

    /// Receives and hands on, without leaving the operation.
    fn advance(&mut self, ring: &mut Ring) -> Result<Poll> {
        let bytes = self.call.bytes();
        if let (false, Some(parent)) = (self.received, self.family.parent) {
            wait_for!(ring.published(parent, self.span)?);
            // SAFETY: the parent has published `bytes` and keeps them until this rank leaves; the
            // call's buffer is valid for writing them.
            unsafe { self.call.recv.copy_from_nonoverlapping(ring.inline(parent, self.span), bytes) };
            self.received = true;
        }
        if !self.family.children.is_empty() {
            wait_for!(ring.may_write(self.span)?);
            // SAFETY: just allowed, not yet published; at most INLINE_BYTES by the choice of the form.
            unsafe { ring.put_inline(self.span, self.call.recv, bytes) };
            ring.publish(self.span);
        }
        Ok(Poll::Ready(()))
    }

    fn awaited(&self) -> Option<usize> {
        self.family.parent.filter(|_| !self.received)
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
        self.awaited()
    }
}

/// From whom the tree of an operation hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hangs {
    /// From this rank.
    From(usize),
    /// From rank 0, and it keeps rank order.
    InOrder,
    /// From nobody: each rank hears of all by dissemination.
    FromNobody,
}

impl Hangs {
    /// What hangs from rank 0 on a machine without `levels` keeps rank order, too.
    pub(crate) fn of(collective: Collective, root: usize, levels: bool, folding: Folding) -> Self {
        match collective {
            Collective::Barrier if !levels => Self::FromNobody,
            Collective::Bcast => Self::From(root),
            _ if !levels => Self::From(0),
            _ if folding != Folding::Free => Self::InOrder,
            _ => Self::From(root),
        }
    }
}

/// Up the tree to its top; then to the root (one more flag), if that is another, or down the tree to all.
#[derive(Debug)]
pub(crate) struct Reduce<'a> {
    call: Call<'a>,
    family: Rc<Family>,
    up: Span,
    down: Span,
    /// Children that have been seen.
    seen: usize,
    stage: Stage<'a>,
}

#[derive(Debug)]
enum Stage<'a> {
    Up,
    ToRoot,
    Down(Bcast<'a>),
}

impl<'a> Reduce<'a> {
    /// [`Hangs`] tells whose tree it is.
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let (up, down) = (ring.take(0), ring.take(0));
        let family = match Hangs::of(call.collective, call.root, ring.follows_levels(), call.folding()) {
            Hangs::From(top) => ring.family(top),
            Hangs::InOrder | Hangs::FromNobody => ring.family_in_order(),
        };
        Self { call, family, up, down, seen: 0, stage: Stage::Up }
    }

    fn gives_to_all(&self) -> bool {
        self.call.collective != Collective::Reduce
    }

    /// Waits for the children, reduces, publishes the partial result.
    fn go_up(&mut self, ring: &mut Ring) -> Result<Poll> {
        while let Some(&child) = self.family.children.get(self.seen) {
            wait_for!(ring.published(child, self.up)?);
            self.seen += 1;
        }
        wait_for!(ring.may_write(self.up)?);
        let bytes = self.call.bytes();
        let mut partial = [0u64; INLINE_WORDS];
        let partial = partial.as_mut_ptr().cast::<u8>();
        if let Some(op) = &self.call.op {
            let from = ring.inline_sources(self.up, self.call.send, self.family.children.iter().copied());
            // SAFETY: the children have published `bytes` each and keep them until this rank leaves;
            // `partial` is this function's own and has room, by the choice of the form.
            unsafe { fold(op, self.call.datatype, partial, from, bytes) };
        }
        // SAFETY: just allowed, not yet published; `partial` holds `bytes`.
        unsafe { ring.put_inline(self.up, partial, bytes) };
        ring.publish(self.up);
        let is_top = self.family.parent.is_none();
        if is_top && (self.gives_to_all() || self.call.root == ring.rank()) {
            // SAFETY: this rank's result buffer, valid for `bytes`.
            unsafe { self.call.recv.copy_from_nonoverlapping(partial, bytes) };
        }
        Ok(Poll::Ready(()))
    }
}

impl Reduce<'_> {
    /// Where the root finds the result, unless it is the top itself; only ever rank 0.
    fn top_that_is_not_this(&self, ring: &Ring) -> Option<usize> {
        (ring.rank() == self.call.root && self.family.parent.is_some()).then_some(0)
    }
}

impl Progress for Reduce<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        loop {
            match &mut self.stage {
                Stage::Up => {
                    wait_for!(self.go_up(ring)?.is_ready());
                    self.stage = if self.gives_to_all() {
                        // SAFETY: going up is over, and what is left of the call is carried out as a bcast.
                        let call = unsafe { self.call.again() };
                        Stage::Down(Bcast::down(Rc::clone(&self.family), call, self.down))
                    } else {
                        Stage::ToRoot
                    };
                }
                Stage::ToRoot => {
                    if let Some(top) = self.top_that_is_not_this(ring) {
                        wait_for!(ring.published(top, self.up)?);
                        let from = ring.inline(top, self.up);
                        // SAFETY: the top has published the result and keeps it until this rank leaves.
                        unsafe { self.call.recv.copy_from_nonoverlapping(from, self.call.bytes()) };
                    }
                    ring.leave();
                    return Ok(Poll::Ready(()));
                }
                Stage::Down(bcast) => {
                    wait_for!(bcast.advance(ring)?.is_ready());
                    ring.all_have_reached(self.up.step());
                    ring.leave();
                    return Ok(Poll::Ready(()));
                }
            }
        }
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        match &self.stage {
            Stage::Up => self.family.children.get(self.seen).copied(),
            Stage::ToRoot => self.top_that_is_not_this(ring),
            Stage::Down(bcast) => bcast.awaited(),
        }
    }
}

//! Reduce and allreduce of long vectors by sums that are handed on, chunk by chunk, one step each, to a root, which adds its part
//! into its result or, for allreduce, into its cells, from which all copy ([`HandOn`](super::HandOn) has the ways). A few
//! chunks have cells, in turns, for the whole operation, so that the caches hold them.
//!
//! Where ranks share cores those of a core hand a sum on, which stays in that core's caches: the first copies its chunk into
//! its cells, each of the others adds its own there, and the root adds up those of all cores. So between cores goes one vector a core,
//! where in slices it is half of all vectors. Of very many ranks a sum that is handed on waits for a turn at each of them; there
//! each has its chunks in cells of its own, and the root alone adds them up.
//!
//! Ranks with a core each hand sums on along a tree, each in its own cells: it reads those of two others in long runs, and writes to cells that
//! its cache holds, where in slices it reads a little of all others, and writes to far more cells.
//!
//! Sums are added up in another order than in the other forms, so it is for operators that commute, and floating-point
//! results differ in their last bits.
#![allow(unsafe_code)] // reduces to and from shared memory

use crate::coll::choice::Chunks;
use crate::coll::choice::Form;
use crate::coll::copy_of;
use crate::coll::fold::fold;
use crate::coll::operands::{are_mapped, can_be_reached};
use crate::coll::sm::hand_on::Link;
use crate::coll::sm::slice;
use crate::coll::{Poll, Progress, wait_for};
use crate::copy::cico::copy;
use crate::error::Result;
use crate::ring::{Ring, Span};
use crate::segment::layout::SLOTS;
use crate::sync::Wakers;
use reduce_kernels::{Call, Collective};

/// Chunks that have cells at a time.
pub(crate) const WINDOW: usize = 8;
const _: () = assert!(WINDOW <= SLOTS as usize / 4, "a slot comes again later than a chunk's cells");

/// By sums that are handed on, or in slices if all ranks' vectors are mapped: these are reduced where they are.
#[derive(Debug)]
pub(crate) struct Reduce<'a> {
    call: Call<'a>,
    stage: Stage<'a>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // one is under way at a time
enum Stage<'a> {
    News(News),
    Chain(Chain),
    Slices(slice::Reduce<'a>),
}

impl<'a> Reduce<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let stage =
            if ring.terms().may_map { Stage::News(News::new(ring)) } else { Stage::Chain(Chain::new(ring, &call)) };
        Self { call, stage }
    }
}

impl Progress for Reduce<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        if let Stage::News(news) = &mut self.stage {
            wait_for!(news.exchange(ring, &self.call)?);
            self.stage = if news.all_are_mapped {
                // SAFETY: nothing was made of the call so far, which slices carry out from here on.
                Stage::Slices(slice::Reduce::new(ring, unsafe { self.call.again() }))
            } else {
                Stage::Chain(Chain::new(ring, &self.call))
            };
        }
        match &mut self.stage {
            Stage::News(_) => unreachable!("they are known"),
            Stage::Chain(chain) => chain.poll(ring, &self.call),
            Stage::Slices(slices) => slices.poll(ring),
        }
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        match &self.stage {
            Stage::News(news) => ring.peers().get(news.next).copied(),
            Stage::Chain(chain) => chain.awaits(ring, &self.call),
            Stage::Slices(slices) => slices.awaits(ring),
        }
    }

    fn wakers(&self, ring: &Ring) -> Wakers {
        match &self.stage {
            Stage::News(news) => ring.waker(ring.peers().get(news.next).copied().filter(|_| news.told)),
            Stage::Chain(chain) => chain.wakers(ring, &self.call),
            Stage::Slices(slices) => slices.wakers(ring),
        }
    }
}

/// Whether the ranks' vectors are mapped, which they tell each other in a step of its own. Nothing is lent by that.
#[derive(Debug)]
struct News {
    span: Span,
    told: bool,
    /// Index of the peer whose news are looked for next.
    next: usize,
    /// As far as is known.
    all_are_mapped: bool,
}

impl News {
    fn new(ring: &mut Ring) -> Self {
        Self { span: ring.take(0), told: false, next: 0, all_are_mapped: true }
    }

    /// Tells, and takes what the others have told; true once all have.
    fn exchange(&mut self, ring: &mut Ring, call: &Call<'_>) -> Result<bool> {
        if !self.told {
            if !ring.may_write(self.span)? {
                return Ok(false);
            }
            let is_mapped = u64::from(can_be_reached(ring, call) && are_mapped(ring, call));
            // SAFETY: just allowed, not yet published; a word fits beside a flag.
            unsafe { ring.put_inline(self.span, (&raw const is_mapped).cast(), size_of::<u64>()) };
            ring.publish(self.span);
            (self.told, self.all_are_mapped) = (true, is_mapped != 0);
        }
        if !ring.published_by_all(self.span, &mut self.next)? {
            return Ok(false);
        }
        self.all_are_mapped &= ring.peers().iter().all(|&peer| {
            let mut is_mapped = 0_u64;
            // SAFETY: the peer has published a word there, and writes no more before this rank has marked the step.
            unsafe { copy((&raw mut is_mapped).cast(), ring.inline(peer, self.span), size_of::<u64>()) };
            is_mapped != 0
        });
        ring.all_have_reached(self.span.step());
        ring.consumed(self.span.end());
        Ok(true)
    }
}

#[derive(Debug)]
struct Chain {
    chunks: Chunks,
    link: Link,
    /// Where the sums go.
    root: usize,
    /// The first chunk's step, whose cells all chunks use in turns.
    span: Span,
    /// Chunks that have this rank's part.
    summed: usize,
    /// Index of the sum that is looked for next.
    next: usize,
    /// Chunks of whose results this rank needs no more.
    done: usize,
    /// Index of the peer that the root of an allreduce sees next to have copied a result.
    seen: usize,
    /// Room for a pointer to each of the vectors that this rank adds up.
    from: Vec<*const u8>,
}

impl Chain {
    fn new(ring: &mut Ring, call: &Call<'_>) -> Self {
        let chunks = Chunks::new(ring, call, Form::Chain);
        let root = if call.collective == Collective::Reduce { call.root } else { 0 };
        let window = chunks.number().min(WINDOW) * chunks.stride();
        let span = ring.take_steps(chunks.number(), window);
        let link = ring.link(root);
        let from = Vec::with_capacity(1 + link.sums.len());
        Self { chunks, link, root, span, summed: 0, next: 0, done: 0, seen: 0, from }
    }

    fn is_root(&self, ring: &Ring) -> bool {
        ring.rank() == self.root
    }

    /// Where `chunk` stands in the cells.
    fn within(&self, chunk: usize) -> usize {
        chunk % WINDOW * self.chunks.stride()
    }

    /// True once nobody needs what stood where `chunk` comes to: in this rank's slots, and in the cells that it is the first to
    /// write to.
    fn has_room(&mut self, ring: &mut Ring, call: &Call<'_>, chunk: usize) -> Result<bool> {
        let is_root = self.is_root(ring);
        if is_root && call.collective == Collective::Reduce {
            return Ok(true); // It publishes nothing.
        }
        let span = ring.later(self.span, chunk);
        if !is_root && self.link.reader.is_none() {
            return ring.may_write(span); // Its cells are who was before it's.
        }
        // Then the slots hold chunks of this operation, whose reader has come past them if it has past the cells.
        if chunk < ring.depth() && !ring.is_free(span)? {
            return Ok(false);
        }
        let Some(before) = chunk.checked_sub(WINDOW) else { return Ok(true) };
        let end = ring.later(self.span, before).end();
        let Some(reader) = self.link.reader else {
            let is_free = ring.consumed_by_all(end, &mut self.seen);
            self.seen = if is_free { 0 } else { self.seen };
            return Ok(is_free);
        };
        Ok(ring.consumed_by(reader, end))
    }

    /// This rank's part of the next chunk; true if it was done.
    fn sum(&mut self, ring: &mut Ring, call: &Call<'_>) -> Result<bool> {
        let chunk = self.summed;
        if chunk == self.chunks.number() {
            return Ok(false);
        }
        let span = ring.later(self.span, chunk);
        while let Some(sum) = self.link.sums.get(self.next) {
            if !ring.published(sum.by, span)? {
                return Ok(false);
            }
            self.next += 1;
        }
        if !self.has_room(ring, call, chunk)? {
            return Ok(false);
        }
        self.add(ring, call, chunk);
        let is_root = self.is_root(ring);
        let is_allreduce = call.collective == Collective::Allreduce;
        if !is_root || is_allreduce {
            ring.publish(span);
        }
        (self.summed, self.next) = (chunk + 1, 0);
        if is_root && is_allreduce {
            self.copy_result(ring, call, chunk);
        }
        if is_root || !is_allreduce {
            ring.consumed(span.end());
            self.done = self.summed;
        }
        Ok(true)
    }

    /// Adds this rank's part of `chunk` to the sums before it.
    fn add(&mut self, ring: &mut Ring, call: &Call<'_>, chunk: usize) {
        let (at, bytes, within) = (self.chunks.offset(chunk), self.chunks.bytes(chunk), self.within(chunk));
        // In the call's buffer, whose length the chunks were cut from.
        let own = call.send.wrapping_add(at);
        if self.link.sums.is_empty() {
            // SAFETY: allowed and not yet published; the span has cells for all chunks of a window, of which nobody
            // needs what stood there.
            return unsafe { ring.put_cells(self.span, within, own, bytes) };
        }
        let is_own = self.link.into == ring.rank();
        let to = if self.is_root(ring) && call.collective == Collective::Reduce {
            // In the call's buffer, which the root has.
            call.recv.wrapping_add(at)
        } else if is_own {
            ring.own_cells(self.span, within, bytes)
        } else {
            ring.cells(self.link.into, self.span).wrapping_add(within)
        };
        let cells = |rank| ring.cells(rank, self.span).wrapping_add(within);
        self.from.clear();
        self.from.push(own);
        self.from.extend(self.link.sums.iter().map(|sum| cells(sum.at).cast_const()));
        if let Some(op) = &call.op {
            // SAFETY: the sums are published, and nobody writes to them before this rank has: those who have are behind
            // this chunk, those who follow wait for its flag, and their cells are used again when their last reader has
            // marked the step. `to` is the sum that this rank adds to, or the root's result or cells, which nobody
            // reads before its flag; it may be `own`, and is else apart from all.
            unsafe { fold(op, call.datatype, to, &self.from, bytes) };
        }
    }

    /// Copies the result of the next chunk, if this rank waits for one and it is there; true if it was.
    fn take_result(&mut self, ring: &mut Ring, call: &Call<'_>) -> Result<bool> {
        let span = ring.later(self.span, self.done);
        if self.done == self.summed || !ring.published(self.root, span)? {
            return Ok(false);
        }
        self.copy_result(ring, call, self.done);
        ring.consumed(span.end());
        self.done += 1;
        Ok(true)
    }

    fn copy_result(&self, ring: &Ring, call: &Call<'_>, chunk: usize) {
        // In the call's buffer, which every rank of an allreduce has.
        let to = call.recv.wrapping_add(self.chunks.offset(chunk));
        let from = ring.cells(self.root, self.span).wrapping_add(self.within(chunk));
        let copy_out = copy_of(ring, call.bytes(), copy);
        // SAFETY: the root has published the result, and writes there again when all have marked the step.
        unsafe { copy_out(to, from, self.chunks.bytes(chunk)) };
    }

    fn poll(&mut self, ring: &mut Ring, call: &Call<'_>) -> Result<Poll> {
        while self.done < self.chunks.number() {
            wait_for!(self.sum(ring, call)? || self.take_result(ring, call)?);
        }
        ring.leave();
        Ok(Poll::Ready(()))
    }

    fn awaits(&self, ring: &Ring, call: &Call<'_>) -> Option<usize> {
        if self.summed == self.chunks.number() {
            return Some(self.root);
        }
        match self.link.sums.get(self.next) {
            Some(sum) => Some(sum.by),
            None if self.is_root(ring) => {
                ring.peers().get(self.seen).copied().filter(|_| call.collective == Collective::Allreduce)
            }
            None => self.link.reader,
        }
    }

    fn wakers(&self, ring: &Ring, call: &Call<'_>) -> Wakers {
        let result = ring.waker(Some(self.root));
        if self.summed == self.chunks.number() {
            return result;
        }
        let sum = match self.link.sums.get(self.next) {
            Some(sum) => ring.waker(Some(sum.by)),
            None => {
                let reader_alone =
                    self.summed >= ring.depth() || ring.is_known_free(ring.later(self.span, self.summed));
                ring.waker(self.link.reader.filter(|_| reader_alone))
            }
        };
        if call.collective == Collective::Allreduce && self.done < self.summed { sum.and(result) } else { sum }
    }
}

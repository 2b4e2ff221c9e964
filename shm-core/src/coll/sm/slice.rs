//! Reduce and allreduce of large vectors by slices: of every chunk each rank reduces its own slice,
//! straight from all ranks' cells, and publishes the result, in those cells of its own where nobody needs its part; who
//! receives gathers the slices. Two steps a chunk, pipelined; each rank moves about 2 bytes per byte of the vector,
//! whatever the number of ranks (the movement-avoiding form over copy-in cells).
#![allow(unsafe_code)] // copies between user buffers and shared memory

use std::ops::Range;

use crate::coll::MAPPED_STEP_BYTES;
use crate::coll::apart::{Apart, is_users};
use crate::coll::choice::Reducers;
use crate::coll::choice::{Form, Terms};
use crate::coll::choice::{uncut_bytes, whole_elements};
use crate::coll::fold::fold;
use crate::coll::sm::sliced::{Sliced, Spot};
use crate::coll::window::Window;
use crate::coll::{Poll, Progress, wait_for};
use crate::error::Result;
use crate::ring::{Ring, Span};
use crate::sync::Wakers;
use reduce_kernels::{Call, Collective};

/// Chunks that a rank may be ahead of its own gathering.
const AHEAD: usize = 16;

/// Who reduces a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shares {
    /// Every rank its slice.
    Slices,
    /// The root all of it: where few ranks reduce through cells, sharing out costs more than it saves.
    Root,
    /// Each rank all of it for itself: no line of a result is read by one and written by the other.
    Everybody,
    /// Every rank its slice, of which it writes the result to all ranks' vectors, which all can map: nothing is
    /// left to gather, and a line of a result is always written by the same rank.
    ForAll,
    /// Known when all ranks' news are.
    Unknown,
}

impl Shares {
    /// What a rank knows of it before the others' news.
    fn at_first(terms: &Terms, collective: Collective, bytes: usize, own_are_reached: bool) -> Self {
        match terms.reducers(collective) {
            Reducers::RootThroughCells if !own_are_reached => Self::Root,
            Reducers::RootThroughCells => Self::Unknown,
            Reducers::Everybody if terms.keep_in_cache(SENT_AND_RECEIVED, bytes) => Self::Unknown,
            _ if own_are_reached && terms.writes_for_all(collective, bytes) => Self::Unknown,
            _ => Self::Slices,
        }
    }

    /// What all ranks conclude from all ranks' news, where it was not known. A vector that is in place and lent must
    /// not be read by all, as its owner would overwrite it.
    fn after_news(terms: &Terms, collective: Collective, bytes: usize, news: News) -> Self {
        match terms.reducers(collective) {
            Reducers::RootThroughCells if news.all_are_reached => Self::Slices,
            Reducers::RootThroughCells => Self::Root,
            _ if news.all_are_mapped && terms.writes_for_all(collective, bytes) => Self::ForAll,
            Reducers::Everybody if !news.any_is_lent_in_place && terms.keep_in_cache(SENT_AND_RECEIVED, bytes) => {
                Self::Everybody
            }
            _ => Self::Slices,
        }
    }

    /// Where all ranks' vectors are alike.
    pub(crate) fn where_alike(terms: &Terms, collective: Collective, bytes: usize, news: News) -> Self {
        match Self::at_first(terms, collective, bytes, news.all_are_reached) {
            Self::Unknown => Self::after_news(terms, collective, bytes, news),
            known => known,
        }
    }

    /// True if a rank needs the others' results of a chunk before it has its own.
    fn awaits_results(self) -> bool {
        matches!(self, Self::Slices | Self::ForAll)
    }
}

/// What all ranks know of all ranks' vectors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct News {
    pub(crate) all_are_reached: bool,
    pub(crate) all_are_mapped: bool,
    pub(crate) any_is_lent_in_place: bool,
}

/// While the last cache holds all ranks' vectors of both kinds, to read one once more costs less than to write a result where a
/// peer reads it.
const SENT_AND_RECEIVED: usize = 2;

#[derive(Debug)]
pub(crate) struct Reduce<'a> {
    sliced: Sliced<'a>,
    /// Of parts and of results.
    steps: Window<(Span, Span), AHEAD>,
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
    shares: Shares,
}

impl<'a> Reduce<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let sliced = Sliced::new(ring, call, Form::Slice);
        let (collective, bytes) = (sliced.call.collective, sliced.call.bytes());
        let shares = Shares::at_first(ring.terms(), collective, bytes, sliced.operands.own_are_reached());
        Self { sliced, steps: Window::new(), put: 0, reduced: 0, done: 0, next_part: 0, next_result: 0, shares }
    }

    /// The steps of `chunk`. They are marked as consumed together, so that the cells of the parts are kept until the results
    /// have been read there, too.
    fn spans(&mut self, ring: &mut Ring, chunk: usize) -> (Span, Span) {
        self.steps.of(chunk, || (ring.take(self.sliced.chunks.bytes(chunk)), ring.take(0)))
    }

    /// What this rank reduces of `chunk`, counted from the chunk's start.
    fn share(&self, ring: &Ring, chunk: usize) -> Range<usize> {
        match self.shares {
            Shares::Root if !self.sliced.receives => 0..0,
            Shares::Root | Shares::Everybody => 0..self.sliced.chunks.bytes(chunk),
            Shares::Slices | Shares::ForAll | Shares::Unknown => {
                self.sliced.chunks.slice(chunk, ring.rank(), ring.size())
            }
        }
    }

    /// What no other rank reads of this rank's part of `chunk`.
    fn own_alone(&self, ring: &Ring, chunk: usize) -> Range<usize> {
        match self.shares {
            Shares::Slices | Shares::ForAll | Shares::Root => self.share(ring, chunk),
            Shares::Everybody | Shares::Unknown => 0..0,
        }
    }

    /// Publishes the next chunk without what this rank reduces of it, if the ring has room.
    fn put(&mut self, ring: &mut Ring) -> Result<bool> {
        if self.put == self.sliced.chunks.number() || self.put == self.done + AHEAD {
            return Ok(false);
        }
        let (parts, _) = self.spans(ring, self.put);
        if !ring.may_write(parts)? {
            return Ok(false);
        }
        if self.put == 0 {
            self.sliced.operands.tell(ring, &self.sliced.call, parts);
        }
        if self.sliced.operands.own_are_reached() {
            ring.publish(parts);
            self.put += 1;
            return Ok(true);
        }
        let own = self.own_alone(ring, self.put);
        let offset = self.sliced.chunks.offset(self.put);
        for part in [0..own.start, own.end..self.sliced.chunks.bytes(self.put)] {
            // In the call's buffer, whose length the chunks were cut from.
            let from = self.sliced.call.send.wrapping_add(offset + part.start);
            // SAFETY: just allowed, not yet published; the span was taken for the whole chunk.
            unsafe { ring.put_cells(parts, part.start, from, part.len()) };
        }
        ring.publish(parts);
        self.put += 1;
        if self.put == self.sliced.chunks.number() && own.len() < self.sliced.chunks.bytes(self.put - 1) {
            ring.expect_another(self.sliced.call.bytes(), self.sliced.chunks.bytes(0), false);
        }
        Ok(true)
    }

    /// Reduces this rank's share of the oldest chunk, if all ranks have published theirs.
    fn reduce(&mut self, ring: &mut Ring) -> Result<bool> {
        if self.reduced == self.put {
            return Ok(false);
        }
        let (parts, results) = self.spans(ring, self.reduced);
        if self.shares == Shares::Root && !self.sliced.receives {
            return Ok(self.finish_chunk(ring, results));
        }
        if !ring.published_by_all(parts, &mut self.next_part)? {
            return Ok(false);
        }
        if !ring.may_write(results)? {
            return Ok(false);
        }
        if self.reduced == 0 {
            self.sliced.operands.learn_all(ring, parts)?;
            ring.all_have_reached(parts.step());
            if self.shares == Shares::Unknown {
                let Sliced { call, operands, .. } = &self.sliced;
                let news = News {
                    all_are_reached: operands.all_are_reached(ring),
                    all_are_mapped: operands.all_are_mapped(ring),
                    any_is_lent_in_place: operands.any_is_lent_in_place(ring, call),
                };
                self.shares = Shares::after_news(ring.terms(), call.collective, call.bytes(), news);
                return Ok(true);
            }
        }
        let share = self.share(ring, self.reduced);
        self.reduce_share(ring, parts, share)?;
        if self.shares.awaits_results() {
            ring.publish(results);
        }
        Ok(self.finish_chunk(ring, results))
    }

    /// This rank has reduced its share of a chunk; others' results concern it only if it receives.
    fn finish_chunk(&mut self, ring: &mut Ring, results: Span) -> bool {
        self.reduced += 1;
        self.next_part = 0;
        if !self.sliced.receives || !self.shares.awaits_results() {
            ring.consumed(results.end());
            self.done = self.reduced;
        }
        true
    }

    fn reduce_share(&mut self, ring: &mut Ring, parts: Span, slice: Range<usize>) -> Result<()> {
        let sliced = &mut self.sliced;
        let Some(op) = &sliced.call.op else { return Ok(()) };
        let mut at_work = sliced.operands.reach_out(ring)?;
        let is_users = is_users(&sliced.call);
        let is_for_all = self.shares == Shares::ForAll;
        let step =
            if is_for_all { whole_elements(MAPPED_STEP_BYTES, uncut_bytes(&sliced.call)) } else { slice.len().max(1) };
        for start in slice.clone().step_by(step) {
            let bytes = step.min(slice.end - start);
            let at = sliced.chunks.offset(self.reduced) + start;
            // In the call's buffer.
            let own = sliced.call.send.wrapping_add(at);
            let spot = Spot { span: parts, within: start };
            let result = sliced.place(ring, spot, at);
            let from = sliced.operands.sources(ring, parts, start, own, at, bytes)?;
            if at_work.is_some() && is_users {
                // SAFETY: every rank has published the chunk and keeps it until this rank has consumed it.
                let apart = unsafe { Apart::of(&sliced.operands, from, bytes) };
                drop(at_work);
                // SAFETY: these are in this rank's memory, or in cells, which stay, and so is `result`, as below.
                unsafe { fold(op, sliced.call.datatype, result, apart.sources(), bytes) };
                at_work = sliced.operands.reach_out(ring)?;
            } else {
                // SAFETY: every rank has published the chunk and keeps it until this rank has consumed it;
                // nobody else reads this slice in this rank's cells, where it would be a part that is taken from `own`,
                // until the result is published; a `recv` is the `send` of its own rank, of which nobody else reads this
                // slice, or apart from all sources.
                unsafe { fold(op, sliced.call.datatype, result, from, bytes) };
            }
            for index in 0..if is_for_all { ring.peers().len() } else { 0 } {
                let peer = ring.peers()[index];
                let Some(recv) = sliced.operands.recv(peer) else { continue };
                let was_read = sliced.operands.is_lent_in_place(peer);
                // SAFETY: the peer has as many bytes there and leaves this slice of them to this rank, which was
                // the only one to read them; they overlap no buffer of this rank.
                unsafe { ring.put_abroad(recv, at, result, bytes, sliced.call.bytes(), was_read) }?;
            }
            if self.shares == Shares::Slices {
                // SAFETY: this rank was allowed to write to the span; of this slice peers read there nothing but the
                // result, which was just reduced to `result`, and that not before it is published.
                unsafe { sliced.deliver(ring, spot, at, result, bytes) }?;
            }
        }
        drop(at_work);
        Ok(())
    }

    /// Copies the others' results of the oldest chunk as far as they are published.
    fn gather(&mut self, ring: &mut Ring) -> Result<bool> {
        if self.done == self.reduced {
            return Ok(false);
        }
        let (parts, results) = self.spans(ring, self.done);
        while let Some(&peer) = ring.peers().get(self.next_result) {
            if !ring.published(peer, results)? {
                return Ok(false);
            }
            if self.shares == Shares::Slices {
                let within = self.sliced.chunks.slice(self.done, peer, ring.size()).start;
                self.sliced.gather(ring, self.done, peer, Spot { span: parts, within })?;
            }
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
            if self.done == self.sliced.chunks.number() {
                let end = self.steps.latest().1.end();
                wait_for!(self.sliced.is_given_back(ring, end));
                ring.leave();
                return Ok(Poll::Ready(()));
            }
            if !put && !reduced && !gathered {
                return Ok(Poll::Pending);
            }
        }
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        if self.done == self.sliced.chunks.number() {
            return self.sliced.awaited_last(ring);
        }
        let gathering = self.done < self.reduced;
        let next = if gathering { self.next_result } else { self.next_part };
        ring.peers().get(next).copied().filter(|_| gathering || self.reduced < self.put)
    }

    fn wakers(&self, ring: &Ring) -> Wakers {
        if self.done == self.sliced.chunks.number() {
            return ring.waker(self.sliced.awaited_last(ring));
        }
        // Whoever has chunks left to publish waits for room, too, as for that of a result.
        if self.put < self.sliced.chunks.number() && self.put < self.done + AHEAD {
            return Wakers::ALL;
        }
        let of = |next: usize| ring.waker(ring.peers().get(next).copied());
        match (self.done < self.reduced, self.reduced < self.put) {
            (true, true) => of(self.next_result).and(of(self.next_part)),
            (true, false) => of(self.next_result),
            (false, _) => of(self.next_part),
        }
    }
}

//! Reduce and allreduce of large vectors by slices: of every chunk each rank reduces its own slice,
//! straight from all ranks' cells, and publishes the result; who receives gathers the slices. Two
//! steps a chunk, pipelined; each rank moves about 2 bytes per byte of the vector, whatever the
//! number of ranks (the movement-avoiding form over copy-in cells).
#![allow(unsafe_code)] // copies between user buffers and shared memory

use std::ops::Range;

use crate::call::{Call, Collective};
use crate::coll::operands::Operands;
use crate::coll::sm::chunks::Chunks;
use crate::coll::sm::fold::fold;
use crate::coll::sm::{Form, Terms};
use crate::coll::{Poll, Progress, wait_for};
use crate::copy::Access;
use crate::copy::cico::{copy, copy_past_caches};
use crate::error::Result;
use crate::ring::{Ring, Span};

/// Chunks that a rank may be ahead of its own gathering.
const AHEAD: usize = 16;

/// Shorter vectors stay in the second caches: there a line that peers have read costs more to write again
/// than a copy through cells.
const LEND_RESULTS_BYTES: usize = 1 << 20;

/// Who reduces a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shares {
    /// Every rank its slice.
    Slices,
    /// The root all of it: where few ranks reduce through cells, sharing out costs more than it saves.
    Root,
    /// Each of two ranks all of it for itself: no line of a result is read by one and written by the other.
    Everybody,
    /// Known when all ranks' news are: for a reduce, slices if all vectors are reached where they are, else
    /// the root; for an allreduce, everybody if that and none is in place, else slices.
    Unknown,
}

impl Shares {
    /// What a rank knows of it before the others' news.
    fn at_first(terms: &Terms, collective: Collective, bytes: usize, own_are_reached: bool) -> Self {
        match collective {
            Collective::Reduce if terms.root_keeps_up() && own_are_reached => Self::Unknown,
            Collective::Reduce if terms.root_keeps_up() => Self::Root,
            Collective::Allreduce if terms.ranks == 2 && own_are_reached && !terms.is_beyond_caches(bytes) => {
                Self::Unknown
            }
            _ => Self::Slices,
        }
    }

    /// What all ranks conclude from all ranks' news, where it was not known.
    fn after_news(collective: Collective, all_are_reached: bool, any_in_place: bool) -> Self {
        match collective {
            Collective::Reduce if !all_are_reached => Self::Root,
            Collective::Reduce => Self::Slices,
            _ if all_are_reached && !any_in_place => Self::Everybody,
            _ => Self::Slices,
        }
    }

    /// Where all ranks' vectors are reached or none is.
    pub(crate) fn where_alike(
        terms: &Terms,
        collective: Collective,
        bytes: usize,
        reached: bool,
        in_place: bool,
    ) -> Self {
        match Self::at_first(terms, collective, bytes, reached) {
            Self::Unknown => Self::after_news(collective, reached, in_place),
            known => known,
        }
    }
}

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
    shares: Shares,
    operands: Operands,
    /// Results are gathered from where they were reduced to, if that is reached at all.
    lends_results: bool,
    /// Index of the peer that is seen next to have gone on, where this rank's vectors are lent.
    seen: usize,
}

impl<'a> Reduce<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        let chunks = Chunks::new(ring, &call, Form::Slice);
        let receives = call.receives(ring.rank());
        // In place too: a slice of `recv` is written only when its owner has reduced it.
        let operands = Operands::new(ring, &call, true);
        let shares = Shares::at_first(ring.terms(), call.collective, call.bytes(), operands.own_are_reached());
        let lends_results = call.collective == Collective::Reduce || call.bytes() >= LEND_RESULTS_BYTES;
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
            shares,
            operands,
            lends_results,
            seen: 0,
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

    /// What `rank` reduces of `chunk`, counted from the chunk's start.
    fn share(&self, ring: &Ring, chunk: usize, rank: usize) -> Range<usize> {
        match self.shares {
            Shares::Root if rank == self.call.root => 0..self.chunks.bytes(chunk),
            Shares::Root => 0..0,
            Shares::Everybody => 0..self.chunks.bytes(chunk),
            Shares::Slices | Shares::Unknown => self.chunks.slice(chunk, rank, ring.size()),
        }
    }

    /// Publishes the next chunk without what this rank reduces of it, if the ring has room.
    fn put(&mut self, ring: &mut Ring) -> Result<bool> {
        if self.put == self.chunks.number() || self.put == self.done + AHEAD {
            return Ok(false);
        }
        let (parts, _) = self.spans(ring, self.put);
        if !ring.may_write(parts)? {
            return Ok(false);
        }
        if self.put == 0 {
            self.operands.tell(ring, &self.call, parts);
        }
        if self.operands.own_are_reached() {
            ring.publish(parts);
            self.put += 1;
            return Ok(true);
        }
        let own = self.share(ring, self.put, ring.rank());
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

    /// Reduces this rank's share of the oldest chunk, if all ranks have published theirs.
    fn reduce(&mut self, ring: &mut Ring) -> Result<bool> {
        if self.reduced == self.put {
            return Ok(false);
        }
        let (parts, results) = self.spans(ring, self.reduced);
        if self.shares == Shares::Root && !self.receives {
            return Ok(self.finish_chunk(ring, results));
        }
        if !ring.published_by_all(parts, &mut self.next_part)? {
            return Ok(false);
        }
        if !ring.may_write(results)? {
            return Ok(false);
        }
        if self.reduced == 0 {
            self.operands.learn_all(ring, parts)?;
            ring.all_have_reached(parts.step);
            if self.shares == Shares::Unknown {
                let in_place = self.operands.any_in_place(ring, &self.call);
                self.shares = Shares::after_news(self.call.collective, self.operands.all_are_reached(ring), in_place);
                return Ok(true);
            }
        }
        let share = self.share(ring, self.reduced, ring.rank());
        self.reduce_share(ring, parts, results, share)?;
        if self.shares == Shares::Slices {
            ring.publish(results);
        }
        Ok(self.finish_chunk(ring, results))
    }

    /// This rank has reduced its share of a chunk; others' results concern it only if it receives.
    fn finish_chunk(&mut self, ring: &mut Ring, results: Span) -> bool {
        self.reduced += 1;
        self.next_part = 0;
        if !self.receives || self.shares != Shares::Slices {
            ring.consumed(results.end());
            self.done = self.reduced;
        }
        true
    }

    fn reduce_share(&mut self, ring: &mut Ring, parts: Span, results: Span, slice: Range<usize>) -> Result<()> {
        let Some(op) = &self.call.op else { return Ok(()) };
        let at = self.chunks.offset(self.reduced) + slice.start;
        // SAFETY: in the call's buffer.
        let own = unsafe { self.call.send.add(at) };
        let cells = ring.cells(ring.rank(), results);
        let result = if self.receives {
            // SAFETY: in the call's buffer, which this rank has because it receives.
            unsafe { self.call.recv.add(at) }
        } else {
            // The root's own buffer, if it is mapped here.
            self.operands.mapped_recv(self.call.root).map_or(cells, |recv| recv.wrapping_add(at))
        };
        let _at_work = self.operands.reach_out(ring)?;
        let from = self.operands.sources(ring, parts, slice.start, own, at, slice.len())?;
        // SAFETY: every rank has published the chunk and keeps it until this rank has consumed it;
        // nobody reads the result's cells until they are published, and they are no source; a `recv` is
        // the `send` of its own rank, of which nobody else reads this slice, or apart from all sources.
        unsafe { fold(op, self.call.datatype, result, from, slice.len()) };
        if !self.receives
            && let Some(Access::Kernel(recv)) = self.operands.recv(self.call.root)
        {
            // SAFETY: the result was just written to the cells; the root leaves this slice of its vector to
            // this rank.
            unsafe { recv.write(at, result, slice.len()) }?;
        }
        let is_lent = self.lends_results && self.operands.own_are_reached();
        let is_awaited = self.call.collective == Collective::Allreduce && self.shares == Shares::Slices;
        if is_awaited && !is_lent {
            // SAFETY: allowed before this was called, not yet published; the span was taken for a slice.
            unsafe { ring.put_cells(results, 0, result, slice.len()) };
        }
        Ok(())
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
            self.gather_slice(ring, peer, results)?;
            self.next_result += 1;
        }
        ring.consumed(results.end());
        self.done += 1;
        self.next_result = 0;
        Ok(true)
    }

    /// Copies the slice of chunk `done` that `peer` has reduced, unless it has put it here itself.
    fn gather_slice(&self, ring: &Ring, peer: usize, results: Span) -> Result<()> {
        let slice = self.chunks.slice(self.done, peer, ring.size());
        let at = self.chunks.offset(self.done) + slice.start;
        // SAFETY: in the call's buffer, which this rank has because it receives.
        let to = unsafe { self.call.recv.add(at) };
        let from = if self.call.collective == Collective::Allreduce {
            self.operands.recv(peer).filter(|_| self.lends_results)
        } else if self.operands.own_are_reached() {
            return Ok(());
        } else {
            None
        };
        let _at_work = from.is_some().then(|| ring.reach_out()).transpose()?;
        let copy_out = if ring.terms().is_beyond_caches(self.call.bytes()) { copy_past_caches } else { copy };
        match from {
            // SAFETY: published, and kept until this rank has consumed the span.
            None => unsafe { copy_out(to, ring.cells(peer, results), slice.len()) },
            // SAFETY: the peer has published this slice of its result and writes it no more, and leaves only
            // when this rank has consumed the span.
            Some(Access::Mapped(recv)) => unsafe { copy_out(to, recv.wrapping_add(at), slice.len()) },
            // SAFETY: the same.
            Some(Access::Kernel(recv)) => unsafe { recv.read(at, to, slice.len()) }?,
        }
        Ok(())
    }

    /// True once nobody reads this rank's vectors where they are any more.
    fn is_given_back(&mut self, ring: &Ring) -> bool {
        let end = self.spans[(self.taken - 1) % AHEAD].1.end();
        !self.operands.own_are_reached() || ring.consumed_by_all(end, &mut self.seen)
    }
}

impl Progress for Reduce<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        loop {
            let put = self.put(ring)?;
            let reduced = self.reduce(ring)?;
            let gathered = self.gather(ring)?;
            if self.done == self.chunks.number() {
                wait_for!(self.is_given_back(ring));
                ring.leave();
                return Ok(Poll::Ready(()));
            }
            if !put && !reduced && !gathered {
                return Ok(Poll::Pending);
            }
        }
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        if self.done == self.chunks.number() {
            return ring.peers().get(self.seen).copied();
        }
        let gathering = self.done < self.reduced;
        let next = if gathering { self.next_result } else { self.next_part };
        ring.peers().get(next).copied().filter(|_| gathering || self.reduced < self.put)
    }
}

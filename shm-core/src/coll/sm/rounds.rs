//! Reduce and allreduce of large vectors round a ring of the ranks (Luo's dissertation, section 5.2.2 and figure
//! 5.4): a chunk has a slice for each of `u` ranks, and takes `u` rounds. In each of them every rank works on
//! another slice: it adds its own part to what the rank before it has left in its cells, and leaves the sum in
//! its own. The last one has the result, which who receives gathers as in the form `slice`.
//!
//! Where the paper has a barrier after each round, here a rank waits for the one before it alone. A rank reads
//! its own vector and one neighbour's cells: per byte of the vector 2 bytes read and 1 written, whatever the
//! number of ranks, and as many to gather. Slices are added up from different ranks on, so it is for operators that
//! commute, and sums of floating-point numbers differ in their last bits from those of the other forms.
#![allow(unsafe_code)] // reduces from and to shared memory

use crate::coll::apart::is_users;
use crate::coll::choice::Form;
use crate::coll::fold::fold;
use crate::coll::sm::sliced::{Sliced, Spot};
use crate::coll::{Poll, Progress, wait_for};
use crate::error::Result;
use crate::ring::{Ring, Span};
use reduce_kernels::Call;

#[derive(Debug)]
pub(crate) struct Reduce<'a> {
    sliced: Sliced<'a>,
    /// The chunk that goes round, and its round.
    chunk: usize,
    round: usize,
    /// The step of this round, once it is taken, and that of the round before.
    span: Option<Span>,
    before: Span,
    /// All peers' news are known.
    has_learned: bool,
    /// Chunks of which this rank has all results that it needs: all, or all but the last that went round.
    gathered: usize,
    /// The last step of the chunk that went round last.
    results: Span,
    /// Index of the peer that is looked at next, where all are.
    next: usize,
}

impl<'a> Reduce<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>) -> Self {
        Self {
            sliced: Sliced::new(ring, call, Form::Ring),
            chunk: 0,
            round: 0,
            span: None,
            before: Span::default(),
            has_learned: false,
            gathered: 0,
            results: Span::default(),
            next: 0,
        }
    }

    /// The rank whose sums this one takes on.
    fn previous(ring: &Ring) -> usize {
        (ring.rank() + ring.size() - 1) % ring.size()
    }

    fn is_through(&self) -> bool {
        self.chunk == self.sliced.chunks.number()
    }

    /// True if the results of the chunk before are to be gathered now: while the peers begin with the next one.
    fn gathers(&self) -> bool {
        self.gathered < self.chunk && (self.round > 0 || self.is_through())
    }

    /// Takes the news of all peers; true if they are known. Nobody's first step is marked before.
    fn learn(&mut self, ring: &mut Ring) -> Result<bool> {
        if !ring.published_by_all(self.before, &mut self.next)? {
            return Ok(false);
        }
        self.next = 0;
        self.sliced.operands.learn_all(ring, self.before)?;
        ring.all_have_reached(self.before.step());
        self.has_learned = true;
        Ok(true)
    }

    /// This rank's part of a round; true if it is done.
    fn go_round(&mut self, ring: &mut Ring) -> Result<bool> {
        let (rank, size) = (ring.rank(), ring.size());
        let (chunk, round) = (self.chunk, self.round);
        let largest = self.sliced.chunks.largest_slice(chunk, size);
        let span = *self.span.get_or_insert_with(|| ring.take(largest));
        let previous = Self::previous(ring);
        if round > 0 && !ring.published(previous, self.before)? || !ring.may_write(span)? {
            return Ok(false);
        }
        let slice = self.sliced.chunks.slice(chunk, (rank + size - 1 - round) % size, size);
        let at = self.sliced.chunks.offset(chunk) + slice.start;
        // In the call's buffer, whose length the chunks were cut from.
        let own = self.sliced.call.send.wrapping_add(at);
        if round == 0 {
            // SAFETY: just allowed, not yet published; the span was taken for the largest slice.
            unsafe { ring.put_cells(span, 0, own, slice.len()) };
            if chunk == 0 {
                self.sliced.operands.tell(ring, &self.sliced.call, span);
            }
        } else {
            let is_last = round + 1 == size;
            let cells = ring.cells(rank, span);
            // A user's operator works on this rank's memory alone, for as long as it likes.
            let is_users = is_users(&self.sliced.call);
            let mut at_work = if is_last && !is_users { self.sliced.operands.reach_out(ring)? } else { None };
            let spot = Spot { span, within: 0 };
            let to = if is_last { self.sliced.place(ring, spot, at) } else { cells };
            if let Some(op) = &self.sliced.call.op {
                let from = [ring.cells(previous, self.before).cast_const(), own];
                // SAFETY: the rank before has published its sums of this slice and keeps them until this one has
                // marked their step. `to` is this rank's cells, which nobody reads before they are published, or
                // the slice of a result that is left to this rank; it is `own`, or apart from both.
                unsafe { fold(op, self.sliced.call.datatype, to, &from, slice.len()) };
            }
            if is_last {
                if is_users {
                    at_work = self.sliced.operands.reach_out(ring)?;
                }
                // SAFETY: allowed and not published; `to` holds the slice's result; every rank has read its
                // part of this slice, of which no other rank has the result.
                unsafe { self.sliced.deliver(ring, spot, at, to, slice.len()) }?;
            }
            drop(at_work);
        }
        ring.publish(span);
        if round > 0 {
            ring.consumed(self.before.end());
        }
        (self.before, self.span) = (span, None);
        self.round += 1;
        if self.round == size {
            (self.results, self.round) = (span, 0);
            self.chunk += 1;
        }
        Ok(true)
    }

    /// Copies the others' results of the chunk that went round last; true if all are there.
    fn gather(&mut self, ring: &mut Ring) -> Result<bool> {
        while self.sliced.receives
            && let Some(&peer) = ring.peers().get(self.next)
        {
            if !ring.published(peer, self.results)? {
                return Ok(false);
            }
            self.sliced.gather(ring, self.gathered, peer, Spot { span: self.results, within: 0 })?;
            self.next += 1;
        }
        ring.consumed(self.results.end());
        self.next = 0;
        self.gathered += 1;
        Ok(true)
    }
}

impl Progress for Reduce<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        loop {
            if self.gathers() {
                wait_for!(self.gather(ring)?);
            } else if self.is_through() {
                wait_for!(self.sliced.is_given_back(ring, self.results.end()));
                ring.leave();
                return Ok(Poll::Ready(()));
            } else if self.round > 0 && !self.has_learned {
                wait_for!(self.learn(ring)?);
            } else {
                wait_for!(self.go_round(ring)?);
            }
        }
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        if self.gathers() || !self.has_learned {
            ring.peers().get(self.next).copied()
        } else if self.is_through() {
            self.sliced.awaited_last(ring)
        } else {
            (self.round > 0).then(|| Self::previous(ring))
        }
    }
}

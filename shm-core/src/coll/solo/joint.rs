//! Bcast, reduce and allreduce by all ranks at once in each other's own vectors (SOLO, dissertation, section 5.2.2,
//! without its barriers): the root of a bcast writes a part into the others' vectors while they read the rest; of a
//! reduction each rank reduces its part and writes the result to where it is wanted. Vectors are mapped, or else the
//! kernel copies. Two steps, whatever the length: where the vectors are, and that others' are not needed any more. What
//! many ranks hand on in place of the kernel has more in between (`spread`).
#![allow(unsafe_code)] // works on user buffers, peers' among them

use std::ops::{Range, RangeInclusive};

use crate::coll::apart::is_users;
use crate::coll::choice::{Kind, Times, Took, times};
use crate::coll::choice::{uncut_bytes, whole_elements};
use crate::coll::fold::fold;
use crate::coll::operands::Operands;
use crate::coll::solo::spread::{self, Spread};
use crate::coll::{MAPPED_STEP_BYTES, PIECE_BYTES};
use crate::coll::{Poll, Progress, wait_for};
use crate::copy::Access;
use crate::copy::cico::{LINE, copy};
use crate::error::Result;
use crate::job::AtWork;
use crate::ring::{Ring, Span};
use crate::segment::layout::PAGE;
use reduce_kernels::{Call, Collective, Op};

/// What is reduced at a time of mapped vectors where no cache holds all vectors: stores past the caches are quicker in longer runs.
const BEYOND_STEP_BYTES: usize = 64 << 10;
/// The same of those that the kernel copies, all peers' parts together: the second cache holds it, and of each it is so much,
/// where that can be, that it is worth the microsecond of a call.
const KERNEL_STEP_BYTES: RangeInclusive<usize> = 256 << 10..=1 << 20;
const CALL_BYTES: usize = 32 << 10;
/// Shorter vectors of two ranks, which the kernel copies, go to who receives whole: to write results back as well
/// would be another call of the kernel.
const WHOLE_BYTES: usize = 48 << 10;

const UNTOLD: &str = "in this form all ranks tell where their vectors are";

#[derive(Debug)]
pub(crate) struct Joint<'a> {
    call: Call<'a>,
    operands: Operands,
    /// The step at which ranks tell where their vectors are.
    news: Span,
    told: bool,
    /// Where ranks hand on what the kernel would copy otherwise.
    spread: Option<Spread>,
    /// The step at which ranks tell that they have done with all others' vectors, once it is taken.
    done: Option<Span>,
    /// What this rank has yet to do, once it knows where the peers' vectors are.
    part: Option<Range<usize>>,
    /// Who receives reduces everything itself.
    whole: bool,
    finished: bool,
    /// Index of the peer that is looked for next.
    next: usize,
    /// What ranks tell of this ends a trial: it decides how the next operations of the kind are carried out.
    ends: Option<(Kind, Took)>,
}

impl<'a> Joint<'a> {
    /// `stays`: this rank does nothing else before it has done its part.
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>, stays: bool, ends: Option<(Kind, Took)>) -> Self {
        let operands = Operands::all_lent(stays);
        Self {
            call,
            operands,
            news: ring.take(0),
            told: false,
            spread: None,
            done: None,
            part: None,
            whole: false,
            finished: false,
            next: 0,
            ends,
        }
    }

    /// What this rank does: of a bcast the root the end and all others the rest, of a reduction each its own.
    fn own_part(&self, ring: &Ring) -> Range<usize> {
        let (bytes, rank, size) = (self.call.bytes(), ring.rank(), ring.size());
        // So much more does the root of a reduction, which has its results in place: the others copy theirs to it.
        let (root, other) = match self.call.collective {
            Collective::Reduce => (size, size - 1),
            _ => (1, 1),
        };
        let cut = |part, of| cut(bytes, uncut_bytes(&self.call), part, of);
        let is_root_before = |rank: usize| usize::from(self.call.root < rank);
        let before = |rank: usize| rank * other + is_root_before(rank) * (root - other);
        match self.call.collective {
            // Who reads needs nobody for it; a root that may have gone on to something else is not waited for.
            Collective::Bcast if !self.operands.all_stay() => self.handed_on(ring, bytes),
            Collective::Bcast => self.handed_on(ring, cut(size - 1, size)),
            _ if self.whole && self.call.receives(rank) => 0..bytes,
            _ if self.whole => 0..0,
            _ => cut(before(rank), before(size))..cut(before(rank + 1), before(size)),
        }
    }

    /// True if who receives had better reduce everything. Of an allreduce no vector may be in place then, as the others
    /// read it whole.
    fn goes_whole(&self, ring: &Ring) -> bool {
        let is_all_read = || match self.call.collective {
            Collective::Allreduce => !self.operands.any_is_lent_in_place(ring, &self.call),
            _ => true,
        };
        let is_short = ring.size() == 2 && self.call.bytes() < WHOLE_BYTES;
        is_short && is_all_read() && !self.operands.all_are_mapped(ring)
    }

    /// Of a bcast which all others read up to `at`.
    fn handed_on(&self, ring: &Ring, at: usize) -> Range<usize> {
        if ring.rank() == self.call.root { at..self.call.bytes() } else { 0..at }
    }

    /// Does a piece of this rank's part; true if it was the last.
    fn work(&mut self, ring: &mut Ring, part: Range<usize>) -> Result<bool> {
        let bytes = part.len().min(whole_elements(PIECE_BYTES, uncut_bytes(&self.call)));
        let piece = part.start..part.start + bytes;
        match self.call.op.clone() {
            None if ring.rank() == self.call.root => self.write(ring, piece)?,
            None => Self::read(&self.call, &self.operands, ring, piece)?,
            Some(op) => self.reduce(ring, &op, piece)?,
        }
        self.part = Some(part.start + bytes..part.end);
        Ok(bytes == part.len())
    }

    /// Copies `piece` of the root's vector, which is this rank's, to all others'.
    fn write(&self, ring: &mut Ring, piece: Range<usize>) -> Result<()> {
        let from = self.call.send.wrapping_add(piece.start);
        for index in 0..ring.peers().len() {
            let Some(to) = self.operands.recv(ring.peers()[index]) else { unreachable!("{UNTOLD}") };
            // For each anew: peers that take their memory back do not wait for all of them.
            let _at_work = ring.reach_out()?;
            // SAFETY: the peer has told where its vector is, with as many bytes (same signature), and keeps it until it has seen
            // this rank's second flag; nobody else writes `piece` of it. Buffers of two ranks do not overlap.
            unsafe { ring.put_abroad(to, piece.start, from, piece.len(), self.call.bytes(), false) }?;
        }
        Ok(())
    }

    /// True if ranks hand on what the kernel would copy. Each then needs all others: a bcast's had better do nothing else.
    fn is_spread(&self, ring: &Ring) -> bool {
        let Self { call, operands, .. } = self;
        let is_by_kernel = || match call.collective {
            Collective::Bcast => operands.all_stay() && !operands.are_mapped(ring, call.root),
            _ => !operands.all_are_mapped(ring),
        };
        spread::pays(ring.terms(), call.collective, call.bytes()) && is_by_kernel()
    }

    /// Makes `slice` of what ranks hand on, in this rank's vector.
    fn make(&mut self, ring: &mut Ring, slice: Range<usize>) -> Result<()> {
        match self.call.op.clone() {
            Some(op) => {
                let fetched = self.fetched(ring);
                self.reduce_step(ring, &op, slice.start, slice.len(), fetched).map(drop)
            }
            None if ring.rank() == self.call.root => Ok(()),
            None => Self::read(&self.call, &self.operands, ring, slice),
        }
    }

    /// Copies `piece` of the root's vector to this rank's.
    fn read(call: &Call<'_>, operands: &Operands, ring: &mut Ring, piece: Range<usize>) -> Result<()> {
        let _at_work = ring.reach_out()?;
        let to = call.recv.wrapping_add(piece.start);
        let Some(from) = operands.send(call.root) else { unreachable!("{UNTOLD}") };
        // SAFETY: the root has told where its vector is, with as many bytes (same signature), and keeps it as it is until
        // it has seen this rank's second flag; of this rank's vector nobody else writes `piece`.
        unsafe { ring.take_abroad(to, (call.root, from), piece.start, piece.len(), call.bytes()) }
    }

    /// True if a vector is copied before it is reduced, or a result when it has been: by the kernel, or because the operator
    /// is a user's, which takes as long as it likes and so does not work on peers' memory.
    fn is_copied(&self, access: Option<Access>) -> bool {
        match access {
            Some(Access::Kernel(_)) => true,
            Some(Access::Mapped(_)) => is_users(&self.call),
            None => false,
        }
    }

    /// Peers whose vectors are copied before they are reduced.
    fn fetched(&self, ring: &Ring) -> usize {
        ring.peers().iter().filter(|&&peer| self.is_copied(self.operands.send(peer))).count()
    }

    /// True if results are written to others past the caches.
    fn goes_past_caches(&self, ring: &Ring) -> bool {
        self.call.collective == Collective::Allreduce
            && ring.terms().is_beyond_caches(self.call.bytes())
            && !self.operands.any_is_lent_in_place(ring, &self.call)
    }

    /// Reduces `piece` of all vectors, and brings the result to who receives it.
    fn reduce(&mut self, ring: &mut Ring, op: &Op, piece: Range<usize>) -> Result<()> {
        let fetched = self.fetched(ring);
        let written = ring.peers().iter().filter(|&&peer| self.is_copied(self.operands.recv(peer))).count();
        let step = match fetched + written {
            0 if self.goes_past_caches(ring) => BEYOND_STEP_BYTES,
            0 => MAPPED_STEP_BYTES,
            _ if fetched == 0 => kernel_step(1),
            // The room has a place for each peer, also for those whose vectors are mapped.
            _ => kernel_step(ring.peers().len()),
        };
        let step = whole_elements(step, uncut_bytes(&self.call));
        for at in piece.clone().step_by(step) {
            let bytes = step.min(piece.end - at);
            let (result, at_work) = self.reduce_step(ring, op, at, bytes, fetched)?;
            self.bring(ring, at_work, result, at, bytes)?;
        }
        Ok(())
    }

    /// Reduces `bytes` at `at`, of which `fetched` vectors' are copied first; returns the result, which stands where this rank
    /// receives it, if it does, and the leave to work on peers' memory, unless a user's operator has run.
    fn reduce_step(
        &mut self,
        ring: &mut Ring,
        op: &Op,
        at: usize,
        bytes: usize,
        fetched: usize,
    ) -> Result<(*mut u8, Option<AtWork>)> {
        let at_work = ring.reach_out()?;
        let is_users = is_users(&self.call);
        let rank = ring.rank();
        let stride = bytes.next_multiple_of(LINE);
        // A place for each rank, behind one for the result, where this rank does not receive it and cannot write it in place.
        let room = ring.room(if fetched == 0 { stride } else { (ring.size() + 1) * stride });
        let own = self.call.send.wrapping_add(at);
        let receives = self.call.receives(rank);
        let recv = self.call.recv.wrapping_add(at);
        // The first vector that is copied stands where the result will, so that the caches hold one less. A user's operator
        // would have it moved out of the way again.
        let in_result = receives && !self.call.is_in_place() && !is_users;
        let first = (0..ring.size()).find(|&peer| peer != rank && self.is_copied(self.operands.send(peer)));
        let place =
            |peer: usize| if in_result && first == Some(peer) { recv } else { room.wrapping_add((peer + 1) * stride) };
        // Ranks that begin at the same time begin with different ones: the kernel keeps those apart that copy from the same one.
        for &peer in ring.peers() {
            // There is room; the peer keeps its vector until it has seen this rank's second flag, and this rank alone writes
            // this part of its own results, and reads none of its own elements there.
            match self.operands.send(peer) {
                // SAFETY: as above.
                Some(Access::Kernel(send)) => unsafe { ring.job().reach().read(send, at, place(peer), bytes) }?,
                // SAFETY: as above.
                Some(Access::Mapped(send)) if is_users => unsafe { copy(place(peer), send.wrapping_add(at), bytes) },
                Some(Access::Mapped(_)) | None => {}
            }
        }
        if self.whole && fetched == ring.peers().len() && at + bytes == self.call.bytes() {
            // Nothing but copies is read from here on, and nobody else's results are written.
            self.tell_done(ring)?;
        }
        let sources = ring.sources(|_, peer| match self.operands.send(peer) {
            _ if peer == rank => own,
            Some(Access::Mapped(send)) if !is_users => send.wrapping_add(at).cast_const(),
            Some(Access::Kernel(_) | Access::Mapped(_)) => place(peer).cast_const(),
            None => unreachable!("{UNTOLD}"),
        });
        let result = match self.operands.mapped_recv(self.call.root) {
            _ if receives => recv,
            Some(recv) if !is_users => recv.wrapping_add(at),
            Some(_) | None => room,
        };
        // A user's operator works on no memory of peers.
        let at_work = if is_users { None } else { Some(at_work) };
        // SAFETY: `sources` are all vectors' elements of this rank's part, which nobody writes but this rank, or copies of them;
        // `result` is one of them where that rank's vectors are in place or a copy stands there, and else apart from all.
        unsafe { fold(op, self.call.datatype, result, sources, bytes) };
        Ok((result, at_work))
    }

    /// Writes the `result` of a step to all who receive it.
    fn bring(
        &self,
        ring: &mut Ring,
        at_work: Option<AtWork>,
        result: *const u8,
        at: usize,
        bytes: usize,
    ) -> Result<()> {
        let _at_work = at_work.map_or_else(|| ring.reach_out(), Ok)?;
        let receives = self.call.receives(ring.rank());
        for index in 0..if self.whole { 0 } else { ring.peers().len() } {
            let peer = ring.peers()[index];
            let recv = self.operands.recv(peer);
            // Else it is there already.
            let Some(recv) = recv.filter(|_| receives || self.is_copied(recv)) else { continue };
            let was_read = self.operands.is_lent_in_place(peer);
            // SAFETY: the peer has as many bytes there, and leaves this part of them to this rank.
            unsafe { ring.put_abroad(recv, at, result, bytes, self.call.bytes(), was_read) }?;
        }
        Ok(())
    }

    /// Tells that this rank works on nobody's vectors any more; false if the ring has no room for that yet.
    fn tell_done(&mut self, ring: &mut Ring) -> Result<bool> {
        let done = *self.done.get_or_insert_with(|| ring.take(0));
        if !self.finished && ring.may_write(done)? {
            if let Some((_, took)) = self.ends {
                took.tell(ring, done);
            }
            ring.publish(done);
            self.finished = true;
        }
        Ok(self.finished)
    }

    /// Ends the operation, and a trial with it, by what all ranks have told.
    fn end(&self, ring: &mut Ring, done: Span) -> Poll {
        if let Some((kind, own)) = self.ends {
            let bytes = ring.trials().timed_bytes(kind);
            let of = |rank| if rank == ring.rank() { own } else { Took::of(ring, rank, done) };
            let times = if self.operands.all_stay() { times(bytes, (0..ring.size()).map(of)) } else { Times::Wandered };
            ring.trials().judge(kind, times);
        }
        ring.leave();
        Poll::Ready(())
    }
}

/// What is reduced at a time where there is room for copies of `vectors`.
fn kernel_step(vectors: usize) -> usize {
    let (least, most) = KERNEL_STEP_BYTES.into_inner();
    ((vectors * CALL_BYTES).clamp(least, most) / vectors).next_multiple_of(PAGE)
}

/// The end of the first `part` of `of` equal parts of `bytes`, which are whole elements. It is whole lines or pages from the
/// vector's begin: where that is aligned, no line, and no page of a long vector, is written by two ranks, unless elements do
/// not divide these.
fn cut(bytes: usize, element_bytes: usize, part: usize, of: usize) -> usize {
    // Without the divisions.
    if part == 0 || part == of {
        return if part == 0 { 0 } else { bytes };
    }
    let unit = if bytes < 8 * of * PAGE { LINE } else { PAGE };
    let unit = unit.next_multiple_of(element_bytes);
    // The product may be more than a word holds.
    (bytes / of * part + bytes % of * part / of) / unit * unit
}

impl Progress for Joint<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        if !self.told {
            wait_for!(ring.may_write(self.news)?);
            self.operands.tell(ring, &self.call, self.news);
            ring.publish(self.news);
            self.told = true;
        }
        if self.part.is_none() {
            wait_for!(ring.published_by_all(self.news, &mut self.next)?);
            self.operands.learn_all(ring, self.news)?;
            ring.all_have_reached(self.news.step());
            self.whole = self.goes_whole(ring);
            self.next = 0;
            let is_spread = self.is_spread(ring);
            self.spread = is_spread.then(|| Spread::new(ring, &self.call));
            self.part = Some(if is_spread { 0..0 } else { self.own_part(ring) });
        }
        if let Some(mut spread) = self.spread.take()
            && !spread.is_complete(ring, |ring, slice| self.make(ring, slice))?
        {
            self.spread = Some(spread);
            return Ok(Poll::Pending);
        }
        while let Some(part) = self.part.clone().filter(|part| !part.is_empty()) {
            if !self.work(ring, part)? {
                ring.work_is_left();
                return Ok(Poll::Pending);
            }
        }
        wait_for!(self.tell_done(ring)?);
        let Some(done) = self.done else { unreachable!("just told") };
        let is_alone = self.call.collective == Collective::Bcast && !self.operands.all_stay();
        if is_alone && ring.rank() != self.call.root {
            // Nobody but this rank has worked on its vector.
            return Ok(self.end(ring, done));
        }
        // Who has seen all second flags has all that it receives, and nobody works on its vectors any more.
        wait_for!(ring.published_by_all(done, &mut self.next)?);
        Ok(self.end(ring, done))
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        let next = self.spread.as_ref().map_or(Some(self.next), Spread::next);
        ring.peers().get(next?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_copies_what_is_worth_a_call_and_what_the_second_cache_holds() {
        assert_eq!([1, 3, 7, 15, 255].map(kernel_step).map(|bytes| bytes >> 10), [256, 88, 40, 32, 8]);
    }

    #[test]
    fn parts_begin_where_others_end_and_at_lines() {
        for (bytes, element) in [
            (0, 1),
            (1, 1),
            (63, 1),
            (64, 16),
            (4097, 1),
            (65_536, 8),
            (100_000, 16),
            (1 << 31, 8),
            (39, 13),
            (24 * 5000, 24),
            (1000 * 3333, 1000),
            (1023 << 21, 1023),
        ] {
            for of in [2, 3, 7, 13] {
                let cuts: Vec<usize> = (0..=of).map(|part| cut(bytes, element, part, of)).collect();
                assert!(cuts.is_sorted() && cuts[0] == 0 && cuts[of] == bytes, "{cuts:?}");
                assert!(cuts[..of].iter().all(|at| at % element == 0), "{cuts:?}");
                assert!(element > 16 || element == 13 || cuts[..of].iter().all(|at| at % LINE == 0), "{cuts:?}");
                let most = bytes / of + 8 * PAGE;
                assert!(cuts.windows(2).all(|part| part[1] - part[0] <= most), "{cuts:?}");
            }
        }
        assert_eq!(cut(usize::MAX, 1, 12, 13) / PAGE, usize::MAX / 13 * 12 / PAGE);
    }
}

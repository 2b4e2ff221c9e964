//! Bcast, reduce and allreduce of two ranks with a core each, both at work at once in both ranks' own vectors
//! (SOLO, dissertation, section 5.2.2, for a pair): the root of a bcast writes one half into the other rank's
//! vector while that rank reads the other half; of a reduction each rank reduces its share and writes the result
//! to where it is wanted. Vectors are mapped, or else the kernel copies. Two steps: where the vectors are, and that
//! the share is done.
#![allow(unsafe_code)] // works on user buffers, a peer's among them

use std::ops::Range;

use crate::coll::operands::Operands;
use crate::coll::sm::fold::fold;
use crate::coll::sm::trials::{Counted, Took};
use crate::coll::{Poll, Progress, wait_for};
use crate::copy::Access;
use crate::copy::cico::{copy, copy_past_caches};
use crate::error::Result;
use crate::ring::{Ring, Span};
use crate::sys::clock;
use reduce_kernels::{Call, Collective};

/// What is copied between two looks at the job.
const PIECE_BYTES: usize = 4 << 20;
/// What is reduced at a time: of mapped vectors what the first cache holds, of others what the second one does,
/// as each call of the kernel costs a microsecond.
const MAPPED_STEP_BYTES: usize = 8 << 10;
const KERNEL_STEP_BYTES: usize = 256 << 10;
/// Shares are cut here: no line, and no page of a long vector, is written by both ranks.
const LINE: usize = 64;
const PAGE: usize = 4096;

const UNTOLD: &str = "in this form both ranks tell where their vectors are";

#[derive(Debug)]
pub(crate) struct Halves<'a> {
    call: Call<'a>,
    operands: Operands,
    peer: usize,
    /// Who tells where its vectors are; who tells that its share is done.
    news: Span,
    done: Span,
    told: bool,
    /// What this rank has yet to do, once it knows where the peer's vectors are.
    share: Option<Range<usize>>,
    finished: bool,
    /// The times of both ranks decide how the next operations of this kind are carried out.
    counted: Option<Counted>,
    busy_ns: u64,
}

impl<'a> Halves<'a> {
    /// `stays`: this rank does nothing else before it has done its share.
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>, stays: bool, counted: Option<Counted>) -> Self {
        Self {
            call,
            operands: Operands::all_lent(stays),
            peer: 1 - ring.rank(),
            news: ring.take(0),
            done: ring.take(0),
            told: false,
            share: None,
            finished: false,
            counted,
            busy_ns: 0,
        }
    }

    /// What `rank` does: of a bcast the root the upper part, of a reduction the lower rank the lower part.
    fn share_of(&self, rank: usize) -> Range<usize> {
        let bytes = self.call.bytes();
        let cut = |part: usize, of: usize| {
            let unit = if bytes < 8 * PAGE { LINE } else { PAGE };
            bytes / of * part / unit * unit
        };
        let is_root = rank == self.call.root;
        let (at, is_lower) = match self.call.collective {
            // Who reads needs nobody for it; a root that has gone on to something else is not waited for.
            Collective::Bcast if !self.operands.all_stay() => (bytes, !is_root),
            Collective::Bcast => (cut(1, 2), !is_root),
            // The root has its results in place, the other must copy them: three copies for two shares.
            Collective::Reduce if self.call.root == 0 => (cut(2, 3), rank == 0),
            Collective::Reduce => (cut(1, 3), rank == 0),
            Collective::Allreduce | Collective::Barrier => (cut(1, 2), rank == 0),
        };
        if is_lower { 0..at } else { at..bytes }
    }

    /// Does a piece of this rank's share; true if it was the last.
    fn work(&mut self, ring: &mut Ring, share: Range<usize>) -> Result<bool> {
        let start_ns = self.counted.map(|_| clock::now_ns());
        let bytes = share.len().min(PIECE_BYTES);
        let piece = share.start..share.start + bytes;
        let at_work = ring.reach_out()?;
        match &self.call.op {
            None => self.hand_on(ring, piece)?,
            Some(_) => self.reduce(ring, piece)?,
        }
        drop(at_work);
        self.share = Some(share.start + bytes..share.end);
        self.busy_ns += start_ns.map_or(0, |start| clock::now_ns().saturating_sub(start));
        Ok(bytes == share.len())
    }

    /// Copies `piece` of a bcast from the root's vector to the other's.
    fn hand_on(&self, ring: &Ring, piece: Range<usize>) -> Result<()> {
        let copy = if ring.terms().is_beyond_caches(self.call.bytes()) { copy_past_caches } else { copy };
        let (at, bytes) = (piece.start, piece.len());
        let job = ring.job();
        // The peer has told where its vectors are, as many bytes as this rank's (same signature), and keeps them until
        // it has seen this rank's second flag; of the receiver's this rank alone writes `piece`. Buffers of two ranks
        // do not overlap.
        if ring.rank() == self.call.root {
            let from = self.call.send.wrapping_add(at);
            match self.operands.recv(self.peer) {
                // SAFETY: as above.
                Some(Access::Mapped(to)) => unsafe { copy(to.wrapping_add(at), from, bytes) },
                // SAFETY: as above.
                Some(Access::Kernel(to)) => unsafe { job.reach().write(to, at, from, bytes) }?,
                None => unreachable!("{UNTOLD}"),
            }
        } else {
            let to = self.call.recv.wrapping_add(at);
            match self.operands.send(self.peer) {
                // SAFETY: as above.
                Some(Access::Mapped(from)) => unsafe { copy(to, from.wrapping_add(at), bytes) },
                // SAFETY: as above.
                Some(Access::Kernel(from)) => unsafe { job.reach().read(from, at, to, bytes) }?,
                None => unreachable!("{UNTOLD}"),
            }
        }
        Ok(())
    }

    /// Reduces `piece` of both vectors, and brings the result to who receives it.
    fn reduce(&self, ring: &mut Ring, piece: Range<usize>) -> Result<()> {
        let receives = self.call.receives(ring.rank());
        let Some(theirs) = self.operands.send(self.peer) else { unreachable!("{UNTOLD}") };
        let recv = self.operands.recv(self.peer);
        let is_mapped = matches!(theirs, Access::Mapped(_)) && !matches!(recv, Some(Access::Kernel(_)));
        let step = if is_mapped { MAPPED_STEP_BYTES } else { KERNEL_STEP_BYTES };
        for at in piece.clone().step_by(step) {
            let bytes = step.min(piece.end - at);
            let own = self.call.send.wrapping_add(at);
            let theirs = match theirs {
                Access::Mapped(send) => send.wrapping_add(at),
                Access::Kernel(send) => {
                    let to = ring.room(bytes);
                    // SAFETY: there is room; the peer keeps its vector as it is until this rank's second flag, but for
                    // the share that is its own.
                    unsafe { ring.job().reach().read(send, at, to, bytes) }?;
                    to
                }
            };
            let result = match recv {
                _ if receives => self.call.recv.wrapping_add(at),
                Some(Access::Mapped(recv)) => recv.wrapping_add(at),
                // A copy of this rank's own.
                _ if matches!(self.operands.send(self.peer), Some(Access::Kernel(_))) => theirs,
                _ => ring.room(bytes),
            };
            let sources: [*const u8; 2] = if ring.rank() == 0 { [own, theirs] } else { [theirs, own] };
            if let Some(op) = &self.call.op {
                // SAFETY: `sources` are two vectors' elements of this rank's share, which nobody writes but this rank;
                // `result` is one of them where that rank's vectors are in place, or where it is this rank's copy, and
                // else apart from both.
                unsafe { fold(op, self.call.datatype, result, &sources, bytes) };
            }
            match recv {
                // SAFETY: the peer has as many bytes there, and leaves this share of them to this rank.
                Some(Access::Mapped(recv)) if receives => unsafe { copy(recv.wrapping_add(at), result, bytes) },
                // SAFETY: the same.
                Some(Access::Kernel(recv)) => unsafe { ring.job().reach().write(recv, at, result, bytes) }?,
                _ => {}
            }
        }
        Ok(())
    }

    fn took(&self) -> Took {
        let counted = self.counted.map(|counted| counted.took).unwrap_or_default();
        Took { halves_ns: self.busy_ns, ..counted }
    }
}

impl Progress for Halves<'_> {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        if !self.told {
            wait_for!(ring.may_write(self.news)?);
            self.operands.tell(ring, &self.call, self.news);
            ring.publish(self.news);
            self.told = true;
        }
        if self.share.is_none() {
            wait_for!(ring.published(self.peer, self.news)?);
            self.operands.learn(ring, self.peer, self.news)?;
            ring.all_have_reached(self.news.step());
            self.share = Some(self.share_of(ring.rank()));
        }
        if !self.finished {
            while let Some(share) = self.share.clone().filter(|share| !share.is_empty()) {
                if !self.work(ring, share)? {
                    return Ok(Poll::Pending);
                }
            }
            wait_for!(ring.may_write(self.done)?);
            self.took().tell(ring, self.done);
            ring.publish(self.done);
            self.finished = true;
        }
        wait_for!(ring.published(self.peer, self.done)?);
        if let Some(counted) = self.counted {
            let took = [self.took(), Took::of(ring, self.peer, self.done)];
            ring.trials().judge(counted, self.operands.all_stay().then_some(took));
        }
        ring.leave();
        Ok(Poll::Ready(()))
    }

    fn awaits(&self, _: &Ring) -> Option<usize> {
        Some(self.peer)
    }
}

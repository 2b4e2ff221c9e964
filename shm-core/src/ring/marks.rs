//! When a place may be written again: how far this rank has read, and what it knows of its peers.

use super::{Ring, Span};
use crate::error::Result;
use crate::sync::before;

/// Steps by which a rank's watermark may lag behind: no writer waits for the last ones.
const MARK_LAG: u32 = 8;

impl Ring {
    /// True once this rank may write to the place of `span`: all ranks have consumed what was there.
    ///
    /// # Errors
    /// A peer does not do the same operations as this rank.
    #[inline]
    pub(crate) fn may_write(&mut self, span: Span) -> Result<bool> {
        let needed = span.needed();
        if !before(self.recycled, needed) {
            return Ok(true);
        }
        self.look_at_watermarks()?;
        // A writer that was stopped waits for more room than it needs, so that it need not look again
        // after every step, at lines that the readers would have to fetch back. But it must not wait
        // for more than peers are sure to have marked: `MARK_LAG` steps less than there were. Steps that are taken at once
        // are marked one by one, by ranks that do not wait for this writer's next one.
        let ample = needed.wrapping_add(span.step().wrapping_sub(needed) / 2);
        let sure = span.step().wrapping_sub(MARK_LAG);
        let wanted = if before(sure, ample) { sure } else { ample };
        let wanted = if before(wanted, needed) { needed } else { wanted };
        let has_room = !before(self.recycled, wanted);
        if !has_room {
            self.lacked.set(Some((wanted, self.told())));
        }
        Ok(has_room)
    }

    /// As [`may_write`](Self::may_write), for who asks but once or twice an operation: it waits for no more room than it needs.
    #[inline]
    pub(crate) fn is_free(&mut self, span: Span) -> Result<bool> {
        if !self.is_known_free(span) {
            self.look_at_watermarks()?;
        }
        let is_free = self.is_known_free(span);
        if !is_free {
            self.lacked.set(Some((span.needed(), self.told())));
        }
        Ok(is_free)
    }

    /// The same as far as is known.
    #[inline]
    pub(crate) fn is_known_free(&self, span: Span) -> bool {
        !before(self.recycled, span.needed())
    }

    /// Learns how far the peers have read, and that they have done the same operations: a rank that
    /// only ever writes, such as a root, reads no flag that would tell.
    #[cold]
    fn look_at_watermarks(&mut self) -> Result<()> {
        self.record();
        let mut least = self.step;
        for &peer in &self.peers {
            let consumed = self.flags(peer).consumed.get();
            if before(consumed, least) {
                least = consumed;
            }
            self.compare_with(peer)?;
        }
        self.recycled = least;
        Ok(())
    }

    /// Every peer was seen in the operation whose first step is `step`: it has consumed all before.
    #[inline]
    pub(crate) fn all_have_reached(&mut self, step: u32) {
        if before(self.recycled, step) {
            self.recycled = step;
        }
    }

    /// True once `peer` will not read anything of the steps before `step` again.
    #[inline]
    pub(crate) fn consumed_by(&self, peer: usize, step: u32) -> bool {
        self.flags(peer).consumed.reached(step)
    }

    /// True once no peer will; `next` counts those seen so far.
    pub(crate) fn consumed_by_all(&self, step: u32, next: &mut usize) -> bool {
        while let Some(&peer) = self.peers.get(*next) {
            if !self.consumed_by(peer, step) {
                return false;
            }
            *next += 1;
        }
        true
    }

    /// This rank will not read anything of the steps before `step` again.
    #[inline]
    pub(crate) fn consumed(&mut self, step: u32) {
        self.marked = step;
        self.flags(self.rank).consumed.advance(step);
        self.stay_comparable();
        self.wake_sleepers();
    }

    /// Marks all steps taken so far as consumed, before an operation that takes cells: where spans are
    /// long and aligned, writers need the readers' exact marks.
    pub(crate) fn mark(&mut self) {
        self.consumed(self.step);
    }

    /// Ends an operation: all its steps are consumed. The mark is moved only now and then.
    #[inline]
    pub(crate) fn leave(&mut self) {
        if self.step.wrapping_sub(self.marked) >= MARK_LAG {
            self.consumed(self.step);
            self.job.glance();
        }
    }

    /// Steps compare well only within half the circle, and a rank that only reads never asks how far its peers
    /// are. All are within a ring of this rank's step, or it could not have come so far, and the steps of one operation that
    /// are taken at once.
    fn stay_comparable(&mut self) {
        stay_comparable(&mut self.recycled, self.step);
        self.cells.stay_comparable(self.step);
        if is_far_behind(self.retired, self.step) {
            self.retire_slots();
        }
    }

    /// Empties this rank's slots that show what is long past, before their steps come again: what is left is a quarter of
    /// the circle old at most, and half of it when slots are looked through next.
    #[cold]
    fn retire_slots(&mut self) {
        for slot in &self.flags(self.rank).slots {
            slot.retire(|shown| is_far_behind(shown, self.step));
        }
        self.retired = self.step;
    }
}

/// True if `old` will soon be more than half the circle behind `step`, and so seem to be still to come.
pub(super) fn is_far_behind(old: u32, step: u32) -> bool {
    step.wrapping_sub(old) > 1 << 30
}

/// Brings a step that lies far behind `step` nearer to it.
pub(super) fn stay_comparable(old: &mut u32, step: u32) {
    if is_far_behind(*old, step) {
        *old = step.wrapping_sub(1 << 29);
    }
}

#[cfg(test)]
#[allow(unsafe_code)] // vouches for the threads' exchange
mod tests {
    use std::rc::Rc;
    use std::thread;

    use super::*;
    use crate::Settings;
    use crate::exchange::{Exchange, ThreadExchange, thread_group};
    use crate::job::Job;
    use crate::segment::Backing;

    /// A rank that only reads announces nothing, and steps are numbers of 32 bits.
    #[test]
    fn a_slot_does_not_show_a_step_that_comes_again() {
        let rank = |mut exchange: ThreadExchange| {
            let settings = Settings { backing: Some(Backing::Heap), ..Settings::default() };
            let job = Rc::new(Job::together(&mut exchange, settings).expect("a job"));
            let mut ring = Ring::together(&mut exchange, Rc::clone(&job), 0, vec![0, 1]).expect("a ring");
            let span = ring.take(0);
            ring.publish(span);
            while !ring.published(1 - ring.rank(), span).expect("the same operations") {
                thread::yield_now();
            }
            exchange.allgather(&[]).expect("both have seen it");
            // Once round the circle, in which others announce steps.
            for _ in 0..32 {
                ring.step = ring.step.wrapping_add(1 << 27);
                ring.consumed(ring.step);
            }
            ring.chain ^= 2;
            exchange.allgather(&[]).expect("both");
            let again = Span::of_slot(span.step(), span.step());
            let seen = ring.published(1 - ring.rank(), again);
            exchange.allgather(&[]).expect("both");
            job.finalize();
            seen.map_err(|error| error.to_string())
        };
        let rank = &rank;
        let seen: Vec<_> = thread::scope(|scope| {
            // SAFETY: all ranks make their engines at once, and then give nothing to each other but that they have come.
            let group = unsafe { thread_group(2) };
            let threads: Vec<_> = group.into_iter().map(|one| scope.spawn(move || rank(one))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert_eq!(seen, [Ok(false), Ok(false)], "what was announced 2^32 steps ago is seen again");
    }

    #[test]
    fn ranks_that_name_others_make_no_communicator() {
        let rank = |mut exchange: ThreadExchange, worlds: &[Vec<usize>; 3]| {
            let settings = Settings { backing: Some(Backing::Heap), ..Settings::default() };
            let job = Rc::new(Job::together(&mut exchange, settings).expect("a job"));
            let world = worlds[exchange.rank()].clone();
            let ring = Ring::together(&mut exchange, Rc::clone(&job), 0, world);
            let told = ring.map(|ring| ring.size()).map_err(|error| error.to_string());
            exchange.allgather(&[]).expect("all have tried");
            job.finalize();
            told
        };
        let all = |worlds: [&[usize]; 3]| -> Vec<std::result::Result<usize, String>> {
            let worlds = worlds.map(<[usize]>::to_vec);
            thread::scope(|scope| {
                // SAFETY: as above.
                let group = unsafe { thread_group(3) };
                let ranks = group.into_iter().map(|one| scope.spawn(|| rank(one, &worlds)));
                ranks.collect::<Vec<_>>().into_iter().map(|rank| rank.join().expect("no panic")).collect()
            })
        };
        assert_eq!(all([&[0, 1, 2][..]; 3]), [Ok(3), Ok(3), Ok(3)]);
        for wrong in [&[1, 0, 2][..], &[0, 2], &[0, 1, 2, 3], &[0, 1, 9], &[0, 0, 2], &[]] {
            for place in 0..3 {
                let mut worlds = [&[0, 1, 2][..]; 3];
                worlds[place] = wrong;
                let told = all(worlds);
                assert!(told.iter().all(std::result::Result::is_err), "{worlds:?}: {told:?}");
            }
        }
    }
}

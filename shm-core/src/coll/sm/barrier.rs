//! Barrier: flat (one step, every rank reads every flag) or by dissemination (log2 n steps).

use crate::coll::{Poll, Progress, wait_for};
use crate::error::Result;
use crate::ring::{Ring, Span};
use crate::sync::{Wakers, breathe};
use reduce_kernels::{Collective, Signature};

/// Every rank announces itself and looks for all others: one flag's way, n - 1 flags read.
#[derive(Debug)]
pub(crate) struct Flat {
    span: Span,
    announced: bool,
    next: usize,
}

impl Flat {
    #[inline]
    pub(crate) fn new(ring: &mut Ring) -> Self {
        Self { span: ring.take(0), announced: false, next: 0 }
    }
}

/// In which order ranks that share cores leave a barrier right behind an operation with a root, if the last such barrier
/// was behind one with the same: a bcast's root first, a reduction's last.
///
/// In the next such operation a rank then finds what it needs, and gives its core away once for both, where it would
/// wait in either. Only a courtesy of a rank for which the barrier is over: it looks so often and no more.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leaving {
    before: Before,
    /// Index of the peer that is looked for next, where it is all.
    next: usize,
}

/// Who leaves before this rank.
#[derive(Debug, Clone, Copy)]
enum Before {
    Nobody,
    Rank(usize),
    All,
}

impl Leaving {
    /// Looks at ranks on other cores: about as long as a core's change to another rank takes.
    const LOOKS: u32 = 128;
    /// Times that the core is given to ranks that need it.
    const YIELDS: u32 = 2;

    /// The order behind the operation `before`, if there is one.
    #[inline]
    pub(crate) fn behind(ring: &mut Ring, before: Signature) -> Option<Self> {
        if ring.own_cores() { None } else { Self::on_shared_cores(ring, before) }
    }

    fn on_shared_cores(ring: &mut Ring, before: Signature) -> Option<Self> {
        let (collective, root) = before.rooted()?;
        if root >= ring.size() || !ring.is_root_again(root) {
            return None;
        }
        let before = match collective {
            Collective::Bcast if ring.rank() != root => Before::Rank(root),
            Collective::Reduce if ring.rank() == root => Before::All,
            _ => Before::Nobody,
        };
        Some(Self { before, next: 0 })
    }

    /// Lets those before this rank go on, which has completed the barrier. Returns how often it has looked in vain.
    pub(crate) fn wait(mut self, ring: &mut Ring) -> u32 {
        // All steps so far are behind this rank.
        ring.mark();
        let (behind, mut looks, mut yields) = (ring.next_step(), 0, 0);
        while let Some(awaited) = self.awaited(ring, behind) {
            if looks == Self::LOOKS || yields == Self::YIELDS {
                break;
            }
            looks += 1;
            if ring.shares_core(awaited) {
                if !ring.job().give_way() {
                    break;
                }
                yields += 1;
            } else {
                breathe();
            }
        }
        looks
    }

    /// A rank before this one that has not left the barrier, the last of the steps before `behind`.
    fn awaited(&mut self, ring: &Ring, behind: u32) -> Option<usize> {
        match self.before {
            Before::Nobody => None,
            Before::Rank(rank) => (!ring.consumed_by(rank, behind)).then_some(rank),
            Before::All if ring.consumed_by_all(behind, &mut self.next) => None,
            Before::All => ring.peers().get(self.next).copied(),
        }
    }
}

impl Progress for Flat {
    #[inline(always)] // its outcome is a long type: polled in place, it stays in registers
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        if !self.announced {
            wait_for!(ring.may_write(self.span)?);
            ring.publish_and_record(self.span);
            self.announced = true;
        }
        wait_for!(ring.published_by_all(self.span, &mut self.next)?);
        ring.all_have_reached(self.span.step());
        ring.leave();
        Ok(Poll::Ready(()))
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        ring.peers().get(self.next).copied().filter(|_| self.announced)
    }

    fn wakers(&self, ring: &Ring) -> Wakers {
        ring.waker(self.awaits(ring))
    }
}

/// In round k a rank waits for the one 2^k before it (Hensgen, Finkel and Manber 1988).
#[derive(Debug)]
pub(crate) struct Dissemination {
    span: Span,
    first: u32,
    announced: bool,
    distance: usize,
    awaits: usize,
}

impl Dissemination {
    pub(crate) fn new(ring: &mut Ring) -> Self {
        let span = ring.take(0);
        Self { span, first: span.step(), announced: false, distance: 1, awaits: 0 }
    }
}

impl Progress for Dissemination {
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        let size = ring.size();
        while self.distance < size {
            if !self.announced {
                wait_for!(ring.may_write(self.span)?);
                ring.publish(self.span);
                self.announced = true;
            }
            self.awaits = (ring.rank() + size - self.distance) % size;
            wait_for!(ring.published(self.awaits, self.span)?);
            self.distance *= 2;
            if self.distance < size {
                self.span = ring.take(0);
                self.announced = false;
            }
        }
        ring.all_have_reached(self.first);
        ring.leave();
        Ok(Poll::Ready(()))
    }

    fn awaits(&self, _: &Ring) -> Option<usize> {
        self.announced.then_some(self.awaits)
    }

    fn wakers(&self, ring: &Ring) -> Wakers {
        ring.waker(self.awaits(ring))
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
    use reduce_kernels::{Call, Operator};

    /// What `body` returns on each of three ranks.
    fn ranks<R: Send>(body: impl Fn(&mut Ring) -> R + Sync) -> Vec<R> {
        let rank = |mut exchange: ThreadExchange| {
            let settings = Settings { backing: Some(Backing::Heap), ..Settings::default() };
            let job = Rc::new(Job::together(&mut exchange, settings).expect("a job"));
            let mut ring = Ring::together(&mut exchange, Rc::clone(&job), 0, vec![0, 1, 2]).expect("a ring");
            let result = body(&mut ring);
            exchange.allgather(&[]).expect("all");
            job.finalize();
            result
        };
        let rank = &rank;
        thread::scope(|scope| {
            // SAFETY: all ranks make their engines at once, and then give nothing to each other but that they have come.
            let group = unsafe { thread_group(3) };
            let threads: Vec<_> = group.into_iter().map(|one| scope.spawn(move || rank(one))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    /// Who leaves before each rank, behind two operations with these signatures.
    fn before(pair: [Signature; 2]) -> Vec<String> {
        ranks(|ring| {
            let leavings = pair.map(|signature| Leaving::on_shared_cores(ring, signature));
            let name = |leaving: Leaving| format!("{:?}", leaving.before);
            leavings.map(|leaving| leaving.map_or("-".to_owned(), name)).join(" ")
        })
    }

    #[test]
    fn the_root_of_the_last_two_operations_leaves_first_or_last() {
        let bcast = |root| Call::bcast(&mut [0_u8; 4], root).signature();
        let reduce = |root| Call::reduce_in_place(&mut [0_f32; 4], Operator::Sum.into(), root).signature();
        assert_eq!(before([bcast(1), bcast(1)]), ["- Rank(1)", "- Nobody", "- Rank(1)"]);
        assert_eq!(before([reduce(1), reduce(1)]), ["- Nobody", "- All", "- Nobody"]);
        assert_eq!(before([bcast(0), bcast(1)]), ["- -", "- -", "- -"], "roots that change");
        assert_eq!(before([bcast(3), bcast(3)]), ["- -", "- -", "- -"], "a root elsewhere, of a part of a call");
        assert_eq!(before([Call::barrier().signature(); 2]), ["- -", "- -", "- -"]);
    }

    #[test]
    fn nobody_waits_long_for_a_rank_that_does_not_leave() {
        let looks = ranks(|ring| {
            ring.take(0);
            let before = [Before::Rank(2), Before::All, Before::Nobody][ring.rank()];
            // The last rank never marks.
            if ring.rank() == 2 { 0 } else { Leaving { before, next: 0 }.wait(ring) }
        });
        assert!(looks[..2].iter().all(|looks| (1..=Leaving::LOOKS).contains(looks)), "{looks:?}");
    }
}

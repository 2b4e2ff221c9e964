//! Barrier: flat (one step, every rank reads every flag) or by dissemination (log2 n steps).

use crate::coll::{Poll, Progress, wait_for};
use crate::error::Result;
use crate::ring::{Ring, Span};
use crate::sys::affinity;
use reduce_kernels::{Collective, Signature};

/// Every rank announces itself and looks for all others: one flag's way, n - 1 flags read.
#[derive(Debug)]
pub(crate) struct Flat {
    span: Span,
    announced: bool,
    next: usize,
    leaving: Option<Leaving>,
}

impl Flat {
    #[inline]
    pub(crate) fn new(ring: &mut Ring) -> Self {
        Self { span: ring.take(0), announced: false, next: 0, leaving: None }
    }

    /// As [`new`](Self::new), for a rank that waits in it, behind the operation `before`.
    #[inline]
    pub(crate) fn after(ring: &mut Ring, before: Signature) -> Self {
        let leaving = if ring.own_cores() { None } else { Leaving::behind(ring, before) };
        Self { leaving, ..Self::new(ring) }
    }
}

/// In which order ranks that share cores leave a barrier behind an operation that had the root of the one before:
/// a bcast's root first, a reduction's last.
///
/// In the next such operation a rank then finds what it needs, and gives its core away once for both, where it would
/// wait in either. Only a courtesy: each waits for so many looks and no more.
#[derive(Debug, Clone, Copy)]
struct Leaving {
    before: Before,
    looks: u32,
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
    /// Looks at a rank on another core: about as long as a core's change to another rank takes.
    const LOOKS: u32 = 128;
    /// Times that the core is given to ranks that need it.
    const YIELDS: u32 = 2;

    fn behind(ring: &mut Ring, before: Signature) -> Option<Self> {
        let (collective, root) = before.rooted()?;
        if root >= ring.size() || !ring.is_root_again(root) {
            return None;
        }
        let before = match collective {
            Collective::Bcast if ring.rank() != root => Before::Rank(root),
            Collective::Reduce if ring.rank() == root => Before::All,
            _ => Before::Nobody,
        };
        let looks = match before {
            Before::Rank(root) if !ring.shares_core(root) => Self::LOOKS,
            _ => Self::YIELDS,
        };
        Some(Self { before, looks, next: 0 })
    }

    /// True once those before this rank have left the barrier, whose step is `step`.
    fn is_free(&mut self, ring: &mut Ring, step: u32) -> bool {
        let behind = step.wrapping_add(1);
        let free = match self.before {
            Before::Nobody => {
                ring.mark();
                true
            }
            Before::Rank(rank) => ring.consumed_by(rank, behind),
            Before::All => ring.consumed_by_all(behind, &mut self.next),
        };
        if free || self.looks == 0 {
            return true;
        }
        self.looks -= 1;
        if self.awaits(ring).is_some_and(|rank| ring.shares_core(rank)) {
            affinity::yield_now();
        }
        false
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        match self.before {
            Before::Nobody => None,
            Before::Rank(rank) => Some(rank),
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
        if let Some(leaving) = &mut self.leaving {
            wait_for!(leaving.is_free(ring, self.span.step()));
        }
        ring.all_have_reached(self.span.step());
        ring.leave();
        Ok(Poll::Ready(()))
    }

    fn awaits(&self, ring: &Ring) -> Option<usize> {
        let before = || self.leaving.and_then(|leaving| leaving.awaits(ring));
        ring.peers().get(self.next).copied().filter(|_| self.announced).or_else(before)
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
}

#[cfg(test)]
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
            let threads: Vec<_> = thread_group(3).into_iter().map(|one| scope.spawn(move || rank(one))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }

    /// Who leaves before each rank, behind two operations with these signatures.
    fn before(pair: [Signature; 2]) -> Vec<String> {
        ranks(|ring| {
            let leavings = pair.map(|signature| Leaving::behind(ring, signature));
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
            let step = ring.take(0).step();
            let mut leaving = Leaving { before: Before::Rank((ring.rank() + 1) % 3), looks: 2, next: 0 };
            [(); 3].map(|()| leaving.is_free(ring, step))
        });
        assert_eq!(looks, [[false, false, true]; 3]);
    }
}

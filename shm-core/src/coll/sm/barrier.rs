//! Barrier: flat (one step, every rank reads every flag) or by dissemination (log2 n steps).

use crate::coll::{Poll, Progress, wait_for};
use crate::error::Result;
use crate::ring::{Ring, Span};

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

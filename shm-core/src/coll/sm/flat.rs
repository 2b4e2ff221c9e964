//! Reduce and allreduce of small vectors in one step: each rank publishes its vector beside its flag, in its
//! slot's annex, or in one cell; the root, or every rank, reads all of them and reduces in rank order. One
//! flag's way.
#![allow(unsafe_code)] // copies between user buffers and shared memory

use std::borrow::Borrow;

use crate::coll::fold::fold_elements;
use crate::coll::{Poll, Progress, wait_for};
use crate::error::Result;
use crate::ring::{Ring, Span};
use crate::sync::Wakers;
use reduce_kernels::{Call, Collective};

#[derive(Debug)]
pub(crate) struct Reduce<C> {
    call: C,
    span: Span,
    announced: bool,
    next: usize,
    /// Somebody was looked for in vain.
    waited: bool,
}

impl<'a, C: Borrow<Call<'a>>> Reduce<C> {
    #[inline]
    pub(crate) fn new(ring: &mut Ring, given: C) -> Self {
        let call = given.borrow();
        let span = ring.take_payload(call.bytes());
        // Nobody reads what the root of a reduce has.
        let announced = call.collective == Collective::Reduce && ring.rank() == call.root;
        if announced {
            ring.record();
        }
        Self { call: given, span, announced, next: 0, waited: false }
    }

    /// Reduces what all ranks have published.
    #[inline(always)] // once, where it is polled
    fn finish(&self, ring: &mut Ring) {
        let call = self.call.borrow();
        let Some(op) = &call.op else { return };
        let (own, bytes) = (call.send, call.bytes());
        let pair;
        let from = if let [peer] = *ring.peers() {
            let theirs = ring.payload(peer, self.span, bytes);
            pair = if peer == 0 { [theirs, own] } else { [own, theirs] };
            pair.as_slice()
        } else {
            ring.payloads(self.span, bytes, own)
        };
        // SAFETY: every rank has published as many bytes (same signature) and keeps them until this
        // rank leaves; `recv` is this rank's, valid for as many, and may only be `send`.
        unsafe { fold_elements(op, call.datatype, call.recv, from, call.count) };
    }
}

impl<'a, C: Borrow<Call<'a>>> Progress for Reduce<C> {
    #[inline(always)] // its outcome is a long type: polled in place, it stays in registers
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll> {
        let call = self.call.borrow();
        let everywhere = call.collective == Collective::Allreduce;
        let receives = everywhere || ring.rank() == call.root;
        if !self.announced {
            wait_for!(ring.may_write(self.span)?);
            // SAFETY: just allowed, not yet published; the span was taken for the call's bytes, which
            // `send` holds.
            unsafe { ring.put_payload(self.span, call.send, call.bytes()) };
            ring.publish_and_record(self.span);
            ring.expect_another(call.bytes(), call.bytes(), false);
            self.announced = true;
        }
        if receives {
            if !ring.look_for_payloads(self.span, call.bytes(), &mut self.next)? {
                self.waited = true;
                return Ok(Poll::Pending);
            }
            if !everywhere && !self.waited {
                // All others are ahead of this root, and have probably published what follows.
                ring.prefetch_ahead_of_all(self.span);
            }
            self.finish(ring);
            ring.all_have_reached(self.span.step());
        }
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

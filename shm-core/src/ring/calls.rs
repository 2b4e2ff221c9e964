//! Calls that are carried out as operations of several communicators: a rank may wait in one of these and its peer, which
//! has called something else, in another one, where no flag and no record of theirs ever meet. So each rank tells which
//! calls it makes, and who waits long compares.

use super::Ring;
use super::agreement::Difference;
use crate::error::Result;
use crate::segment::layout::CALLS;
use crate::sync::{OpRecord, Ordering};
use reduce_kernels::Signature;

/// Calls of which the records of two ranks are compared.
const KEPT: u32 = CALLS - 1;

impl Ring {
    /// Tells the peers of this rank's next call, of which operations here are a part.
    pub(crate) fn announce(&mut self, signature: Signature) {
        self.calls = self.calls.wrapping_add(1);
        // Nothing keeps a rank from calling far ahead of one that compares.
        self.call_of(self.rank, self.calls).replace(self.calls, 0, signature.packed, signature.count);
        self.flags(self.rank).called.0.store(self.calls, Ordering::Relaxed);
    }

    /// The next operation is a part of the latest call, if calls are told of here.
    #[inline]
    pub(crate) fn enters_latest_call(&mut self) {
        self.part_of = self.calls;
    }

    /// The next operation is a part of the call of this number, or of none: 0.
    pub(crate) fn enters_call(&mut self, number: u32) {
        self.part_of = number;
    }

    /// Compares this rank's latest calls with those of each peer.
    ///
    /// # Errors
    /// A peer has called something else.
    pub(super) fn compare_calls(&self) -> Result<()> {
        let different = |&peer: &usize| self.different_call(peer).map(|difference| (peer, difference));
        match self.peers().iter().find_map(different) {
            Some((peer, difference)) => Err(self.end_with_difference(peer, &difference)),
            None => Ok(()),
        }
    }

    /// The oldest call known in which this rank and `peer` differ.
    pub(super) fn different_call(&self, peer: usize) -> Option<Difference> {
        let called = self.flags(peer).called.0.load(Ordering::Relaxed);
        let of = |rank: usize| move |number: u32| self.call_of(rank, number).get(number);
        Difference::first(self.calls, of(self.rank), called, of(peer), KEPT)
    }

    fn call_of(&self, rank: usize, number: u32) -> &OpRecord {
        &self.flags(rank).calls[(number % CALLS) as usize]
    }
}

//! The collectives of one node: every one a state machine that is polled.

pub(crate) mod operands;
pub(crate) mod sm;

use crate::error::Result;
use crate::ring::Ring;
use crate::sync::Wakers;

/// What a poll has found.
pub(crate) type Poll = std::task::Poll<()>;

/// A collective in progress on this rank.
pub(crate) trait Progress {
    /// Goes on as far as the peers' flags allow, without waiting.
    fn poll(&mut self, ring: &mut Ring) -> Result<Poll>;

    /// The rank whose flag is looked at next, if it is a single one.
    fn awaits(&self, ring: &Ring) -> Option<usize>;

    /// Without news of these, and after a poll that found none, it does not go on.
    fn wakers(&self, _ring: &Ring) -> Wakers {
        Wakers::ALL
    }
}

/// Polls `operation`; if it cannot go on, the job ends with its error, so that no peer waits for this rank.
#[inline]
pub(crate) fn advance(operation: &mut (impl Progress + ?Sized), ring: &mut Ring) -> Result<Poll> {
    operation.poll(ring).map_err(|error| ring.job().end_with(error, &ring.operation()))
}

/// Ends a poll with `Pending` unless the condition holds.
macro_rules! wait_for {
    ($condition:expr) => {
        if !$condition {
            return Ok(std::task::Poll::Pending);
        }
    };
}
pub(crate) use wait_for;

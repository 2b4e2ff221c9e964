//! The collectives of one node: every one a state machine that is polled, in one of several forms.
//!
//! `choice` says in which; `sm` has those by copy-in and copy-out through the communicator's own shared memory, which also
//! read ranks' vectors in place where peers reach these, and `solo` those that need nothing but that (dissertation, section
//! 5.2.2). Small payloads travel beside the flag.
//!
//! | form | payload | steps | who reads whom |
//! |---|---|---|---|
//! | `flat` | beside the flag, in the slot's annex, or in one cell | 1 | all read the root, or the root reads all, or all read all |
//! | `tree` | beside the flag | 1 or 2 | radix-8 trees, which follow the machine's levels, for many ranks |
//! | `tree` of long bcasts | cells | 1 a chunk | leaders hand on to those near them, where there are several levels |
//! | `direct` | cells | 1 a chunk | as `flat`, pipelined by chunks |
//! | `slice` | cells | 2 a chunk | each rank reduces its slice of every chunk from all ranks' cells |
//! | `ring` | cells | a chunk as many as ranks | each rank adds to the sums of the one before it, a slice after the other |
//! | `chain` | cells | 1 a chunk, behind 1 where vectors may be mapped | the ranks of a core hand a sum on, the root adds up those of all cores |
//! | `joint` | none | 2 | each rank does its part in all ranks' own vectors |
//! | `joint` where parts are handed on | cells | 2, and 1 a chunk | each makes a part from the root's or all ranks' vectors, all read it from its cells |

mod apart;
pub(crate) mod choice;
mod fold;
pub(crate) mod operands;
mod operation;
pub(crate) mod sm;
pub(crate) mod solo;
mod window;

use crate::copy::cico::copy_past_caches;
use crate::error::Result;
use crate::ring::Ring;
use crate::sync::Wakers;
pub(crate) use operation::{Operation, lends, likely, run};

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

/// What is copied between two looks at the job.
const PIECE_BYTES: usize = 4 << 20;
/// What is reduced of mapped vectors before it is written to other ranks' vectors: the first cache holds it.
pub(crate) const MAPPED_STEP_BYTES: usize = 8 << 10;

type CopyBytes = unsafe fn(*mut u8, *const u8, usize);

/// The copy for results of `bytes` in all: `within` the caches, or past them.
fn copy_of(ring: &Ring, bytes: usize, within: CopyBytes) -> CopyBytes {
    if ring.terms().is_beyond_caches(bytes) { copy_past_caches } else { within }
}

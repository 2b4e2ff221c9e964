//! Do all ranks do the same? Signatures where peers can look at them, a chain over all of them in every
//! flag, and the message that shows both sides when they differ.

use crate::error::{Error, Result};
use crate::job::Reason;
use crate::ring::Ring;
use crate::sync::{OpRecord, Ordering, before};
use crate::sys::{affinity, clock};
use reduce_kernels::Signature;

/// How long a rank may take from its first flag of an operation to its record.
const RECORD_WITHIN_NS: u64 = 100_000_000;

impl Ring {
    /// Begins an operation: its flags carry its signature in their chain. Peers can see what it is after
    /// [`record`](Self::record), which may follow the first flag so that the flag need not wait.
    ///
    /// Returns what the operation before it was.
    #[inline]
    pub(crate) fn enter(&mut self, signature: Signature) -> Signature {
        self.sequence = self.sequence.wrapping_add(1);
        self.chain = mix(self.chain, signature);
        std::mem::replace(&mut self.signature, signature)
    }

    /// From here on peers can see what this rank does.
    #[inline]
    pub(crate) fn record(&self) {
        let Signature { packed, count } = self.signature;
        self.record_of(self.rank, self.sequence).enter(self.sequence, self.chain, packed, count);
        self.flags(self.rank).entered.0.store(self.sequence, Ordering::Relaxed);
    }

    /// Ranks that have not entered this rank's operation.
    pub(crate) fn not_entered(&self) -> Vec<usize> {
        let entered = |rank: usize| self.flags(rank).entered.0.load(Ordering::Relaxed);
        (0..self.size()).filter(|&rank| before(entered(rank), self.sequence)).collect()
    }

    /// This rank's operation as messages name it.
    pub(crate) fn operation(&self) -> String {
        format!("{} #{} on communicator {}", self.signature, self.number(), self.id)
    }

    /// The operation's number as the program counts: that of its own call, of which the operation may be a part.
    pub(crate) fn number(&self) -> u32 {
        if self.part_of == 0 { self.sequence } else { self.part_of }
    }

    pub(crate) fn signature(&self) -> Signature {
        self.signature
    }

    /// Compares this rank's operation with what each peer says of the same one.
    ///
    /// # Errors
    /// A peer does something else.
    pub(crate) fn compare(&self) -> Result<()> {
        let own = self.record_of(self.rank, self.sequence).get(self.sequence);
        for peer in 0..self.size() {
            let theirs = self.record_of(peer, self.sequence).get(self.sequence);
            if theirs.is_some() && theirs != own {
                return Err(self.explain_mismatch(peer));
            }
        }
        self.compare_calls()
    }

    #[inline]
    fn record_of(&self, rank: usize, sequence: u32) -> &OpRecord {
        &self.flags(rank).history[(sequence & (2 * self.depth - 1)) as usize]
    }

    /// Finds the first operation in which this rank and `peer` differ, and ends the job with it.
    #[cold]
    pub(super) fn explain_mismatch(&self, peer: usize) -> Error {
        if let Some(difference) = self.different_call(peer) {
            return self.end_with_difference(peer, &difference);
        }
        self.record();
        // A peer records an operation only after its first flag of it.
        let patience = clock::now_ns() + RECORD_WITHIN_NS;
        let sides = loop {
            let sides = self.first_difference(peer);
            if sides.is_some() || clock::now_ns() > patience {
                break sides;
            }
            affinity::yield_now();
        };
        if let Some(difference) = sides {
            return self.end_with_difference(peer, &difference);
        }
        let ((low, high), id, kept) = (self.in_order(peer), self.id, self.records_kept());
        let text = format!(
            "{low} and {high} have called different operations on communicator {id}, more than {kept} operations ago"
        );
        self.job.end(&Reason::mismatch(text), None)
    }

    /// The names of this rank and `peer` in the order of their ranks, so that a text is the same whoever finds it.
    fn in_order(&self, peer: usize) -> (String, String) {
        let (low, high) = (self.rank.min(peer), self.rank.max(peer));
        (self.job.name(self.world[low]), self.job.name(self.world[high]))
    }

    /// Ends the job because of what this rank and `peer` have called.
    pub(super) fn end_with_difference(&self, peer: usize, difference: &Difference) -> Error {
        let Difference { sequence, own, theirs } = difference;
        let (first, second) = if self.rank < peer { (own, theirs) } else { (theirs, own) };
        let ((low, high), id) = (self.in_order(peer), self.id);
        let text =
            format!("operation #{sequence} on communicator {id}: {low} called {first}, but {high} called {second}");
        self.job.end(&Reason::mismatch(text), None)
    }

    /// The oldest operation known in which this rank and `peer` differ.
    fn first_difference(&self, peer: usize) -> Option<Difference> {
        let entered = self.flags(peer).entered.0.load(Ordering::Relaxed);
        // Nobody writes over these records meanwhile.
        let of = |rank: usize| move |sequence: u32| self.record_of(rank, sequence).get(sequence);
        Difference::first(self.sequence, of(self.rank), entered, of(peer), self.records_kept())
    }

    /// Records of a peer that it does not write over while this rank is in its operation.
    fn records_kept(&self) -> u32 {
        2 * self.depth - 4
    }

    /// Compares the newest operation that both this rank and `peer` have entered.
    ///
    /// # Errors
    /// They differ in it, and so in it or in one before.
    pub(super) fn compare_with(&self, peer: usize) -> Result<()> {
        let entered = self.flags(peer).entered.0.load(Ordering::Relaxed);
        let (common, _) = order(entered, self.sequence);
        let own = self.record_of(self.rank, common).get(common);
        let theirs = self.record_of(peer, common).get(common);
        if own.is_some() && theirs.is_some() && own != theirs {
            return Err(self.explain_mismatch(peer));
        }
        Ok(())
    }
}

/// An operation in which two ranks differ.
pub(super) struct Difference {
    sequence: u32,
    own: Signature,
    theirs: Signature,
}

/// What a record says.
type Recorded = Option<(u32, u64, u64)>;

impl Difference {
    /// The oldest one, by records of at least the latest `kept` operations of each rank, the newest of which have the
    /// numbers `entered` and `entered_theirs`.
    pub(super) fn first(
        entered: u32,
        own: impl Fn(u32) -> Recorded,
        entered_theirs: u32,
        theirs: impl Fn(u32) -> Recorded,
        kept: u32,
    ) -> Option<Self> {
        let (slower, faster) = order(entered_theirs, entered);
        let oldest = faster.wrapping_sub(kept);
        let common = slower.wrapping_sub(oldest).wrapping_add(1);
        let signature = |(_, packed, count): (u32, u64, u64)| Signature { packed, count };
        (0..common.min(kept + 1)).map(|i| oldest.wrapping_add(i)).find_map(|sequence| {
            let (own, theirs) = (signature(own(sequence)?), signature(theirs(sequence)?));
            (own != theirs).then_some(Self { sequence, own, theirs })
        })
    }
}

/// The earlier of two sequence numbers, then the later.
fn order(a: u32, b: u32) -> (u32, u32) {
    if before(a, b) { (a, b) } else { (b, a) }
}

/// Folds an operation's signature into the chain of all before it.
#[inline]
fn mix(chain: u32, signature: Signature) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut hash = (u64::from(chain) ^ signature.packed).wrapping_mul(ODD);
    hash = (hash ^ (hash >> 29) ^ signature.count).wrapping_mul(ODD);
    #[allow(clippy::cast_possible_truncation)] // the upper half is the better mixed one
    let folded = (hash >> 32) as u32;
    // Never 0, which is what a slot holds that was never published.
    folded | 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_tells_signatures_apart() {
        let signature = |packed, count| Signature { packed, count };
        let a = mix(0, signature(1, 0));
        assert_ne!(a, mix(0, signature(2, 0)));
        assert_ne!(a, mix(0, signature(1, 1)));
        assert_ne!(mix(a, signature(1, 0)), a);
        let ab = mix(mix(0, signature(1, 5)), signature(2, 5));
        let ba = mix(mix(0, signature(2, 5)), signature(1, 5));
        assert_ne!(ab, ba, "order matters");
    }
}

//! A reduction of which each rank has the result of its slice of every chunk: where results go, and how who
//! receives comes by the others'. Common to `slice` and `ring`.
#![allow(unsafe_code)] // copies between user buffers and shared memory

use crate::coll::apart::is_users;
use crate::coll::choice::Chunks;
use crate::coll::choice::Form;
use crate::coll::copy_of;
use crate::coll::operands::Operands;
use crate::copy::Access;
use crate::copy::cico::copy;
use crate::error::Result;
use crate::ring::{Ring, Span};
use reduce_kernels::{Call, Collective};

/// Shorter vectors stay in the second caches: there a line that peers have read costs more to write again
/// than a copy through cells.
const LEND_RESULTS_BYTES: usize = 1 << 20;

/// Where the result of a slice stands, if it goes through the cells of the rank that has reduced it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    pub(crate) span: Span,
    /// Bytes from the span's start.
    pub(crate) within: usize,
}

impl Spot {
    fn cells(self, ring: &Ring, rank: usize) -> *mut u8 {
        ring.cells(rank, self.span).wrapping_add(self.within)
    }
}

#[derive(Debug)]
pub(crate) struct Sliced<'a> {
    pub(crate) call: Call<'a>,
    pub(crate) chunks: Chunks,
    pub(crate) operands: Operands,
    /// This rank gets the whole result.
    pub(crate) receives: bool,
    /// Results are gathered from where they were reduced to, if that is reached at all.
    lends_results: bool,
    /// Index of the peer that is seen next to have gone on, where this rank's vectors are lent.
    seen: usize,
}

impl<'a> Sliced<'a> {
    pub(crate) fn new(ring: &mut Ring, call: Call<'a>, form: Form) -> Self {
        let chunks = Chunks::new(ring, &call, form);
        let receives = call.receives(ring.rank());
        // In place too: a slice of `recv` is written only when its owner has reduced it.
        let operands = Operands::new(ring, &call, true);
        let lends_results = call.collective == Collective::Reduce || call.bytes() >= LEND_RESULTS_BYTES;
        Self { call, chunks, operands, receives, lends_results, seen: 0 }
    }

    /// Where this rank reduces to what begins at `at` of the vectors: its own result, or the root's if that is
    /// mapped here and the operator is not a user's, or else `spot`.
    pub(crate) fn place(&self, ring: &Ring, spot: Spot, at: usize) -> *mut u8 {
        if self.receives {
            // In the call's buffer, which this rank has because it receives.
            return self.call.recv.wrapping_add(at);
        }
        let mapped = self.operands.mapped_recv(self.call.root).filter(|_| !is_users(&self.call));
        mapped.map_or_else(|| spot.cells(ring, ring.rank()), |recv| recv.wrapping_add(at))
    }

    /// Brings the result of a slice to where who receives looks for it. It was reduced to [`place`](Self::place).
    ///
    /// # Errors
    /// The kernel cannot write to the root's vector.
    ///
    /// # Safety
    /// The ring allows this rank to write at `spot`, which has room for `bytes` that nobody reads before another flag
    /// of this rank; `result` is what `place` has said for `at`, and holds them; at `at` all vectors of the call have
    /// as many, which in the root's are left to this rank.
    pub(crate) unsafe fn deliver(
        &self,
        ring: &mut Ring,
        spot: Spot,
        at: usize,
        result: *const u8,
        bytes: usize,
    ) -> Result<()> {
        match self.operands.recv(self.call.root).filter(|_| !self.receives) {
            // It is there already, unless a user's operator has reduced it to this rank's cells.
            Some(Access::Mapped(_)) if !is_users(&self.call) => {}
            Some(recv) => {
                let was_read = self.operands.is_lent_in_place(self.call.root);
                // SAFETY: the caller's promise.
                unsafe { ring.put_abroad(recv, at, result, bytes, self.call.bytes(), was_read) }?;
            }
            None => {}
        }
        let is_lent = self.lends_results && self.operands.own_are_reached();
        if self.call.collective == Collective::Allreduce && !is_lent {
            // SAFETY: the caller's promise.
            unsafe { ring.put_cells(spot.span, spot.within, result, bytes) };
        }
        Ok(())
    }

    /// Copies the slice of `chunk` that `peer` has published at `spot`, unless it has put it here itself.
    ///
    /// # Errors
    /// The kernel cannot read the peer's vector.
    pub(crate) fn gather(&self, ring: &Ring, chunk: usize, peer: usize, spot: Spot) -> Result<()> {
        let slice = self.chunks.slice(chunk, peer, ring.size());
        let at = self.chunks.offset(chunk) + slice.start;
        // In the call's buffer, which this rank has because it receives.
        let to = self.call.recv.wrapping_add(at);
        let from = if self.call.collective == Collective::Allreduce {
            self.operands.recv(peer).filter(|_| self.lends_results)
        } else if self.operands.own_are_reached() {
            return Ok(());
        } else {
            None
        };
        let _at_work = from.is_some().then(|| ring.reach_out()).transpose()?;
        let copy_out = copy_of(ring, self.call.bytes(), copy);
        match from {
            // SAFETY: published, and kept until this rank has consumed the step that told of it.
            None => unsafe { copy_out(to, spot.cells(ring, peer), slice.len()) },
            // SAFETY: the peer has published this slice of its result and writes it no more, and leaves only
            // when this rank has consumed that step.
            Some(Access::Mapped(recv)) => unsafe { copy_out(to, recv.wrapping_add(at), slice.len()) },
            // SAFETY: the same.
            Some(Access::Kernel(recv)) => unsafe { ring.job().reach().read(recv, at, to, slice.len()) }?,
        }
        Ok(())
    }

    /// True once nobody works on this rank's vectors where they are any more; `end` follows the last step.
    pub(crate) fn is_given_back(&mut self, ring: &Ring, end: u32) -> bool {
        !self.operands.own_are_reached() || ring.consumed_by_all(end, &mut self.seen)
    }

    /// The peer that the end waits for, if it waits.
    pub(crate) fn awaited_last(&self, ring: &Ring) -> Option<usize> {
        ring.peers().get(self.seen).copied()
    }
}

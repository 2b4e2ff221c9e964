//! One communicator's memory as a rank sees it: slots and cells of every rank, walked step by step.
//!
//! A collective is a sequence of steps. Each step has, per rank, one slot (a flag with room for a
//! small payload) and as many consecutive cells as its payload needs. All ranks take the same steps
//! in the same order, whether they write in them or not, so a step has the same place on every rank. A
//! rank may write to a step's place once every rank has consumed the steps that had it before.
#![allow(unsafe_code)] // reads and writes memory that other processes map

mod agreement;

use std::collections::VecDeque;
use std::rc::Rc;

use crate::call::Signature;
use crate::coll::sm::Terms;
use crate::copy::Stores;
use crate::copy::cico::copy;
use crate::error::Result;
use crate::exchange::Exchange;
use crate::job::{AtWork, Job};
use crate::segment::layout::{
    Header, INLINE_BYTES, RankFlags, SLOTS, StepSlot, cell_bytes, cells_in_ring, whole_pages,
};
use crate::segment::{Place, Segment, Shape};
use crate::sync::before;

/// Steps that a reader fetches in advance from a writer that is ahead of it.
const PREFETCH_STEPS: u32 = 4;
/// Peers from which slots are fetched in advance at a time: a core has few loads in flight.
const FEW_PEERS: usize = 3;
/// Steps by which a rank's watermark may lag behind: no writer waits for the last ones.
const MARK_LAG: u32 = 8;

/// The slots and cells of a communicator, and how far this rank has come in them.
#[derive(Debug)]
pub(crate) struct Ring {
    job: Rc<Job>,
    flags: Vec<Place<RankFlags>>,
    cells: Vec<*mut u8>,
    cell_bytes: usize,
    cell_count: usize,
    terms: Terms,
    /// Slots in use: enough to let a writer run ahead of ranks that share its core; fewer where every
    /// rank has its own, so that slots and records of two ranks stay in the first cache.
    depth: u32,
    rank: usize,
    /// World rank of each rank.
    world: Vec<usize>,
    /// All other ranks, those that share a core with this one first: they need it to come.
    peers: Vec<usize>,
    id: u32,
    /// The next step that nobody has taken.
    step: u32,
    /// Cells that the steps so far have taken, those that were left over at the ring's end included.
    cells_taken: u64,
    /// Steps whose cells no later step has taken any of, oldest first, and where they begin in that count.
    intact: VecDeque<(u32, u64)>,
    /// The step behind the last one whose cells were taken again.
    overrun: u32,
    /// Every peer is known to have consumed the steps before this one.
    recycled: u32,
    /// What this rank's watermark says.
    marked: u32,
    /// Operations entered so far.
    sequence: u32,
    /// Covers the signatures of all operations entered so far.
    chain: u32,
    signature: Signature,
    /// Room for a pointer to each rank's contribution, so that no operation allocates.
    sources: Vec<*const u8>,
    /// How this rank's payloads go into its cells.
    stores: Stores,
    /// All cells have been in use, so that they cost no page faults any more.
    lapped: bool,
    /// Kept mapped for the places above.
    _segment: Segment,
}

impl Ring {
    /// Makes the memory of a communicator together: collective over `exchange`.
    pub(crate) fn together(exchange: &mut dyn Exchange, job: Rc<Job>, id: u32, world: Vec<usize>) -> Result<Self> {
        let size = world.len();
        let cell_bytes = cell_bytes(size);
        let cells_at = whole_pages(size_of::<RankFlags>());
        let cell_count = cells_in_ring(size);
        let ring_bytes = cell_count * cell_bytes;
        let stride = whole_pages(cells_at + ring_bytes);
        let rank = exchange.rank();
        let mut peers: Vec<usize> = (0..size).filter(|&peer| peer != rank).collect();
        peers.sort_by_key(|&peer| !job.shares_core(world[peer]));
        let first = whole_pages(size_of::<Header>());
        let bytes = first + size * stride;
        let shape = Shape { name: "han-comm", ranks: size, cell_bytes, bytes };
        let mut segment = Segment::together(exchange, &shape, &[job.backing()])?;
        segment.forget_file();
        let flags = (0..size).map(|r| segment.place(first + r * stride)).collect();
        let cells = (0..size).map(|r| segment.bytes_at(first + r * stride + cells_at, ring_bytes)).collect();
        Ok(Self {
            terms: job.terms(size),
            stores: Stores::new(job.settings().past_caches),
            depth: if job.own_cores() { SLOTS / 4 } else { SLOTS },
            job,
            flags,
            cells,
            cell_bytes,
            cell_count,
            rank,
            world,
            peers,
            id,
            step: 0,
            cells_taken: 0,
            intact: VecDeque::with_capacity(SLOTS as usize),
            overrun: 0,
            recycled: 0,
            marked: 0,
            sequence: 0,
            chain: 0,
            signature: Signature { packed: 0, count: 0 },
            sources: Vec::with_capacity(size),
            lapped: false,
            _segment: segment,
        })
    }

    #[inline]
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.flags.len()
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    #[inline]
    pub(crate) fn job(&self) -> &Rc<Job> {
        &self.job
    }

    /// Lets this rank work on its peers' own memory as long as the result lives.
    ///
    /// # Errors
    /// The job has ended.
    #[inline]
    pub(crate) fn reach_out(&self) -> Result<AtWork> {
        self.job.reach_out(|| self.operation())
    }

    pub(crate) fn world(&self) -> &[usize] {
        &self.world
    }

    /// All other ranks, in the order in which this one had better look for them.
    #[inline]
    pub(crate) fn peers(&self) -> &[usize] {
        &self.peers
    }

    /// What the form of an operation depends on beside the call.
    #[inline]
    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// True if every rank has a core to itself.
    #[inline]
    pub(crate) fn own_cores(&self) -> bool {
        self.terms.own_cores
    }

    /// True if `rank` may need this rank's core to go on.
    pub(crate) fn shares_core(&self, rank: usize) -> bool {
        self.job.shares_core(self.world[rank])
    }

    pub(crate) fn cell_bytes(&self) -> usize {
        self.cell_bytes
    }

    pub(crate) fn cell_count(&self) -> usize {
        self.cell_count
    }

    #[inline]
    fn flags(&self, rank: usize) -> &RankFlags {
        // SAFETY: the place was made by the segment that this ring keeps mapped.
        unsafe { self.flags[rank].get() }
    }

    #[inline]
    fn slot(&self, rank: usize, step: u32) -> &StepSlot {
        &self.flags(rank).slots[(step & (self.depth - 1)) as usize]
    }

    /// Takes the next step with room for `bytes` in consecutive cells (0: the slot alone).
    ///
    /// All ranks take the same steps with the same sizes.
    #[inline]
    pub(crate) fn take(&mut self, bytes: usize) -> Span {
        let step = self.step;
        self.step = step.wrapping_add(1);
        // What had the slot before must be consumed, and so all steps up to it.
        let oldest = self.step.wrapping_sub(self.depth);
        if bytes == 0 {
            Span { step, first_cell: 0, bytes: 0, needed: oldest }
        } else {
            self.take_cells(step, bytes, oldest)
        }
    }

    #[inline(never)]
    fn take_cells(&mut self, step: u32, bytes: usize, oldest: u32) -> Span {
        let ring = self.cell_count as u64;
        let cells = bytes.div_ceil(self.cell_bytes) as u64;
        debug_assert!(cells <= ring);
        let at = self.cells_taken % ring;
        // Consecutive, so not across the ring's end.
        let begin = if at + cells > ring { self.cells_taken + (ring - at) } else { self.cells_taken };
        self.cells_taken = begin + cells;
        // Whatever began a ring before this span's end has had some of its cells, or is older still.
        while let Some(&(earlier, at)) = self.intact.front()
            && at + ring < self.cells_taken
        {
            self.overrun = earlier.wrapping_add(1);
            self.intact.pop_front();
        }
        self.intact.push_back((step, begin));
        #[allow(clippy::cast_possible_truncation)] // less than the ring's cells, and bytes
        let (first_cell, bytes) = ((begin % ring) as u32, bytes as u32);
        let needed = if before(self.overrun, oldest) { oldest } else { self.overrun };
        Span { step, first_cell, bytes, needed }
    }

    /// True once this rank may write to the place of `span`: all ranks have consumed what was there.
    ///
    /// # Errors
    /// A peer does not do the same operations as this rank.
    #[inline]
    pub(crate) fn may_write(&mut self, span: Span) -> Result<bool> {
        let needed = span.needed;
        if !before(self.recycled, needed) {
            return Ok(true);
        }
        self.look_at_watermarks()?;
        // A writer that was stopped waits for more room than it needs, so that it need not look again
        // after every step, at lines that the readers would have to fetch back. But it must not wait
        // for more than peers are sure to have marked: `MARK_LAG` steps less than there were.
        let ample = needed.wrapping_add(span.step.wrapping_sub(needed) / 2);
        let sure = span.step.wrapping_sub(MARK_LAG);
        let wanted = if before(sure, ample) { sure } else { ample };
        Ok(!before(self.recycled, needed) && !before(self.recycled, wanted))
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

    /// Copies `bytes` at `from` into this rank's slot of `span`, beside the flag.
    ///
    /// # Safety
    /// [`may_write`](Self::may_write) has allowed it, the span is not yet published, `bytes` is at
    /// most [`INLINE_BYTES`] and `from` is valid for that many.
    #[inline]
    pub(crate) unsafe fn put_inline(&self, span: Span, from: *const u8, bytes: usize) {
        debug_assert!(bytes <= INLINE_BYTES);
        self.slot(self.rank, span.step).write(|to| {
            // SAFETY: the slot has room for INLINE_BYTES, only this rank writes to it, nobody reads it
            // before it is published, and user memory does not overlap the segment.
            unsafe { copy(to, from, bytes) }
        });
    }

    /// Takes the next step with room for a payload of at most a cell.
    #[inline]
    pub(crate) fn take_payload(&mut self, bytes: usize) -> Span {
        self.take(if bytes <= INLINE_BYTES { 0 } else { bytes })
    }

    /// Copies `bytes` at `from` into this rank's part of `span`: beside the flag, or else into its cell.
    ///
    /// # Safety
    /// As for [`put_inline`](Self::put_inline), for at most the bytes that the span was taken for.
    #[inline]
    pub(crate) unsafe fn put_payload(&mut self, span: Span, from: *const u8, bytes: usize) {
        if bytes <= INLINE_BYTES {
            // SAFETY: the caller's promise.
            unsafe { self.put_inline(span, from, bytes) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.put_cells(span, 0, from, bytes) };
        }
    }

    /// Copies `bytes` at `from` into this rank's cells of `span`, from `offset` on.
    ///
    /// # Safety
    /// [`may_write`](Self::may_write) has allowed it, the span is not yet published and has room for
    /// `offset + bytes`, and `from` is valid for `bytes` and not in these cells.
    #[inline]
    pub(crate) unsafe fn put_cells(&mut self, span: Span, offset: usize, from: *const u8, bytes: usize) {
        assert!(offset + bytes <= span.bytes as usize, "{bytes} bytes at {offset} for a span of {}", span.bytes);
        self.lapped |= self.cells_taken > self.cell_count as u64;
        let to = self.cells(self.rank, span).wrapping_add(offset);
        // SAFETY: the cells have room, only this rank writes to them, and nobody reads them before they
        // are published.
        unsafe { self.stores.copy_in(to, from, bytes, self.lapped) };
    }

    /// Where `rank` has put a payload of `bytes` in `span`.
    #[inline]
    pub(crate) fn payload(&self, rank: usize, span: Span, bytes: usize) -> *const u8 {
        if bytes <= INLINE_BYTES { self.inline(rank, span) } else { self.cells(rank, span) }
    }

    /// The payload beside `rank`'s flag of `span`.
    #[inline]
    pub(crate) fn inline(&self, rank: usize, span: Span) -> *const u8 {
        self.slot(rank, span.step).read(|from| from)
    }

    /// The cells of `rank` in `span`.
    #[inline]
    pub(crate) fn cells(&self, rank: usize, span: Span) -> *mut u8 {
        // In bounds: a span lies within the ring, whose length was checked when the pointer was made.
        self.cells[rank].wrapping_add(span.first_cell as usize * self.cell_bytes)
    }

    /// Every rank's payload of `bytes` in `span`, in rank order, with `own` for this rank's.
    #[inline]
    pub(crate) fn payloads(&mut self, span: Span, bytes: usize, own: *const u8) -> &[*const u8] {
        let mut sources = std::mem::take(&mut self.sources);
        sources.clear();
        let payload = |rank| if rank == self.rank { own } else { self.payload(rank, span, bytes) };
        sources.extend((0..self.size()).map(payload));
        self.sources = sources;
        &self.sources
    }

    /// `own`, then the payload beside the flags of `ranks`.
    pub(crate) fn inline_sources(
        &mut self,
        span: Span,
        own: *const u8,
        ranks: impl Iterator<Item = usize>,
    ) -> &[*const u8] {
        let mut sources = std::mem::take(&mut self.sources);
        sources.clear();
        sources.push(own);
        sources.extend(ranks.map(|rank| self.inline(rank, span)));
        self.sources = sources;
        &self.sources
    }

    /// Every rank's cells of `span`, from `offset` on, in rank order, with `own` for this rank's.
    pub(crate) fn cell_sources(&mut self, span: Span, offset: usize, own: *const u8) -> &[*const u8] {
        let cells = |ring: &Self, rank| ring.cells(rank, span).wrapping_add(offset).cast_const();
        self.sources(|ring, rank| if rank == ring.rank { own } else { cells(ring, rank) })
    }

    /// What `of` says of every rank, in rank order.
    pub(crate) fn sources(&mut self, mut of: impl FnMut(&Self, usize) -> *const u8) -> &[*const u8] {
        let mut sources = std::mem::take(&mut self.sources);
        sources.clear();
        sources.extend((0..self.size()).map(|rank| of(self, rank)));
        self.sources = sources;
        &self.sources
    }

    /// Fetches the slots that `peer` may have published already, when it was seen to be ahead.
    #[inline]
    pub(crate) fn prefetch_ahead(&self, peer: usize, span: Span) {
        for ahead in 1..=PREFETCH_STEPS {
            self.slot(peer, span.step.wrapping_add(ahead)).prefetch_for_read();
        }
    }

    /// As [`prefetch_ahead`](Self::prefetch_ahead), from all peers if they are few.
    #[inline]
    pub(crate) fn prefetch_ahead_of_all(&self, span: Span) {
        for &peer in self.peers.iter().take(FEW_PEERS) {
            self.prefetch_ahead(peer, span);
        }
    }

    /// Announces this rank's part of the only step of an operation that was not recorded before.
    #[inline]
    pub(crate) fn publish_and_record(&self, span: Span) {
        self.publish(span);
        self.record();
    }

    /// Announces this rank's part of `span`.
    #[inline]
    pub(crate) fn publish(&self, span: Span) {
        self.slot(self.rank, span.step).publish(span.step, self.chain);
        self.job.ring();
    }

    /// True once `peer` has announced its part of `span`.
    ///
    /// # Errors
    /// The peer does not do the same operation as this rank, or did not do so before.
    #[inline]
    pub(crate) fn published(&self, peer: usize, span: Span) -> Result<bool> {
        match self.slot(peer, span.step).published(span.step) {
            None => Ok(false),
            Some(chain) if chain == self.chain => Ok(true),
            Some(_) => Err(self.explain_mismatch(peer)),
        }
    }

    /// True once all peers have announced their part of `span`; `next` counts those seen so far.
    ///
    /// # Errors
    /// As [`published`](Self::published).
    #[inline]
    pub(crate) fn published_by_all(&self, span: Span, next: &mut usize) -> Result<bool> {
        while let Some(&peer) = self.peers.get(*next) {
            if !self.published(peer, span)? {
                return Ok(false);
            }
            *next += 1;
        }
        Ok(true)
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
        self.job.ring();
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
        }
    }

    /// Steps compare well only within half the circle, and a rank that only reads never asks how far its peers
    /// are. All are within a ring of this rank's step, or it could not have come so far.
    fn stay_comparable(&mut self) {
        for old in [&mut self.recycled, &mut self.overrun] {
            if self.step.wrapping_sub(*old) > 1 << 30 {
                *old = self.step.wrapping_sub(1 << 29);
            }
        }
    }
}

/// A step with its consecutive cells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) step: u32,
    /// Where its cells begin in the ring, if it has any.
    first_cell: u32,
    /// What its cells were taken for; at most a chunk.
    bytes: u32,
    /// Its place may be written once all steps before this one are consumed.
    needed: u32,
}

impl Span {
    /// The first step after it.
    #[inline]
    pub(crate) fn end(self) -> u32 {
        self.step.wrapping_add(1)
    }
}

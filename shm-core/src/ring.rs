//! One communicator's memory as a rank sees it: slots and cells of every rank, walked step by step.
//!
//! A collective is a sequence of steps. Each step has, per rank, one slot (a flag with room for a
//! small payload) with its annex for a payload of up to 1 KiB, and as many consecutive cells as a larger
//! payload needs. All ranks take the same steps in the same order, whether they write in them or not, so a
//! step has the same place on every rank. A rank may write to a step's place once every rank has consumed the
//! steps that had it before.
#![allow(unsafe_code)] // reads and writes memory that other processes map

mod agreement;
mod annexes;
mod calls;
mod cells;
mod marks;
mod payload;
mod span;

use std::cell::Cell;
use std::ptr;
use std::rc::Rc;

use crate::coll::choice::{Terms, Trials};
use crate::coll::sm::{Families, Family, HandOn, Link};
use crate::copy::cico::{LINE, Line, copy, copy_from_shared, prefetch_for_read};
use crate::copy::{Loads, Stores};
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::job::{AtWork, Job};
use crate::segment::layout::{
    FIRST_CELLS, Header, RankFlags, SLOTS, StepSlot, annex_bytes, beside_bytes, cell_bytes, cells_in_ring, gap_bytes,
    whole_pages,
};
use crate::segment::{Place, Segment, Shape};
use crate::sync::{Wakers, before};
use annexes::Annexes;
use cells::Cells;
use reduce_kernels::{Call, Signature};
pub(crate) use span::Span;

/// Steps that a reader fetches in advance from a writer that is ahead of it.
const PREFETCH_STEPS: u32 = 4;
/// Peers from which slots are fetched in advance at a time: a core has few loads in flight.
const FEW_PEERS: usize = 3;

/// The slots and cells of a communicator, and how far this rank has come in them.
#[derive(Debug)]
pub(crate) struct Ring {
    job: Rc<Job>,
    flags: Vec<Place<RankFlags>>,
    annexes: Annexes,
    cells: Cells,
    /// How this rank's payloads go into peers' vectors.
    to_vectors: Stores,
    /// How bcasts' come out of their roots' cells, and out of their vectors where they are mapped.
    from_cells: Loads,
    from_vectors: Loads,
    terms: Terms,
    trials: Trials,
    /// Slots in use: enough to let a writer run ahead of ranks that share its core; fewer where every
    /// rank has its own, so that slots and records of two ranks stay in the first cache.
    depth: u32,
    rank: usize,
    /// World rank of each rank.
    world: Vec<usize>,
    /// All other ranks, those that share a core with this one first, because they need it to come; then near
    /// ones before far ones.
    peers: Vec<usize>,
    families: Families,
    /// None where sums are not handed on.
    hand_on: Option<HandOn>,
    id: u32,
    /// The next step that nobody has taken.
    step: u32,
    /// Every peer is known to have consumed the steps before this one.
    recycled: u32,
    /// What this rank's watermark says.
    marked: u32,
    /// The step at which this rank's slots were last looked through for steps long past.
    retired: u32,
    /// How often this rank has published something.
    told: Cell<u32>,
    /// The operation has work left for which it needs nobody.
    has_work: Cell<bool>,
    /// The step that all had to have consumed before this rank could write, when it last looked in vain, and [`told`](Self::told)
    /// then.
    lacked: Cell<Option<(u32, u32)>>,
    /// Operations entered so far.
    sequence: u32,
    /// Covers the signatures of all operations entered so far.
    chain: u32,
    signature: Signature,
    /// Of the last operation with a root that a barrier followed.
    root: Option<usize>,
    /// Calls of several operations that this rank has told of so far.
    calls: u32,
    /// The number of the call that the last operation is a part of; 0 if it is a call itself.
    part_of: u32,
    /// Room for a pointer to each rank's contribution, so that no operation allocates.
    sources: Vec<*const u8>,
    /// Room for a part of a peer's vector, aligned for every element.
    room: Vec<Line>,
    /// Kept mapped for the places above.
    _segment: Segment,
}

impl Drop for Ring {
    /// Nothing of it is used any more, by this rank. Not told in a panic: what ends the process is what peers should hear of.
    /// Nor in a forked child, which is no rank.
    fn drop(&mut self) {
        if std::thread::panicking() || !self.job.is_own() {
            return;
        }
        self.flags(self.rank).freed.advance(1);
        self.job.wake_sleepers(self.id);
    }
}

/// The digest of ranks that cannot be a communicator's.
const NOBODY: u64 = u64::MAX << 8;

/// What tells a communicator's number and ranks from others.
fn digest(id: u32, world: &[usize]) -> u64 {
    let mixed = |digest: u64, &rank: &usize| (digest ^ rank as u64).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
    world.iter().fold(u64::from(id), mixed)
}

/// An error unless `world` are `size` different ranks of the job, this one at place `rank`.
fn are_members(world: &[usize], job: &Job, rank: usize, size: usize) -> Result<()> {
    let is_one = |&one: &usize| one < job.size() && world.iter().filter(|&&other| other == one).count() == 1;
    if world.len() == size && world.get(rank) == Some(&job.rank()) && world.iter().all(is_one) {
        return Ok(());
    }
    let (own, of) = (job.rank(), job.size());
    let why = format!("the ranks {world:?} are not {size} of the job's {of} with rank {own} at place {rank}");
    Err(Error::InvalidArgument(why))
}

impl Ring {
    /// Makes the memory of a communicator together: collective over `exchange`.
    pub(crate) fn together(exchange: &mut dyn Exchange, job: Rc<Job>, id: u32, world: Vec<usize>) -> Result<Self> {
        let (rank, size) = (exchange.rank(), exchange.size());
        let depth = if job.own_cores() { SLOTS / 4 } else { SLOTS };
        let (annex_bytes, cell_bytes) = (annex_bytes(size), cell_bytes(size));
        let annexes_at = whole_pages(size_of::<RankFlags>());
        let cells_at = whole_pages(annexes_at + depth as usize * annex_bytes);
        let first = whole_pages(size_of::<Header>());
        let bytes_with = |cells: usize| first + size * (cells_at + cells * cell_bytes);
        let (bytes, least_bytes) = (bytes_with(cells_in_ring(size)), bytes_with(FIRST_CELLS));
        // Where ranks do not name the same ranks, all fail.
        let are_members = are_members(&world, &job, rank, size);
        let members = if are_members.is_ok() { digest(id, &world) } else { NOBODY ^ rank as u64 };
        let shape = Shape { name: "han-comm", ranks: size, members, cell_bytes, bytes, least_bytes };
        let segment = Segment::together(exchange, &shape, &[job.backing()]);
        are_members?;
        let mut segment = segment.map_err(|error| job.or_death(error))?;
        let circumstances = job.circumstances(&world);
        let mut terms = Terms::new(&circumstances);
        let hierarchy = circumstances.hierarchy;
        let mut peers: Vec<usize> = (0..size).filter(|&peer| peer != rank).collect();
        // Of those that are equally near each rank begins behind itself: ranks that run at the same time do not all read the same one.
        let ahead = |peer| if job.own_cores() { (peer + size - rank) % size } else { peer };
        peers.sort_by_key(|&peer| (!job.shares_core(world[peer]), hierarchy.distance(rank, peer), ahead(peer)));
        segment.forget_file();
        let stride = (segment.bytes() - first) / size;
        let parts: Vec<usize> = (0..size).map(|rank| first + rank * stride).collect();
        let flags = parts.iter().map(|part| segment.place(*part)).collect();
        let annexes = parts.iter().map(|part| segment.bytes_at(part + annexes_at, depth as usize * annex_bytes));
        let annexes = Annexes::new(annexes.collect(), annex_bytes, beside_bytes(size, job.own_cores()), depth);
        let cells: Vec<usize> = parts.iter().map(|part| part + cells_at).collect();
        terms.cells = (stride - cells_at) / cell_bytes;
        let settings = job.settings();
        let (past_caches, by_string) = (settings.past_caches, settings.string_stores);
        let stores = Stores::new(past_caches, by_string, job.own_cores());
        let to_vectors = Stores::abroad(past_caches, by_string, job.own_cores(), peers.len());
        let from_cells = Loads::new(by_string, job.own_cores(), copy_from_shared);
        let from_vectors = Loads::new(by_string, job.own_cores(), copy);
        let cells = Cells::new(&segment, &cells, terms.cells, gap_bytes(job.own_cores()), stores);
        Ok(Self {
            trials: Trials::new(|collective, bytes| terms.likely_joint(collective, bytes)),
            terms,
            hand_on: HandOn::of(&hierarchy, job.own_cores()),
            families: Families::new(hierarchy, rank),
            depth,
            job,
            flags,
            annexes,
            cells,
            to_vectors,
            from_cells,
            from_vectors,
            rank,
            world,
            peers,
            id,
            step: 0,
            recycled: 0,
            marked: 0,
            retired: 0,
            told: Cell::new(0),
            has_work: Cell::new(false),
            lacked: Cell::new(None),
            sequence: 0,
            chain: 0,
            signature: Signature { packed: 0, count: 0 },
            root: None,
            calls: 0,
            part_of: 0,
            sources: Vec::with_capacity(size),
            room: Vec::new(),
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

    /// This rank's place in the tree below `root`.
    pub(crate) fn family(&mut self, root: usize) -> Rc<Family> {
        self.families.below(root)
    }

    /// What this rank does where sums are handed on to `root`; the form is taken only where they are.
    pub(crate) fn link(&self, root: usize) -> Link {
        let hand_on = self.hand_on.as_ref().unwrap_or_else(|| unreachable!("nobody hands sums on"));
        hand_on.link(self.rank, root)
    }

    /// This rank's place in a tree below rank 0 that keeps rank order.
    pub(crate) fn family_in_order(&mut self) -> Rc<Family> {
        self.families.in_order()
    }

    /// True if trees follow several levels of the machine.
    pub(crate) fn follows_levels(&self) -> bool {
        self.families.follow_levels()
    }

    /// What the form of an operation depends on beside the call.
    #[inline]
    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Which of two ways the ranks go, by trial.
    pub(crate) fn trials(&mut self) -> &mut Trials {
        &mut self.trials
    }

    /// Private memory for `bytes`, aligned for every element, until the next call.
    pub(crate) fn room(&mut self, bytes: usize) -> *mut u8 {
        let lines = bytes.div_ceil(LINE);
        if self.room.len() < lines {
            self.room.resize(lines, Line::ZERO);
        }
        self.room.as_mut_ptr().cast()
    }

    /// True if ranks would carry out `call` jointly, were it not a trial.
    pub(crate) fn prefers_joint(&self, call: &Call<'_>) -> bool {
        self.trials.prefers_joint(call.collective, call.bytes())
    }

    /// Doubles the ring of cells, unless it is as long as can be. All ranks do so before the same operation.
    pub(crate) fn lengthen(&mut self) {
        self.cells.lengthen();
    }

    /// The next payload that this rank puts into cells is timed: what stores it had better use is to be known soon.
    pub(crate) fn time_stores(&mut self) {
        self.cells.time_stores();
    }

    /// Cells that an operation has used so far, the same on all ranks.
    pub(crate) fn cells_used(&self) -> usize {
        self.cells.used()
    }

    /// Changes when this rank has taken pages for its cells.
    pub(crate) fn cell_pages(&self) -> u64 {
        self.cells.touched()
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
        self.cells.cell_bytes()
    }

    pub(crate) fn cell_count(&self) -> usize {
        self.cells.most()
    }

    #[inline]
    fn flags(&self, rank: usize) -> &RankFlags {
        // SAFETY: the place was made by the segment that this ring keeps mapped.
        unsafe { self.flags[rank].get() }
    }

    /// True if `rank` has freed the communicator: it enters nothing any more.
    pub(crate) fn has_freed(&self, rank: usize) -> bool {
        self.flags(rank).freed.get() != 0
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
        if bytes == 0 { Span::of_slot(step, oldest) } else { self.cells.take(step, bytes, oldest) }
    }

    /// Takes the next `steps` steps, one at least, with room for `bytes` in consecutive cells until the last of them is
    /// consumed; returns the first one's.
    pub(crate) fn take_steps(&mut self, steps: usize, bytes: usize) -> Span {
        debug_assert!((1..1 << 28).contains(&steps), "{steps} steps at once would not compare well");
        #[allow(clippy::cast_possible_truncation)] // steps are numbers modulo 2^32, and far fewer are taken at a time
        let last = self.step.wrapping_add(steps as u32 - 1);
        let oldest = self.step.wrapping_add(1).wrapping_sub(self.depth);
        let span = self.cells.take_until(last, self.step, bytes, oldest);
        self.step = last.wrapping_add(1);
        span
    }

    /// The step `ahead` steps behind `first`, whose cells it has where it is that one.
    pub(crate) fn later(&self, first: Span, ahead: usize) -> Span {
        #[allow(clippy::cast_possible_truncation)] // as above
        let step = first.step().wrapping_add(ahead as u32);
        if ahead == 0 { first } else { Span::of_slot(step, step.wrapping_add(1).wrapping_sub(self.depth)) }
    }

    /// Steps after which a slot comes again.
    pub(crate) fn depth(&self) -> usize {
        self.depth as usize
    }

    /// The step that nobody has taken yet.
    pub(crate) fn next_step(&self) -> u32 {
        self.step
    }

    /// True if the last operation with a root before a barrier had this one, too: to be asked at each such barrier.
    pub(crate) fn is_root_again(&mut self, root: usize) -> bool {
        self.root.replace(root) == Some(root)
    }

    /// Fetches the slots that `peer` may have published already, when it was seen to be ahead.
    #[inline]
    pub(crate) fn prefetch_ahead(&self, peer: usize, span: Span) {
        for ahead in 1..=PREFETCH_STEPS {
            prefetch_for_read(ptr::from_ref(self.slot(peer, span.step().wrapping_add(ahead))).cast());
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
        self.put_flag(span);
        // Who is woken may take this core, and ask what was called.
        self.record();
        self.wake_sleepers();
    }

    /// Announces this rank's part of `span`.
    #[inline]
    pub(crate) fn publish(&self, span: Span) {
        self.put_flag(span);
        self.wake_sleepers();
    }

    #[inline]
    fn put_flag(&self, span: Span) {
        self.slot(self.rank, span.step()).publish(span.step(), self.chain);
    }

    /// To be called after every store that a peer may wait for.
    #[inline]
    fn wake_sleepers(&self) {
        self.told.set(self.told.get().wrapping_add(1));
        self.job.wake_sleepers(self.id);
    }

    /// What wakes who waits for the news of `peer`; for anybody's, if that is not known.
    pub(crate) fn waker(&self, peer: Option<usize>) -> Wakers {
        peer.map_or(Wakers::ALL, |peer| Wakers::of(self.world[peer]))
    }

    /// Changes whenever this rank has published something, or done a piece of its work: its operation goes on.
    #[inline]
    pub(crate) fn told(&self) -> u32 {
        self.told.get()
    }

    /// The operation has done a piece of its work, and comes back between two for the sake of the job alone.
    pub(crate) fn work_is_left(&self) {
        self.told.set(self.told.get().wrapping_add(1));
        self.has_work.set(true);
    }

    /// Whether that was so at the last poll.
    pub(crate) fn takes_work_left(&self) -> bool {
        self.has_work.take()
    }

    /// Peers that have not consumed what lies where this rank would write next, if that is what it waits for.
    pub(crate) fn without_room(&self) -> Vec<usize> {
        let Some((step, _)) = self.lacked.get().filter(|(_, told)| *told == self.told()) else { return Vec::new() };
        self.peers.iter().copied().filter(|&peer| before(self.flags(peer).consumed.get(), step)).collect()
    }

    /// True once `peer` has announced its part of `span`.
    ///
    /// # Errors
    /// The peer does not do the same operation as this rank, or did not do so before.
    #[inline]
    pub(crate) fn published(&self, peer: usize, span: Span) -> Result<bool> {
        match self.slot(peer, span.step()).published(span.step()) {
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
}

//! What all communicators of a node share: who lives, why the job ended, where ranks sleep.
#![allow(unsafe_code)] // dereferences places in the job's own segment

mod ending;
mod introduction;
mod load;
mod record;
mod watch;

pub use introduction::{host_name, network_identity, node_identity};
pub use load::Load;
pub use watch::{JobStatus, Jobs, RankReport, list};

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::copy::probe::{self, Offer};
use crate::copy::{Method, Methods, Reach};
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::explain::Circumstances;
use crate::segment::layout::{FINALIZED, FINALIZING, Header, JobFlags, RUNNING, RankStatus, RegionTable, whole_pages};
use crate::segment::{Backing, Place, Segment, Shape, gather, random};
use crate::settings::Settings;
use crate::sync::{Ordering, Patience, Wakers};
use crate::sys::pidfd::{Lives, PidFd};
use crate::sys::{clock, futex, map, process};
use crate::topo::{Hierarchy, Level, Locality};
pub(crate) use ending::AtWork;
use ending::dead_behind;
use introduction::{Introduction, agree};
use load::placement;
pub(crate) use record::Reason;
use reduce_kernels::{Signature, Strangers};

/// Most ranks on one node.
pub const MAX_RANKS: usize = 256;

/// The ranks of one job on this node.
#[derive(Debug)]
pub struct Job {
    /// Before the segment, in which its tables lie.
    reach: Reach,
    segment: Segment,
    flags: Place<JobFlags>,
    status: Vec<Place<RankStatus>>,
    rank: usize,
    /// By rank: the number by which messages call it.
    numbers: Vec<usize>,
    pids: Vec<u32>,
    lives: Rc<Lives>,
    checked_ns: Cell<u64>,
    /// The job has ended, and no peer works on this rank's memory any more.
    left_alone: Cell<bool>,
    /// The job has ended, and this rank has said that it was not told why.
    unexplained: Cell<bool>,
    settings: Settings,
    patience: Patience,
    own_cores: bool,
    /// Per world rank: whether it may run on a core that this rank may run on.
    shares_core: Vec<bool>,
    strangers: Rc<Strangers>,
    last_cache_bytes: usize,
    placement: String,
    locality: Locality,
}

impl Job {
    /// Brings the ranks of one node together. Collective over `exchange`.
    ///
    /// # Errors
    /// Ranks on several nodes, more than [`MAX_RANKS`], settings that differ, or no shared memory
    /// that all can map.
    pub fn together(exchange: &mut dyn Exchange, settings: Settings) -> Result<Self> {
        settings.validate().map_err(Error::InvalidArgument)?;
        let (rank, size) = (exchange.rank(), exchange.size());
        let numbers: Vec<usize> = (0..size).map(|rank| exchange.number(rank)).collect();
        if size > MAX_RANKS {
            return Err(Error::Startup(format!("{size} ranks on one node: at most {MAX_RANKS} are supported")));
        }
        // Lives until the verdicts are in.
        let offer = Offer::make(settings.methods, random());
        let own = Introduction::own(&settings, &offer, Locality::card(rank, size, &settings))?;
        let words = exchange.allgather(own.to_text().as_bytes()).map_err(Error::of_exchange)?;
        let peers: Vec<Introduction> = words.iter().map(|w| Introduction::from_text(w)).collect::<Result<_>>()?;
        agree(&peers, &numbers)?;
        let shares_core: Vec<bool> =
            peers.iter().map(|p| p.cores.iter().any(|core| own.cores.contains(core))).collect();
        let here = peers.iter().zip(&shares_core).filter(|(_, shares)| **shares).map(|(peer, _)| peer.pid);
        let strangers = Rc::new(strangers(here.chain(settings.neighbours.iter().copied()).collect(), own.cores.len()));
        let (own_cores, patience, placement) = placement(&peers, &settings);
        let masks: Vec<&[usize]> = peers.iter().map(|peer| &peer.cores[..]).collect();
        let locality = Locality::agree(&peers[0].topology, &masks, &settings)?;

        let status_at = size_of::<Header>() + size_of::<JobFlags>();
        let tables_at = status_at + size * size_of::<RankStatus>();
        let bytes = whole_pages(tables_at + size * size_of::<RegionTable>());
        if rank == 0 {
            map::sweep();
        }
        let pids: Vec<u32> = peers.iter().map(|p| p.pid).collect();
        // Threads share one life; a process that has its own is watched.
        let watched = |pid: u32| (pid != std::process::id()).then(|| PidFd::open(pid));
        let lives: Result<Vec<_>> = pids.iter().map(|&pid| watched(pid).transpose()).collect();
        let lives = lives.map(Lives::new);
        let shape = Shape { name: "han-job", ranks: size, members: 0, cell_bytes: 0, bytes, least_bytes: bytes };
        let segment = Segment::together(exchange, &shape, &backings(&settings)).map_err(|error| {
            let ended = || lives.as_ref().ok()?.ended().first().copied();
            let died = |rank: usize| Reason::died(numbers[rank], pids[rank]).into_error(Some("the start of the job"));
            dead_behind(&error, ended).map_or(error, died)
        })?;
        let flags = segment.place(size_of::<Header>());
        let status: Vec<_> = (0..size).map(|r| segment.place(status_at + r * size_of::<RankStatus>())).collect();
        let offers: Vec<_> = peers.iter().map(|p| (p.pid, &p.offered)).collect();
        let reached = probe::try_neighbours(rank, &offers, settings.methods);
        // The verdicts come from all, so all fail or none does; and nobody judges a peer before it runs.
        let verdict = lives.as_ref().err().map(|e| e.to_string().replace('\n', " ")).unwrap_or_default();
        let verdict = format!("{verdict}\n{}", probe::verdict_to_text(&reached));
        let verdicts = gather(exchange, verdict.as_bytes())?;
        drop(offer);
        let split: Vec<_> = verdicts.iter().map(|verdict| verdict.split_once('\n').unwrap_or((verdict, ""))).collect();
        if let Some((rank, (verdict, _))) = split.iter().enumerate().find(|(_, (verdict, _))| !verdict.is_empty()) {
            return Err(Error::Startup(format!("rank {}: {verdict}", numbers[rank])));
        }
        let methods = probe::agree(split.iter().map(|(_, reached)| *reached), settings.methods);
        let tables: Vec<_> = (0..size).map(|r| segment.place(tables_at + r * size_of::<RegionTable>())).collect();
        // Decides forms, so all ranks take the same.
        let last_cache_bytes = settings.last_cache_bytes.unwrap_or(peers[0].last_cache_bytes);
        let lives = Rc::new(lives?);
        let has_regions = segment.backing() != Backing::Heap;
        let job = Self {
            reach: Reach::new(rank, &pids, Rc::clone(&lives), &tables, methods, has_regions),
            segment,
            flags,
            status,
            rank,
            numbers,
            pids,
            lives,
            checked_ns: Cell::new(0),
            left_alone: Cell::new(false),
            unexplained: Cell::new(false),
            settings,
            patience,
            own_cores,
            shares_core,
            strangers,
            last_cache_bytes,
            placement,
            locality,
        };
        let word = |number| u32::try_from(number).unwrap_or(u32::MAX);
        if rank == 0 {
            job.flags().world.store(word(exchange.world_size()), Ordering::Relaxed);
        }
        job.status(rank).number.store(word(job.numbers[rank]), Ordering::Relaxed);
        job.status(rank).pid.store(std::process::id(), Ordering::Relaxed);
        job.status(rank).state.store(RUNNING, Ordering::Relaxed);
        Ok(job)
    }

    /// This rank among those of this node.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks on this node.
    #[must_use]
    pub fn size(&self) -> usize {
        self.pids.len()
    }

    /// The settings that all ranks agreed on.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// How ranks wait, from ranks against cores.
    #[must_use]
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Nanoseconds between two looks of a waiting rank at its peers.
    pub(crate) fn look_every_ns(&self) -> u64 {
        u64::from(self.patience.look_ms) * 1_000_000
    }

    /// True if every rank has a core to itself: the same on all ranks.
    #[must_use]
    pub fn own_cores(&self) -> bool {
        self.own_cores
    }

    /// True if world rank `rank` may run on a core that this rank may run on.
    pub(crate) fn shares_core(&self, rank: usize) -> bool {
        self.shares_core[rank]
    }

    /// What the choices of a communicator of these ranks depend on.
    pub(crate) fn circumstances(&self, world: &[usize]) -> Circumstances {
        Circumstances {
            hierarchy: self.hierarchy().of_ranks(world),
            own_cores: self.own_cores,
            shared: self.methods().has(Method::Shared),
            cma: self.methods().has(Method::Cma),
            everywhere: self.reach().reaches_all(),
            last_cache_bytes: self.last_cache_bytes,
            settings: self.settings.clone(),
        }
    }

    /// Ranks, cores, and what follows for waiting, in words.
    #[must_use]
    pub fn placement(&self) -> &str {
        &self.placement
    }

    /// The methods by which all ranks can reach each other's memory.
    #[must_use]
    pub fn methods(&self) -> &Methods {
        self.reach.methods()
    }

    /// What this rank can reach of the others, and they of it.
    #[inline]
    pub(crate) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The ranks in groups, by what they share; the same on every rank.
    #[must_use]
    pub fn hierarchy(&self) -> &Hierarchy {
        self.locality.hierarchy()
    }

    /// Where the hierarchy comes from, or why it is flat.
    #[must_use]
    pub fn hierarchy_origin(&self) -> &str {
        self.locality.origin()
    }

    /// How near this rank and world rank `rank` are.
    #[must_use]
    pub fn distance(&self, rank: usize) -> Level {
        self.hierarchy().distance(self.rank, rank)
    }

    /// The kind of memory that all ranks could map.
    #[must_use]
    pub fn backing(&self) -> Backing {
        self.segment.backing()
    }

    #[inline]
    fn flags(&self) -> &JobFlags {
        // SAFETY: the place was made by this job's segment, which lives as long as the job.
        unsafe { self.flags.get() }
    }

    fn status(&self, rank: usize) -> &RankStatus {
        // SAFETY: as above.
        unsafe { self.status[rank].get() }
    }

    /// Wakes whoever sleeps until this rank has news on `communicator`; to be called after every store that a peer may wait for.
    #[inline]
    pub(crate) fn wake_sleepers(&self, communicator: u32) {
        self.flags().bell.ring(communicator, |word| futex::wake(word, Wakers::of(self.rank).bits()));
    }

    /// Wakes whoever sleeps.
    fn wake_all(&self) {
        self.flags().bell.ring_for_all(|word| futex::wake(word, futex::ANYBODY));
    }

    /// Where this node's ranks sleep.
    pub(crate) fn bell(&self) -> &crate::sync::Bell {
        &self.flags().bell
    }

    /// Gives the core to another runnable thread. False, without having done so, where one that is no rank would take it for
    /// too long.
    #[inline]
    pub(crate) fn give_way(&self) -> bool {
        self.strangers.give_way()
    }

    /// Who may keep this rank's core, for waits outside of the node.
    #[must_use]
    pub fn strangers(&self) -> Rc<Strangers> {
        Rc::clone(&self.strangers)
    }

    /// True if `rank` has finalized.
    pub(crate) fn has_finalized(&self, rank: usize) -> bool {
        // J2 (Acquire): pairs with J1.
        self.status(rank).state.load(Ordering::Acquire) == FINALIZED
    }

    /// True if `rank` waits in the world's last barrier.
    pub(crate) fn is_finalizing(&self, rank: usize) -> bool {
        // J2 (Acquire): pairs with J1.
        self.status(rank).state.load(Ordering::Acquire) == FINALIZING
    }

    /// A peer as messages name it: `rank 2 (pid 4711)`.
    #[must_use]
    pub fn name(&self, rank: usize) -> String {
        format!("rank {} (pid {})", self.numbers[rank], self.pids[rank])
    }

    /// As [`name`](Self::name), with what the kernel says of the process where that explains a wait.
    pub(crate) fn name_and_state(&self, rank: usize) -> String {
        let (number, pid) = (self.numbers[rank], self.pids[rank]);
        match process::state(pid) {
            Some('T' | 't') => format!("rank {number} (pid {pid}, stopped)"),
            Some('Z') | None => format!("rank {number} (pid {pid}, ended)"),
            Some(_) => format!("rank {number} (pid {pid})"),
        }
    }

    /// Writes down for onlookers that this rank waits for ranks `missing` of this job.
    pub(crate) fn note_wait(&self, communicator: u32, sequence: u32, signature: Signature, missing: &[usize]) {
        let own = self.status(self.rank);
        for (word, bits) in own.missing.iter().enumerate() {
            let here = missing.iter().filter(|&&rank| rank / 64 == word);
            bits.store(here.fold(0, |bits, rank| bits | 1 << (rank % 64)), Ordering::Relaxed);
        }
        own.wait.begin(communicator, sequence, signature, Duration::ZERO);
    }

    /// Writes down that the wait is over.
    pub(crate) fn note_progress(&self) {
        self.status(self.rank).wait.end();
    }

    /// Writes down for onlookers that this rank has waited for messages of some ranks of the world in an operation, for
    /// so long.
    pub fn note_network_wait(
        &self,
        communicator: u32,
        sequence: u32,
        signature: Signature,
        waited: Duration,
        missing: &[usize],
    ) {
        let own = self.status(self.rank);
        for (index, word) in own.network_missing.iter().enumerate() {
            let rank = missing.get(index).and_then(|&rank| u32::try_from(rank + 1).ok());
            word.store(rank.unwrap_or(0), Ordering::Relaxed);
        }
        own.network_wait.begin(communicator, sequence, signature, waited);
    }

    /// Writes down that the wait for messages is over.
    pub fn note_network_progress(&self) {
        self.status(self.rank).network_wait.end();
    }

    /// Marks this rank as one that begins no operation any more but the world's last barrier.
    pub fn begin_to_finalize(&self) {
        // J1 (Release): what this rank has entered and published comes before it. Pairs with J2.
        self.status(self.rank).state.store(FINALIZING, Ordering::Release);
    }

    /// Marks this rank as finalized: from now on its end is no death.
    pub fn finalize(&self) {
        // J1 (Release): the same.
        self.status(self.rank).state.store(FINALIZED, Ordering::Release);
        self.wake_all();
    }
}

/// Who is no rank, on `cores` cores that these `processes` of ranks may run on.
fn strangers(processes: BTreeSet<u32>, cores: usize) -> Strangers {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let (ranks, cores) = (count(processes.len().div_ceil(cores.max(1))), count(cores.max(1)));
    Strangers::beside(ranks, move || processes.iter().map(|&pid| clock::used(pid)).sum::<Duration>() / cores)
}

/// The kinds of segment to try, in order.
pub(crate) fn backings(settings: &Settings) -> Vec<Backing> {
    settings.backing.map_or_else(|| vec![Backing::Memfd, Backing::DevShm], |only| vec![only])
}

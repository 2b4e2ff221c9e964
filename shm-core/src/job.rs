//! What all communicators of a node share: who lives, why the job ended, where ranks sleep.
#![allow(unsafe_code)] // dereferences places in the job's own segment

mod record;
mod watch;

pub use watch::{JobStatus, RankReport, list};

use std::cell::{Cell, RefCell};
use std::fs;
use std::rc::Rc;

use crate::call::Signature;
use crate::coll::sm::Terms;
use crate::copy::probe::{self, Offer, Offered};
use crate::copy::{Method, Methods, Reach};
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::explain::Circumstances;
use crate::segment::layout::{
    ABORT_WORDS, FINALIZED, FINALIZING, Header, JobFlags, RUNNING, RankStatus, RegionTable, whole_pages,
};
use crate::segment::{Backing, Place, Segment, Shape, gather, random};
use crate::settings::Settings;
use crate::sync::{Ordering, Patience};
use crate::sys::pidfd::{PidFd, ended};
use crate::sys::{affinity, cache, clock, futex, map};
use crate::topo::{Hierarchy, Level, Locality};
pub(crate) use record::Reason;

/// Most ranks on one node.
pub const MAX_RANKS: usize = 256;

/// How often a waiting rank looks at its peers' lives, in nanoseconds.
const HEALTH_EVERY_NS: u64 = 20_000_000;
/// How long a process whose memory has gone may take to end.
const PERISHED_WITHIN_NS: u64 = 200_000_000;
/// How long a rank that works on a peer's memory may take to its next look at the job.
const REACHING_WITHIN_NS: u64 = 1_000_000_000;
/// How long a rank may take to write down why it ends the job.
const REASON_WITHIN_NS: u64 = 200_000_000;

/// The ranks of one job on this node.
#[derive(Debug)]
pub struct Job {
    /// Before the segment, in which its tables lie.
    reach: Reach,
    segment: Segment,
    flags: Place<JobFlags>,
    status: Vec<Place<RankStatus>>,
    rank: usize,
    pids: Vec<u32>,
    lives: RefCell<Vec<Option<PidFd>>>,
    checked_ns: Cell<u64>,
    /// The job has ended, and no peer works on this rank's memory any more.
    left_alone: Cell<bool>,
    settings: Settings,
    patience: Patience,
    own_cores: bool,
    /// Per world rank: whether it may run on a core that this rank may run on.
    shares_core: Vec<bool>,
    last_cache_bytes: usize,
    placement: String,
    locality: Locality,
}

/// What every rank tells the others at start-up.
struct Introduction {
    node: String,
    pid: u32,
    settings: String,
    cores: Vec<usize>,
    /// Cores' worth of time that its control groups allow.
    quota: Option<f64>,
    /// Whether the kernel lets it take part in `membarrier`.
    membarrier: bool,
    /// Size of the last cache of its machine.
    last_cache_bytes: usize,
    /// What its peers may try to reach.
    offered: Offered,
    /// The topology, in rank 0's.
    topology: String,
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
        if size > MAX_RANKS {
            return Err(Error::Startup(format!("{size} ranks on one node: at most {MAX_RANKS} are supported")));
        }
        // Lives until the verdicts are in.
        let offer = Offer::make(settings.methods, random());
        let own = Introduction::own(&settings, &offer, Locality::card(rank, size, &settings))?;
        let words = exchange.allgather(own.to_text().as_bytes()).map_err(|e| Error::Startup(e.to_string()))?;
        let peers: Vec<Introduction> = words.iter().map(|w| Introduction::from_text(w)).collect::<Result<_>>()?;
        agree(&peers)?;
        let shares_core = peers.iter().map(|p| p.cores.iter().any(|core| own.cores.contains(core))).collect();
        let (own_cores, patience, placement) = placement(&peers, &settings);
        let masks: Vec<&[usize]> = peers.iter().map(|peer| &peer.cores[..]).collect();
        let locality = Locality::agree(&peers[0].topology, &masks, &settings)?;

        let status_at = size_of::<Header>() + size_of::<JobFlags>();
        let tables_at = status_at + size * size_of::<RankStatus>();
        let bytes = whole_pages(tables_at + size * size_of::<RegionTable>());
        if rank == 0 {
            map::sweep();
        }
        let shape = Shape { name: "han-job", ranks: size, cell_bytes: 0, bytes };
        let segment = Segment::together(exchange, &shape, &backings(&settings))?;
        let flags = segment.place(size_of::<Header>());
        let status: Vec<_> = (0..size).map(|r| segment.place(status_at + r * size_of::<RankStatus>())).collect();
        let pids: Vec<u32> = peers.iter().map(|p| p.pid).collect();
        // Threads share one life; a process that has its own is watched.
        let watched = |pid: u32| (pid != std::process::id()).then(|| PidFd::open(pid));
        let lives: Result<Vec<_>> = pids.iter().map(|&pid| watched(pid).transpose()).collect();
        let offers: Vec<_> = peers.iter().map(|p| (p.pid, &p.offered)).collect();
        let reached = probe::try_neighbours(rank, &offers, settings.methods);
        // The verdicts come from all, so all fail or none does; and nobody judges a peer before it runs.
        let verdict = lives.as_ref().err().map(|e| e.to_string().replace('\n', " ")).unwrap_or_default();
        let verdict = format!("{verdict}\n{}", probe::verdict_to_text(&reached));
        let verdicts = gather(exchange, verdict.as_bytes())?;
        drop(offer);
        let split: Vec<_> = verdicts.iter().map(|verdict| verdict.split_once('\n').unwrap_or((verdict, ""))).collect();
        if let Some((rank, (verdict, _))) = split.iter().enumerate().find(|(_, (verdict, _))| !verdict.is_empty()) {
            return Err(Error::Startup(format!("rank {rank}: {verdict}")));
        }
        let methods = probe::agree(split.iter().map(|(_, reached)| *reached), settings.methods);
        let tables: Vec<_> = (0..size).map(|r| segment.place(tables_at + r * size_of::<RegionTable>())).collect();
        // Decides forms, so all ranks take the same.
        let last_cache_bytes = settings.last_cache_bytes.unwrap_or(peers[0].last_cache_bytes);
        let job = Self {
            reach: Reach::new(rank, &pids, &tables, methods, segment.backing() != Backing::Heap),
            segment,
            flags,
            status,
            rank,
            pids,
            lives: RefCell::new(lives?),
            checked_ns: Cell::new(0),
            left_alone: Cell::new(false),
            settings,
            patience,
            own_cores,
            shares_core,
            last_cache_bytes,
            placement,
            locality,
        };
        job.status(rank).pid.store(std::process::id(), Ordering::Relaxed);
        job.status(rank).state.store(RUNNING, Ordering::Release);
        Ok(job)
    }

    /// This rank in the world.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks of the world on this node.
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

    /// True if every rank has a core to itself.
    pub(crate) fn own_cores(&self) -> bool {
        self.own_cores
    }

    /// True if world rank `rank` may run on a core that this rank may run on.
    pub(crate) fn shares_core(&self, rank: usize) -> bool {
        self.shares_core[rank]
    }

    /// What the choices of a communicator of `ranks` of this job depend on.
    pub(crate) fn terms(&self, ranks: usize) -> Terms {
        let shared = self.methods().has(Method::Shared);
        Terms::new(&self.settings, ranks, self.own_cores, shared, self.last_cache_bytes)
    }

    /// As [`terms`](Self::terms), for explanations.
    pub(crate) fn circumstances(&self, ranks: usize) -> Circumstances {
        Circumstances {
            ranks,
            own_cores: self.own_cores,
            shared: self.methods().has(Method::Shared),
            cma: self.methods().has(Method::Cma),
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

    /// Wakes whoever sleeps; to be called after every store that a peer may wait for.
    #[inline]
    pub(crate) fn ring(&self) {
        self.flags().bell.ring(futex::wake_all);
    }

    /// Where this node's ranks sleep.
    pub(crate) fn bell(&self) -> &crate::sync::Bell {
        &self.flags().bell
    }

    /// An error if the job has ended: the same on every rank.
    ///
    /// # Errors
    /// Why the job ended.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.flags().abort.is_taken() { Err(self.reason(None)) } else { Ok(()) }
    }

    /// As [`check`](Self::check), for a rank that is in an operation.
    pub(crate) fn check_in(&self, operation: impl FnOnce() -> String) -> Result<()> {
        if self.flags().abort.is_taken() { Err(self.reason(Some(&operation()))) } else { Ok(()) }
    }

    /// Lets this rank work on its peers' own memory as long as the result lives; `operation` is what it is in.
    ///
    /// # Errors
    /// The job has ended: the peers may have taken their memory back.
    #[inline]
    pub(crate) fn reach_out(self: &Rc<Self>, operation: impl FnOnce() -> String) -> Result<AtWork> {
        if self.status(self.rank).reaching.begin(|| self.flags().abort.is_taken()) {
            return Ok(AtWork(Rc::clone(self)));
        }
        Err(self.reason(Some(&operation())))
    }

    /// Waits until no peer works on this rank's memory: as the job has ended, none begins again. A peer that
    /// is stopped while it does, or in an operator of its user, is waited for no longer than a second.
    #[cold]
    fn take_memory_back(&self) {
        let patience = clock::now_ns() + REACHING_WITHIN_NS;
        let is_over = |rank: usize| self.status(rank).reaching.is_over() || ended(&self.lives.borrow()).contains(&rank);
        for rank in (0..self.size()).filter(|&rank| rank != self.rank) {
            while !is_over(rank) && clock::now_ns() < patience {
                affinity::yield_now();
            }
        }
        self.left_alone.set(true);
    }

    /// Why the job has ended. Returns when the caller's buffers are its own again.
    #[cold]
    fn reason(&self, operation: Option<&str>) -> Error {
        if !self.left_alone.get() {
            self.take_memory_back();
        }
        let patience = clock::now_ns() + REASON_WITHIN_NS;
        loop {
            if let Some(words) = self.flags().abort.get() {
                return Reason::from_words(&words).into_error(operation);
            }
            if clock::now_ns() > patience {
                // Killed or stopped while it wrote why it ended the job.
                let writer = self.flags().abort.writer().min(self.size() - 1);
                return Reason::died(writer, self.pids[writer]).into_error(operation);
            }
            affinity::yield_now();
        }
    }

    /// Ends the job on every rank with `reason`, unless it has ended already; returns what all see.
    #[cold]
    pub(crate) fn end(&self, reason: &Reason, operation: Option<&str>) -> Error {
        self.announce_end(reason);
        self.reason(operation)
    }

    fn announce_end(&self, reason: &Reason) {
        self.flags().abort.set(self.rank, &reason.to_words::<ABORT_WORDS>());
        self.ring();
    }

    /// Ends the job on every rank because of an error that this rank alone has met in an operation: it cannot
    /// go on, and the others would wait for it. Errors that have ended the job already are returned as they
    /// are. `operation` is what this rank was in.
    #[cold]
    pub(crate) fn end_with(&self, error: Error, operation: &str) -> Error {
        let reason = match error {
            Error::PeerDied { .. } | Error::Mismatch(_) | Error::Aborted { .. } | Error::Timeout(_) => return error,
            Error::Unreachable { rank, pid, .. } if self.perishes(rank) => Reason::died(rank, pid),
            Error::Unreachable { rank, pid, reason } => {
                Reason::unreachable(rank, pid, format!("{reason}; found by {} in {operation}", self.name(self.rank)))
            }
            other => Reason::aborted(self.rank, std::process::id(), &format!("{other}, in {operation}")),
        };
        self.end(&reason, Some(operation))
    }

    /// True if `rank` ends within a moment, or the job has: the memory of a process goes before its end can
    /// be seen.
    fn perishes(&self, rank: usize) -> bool {
        let patience = clock::now_ns() + PERISHED_WITHIN_NS;
        loop {
            if self.flags().abort.is_taken() || ended(&self.lives.borrow()).contains(&rank) {
                return true;
            }
            if clock::now_ns() > patience {
                return false;
            }
            affinity::yield_now();
        }
    }

    /// Ends the job on every rank because this rank wants it.
    pub fn abort(&self, why: &str) -> Error {
        self.announce_abort(why);
        self.reason(None)
    }

    /// As [`abort`](Self::abort), for a rank that ends at once: peers may still work on its memory.
    pub fn announce_abort(&self, why: &str) {
        self.announce_end(&Reason::aborted(self.rank, std::process::id(), why));
    }

    /// Looks at the peers' lives, at most every 20 ms; `operation` is what this rank waits in.
    ///
    /// # Errors
    /// The job has ended, or a peer has died and so ended it.
    pub(crate) fn health(&self, operation: &str) -> Result<()> {
        if self.flags().abort.is_taken() {
            return Err(self.reason(Some(operation)));
        }
        let now = clock::now_ns();
        if now.saturating_sub(self.checked_ns.get()) < HEALTH_EVERY_NS {
            return Ok(());
        }
        self.checked_ns.set(now);
        let over = ended(&self.lives.borrow());
        for rank in over {
            if self.has_finalized(rank) {
                self.lives.borrow_mut()[rank] = None; // its end was a good one: no need to look again
                continue;
            }
            return Err(self.end(&Reason::died(rank, self.pids[rank]), Some(operation)));
        }
        Ok(())
    }

    /// True if `rank` has finalized.
    pub(crate) fn has_finalized(&self, rank: usize) -> bool {
        self.status(rank).state.load(Ordering::Acquire) == FINALIZED
    }

    /// True if `rank` waits in the world's last barrier.
    pub(crate) fn is_finalizing(&self, rank: usize) -> bool {
        self.status(rank).state.load(Ordering::Acquire) == FINALIZING
    }

    /// A peer as messages name it: `rank 2 (pid 4711)`.
    #[must_use]
    pub fn name(&self, rank: usize) -> String {
        format!("rank {rank} (pid {})", self.pids[rank])
    }

    /// As [`name`](Self::name), with what the kernel says of the process where that explains a wait.
    pub(crate) fn name_and_state(&self, rank: usize) -> String {
        let pid = self.pids[rank];
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        match state {
            Some('T' | 't') => format!("rank {rank} (pid {pid}, stopped)"),
            Some('Z') | None => format!("rank {rank} (pid {pid}, ended)"),
            Some(_) => format!("rank {rank} (pid {pid})"),
        }
    }

    /// Writes down for onlookers that this rank waits for world ranks `missing`.
    pub(crate) fn note_wait(&self, communicator: u32, sequence: u32, signature: Signature, missing: &[usize]) {
        let own = self.status(self.rank);
        own.packed.store(signature.packed, Ordering::Relaxed);
        own.count.store(signature.count, Ordering::Relaxed);
        own.sequence.store(sequence, Ordering::Relaxed);
        own.communicator.store(communicator, Ordering::Relaxed);
        for (word, bits) in own.missing.iter().enumerate() {
            let here = missing.iter().filter(|&&rank| rank / 64 == word);
            bits.store(here.fold(0, |bits, rank| bits | 1 << (rank % 64)), Ordering::Relaxed);
        }
        if own.waiting_since_ns.load(Ordering::Relaxed) == 0 {
            own.waiting_since_ns.store(clock::now_ns(), Ordering::Release);
        }
    }

    /// Writes down that the wait is over.
    pub(crate) fn note_progress(&self) {
        self.status(self.rank).waiting_since_ns.store(0, Ordering::Release);
    }

    /// Marks this rank as one that begins no operation any more but the world's last barrier.
    pub fn begin_to_finalize(&self) {
        self.status(self.rank).state.store(FINALIZING, Ordering::Release);
    }

    /// Marks this rank as finalized: from now on its end is no death.
    pub fn finalize(&self) {
        self.status(self.rank).state.store(FINALIZED, Ordering::Release);
        self.ring();
    }
}

/// Work of this rank on its peers' own memory, until it is dropped.
#[derive(Debug)]
pub(crate) struct AtWork(Rc<Job>);

impl Drop for AtWork {
    #[inline]
    fn drop(&mut self) {
        self.0.status(self.0.rank).reaching.end();
    }
}

impl Drop for Job {
    /// A rank that leaves without finalizing ends the job, also if its process lives on.
    fn drop(&mut self) {
        let own = self.status(self.rank);
        // A forked child has a copy of its parent's job, which is not its own to end.
        let is_own = own.pid.load(Ordering::Relaxed) == std::process::id();
        if is_own && own.state.load(Ordering::Relaxed) != FINALIZED {
            self.end(&Reason::died(self.rank, std::process::id()), None);
        }
    }
}

/// The kinds of segment to try, in order.
pub(crate) fn backings(settings: &Settings) -> Vec<Backing> {
    settings.backing.map_or_else(|| vec![Backing::Memfd, Backing::DevShm], |only| vec![only])
}

impl Introduction {
    fn own(settings: &Settings, offer: &Offer, topology: String) -> Result<Self> {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let pids = fs::read_link("/proc/self/ns/pid").map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
        let cores = affinity::allowed_cores()?;
        Ok(Self {
            node: format!("{}/{pids}", boot.trim()),
            pid: std::process::id(),
            settings: settings.to_string(),
            cores,
            quota: affinity::cgroup_quota(),
            membarrier: futex::register_barrier(),
            last_cache_bytes: cache::last_level_bytes(),
            offered: offer.offered(),
            topology,
        })
    }

    fn to_text(&self) -> String {
        let cores: Vec<String> = self.cores.iter().map(ToString::to_string).collect();
        let quota = self.quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
        let cores = cores.join(",");
        let Self { node, pid, settings, membarrier, last_cache_bytes, offered, topology, .. } = self;
        let offered = offered.to_text();
        format!("{node}\n{pid}\n{settings}\n{cores}\n{quota}\n{membarrier} {last_cache_bytes}\n{topology}\n{offered}")
    }

    fn from_text(bytes: &[u8]) -> Result<Self> {
        let text = String::from_utf8_lossy(bytes);
        let lines: Vec<&str> = text.split('\n').collect();
        let parsed = match lines[..] {
            [node, pid, settings, cores, quota, features, topology, offered] => {
                let (membarrier, last_cache_bytes) = features.split_once(' ').unwrap_or((features, ""));
                pid.parse().ok().zip(Offered::from_text(offered)).map(|(pid, offered)| Self {
                    node: node.to_owned(),
                    pid,
                    settings: settings.to_owned(),
                    cores: cores.split(',').filter_map(|core| core.parse().ok()).collect(),
                    quota: quota.parse().ok(),
                    membarrier: membarrier == "true",
                    last_cache_bytes: last_cache_bytes.parse().unwrap_or(0),
                    topology: topology.to_owned(),
                    offered,
                })
            }
            _ => None,
        };
        parsed.ok_or_else(|| Error::Startup(format!("a rank introduced itself with {text:?}: another build of han?")))
    }
}

/// All on one node, all with the same settings.
fn agree(peers: &[Introduction]) -> Result<()> {
    for (rank, peer) in peers.iter().enumerate() {
        if peer.node != peers[0].node {
            return Err(Error::Startup(format!(
                "ranks 0 and {rank} do not run on the same node (or not in the same process namespace): \
                 this version connects the ranks of one node only"
            )));
        }
        if peer.settings != peers[0].settings {
            return Err(Error::Startup(format!(
                "settings differ: rank 0 has {}, rank {rank} has {}: set HAN_SET and HAN_REPRODUCIBLE alike on all ranks",
                peers[0].settings, peer.settings
            )));
        }
    }
    Ok(())
}

/// How many ranks compete for a core.
#[derive(Debug)]
pub(crate) struct Load {
    cores: usize,
    quota: Option<f64>,
    per_core: f64,
}

impl Load {
    /// From the cores that each rank may use, and the tightest quota that any rank sees.
    pub(crate) fn new<'c, C>(ranks: impl ExactSizeIterator<Item = C>, quota: Option<f64>) -> Self
    where
        C: IntoIterator<Item = &'c usize, IntoIter: ExactSizeIterator>,
    {
        #[allow(clippy::cast_precision_loss)] // small numbers
        let size = ranks.len() as f64;
        let mut load = std::collections::BTreeMap::<usize, f64>::new();
        for cores in ranks {
            let cores = cores.into_iter();
            #[allow(clippy::cast_precision_loss)] // small numbers
            let share = 1.0 / cores.len() as f64;
            for &core in cores {
                *load.entry(core).or_default() += share;
            }
        }
        let busiest = load.values().copied().fold(0.0, f64::max);
        Self { cores: load.len(), quota, per_core: quota.map_or(busiest, |quota| busiest.max(size / quota)) }
    }

    /// True if every rank has a core to itself.
    pub(crate) fn gives_own_cores(&self, settings: &Settings) -> bool {
        // Shares of a core are sums of fractions: leave room for their rounding.
        settings.assume_own_cores.unwrap_or(self.per_core < 1.0 + 1e-6)
    }
}

/// How ranks wait, and why: from how many of them compete for the most loaded core.
fn placement(peers: &[Introduction], settings: &Settings) -> (bool, Patience, String) {
    // The tightest quota that any rank sees, so that all ranks come to the same result.
    let quota = peers.iter().filter_map(|peer| peer.quota).reduce(f64::min);
    let load = Load::new(peers.iter().map(|peer| &peer.cores), quota);
    let own_cores = load.gives_own_cores(settings);
    let Load { cores, per_core, .. } = load;
    let mut patience = if own_cores { Patience::OWN_CORE } else { Patience::SHARED_CORE };
    if let Some(spins) = settings.spins {
        (patience.spins, patience.spins_apart) = (spins.max(1), spins.max(1));
    }
    patience.yields = settings.yields.unwrap_or(patience.yields);
    let words = format!(
        "{} ranks on {} cores{}: {per_core:.2} ranks on the busiest core, so waiting is {} polls \
         ({} for a rank on another core), {} yields, then sleep{}",
        peers.len(),
        cores,
        load.quota.map_or(String::new(), |q| format!(" (control group allows {q:.2})")),
        patience.spins,
        patience.spins_apart,
        patience.yields,
        if peers.iter().all(|peer| peer.membarrier) { "" } else { " (membarrier is refused: waking may take 1 ms)" },
    );
    (own_cores, patience, words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(cores: &[usize]) -> Introduction {
        Introduction {
            node: "n".into(),
            pid: 1,
            settings: "s".into(),
            cores: cores.to_vec(),
            quota: None,
            membarrier: true,
            last_cache_bytes: 32 << 20,
            offered: Offered::from_text("1 2 3:4").expect("well formed"),
            topology: String::new(),
        }
    }

    #[test]
    fn waiting_follows_the_busiest_core() {
        let settings = Settings::default();
        let (_, own, _) = placement(&[peer(&[0, 1]), peer(&[0, 1])], &settings);
        assert_eq!(own, Patience::OWN_CORE);
        let (_, own, _) = placement(&[peer(&[0]), peer(&[1])], &settings);
        assert_eq!(own, Patience::OWN_CORE);
        let (_, shared, words) = placement(&[peer(&[0]), peer(&[0])], &settings);
        assert_eq!(shared, Patience::SHARED_CORE, "{words}");
        let (_, shared, _) = placement(&[peer(&[0, 1]), peer(&[0, 1]), peer(&[0, 1])], &settings);
        assert_eq!(shared, Patience::SHARED_CORE);
    }

    #[test]
    fn one_ranks_quota_counts_for_all() {
        let mut limited = peer(&[1]);
        limited.quota = Some(1.0);
        let (own_cores, patience, words) = placement(&[peer(&[0]), limited], &Settings::default());
        assert!(!own_cores, "{words}");
        assert_eq!(patience, Patience::SHARED_CORE);
    }

    #[test]
    fn introductions_survive_their_text() {
        let offer = Offer::make(Settings::default().methods, 7);
        let own = Introduction::own(&Settings::default(), &offer, "0:0.0.0.0".into());
        let own = own.expect("this process has an affinity mask");
        let again = Introduction::from_text(own.to_text().as_bytes()).expect("what was written can be read");
        let told = |words: &Introduction| (words.pid, words.cores.clone(), words.node.clone(), words.topology.clone());
        assert_eq!(told(&again), told(&own));
        assert_eq!(again.offered, own.offered);
        assert!(Introduction::from_text(b"something else").is_err());
    }

    #[test]
    fn differing_settings_are_named() {
        let mut other = peer(&[0]);
        other.settings = "t".into();
        let error = agree(&[peer(&[0]), other]).expect_err("they differ");
        assert!(error.to_string().contains("rank 1"), "{error}");
    }
}

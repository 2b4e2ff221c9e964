//! Looking at the jobs of this node from outside, through the segments that their ranks hold open; and what a rank writes
//! down there of its waits.
#![allow(unsafe_code)] // dereferences places in segments that it maps

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::job::{Job, MAX_RANKS};
use crate::segment::Segment;
use crate::segment::layout::{FINALIZED, FINALIZING, Header, JobFlags, MAGIC, RUNNING, RankStatus, WaitStatus};
use crate::sync::Ordering;
use crate::sys::map::SharedMap;
use crate::sys::{clock, process};
use reduce_kernels::Signature;

/// One job on this node.
#[derive(Debug, Clone)]
pub struct JobStatus {
    /// Tells the job from others: its segment's random number.
    pub id: u64,
    /// Ranks on this node.
    pub size: usize,
    /// Ranks on all nodes.
    pub world: usize,
    /// Each rank, in order.
    pub ranks: Vec<RankReport>,
}

/// What one rank does.
#[derive(Debug, Clone)]
pub struct RankReport {
    /// The rank among those of this node.
    pub rank: usize,
    /// The rank in the world.
    pub world_rank: usize,
    /// Its process id in `/proc` here, or that in a namespace of its own if none is found here.
    pub pid: u32,
    /// `starting`, `computing`, `waiting`, `finalizing`, `finalized`, `stopped` (by a signal), `dead`, or `unknown`: its process
    /// is in a namespace of its own, and is not found.
    pub state: &'static str,
    /// The operation that it waits in, with its number and communicator.
    pub operation: Option<String>,
    /// How long it has waited.
    pub age_ms: Option<u64>,
    /// The ranks of this job that it waits for.
    pub missing: Vec<usize>,
    /// Or else some of the world's whose messages it waits for.
    pub missing_in_world: Vec<usize>,
}

/// The jobs of this node whose processes this user may look at.
#[derive(Debug, Clone)]
pub struct Jobs {
    /// Those of this build of han, by their ids.
    pub own: Vec<JobStatus>,
    /// A process of each that another build has made.
    pub others: BTreeSet<u32>,
}

/// Finds them.
///
/// # Errors
/// `/proc` cannot be read.
pub fn list() -> Result<Jobs> {
    // An empty folder can be read, too.
    fs::read_link("/proc/self").map_err(|e| Error::io("readlink /proc/self", &e))?;
    // Each rank holds its job's segment open.
    let mut files: HashMap<(u64, u64), Vec<(u32, PathBuf)>> = HashMap::new();
    for process in fs::read_dir("/proc").map_err(|e| Error::io("opendir /proc", &e))?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(opened) = fs::read_dir(process.path().join("fd")) else { continue };
        for file in opened.flatten() {
            let Ok(target) = fs::read_link(file.path()) else { continue };
            let target = target.to_string_lossy();
            if target.starts_with("/memfd:han-job") || target.starts_with("/dev/shm/han-") {
                // Ends between the listing and the opening are no error: the job has gone.
                if let Ok(seen) = fs::metadata(file.path()) {
                    files.entry((seen.dev(), seen.ino())).or_default().push((pid, file.path()));
                }
            }
        }
    }
    let mut jobs = Jobs { own: Vec::new(), others: BTreeSet::new() };
    for holders in files.into_values() {
        let shown = holders.iter().filter_map(|(pid, _)| Some((own_number(*pid)?, *pid))).collect();
        if let Some(job) = holders.iter().find_map(|(_, path)| look(path, &shown)) {
            jobs.own.push(job);
        } else if holders.iter().any(|(_, path)| is_of_another_build(path)) {
            jobs.others.extend(holders.iter().map(|(pid, _)| *pid).min());
        }
    }
    jobs.own.sort_by_key(|job| job.id);
    Ok(jobs)
}

/// Whether it is a segment, but not one that this build can read.
fn is_of_another_build(path: &Path) -> bool {
    let is_segment = |map: SharedMap| map.first_word().load(std::sync::atomic::Ordering::Relaxed) == MAGIC;
    Segment::inspect(path).is_err() && SharedMap::inspect(path, size_of::<Header>()).is_ok_and(is_segment)
}

/// The number that process `pid` of `/proc` has for itself: in a namespace of processes within, it is another one.
fn own_number(pid: u32) -> Option<u32> {
    let status = fs::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix("NSpid:"))?.split_ascii_whitespace().last()?.parse().ok()
}

/// The segment at `path`, which processes hold open whose numbers in `/proc` are `shown` by those that they have for themselves.
fn look(path: &Path, shown: &HashMap<u32, u32>) -> Option<JobStatus> {
    let segment = Segment::inspect(path).ok()?;
    let header = segment.header();
    let size = header.size.load(Ordering::Relaxed) as usize;
    let status_at = size_of::<Header>() + size_of::<JobFlags>();
    let is_job = header.cell_bytes.load(Ordering::Relaxed) == 0;
    if !is_job || size > MAX_RANKS || status_at + size * size_of::<RankStatus>() > segment.bytes() {
        return None;
    }
    // Numbers of processes that have gone mean something here only if the ranks have those of `/proc`.
    let is_theirs = shown.iter().any(|(own, shown)| own == shown);
    let ranks = (0..size).map(|rank| {
        let place = segment.place::<RankStatus>(status_at + rank * size_of::<RankStatus>());
        // SAFETY: the segment lives until the end of this function, the report holds no reference.
        let status = unsafe { place.get() };
        let pid = status.pid.load(Ordering::Relaxed);
        report(rank, status, shown.get(&pid).copied().or(is_theirs.then_some(pid)))
    });
    // SAFETY: as above.
    let world = unsafe { segment.place::<JobFlags>(size_of::<Header>()).get() }.world.load(Ordering::Relaxed) as usize;
    Some(JobStatus { id: header.cookie.load(Ordering::Relaxed), size, world, ranks: ranks.collect() })
}

/// `shown` is the number in `/proc` of the rank's process, if it is known.
fn report(rank: usize, status: &RankStatus, shown: Option<u32>) -> RankReport {
    let (here, network) = (status.wait.look(), status.network_wait.look());
    let process = shown.map(process::state);
    let state = match status.state.load(Ordering::Relaxed) {
        FINALIZED => "finalized",
        RUNNING | FINALIZING if process.is_none() => "unknown",
        RUNNING | FINALIZING if matches!(process, Some(None | Some('Z'))) => "dead",
        RUNNING | FINALIZING if matches!(process, Some(Some('T' | 't'))) => "stopped",
        RUNNING | FINALIZING if here.is_some() || network.is_some() => "waiting",
        RUNNING => "computing",
        FINALIZING => "finalizing",
        _ => "starting",
    };
    let mut report = RankReport {
        rank,
        world_rank: status.number.load(Ordering::Relaxed) as usize,
        pid: shown.unwrap_or_else(|| status.pid.load(Ordering::Relaxed)),
        state,
        operation: None,
        age_ms: None,
        missing: Vec::new(),
        missing_in_world: Vec::new(),
    };
    if !matches!(state, "waiting" | "stopped") {
        return report;
    }
    if here.is_some() {
        let bits = |rank: &usize| status.missing[rank / 64].load(Ordering::Relaxed) >> (rank % 64) & 1 == 1;
        report.missing = (0..MAX_RANKS).filter(bits).collect();
    } else if network.is_some() {
        let ranks = status.network_missing.iter().map(|word| word.load(Ordering::Relaxed));
        report.missing_in_world = ranks.filter_map(|word| Some(word.checked_sub(1)? as usize)).collect();
    }
    if let Some((operation, waited_ns)) = here.or(network) {
        report.operation = Some(operation);
        report.age_ms = Some(waited_ns / 1_000_000);
    }
    report
}

impl Job {
    /// What `rank`, for which another one waits in `operation`, waits in itself, if that is something else: who waits for whom
    /// may go round.
    pub(crate) fn waits_elsewhere(&self, rank: usize, operation: &str) -> Option<String> {
        let status = self.status(rank);
        let report = report(rank, status, Some(status.pid.load(Ordering::Relaxed)));
        // In the same call it may wait for another node, which this one does not see.
        let is_elsewhere = |other: &String| other != operation || !report.missing_in_world.is_empty();
        let other = report.operation.filter(is_elsewhere)?;
        // Bits that another process has written: not all need be ranks.
        let here = report.missing.iter().filter_map(|&rank| self.numbers.get(rank).copied());
        let names = here.chain(report.missing_in_world);
        let names: Vec<_> = names.map(|number| format!("rank {number}")).collect();
        let names = if names.is_empty() { "data".to_owned() } else { names.join(", ") };
        Some(format!("; rank {} waits in {other} for {names}", self.numbers[rank]))
    }
}

impl WaitStatus {
    /// Written by the rank that waits, after what it waits for. The first such call in a wait says since when.
    pub(crate) fn begin(&self, communicator: u32, sequence: u32, signature: Signature, waited: Duration) {
        self.packed.store(signature.packed, Ordering::Relaxed);
        self.count.store(signature.count, Ordering::Relaxed);
        self.sequence.store(sequence, Ordering::Relaxed);
        self.communicator.store(communicator, Ordering::Relaxed);
        if self.since_ns.load(Ordering::Relaxed) == 0 {
            let waited_ns = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
            // O1 (Release): an onlooker that sees that there is a wait sees which one. Pairs with O2.
            self.since_ns.store(clock::now_ns().saturating_sub(waited_ns).max(1), Ordering::Release);
        }
    }

    /// The wait is over.
    pub(crate) fn end(&self) {
        self.since_ns.store(0, Ordering::Relaxed);
    }

    /// The operation, and for how many nanoseconds the rank has waited in it, if it does.
    fn look(&self) -> Option<(String, u64)> {
        // O2 (Acquire): pairs with O1.
        let since = self.since_ns.load(Ordering::Acquire);
        if since == 0 {
            return None;
        }
        let signature =
            Signature { packed: self.packed.load(Ordering::Relaxed), count: self.count.load(Ordering::Relaxed) };
        let (sequence, communicator) =
            (self.sequence.load(Ordering::Relaxed), self.communicator.load(Ordering::Relaxed));
        let operation = format!("{signature} #{sequence} on communicator {communicator}");
        Some((operation, clock::now_ns().saturating_sub(since)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_other_builds_are_named_by_a_process() {
        let map = SharedMap::anonymous("han-job-test", 4096).unwrap();
        assert!(!list().unwrap().others.contains(&std::process::id()));
        // Its layout is 0.
        map.first_word().store(MAGIC, std::sync::atomic::Ordering::Relaxed);
        assert!(list().unwrap().others.contains(&std::process::id()));
    }
}

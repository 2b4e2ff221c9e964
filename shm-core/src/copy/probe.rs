//! What works between these processes, found out once by all of them: each offers a word of its memory and
//! a small region, tries to reach a few neighbours' by each method, and a method is on if nobody failed.
//!
//! The offers and the verdicts ride on exchanges that start-up makes anyway.
#![allow(unsafe_code)] // writes to a peer's memory

use std::sync::atomic::AtomicU64;

use crate::segment::layout::PAGE;
use crate::sync::Ordering;
use crate::sys::map::SharedMap;
use crate::sys::remote;

use super::method::{Method, MethodSet, Methods};
use super::remote::RemoteBuffer;

/// Up to so many ranks, each tries all others; above it, the next one and the one half way round.
const ALL_UP_TO: usize = 8;

/// What one rank lets its peers try; must live until the verdicts are in.
#[derive(Debug)]
pub(crate) struct Offer {
    /// A number to be read, and a place to write to.
    memory: Box<[AtomicU64; 2]>,
    /// A region that begins with the same number, or why there is none.
    region: Result<SharedMap, String>,
}

/// A peer's [`Offer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Offered {
    nonce: u64,
    address: usize,
    /// Descriptor and inode.
    region: Result<(u32, u64), String>,
}

/// What one rank found: for `shared` and for `cma` the first obstacle, if there was one.
pub(crate) type Verdict = [Option<String>; 2];

impl Offer {
    /// An offer to try the methods of `set`.
    pub(crate) fn make(set: MethodSet, nonce: u64) -> Self {
        if set.has(Method::Cma) {
            remote::admit_peers();
        }
        let region = if set.has(Method::Shared) { region(nonce) } else { Err(String::new()) };
        Self { memory: Box::new([AtomicU64::new(nonce), AtomicU64::new(0)]), region }
    }

    /// What peers are told of it.
    pub(crate) fn offered(&self) -> Offered {
        let region = match &self.region {
            Ok(map) => map.fd().zip(map.inode()).ok_or_else(|| "it lost its descriptor".to_owned()),
            Err(why) => Err(why.clone()),
        };
        let nonce = self.memory[0].load(Ordering::Relaxed);
        Offered { nonce, address: self.memory.as_ptr().expose_provenance(), region }
    }
}

impl Offered {
    /// In one line.
    pub(crate) fn to_text(&self) -> String {
        let region = match &self.region {
            Ok((fd, inode)) => format!("{fd}:{inode}"),
            Err(why) => why.replace('\n', " "),
        };
        format!("{:x} {:x} {region}", self.nonce, self.address)
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut words = text.splitn(3, ' ');
        let nonce = u64::from_str_radix(words.next()?, 16).ok()?;
        let address = usize::from_str_radix(words.next()?, 16).ok()?;
        let region = words.next()?;
        let place = region.split_once(':').and_then(|(fd, inode)| Some((fd.parse().ok()?, inode.parse().ok()?)));
        Some(Self { nonce, address, region: place.ok_or_else(|| region.to_owned()) })
    }
}

fn region(nonce: u64) -> Result<SharedMap, String> {
    let map = SharedMap::anonymous("han-probe", PAGE).map_err(|error| error.to_string())?;
    map.first_word().store(nonce, Ordering::Relaxed);
    Ok(map)
}

/// Tries to reach the neighbours of `rank` among `peers`, each a process id and its offer.
pub(crate) fn try_neighbours(rank: usize, peers: &[(u32, &Offered)], set: MethodSet) -> Verdict {
    let size = peers.len();
    let neighbours: Vec<usize> = if size <= ALL_UP_TO {
        (0..size).filter(|&peer| peer != rank).collect()
    } else {
        vec![(rank + 1) % size, (rank + size / 2) % size]
    };
    [Method::Shared, Method::Cma].map(|method| {
        let attempt = |peer: usize| {
            let (pid, offered) = peers[peer];
            let outcome = match method {
                Method::Shared => try_shared(pid, offered),
                _ => try_cma(peer, pid, offered),
            };
            outcome.err()
        };
        if set.has(method) { neighbours.iter().copied().find_map(attempt) } else { None }
    })
}

fn try_shared(pid: u32, offered: &Offered) -> Result<(), String> {
    let (fd, inode) = offered.region.clone()?;
    if pid == std::process::id() {
        return Ok(()); // threads share all their memory
    }
    let map = SharedMap::of_peer(pid, fd, inode, 0, PAGE).map_err(|error| error.to_string())?;
    let seen = map.first_word().load(Ordering::Relaxed);
    if seen == offered.nonce { Ok(()) } else { Err(format!("/proc/{pid}/fd/{fd} is not the region of that rank")) }
}

fn try_cma(rank: usize, pid: u32, offered: &Offered) -> Result<(), String> {
    let memory = RemoteBuffer::at(rank, pid, offered.address);
    let seen = memory.read_word(0).map_err(|error| error.to_string())?;
    if seen != offered.nonce {
        return Err(format!("process {pid} is not that rank: another process namespace?"));
    }
    // SAFETY: a word of this function, and the second one of the peer's offer, which is there for that.
    let written = unsafe { memory.write(size_of::<u64>(), (&raw const seen).cast(), size_of::<u64>()) };
    written.map_err(|error| error.to_string())
}

/// In two lines.
pub(crate) fn verdict_to_text(verdict: &Verdict) -> String {
    let [shared, cma] = verdict.each_ref().map(|why| why.as_deref().unwrap_or_default().replace('\n', " "));
    format!("{shared}\n{cma}")
}

/// What follows from all ranks' verdicts, in rank order, each by [`verdict_to_text`].
pub(crate) fn agree<'a>(verdicts: impl Iterator<Item = &'a str> + Clone, set: MethodSet) -> Methods {
    let obstacle = |method: Method, line: usize| {
        if !set.has(method) {
            return Some(format!("methods={set} was set"));
        }
        let lines = verdicts.clone().map(|text| text.split('\n').nth(line).unwrap_or("no verdict"));
        lines.enumerate().find(|(_, why)| !why.is_empty()).map(|(rank, why)| format!("rank {rank}: {why}"))
    };
    Methods::new(obstacle(Method::Shared, 0), obstacle(Method::Cma, 1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn offers_survive_their_text() {
        let offer = Offer::make(MethodSet::default(), 77);
        let offered = Offered::from_text(&offer.offered().to_text()).unwrap();
        assert_eq!((&offered, offered.region.is_ok()), (&offer.offered(), true));
        let without = Offer::make(MethodSet::parse("cico").unwrap(), 78);
        assert!(Offered::from_text(&without.offered().to_text()).unwrap().region.is_err());
        assert_eq!(Offered::from_text("1 2"), None);
        assert_eq!(Offered::from_text("x 2 3:4"), None);
    }

    #[test]
    fn another_rank_than_the_one_meant_is_noticed() {
        let offer = Offer::make(MethodSet::default(), 77);
        let mut offered = offer.offered();
        let pid = std::process::id();
        let works = try_neighbours(0, &[(pid, &offered), (pid, &offered)], MethodSet::default());
        assert_eq!(works[0], None);
        offered.nonce = 78;
        let [_, cma] = try_neighbours(0, &[(pid, &offered), (pid, &offered)], MethodSet::default());
        assert!(cma.is_some());
        assert!(try_cma(1, u32::MAX, &offered).unwrap_err().contains("has ended"));
    }

    #[test]
    fn the_first_refusal_counts_for_all() {
        let all = MethodSet::default();
        let methods = agree(["\n", "\nno\n", "\nnever"].into_iter(), all);
        assert_eq!(methods.to_string(), "shared on; cma off: rank 1: no; cico on");
        assert!(agree(["\n"].into_iter(), all).has(Method::Cma));
        assert!(!agree([""].into_iter(), all).has(Method::Cma), "a verdict is missing");
        let methods = agree(["\n"].into_iter(), MethodSet::parse("cma").unwrap());
        assert_eq!(methods.obstacle(Method::Shared), Some("methods=cma+cico was set"));
    }
}

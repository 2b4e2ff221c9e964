//! Where ranks run: blocks of ranks on virtual nodes, and one processor a rank.

use std::fmt;
use std::io;

use clap::ValueEnum;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use shm_core::topo::binding_order;

/// Whether ranks are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bind {
    /// One usable processor each, of another core as long as there are cores, round robin when ranks outnumber them
    Core,
    /// Wherever the scheduler likes
    None,
}

impl fmt::Display for Bind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Core => "core",
            Self::None => "none",
        })
    }
}

/// Ranks per node: blocks whose sizes differ by at most one, the larger ones first.
pub(super) fn blocks(ranks: usize, nodes: usize) -> Vec<usize> {
    (0..nodes).map(|node| ranks / nodes + usize::from(node < ranks % nodes)).collect()
}

/// A rank's place among the nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) node: usize,
    pub(super) local_rank: usize,
    pub(super) local_size: usize,
}

/// The place of every rank.
pub(super) fn places(blocks: &[usize]) -> Vec<Place> {
    let of_node = |(node, &local_size): (usize, &usize)| {
        (0..local_size).map(move |local_rank| Place { node, local_rank, local_size }).collect::<Vec<_>>()
    };
    blocks.iter().enumerate().flat_map(of_node).collect()
}

/// Binds this thread, and so the children that it starts next, to one processor after the other, all cores before a second
/// processor of one.
///
/// Binding before the fork means that a rank never sees another mask than its own.
pub(super) struct Binder {
    usable: CpuSet,
    cpus: Vec<usize>,
}

impl Binder {
    /// Takes the processors that this process may use.
    pub(super) fn new() -> io::Result<Self> {
        let usable = sched_getaffinity(Pid::from_raw(0))?;
        let cpus = (0..CpuSet::count()).filter(|cpu| usable.is_set(*cpu).unwrap_or(false)).collect();
        Ok(Self { usable, cpus: binding_order(cpus) })
    }

    /// Binds to the processor of `rank`, counted over the whole machine: virtual nodes share it.
    pub(super) fn bind(&self, rank: usize) -> io::Result<()> {
        let mut one = CpuSet::new();
        one.set(self.cpus[rank % self.cpus.len()])?;
        Ok(sched_setaffinity(Pid::from_raw(0), &one)?)
    }

    /// Gives this thread all its processors back.
    pub(super) fn unbind(&self) -> io::Result<()> {
        Ok(sched_setaffinity(Pid::from_raw(0), &self.usable)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_ranks_and_differ_by_one() {
        assert_eq!(blocks(5, 2), [3, 2]);
        assert_eq!(blocks(4, 1), [4]);
        for ranks in 1..40 {
            for nodes in 1..=ranks {
                let blocks = blocks(ranks, nodes);
                assert_eq!(blocks.len(), nodes);
                assert_eq!(blocks.iter().sum::<usize>(), ranks);
                assert!(blocks.is_sorted_by(|a, b| a >= b) && blocks[0] - blocks[nodes - 1] <= 1);
            }
        }
    }

    #[test]
    fn places_count_within_the_node() {
        let place = |node, local_rank, local_size| Place { node, local_rank, local_size };
        assert_eq!(places(&[2, 1]), [place(0, 0, 2), place(0, 1, 2), place(1, 0, 1)]);
    }
}

//! Where ranks run: blocks of ranks on virtual nodes, and one processor a rank.

use std::fmt;
use std::io;

use clap::ValueEnum;
use shm_core::sys::affinity::{allowed_cores, run_on};
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
    usable: Vec<usize>,
    cpus: Vec<usize>,
}

impl Binder {
    /// Takes the processors that this process may use.
    pub(super) fn new() -> io::Result<Self> {
        let usable = allowed_cores().map_err(io::Error::other)?;
        Ok(Self { cpus: binding_order(usable.clone()), usable })
    }

    /// Binds to the processor of `rank`, counted over the whole machine: virtual nodes share it.
    pub(super) fn bind(&self, rank: usize) -> io::Result<()> {
        run_on(&[self.cpus[rank % self.cpus.len()]]).map_err(io::Error::other)
    }

    /// Gives this thread all its processors back.
    pub(super) fn unbind(&self) -> io::Result<()> {
        run_on(&self.usable).map_err(io::Error::other)
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

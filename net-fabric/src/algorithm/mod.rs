//! Collectives as schedules: pure functions of who one is and what is to be done.

mod barrier;
mod bcast;
mod chunks;
mod doubling;
mod leaders;
mod names;
pub mod nap;
mod pieces;
mod rabenseifner;
mod ring;
mod scatter;
mod smp;
mod topology;
mod tree;
mod tree_reduce;

use std::ops::Range;

pub use reduce_kernels::Collective;
pub use topology::{Topology, Within};
pub use tree::Tree;

use crate::schedule::{Buffer, Schedule, Span};

/// What a rank is to do: all that a schedule depends on. All but the rank is the same on all ranks, and `in_place`
/// may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape<'a> {
    /// This rank.
    pub rank: usize,
    /// Number of ranks, at least 1.
    pub size: usize,
    /// The root of a bcast or reduce; 0 in others.
    pub root: usize,
    /// Bytes of the vector.
    pub bytes: usize,
    /// Bytes of an element, which is never cut. They divide `bytes`.
    pub element_bytes: usize,
    /// Bytes of a chunk, about: whole elements, and more where there would be too many chunks.
    pub chunk_bytes: usize,
    /// Chunks of scratch memory for each peer that data to be reduced come from: so many receives can be under
    /// way from one peer. At least 1.
    pub slots: usize,
    /// The operand lies in the output (of the root alone, for reduce: the other ranks have none).
    pub in_place: bool,
    /// Whether the operator commutes. If not, operands are combined in rank order.
    pub commutative: bool,
    /// Where the ranks are, for trees that follow it.
    pub topology: Option<&'a Topology>,
}

impl Default for Shape<'_> {
    /// One rank and no bytes; chunks of 64 KiB and 8 of them under way; an operator that commutes.
    fn default() -> Self {
        Self {
            rank: 0,
            size: 1,
            root: 0,
            bytes: 0,
            element_bytes: 1,
            chunk_bytes: 64 << 10,
            slots: 8,
            in_place: false,
            commutative: true,
            topology: None,
        }
    }
}

impl Shape<'_> {
    /// These bytes of the rank's own operand.
    fn operand(&self, range: Range<usize>) -> Span {
        let buffer = if self.in_place { Buffer::Output } else { Buffer::Input };
        Span::new(buffer, range.start, range.len())
    }

    /// These bytes of the result.
    fn output(&self, range: Range<usize>) -> Span {
        Span::new(Buffer::Output, range.start, range.len())
    }
}

/// How it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Along a tree, chunk by chunk: bcast, reduce, and allreduce and barrier as both.
    Tree(Tree),
    /// Bcast of long vectors to few ranks: blocks are scattered, then passed round a ring.
    ScatterRing,
    /// Bcast of long vectors to many ranks: blocks are scattered, then gathered over doubling distances.
    ScatterDoubling,
    /// Allreduce of short vectors: partial results are exchanged over doubling distances.
    RecursiveDoubling,
    /// Allreduce of short vectors by many ranks of many nodes: as recursive doubling, but between nodes by one rank of
    /// each.
    Smp,
    /// Allreduce of short vectors by many ranks of many nodes: between nodes all ranks of a node send, each to another
    /// node, in the fewest steps. `nap` has who sends to whom.
    Nap,
    /// Allreduce of long vectors by so many leaders of each node, or as many as the smallest has ranks: each sums up a
    /// slice on its node and then across the nodes.
    Leaders(u32),
    /// Allreduce of long vectors by few ranks: reduce-scatter and allgather in a ring.
    Ring,
    /// Allreduce of long vectors by many ranks: reduce-scatter by halving, allgather by doubling.
    Rabenseifner,
    /// Barrier of ranks that each have a core: every rank tells others over doubling distances.
    Dissemination,
}

impl Algorithm {
    /// Whether it does this collective on such ranks, bytes and operators; all ranks get the same answer.
    ///
    /// # Errors
    /// The reason why it does not.
    pub fn applies(self, collective: Collective, shape: &Shape<'_>) -> Result<(), &'static str> {
        let Shape { rank, size, root, bytes, element_bytes, commutative, topology, .. } = *shape;
        let reduces = collective.reduces();
        if root >= size || rank >= size {
            return Err("rank and root must be less than the number of ranks");
        }
        if element_bytes == 0 || bytes % element_bytes != 0 {
            return Err("the vector must consist of whole elements");
        }
        match (collective, self) {
            (_, Self::Tree(tree)) => match tree {
                Tree::Knomial(0 | 1) => Err("a k-nomial tree has k from 2 on"),
                Tree::Topology(_) => match topology {
                    None => Err("the tree needs to know where the ranks are"),
                    Some(topology) if topology.size() != size => Err("the topology is one of other ranks"),
                    Some(topology) if reduces && !commutative && !topology.in_order() => {
                        Err("operands would not meet in rank order, because ranks are not placed in order")
                    }
                    Some(_) => Ok(()),
                },
                _ => Ok(()),
            },
            (Collective::Allreduce, Self::Leaders(0)) => Err("there is at least one leader on each node"),
            (Collective::Allreduce, Self::Smp | Self::Nap | Self::Leaders(_)) => match topology {
                None => Err("it needs to know where the ranks are"),
                Some(topology) if topology.size() != size => Err("the topology is one of other ranks"),
                Some(topology) if !commutative && !topology.in_order() => {
                    Err("operands would not meet in rank order, because ranks are not placed in order")
                }
                Some(_) => Ok(()),
            },
            (Collective::Allreduce, Self::Ring) if !commutative => {
                Err("each block starts at another rank, so operands do not meet in rank order")
            }
            (Collective::Bcast, Self::ScatterRing | Self::ScatterDoubling)
            | (Collective::Allreduce, Self::RecursiveDoubling | Self::Ring | Self::Rabenseifner)
            | (Collective::Barrier, Self::Dissemination) => Ok(()),
            _ => Err("the algorithm is for other collectives"),
        }
    }

    /// Whether it is for `collective` at all; what else it needs depends on the ranks.
    #[must_use]
    pub fn is_for(self, collective: Collective) -> bool {
        let topology = Topology::new(&[&[0, 1]]);
        let shape = Shape { size: 2, bytes: 8, element_bytes: 8, topology: Some(&topology), ..Shape::default() };
        self.applies(collective, &shape).is_ok()
    }

    /// Whether it goes by which ranks are on one node, and so makes both levels' steps itself.
    #[must_use]
    pub fn knows_nodes(self) -> bool {
        matches!(self, Self::Tree(Tree::Topology(_)) | Self::Smp | Self::Nap | Self::Leaders(_))
    }

    /// Whether the vector is dealt out, so that it takes an element a rank at least: of a shorter one some ranks have no
    /// part, and the schedule is that of another algorithm.
    #[must_use]
    pub fn deals_out(self) -> bool {
        matches!(self, Self::ScatterRing | Self::ScatterDoubling | Self::Ring | Self::Rabenseifner)
    }

    /// The schedule of the shape's rank.
    ///
    /// # Errors
    /// It does not [apply](Self::applies).
    pub fn build(self, collective: Collective, shape: &Shape<'_>) -> Result<Schedule, &'static str> {
        self.applies(collective, shape)?;
        // In place is a matter of the root, where the others have no output.
        let shape = &Shape {
            in_place: shape.in_place && (collective != Collective::Reduce || shape.rank == shape.root),
            ..*shape
        };
        Ok(match (collective, self) {
            (Collective::Bcast, Self::Tree(tree)) => bcast::build(shape, tree),
            (Collective::Reduce, Self::Tree(tree)) => tree_reduce::reduce(shape, tree),
            (Collective::Barrier, Self::Tree(tree)) => barrier::tree(shape, tree),
            (Collective::Allreduce, Self::Tree(tree)) => tree_reduce::allreduce(shape, tree),
            (_, Self::ScatterRing) => scatter::ring(shape),
            (_, Self::ScatterDoubling) => scatter::doubling(shape),
            (_, Self::RecursiveDoubling) => doubling::build(shape),
            (_, Self::Smp) => smp::build(shape),
            (_, Self::Nap) => nap::build(shape),
            (_, Self::Leaders(leaders)) => leaders::build(shape, leaders),
            (_, Self::Ring) => ring::allreduce(shape),
            (_, Self::Rabenseifner) => rabenseifner::build(shape),
            (_, Self::Dissemination) => barrier::build(shape),
        })
    }
}

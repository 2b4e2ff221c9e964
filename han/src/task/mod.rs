//! Collectives over several nodes as tasks (dissertation, section 5.3): a plan is data, which the pipeline carries out,
//! a simulator puts on a clock, a figure draws, and a checker plays.
//!
//! A vector is cut into chunks. To each belong a reduction on the nodes (`sr`), one across them (`ir`), a broadcast
//! across them (`ib`) and one on the nodes (`sb`), or some of these; `ia`, an allreduce across, does the work of `ir` and
//! `ib`. A task is bound by what it needs alone, so that a chunk that is late delays no other one.
//!
//! Where nodes have several leaders, each chunk is cut into as many slices, and each slice has tasks of its own: an allreduce is
//! a reduce-scatter on the nodes, allreduces of all slices across them, and an allgather on the nodes.
//!
//! The node-aware allreduce of short vectors (`nap`) has no leaders: an allreduce on the nodes (`sa`), then steps in which all
//! ranks of a node exchange with other nodes, each with another one, and combine on the node what they have received.

mod build;
#[cfg(test)]
mod check;
pub mod figure;
mod layout;
pub(crate) mod nap;
pub mod simulate;
pub mod slices;

use std::fmt;
use std::ops::Range;

use reduce_kernels::Collective;
pub use reduce_kernels::Place;

pub use layout::Layout;

/// Tasks of a stream that a rank has under way at a time.
pub(crate) const WINDOW: usize = 4;
/// Those beside them that only send, while some rank is late: it holds up the others when there are more. In a quick network as
/// many more would not be where their data are in the caches (`docs/nodes.md`).
pub(crate) const SENDING: usize = 16;

/// What a task does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Reduces the vectors of a node's ranks to its leader.
    Sr,
    /// Reduces those of the leaders to one of them.
    Ir,
    /// Reduces those of the leaders to all of them.
    Ia,
    /// Copies a leader's vector to all leaders, or one half of an exchange: a rank's vector to a rank of another node.
    Ib,
    /// Reduces the vectors of a node's ranks to all of them.
    Sa,
    /// Copies a leader's vector to the ranks of its node.
    Sb,
}

impl Kind {
    /// Whether a leader only reads in it what the task before has left, and which that one may still be sending.
    pub(crate) const fn hands_out(self) -> bool {
        matches!(self, Self::Sb)
    }

    /// The collective that its group does.
    #[must_use]
    pub const fn collective(self) -> Collective {
        match self {
            Self::Sr | Self::Ir => Collective::Reduce,
            Self::Ia | Self::Sa => Collective::Allreduce,
            Self::Ib | Self::Sb => Collective::Bcast,
        }
    }

    /// The dissertation's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sr => "sr",
            Self::Ir => "ir",
            Self::Ia => "ia",
            Self::Ib => "ib",
            Self::Sa => "sa",
            Self::Sb => "sb",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Who works on a task: tasks of the same stream are begun in their order, on all of its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// The ranks of a node, towards leaders.
    Up,
    /// The ranks of a node, from leaders.
    Down,
    /// The leaders on a rail.
    Rail(usize),
    /// The same for what comes back on it, if that is a task of its own.
    Back(usize),
    /// So many ranks of a node, its first ones.
    First(usize),
    /// Two ranks of different nodes, in the step of a node-aware allreduce which so many others follow.
    Pair(usize),
}

impl Stream {
    /// Whether its tasks are carried out in the memory of a node.
    #[must_use]
    pub const fn is_in_memory(self) -> bool {
        matches!(self, Self::Up | Self::Down | Self::First(_))
    }
}

/// How an allreduce goes across the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Across {
    /// By an allreduce of leaders (`ia`).
    Whole,
    /// By a reduction and a broadcast of leaders (`ir`, `ib`).
    Split,
    /// By exchanges of all ranks, step by step (`nap-allreduce`, section III). Only on nodes of several ranks each
    /// ([`Layout::has_pairs`]).
    NodeAware,
}

/// A part of a collective's work that one group does together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// What it does.
    pub kind: Kind,
    /// For which chunk.
    pub chunk: usize,
    /// For which slice of it.
    pub slice: usize,
    /// The slice's elements.
    pub range: Range<usize>,
    /// Who does it.
    pub stream: Stream,
    /// The root within the group.
    pub root: usize,
    /// What this rank gives.
    pub from: Place,
    /// Where it receives, if it does.
    pub to: Option<Place>,
    /// Tasks of this rank that must have completed before.
    pub after: [Option<usize>; 2],
}

impl Task {
    /// Whether other nodes do it as well, with the same contributions.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.kind == Kind::Sa || matches!(self.stream, Stream::First(_))
    }
}

/// A rank's part in a collective.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPlan {
    /// In the order of the chunks, and of the work on a chunk and its slices; those of a node-aware allreduce in that of the
    /// steps, in each of which its chunks are at different ones.
    pub tasks: Vec<Task>,
    /// The tasks of each stream.
    pub streams: Vec<(Stream, Vec<usize>)>,
    /// Scratch memory.
    pub scratch_bytes: usize,
    /// Chunks of the vector.
    pub chunks: usize,
}

impl TaskPlan {
    /// The tasks of a stream.
    pub(crate) fn stream(&self, stream: Stream) -> &[usize] {
        self.streams.iter().find(|(known, _)| *known == stream).map_or(&[], |(_, tasks)| tasks)
    }
}

/// What a plan depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskShape {
    /// The collective.
    pub collective: Collective,
    /// Elements of a rank's vector.
    pub count: usize,
    /// Bytes of an element.
    pub element_bytes: usize,
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
    /// Leaders of each node: a chunk is cut into as many slices, one for each, if it has as many lines. A node of fewer ranks has
    /// some lead several. A reduction to a root by several does not keep operands in the order of the ranks.
    pub leaders: usize,
    /// How an allreduce goes across the nodes.
    pub across: Across,
    /// The root.
    pub root: usize,
}

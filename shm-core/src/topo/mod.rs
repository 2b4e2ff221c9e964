//! Where the local ranks are, and what follows for who talks to whom.
//!
//! [`Topology`] is the machine: each processor's path from its socket down to its core. [`Place`] is
//! what a rank's affinity mask leaves of that path, [`Hierarchy`] the groups that ranks form at each
//! level, [`Tree`] who sends to whom below any root, and `locality` how the ranks of a job come to the
//! same hierarchy. All of it is a pure function of the topology and the masks.

mod hierarchy;
mod locality;
mod place;
mod synthetic;
mod topology;
mod tree;

use std::fmt;

pub use hierarchy::{Group, Hierarchy, Tier};
pub(crate) use locality::Locality;
pub use place::Place;
pub use topology::{Processor, Topology, binding_order};
pub use tree::{Shape, Tree};

/// How near two ranks are: what they share. Near ones come first.
///
/// Every level lies within the next: an L3 cache of several NUMA nodes is left out, and so is a NUMA
/// node of several sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// A core, or a processor of it.
    Core,
    /// A cache of level 3.
    L3,
    /// The memory of a NUMA node.
    Numa,
    /// A socket.
    Socket,
    /// The node, and nothing smaller.
    Node,
}

impl Level {
    /// Every level, the innermost first.
    pub const ALL: [Self; 5] = [Self::Core, Self::L3, Self::Numa, Self::Socket, Self::Node];

    /// The levels of a processor's path, the outermost first; all are on the node.
    const PATH: [Self; 4] = [Self::Socket, Self::Numa, Self::L3, Self::Core];

    /// As it is shown, and as options take it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::L3 => "l3",
            Self::Numa => "numa",
            Self::Socket => "socket",
            Self::Node => "node",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

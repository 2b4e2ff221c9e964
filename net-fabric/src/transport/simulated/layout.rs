//! Where the ranks of a simulated world are.

use super::machine::{Level, Machine};
use crate::error::{Error, Result};

/// Nodes with the same number of ranks each, dealt to nodes, and on a node to sockets, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of nodes.
    pub nodes: usize,
    /// Ranks of a node.
    pub ranks_per_node: usize,
}

impl Layout {
    /// Nodes of so many ranks.
    ///
    /// # Errors
    /// There are none, or more than the simulator numbers.
    pub fn new(nodes: usize, ranks_per_node: usize) -> Result<Self> {
        match nodes.checked_mul(ranks_per_node) {
            Some(1..=0xff_ffff) => Ok(Self { nodes, ranks_per_node }),
            _ => Err(Error::InvalidArgument(format!(
                "{nodes} nodes of {ranks_per_node} ranks: a simulated world has 1 to {} ranks",
                0xff_ffff
            ))),
        }
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(self) -> usize {
        self.nodes * self.ranks_per_node
    }

    /// The node of a rank.
    #[must_use]
    pub fn node(self, rank: usize) -> usize {
        rank / self.ranks_per_node
    }

    /// The socket of a rank, counted on its node.
    #[must_use]
    pub fn socket(self, machine: &Machine, rank: usize) -> usize {
        rank % self.ranks_per_node / self.ranks_per_node.div_ceil(machine.sockets_per_node)
    }

    /// The costs between two ranks.
    pub(super) fn level(self, machine: &Machine, one: usize, other: usize) -> &Level {
        if self.node(one) != self.node(other) {
            return &machine.network;
        }
        if self.socket(machine, one) == self.socket(machine, other) { &machine.socket } else { &machine.node }
    }
}

//! Closed forms of allreduce times, as in "Node-Aware Improvements to Allreduce", section IV.
//!
//! They hold for powers of two of nodes and of ranks per node (for equation 6 the logarithms may be broken), if all
//! ranks of a node are equally far from each other and all start at once; then the simulation agrees to rounding.

use crate::transport::simulated::{Layout, Line, Machine, Model, Seconds};

/// The letters of the equations, for messages of one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Terms {
    /// Within a node: alpha and beta with the index l.
    pub local: Line,
    /// Between nodes: alpha, and beta = 1 / `R_b`.
    pub network: Line,
    /// `R_N`, infinite without a limit.
    pub injection_bytes_per_s: f64,
    /// Gamma for a byte.
    pub reduce_byte_s: Seconds,
    /// s: bytes of the vector.
    pub bytes: f64,
    /// n.
    pub nodes: f64,
    /// ppn.
    pub ranks_per_node: f64,
}

impl Terms {
    /// The terms of a machine, for messages of so many bytes. Local messages count as those between sockets, as the
    /// paper's authors have it, unless nodes have one socket. None if its model is `LogGP`, which the equations do
    /// not know.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // far below 2^53
    pub fn of(machine: &Machine, layout: Layout, bytes: usize) -> Option<Self> {
        let limit = match machine.model {
            Model::Loggp => return None,
            Model::Postal => None,
            Model::MaxRate => machine.injection_bytes_per_s,
        };
        let local = if machine.sockets_per_node == 1 { &machine.socket } else { &machine.node };
        Some(Self {
            local: *machine.line(local, bytes),
            network: *machine.line(&machine.network, bytes),
            injection_bytes_per_s: limit.unwrap_or(f64::INFINITY),
            reduce_byte_s: machine.reduce_byte_s,
            bytes: bytes as f64,
            nodes: layout.nodes as f64,
            ranks_per_node: layout.ranks_per_node as f64,
        })
    }

    /// Equation 4: recursive doubling over all ranks.
    #[must_use]
    pub fn recursive_doubling(&self) -> Seconds {
        self.local_message() * self.ranks_per_node.log2()
            + self.network_message(self.ranks_per_node) * self.nodes.log2()
            + self.reductions(self.steps())
    }

    /// Equation 5: the leaders of the nodes double. As printed it leaves out the bcast on each node, which
    /// [`local_bcast`](Self::local_bcast) is.
    #[must_use]
    pub fn smp(&self) -> Seconds {
        self.local_message() * self.ranks_per_node.log2()
            + self.network_message(1.0) * self.nodes.log2()
            + self.reductions(self.steps())
    }

    /// A binomial bcast on each node.
    #[must_use]
    pub fn local_bcast(&self) -> Seconds {
        self.local_message() * self.ranks_per_node.log2()
    }

    /// Equation 6: node-aware parallel allreduce, all ranks of a node exchange with as many nodes in each of
    /// log<sub>ppn</sub>(n) steps; between them the node's ranks double. The equation takes that logarithm as it is; here
    /// it is rounded up, as the authors' script for the figures has it, because there is no part of a step. (The script
    /// also has log<sub>2</sub>(ppn) reductions for all of these steps, in place of one for each.) NaN with one rank a
    /// node.
    #[must_use]
    pub fn node_aware(&self) -> Seconds {
        self.node_aware_in(self.exchanges())
    }

    /// Equation 6 as printed, with a broken number of steps where n is no power of ppn. NaN with one rank a node.
    #[must_use]
    pub fn node_aware_as_printed(&self) -> Seconds {
        self.node_aware_in(self.exponent())
    }

    /// Equation 6 with so many steps between nodes.
    fn node_aware_in(&self, exchanges: f64) -> Seconds {
        self.local_message() * self.steps()
            + self.network_message(self.ranks_per_node) * exchanges
            + self.reductions(self.steps() + exchanges)
    }

    /// What the schedule takes where equation 6 is about: the rank that has the node's own result sends nothing; nobody
    /// combines what it has received before the node's ranks double, so that this is one reduction less a step; and the
    /// last step, which may join fewer than ppn groups, has as many local messages as the others. NaN with one rank a
    /// node.
    #[must_use]
    pub fn node_aware_as_built(&self) -> Seconds {
        let (exchanges, ppn) = (self.exchanges(), self.ranks_per_node);
        let local = self.local_message() * ppn.log2() * (exchanges + 1.0);
        if exchanges == 0.0 {
            return local + self.reductions(ppn.log2());
        }
        let last = self.nodes / ppn.powf(exchanges - 1.0);
        let network = self.network_message(ppn - 1.0) * (exchanges - 1.0) + self.network_message(last - 1.0);
        local + network + self.reductions(ppn.log2() * exchanges + last.log2())
    }

    /// log<sub>ppn</sub>(n), rounded up.
    fn exchanges(&self) -> f64 {
        let exponent = self.exponent();
        // A hair less, so that a rounded whole logarithm does not become one step more.
        if exponent.is_nan() { exponent } else { (exponent - 1e-9).ceil().max(0.0) }
    }

    /// log<sub>ppn</sub>(n).
    fn exponent(&self) -> f64 {
        if self.ranks_per_node > 1.0 { self.nodes.ln() / self.ranks_per_node.ln() } else { f64::NAN }
    }

    fn steps(&self) -> f64 {
        (self.nodes * self.ranks_per_node).log2()
    }

    fn local_message(&self) -> Seconds {
        self.local.latency_s + self.local.byte_s * self.bytes
    }

    /// Max-rate: so many ranks of a node send at once.
    fn network_message(&self, senders: f64) -> Seconds {
        let rate = f64::min(self.injection_bytes_per_s, senders / self.network.byte_s);
        self.network.latency_s + senders * self.bytes / rate
    }

    fn reductions(&self, steps: f64) -> Seconds {
        self.reduce_byte_s * self.bytes * steps
    }
}

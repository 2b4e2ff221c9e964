//! The ranks of a world as messages name them.

use reduce_kernels::Signature;

use crate::engine::{Fingerprint, Host};

/// What the engine is told of the ranks: their names, by rank.
#[derive(Debug, Clone)]
pub struct Ranks {
    names: Vec<String>,
}

impl Ranks {
    /// Ranks that messages name so, for instance `rank 2 (pid 4711 on node1)`.
    #[must_use]
    pub fn named(names: Vec<String>) -> Self {
        Self { names }
    }
}

impl Host for Ranks {
    fn call(&self, fingerprint: Fingerprint) -> String {
        let [packed, count] = fingerprint.0;
        Signature { packed, count }.to_string()
    }

    fn name(&self, rank: usize) -> String {
        self.names.get(rank).map_or_else(|| format!("rank {rank}"), Clone::clone)
    }
}

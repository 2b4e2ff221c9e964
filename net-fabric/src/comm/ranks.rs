//! The ranks of a world as messages name them.

use std::fmt;

use reduce_kernels::Signature;

use crate::engine::{Fingerprint, Host, Wait};

/// What the engine is told of the ranks: their names, by rank. And whom it tells what this one waits for.
pub struct Ranks {
    names: Vec<String>,
    onlooker: Option<Box<Onlooker>>,
}

/// Called while the rank waits for long, again and again, and with `None` when that is over.
type Onlooker = dyn FnMut(Option<&Wait<'_>>);

impl Ranks {
    /// Ranks that messages name so, for instance `rank 2 (pid 4711 on node1)`.
    #[must_use]
    pub fn named(names: Vec<String>) -> Self {
        Self { names, onlooker: None }
    }

    /// The same, with somebody who writes down what this rank waits for; it must not use the link.
    #[must_use]
    pub fn watched_by(self, onlooker: impl FnMut(Option<&Wait<'_>>) + 'static) -> Self {
        Self { onlooker: Some(Box::new(onlooker)), ..self }
    }
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranks").field("names", &self.names).finish_non_exhaustive()
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

    fn waits(&mut self, wait: Option<&Wait<'_>>) {
        if let Some(onlooker) = &mut self.onlooker {
            onlooker(wait);
        }
    }
}

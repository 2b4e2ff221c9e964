//! How a call is to be carried out.

use std::fmt;

use crate::algorithm::Algorithm;
use crate::engine::Policy;

/// How a call is to be carried out: the same on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Plan {
    /// Who sends what to whom.
    pub algorithm: Algorithm,
    /// Bytes of a chunk.
    pub chunk_bytes: usize,
    /// In which order steps are begun.
    pub policy: Policy,
}

impl fmt::Display for Plan {
    /// For instance `net/ring`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "net/{}", self.algorithm)
    }
}

//! What can go wrong, with sentences that a user can act on.

use crate::bootstrap;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From the engine on this node: a death, a mismatch, a wrong argument, a refused system call.
    #[error(transparent)]
    Node(#[from] shm_core::Error),
    /// Start-up could not find the other ranks.
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    /// An environment variable or setting is wrong.
    #[error("configuration: {0}")]
    Config(String),
    /// The world has ranks on several nodes, which this version cannot connect.
    #[error(
        "the world has {size} ranks on {nodes} nodes, but this version connects the ranks of one node only: \
         start all ranks on one node"
    )]
    SeveralNodes {
        /// Ranks in the world.
        size: usize,
        /// Nodes that the launcher named.
        nodes: usize,
    },
    /// A communicator was used after its context was finalized.
    #[error("this rank has finalized: no communicator can be used any more")]
    Finalized,
    /// A communicator was used while it was in use: inside a user's operator, say.
    #[error("communicator {0} is in use already: an operator must not call collectives on the communicator it serves")]
    InUse(u32),
}

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
    /// From the network between nodes: a rank that cannot be reached, a mismatch, no provider.
    #[error(transparent)]
    Network(#[from] net_fabric::Error),
    /// Start-up could not find the other ranks.
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    /// An environment variable or setting is wrong.
    #[error("configuration: {0}")]
    Config(String),
    /// A communicator was used after its context was finalized.
    #[error("this rank has finalized: no communicator can be used any more")]
    Finalized,
    /// A forked child used what is its parent's.
    #[error("this process was forked by a rank, which alone can call han")]
    Forked,
    /// A communicator was used while it was in use: inside a user's operator, say.
    #[error("communicator {0} is in use already: an operator must not call collectives on the communicator it serves")]
    InUse(u32),
    /// An operation has completed, but something still holds its vector, which is leaked: a fault of this library.
    #[error("an operation on communicator {0} has completed, but its vector is not free")]
    NotFree(u32),
}

impl Error {
    /// A communicator that was to be made is not there, although nobody says why.
    pub(crate) fn none_made() -> Self {
        Self::startup("no communicator was made")
    }

    /// Ranks could not agree, in words or by the error of an exchange.
    pub(crate) fn startup(why: impl ToString) -> Self {
        Self::Node(shm_core::Error::Startup(why.to_string()))
    }
}

impl From<reduce_kernels::CallError> for Error {
    fn from(error: reduce_kernels::CallError) -> Self {
        Self::Node(error.into())
    }
}

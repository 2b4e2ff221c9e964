//! What can go wrong, with sentences that a user can act on.

use net_fabric::Error as Net;
use shm_core::Error as Node;

use crate::bootstrap;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the engine. Its [`kind`](Self::kind) says what has happened, whichever level has found it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// From the engine on this node: a death, a mismatch, a wrong argument, a refused system call.
    #[error(transparent)]
    Node(#[from] Node),
    /// From the network between nodes: a rank that cannot be reached, a mismatch, no provider.
    #[error(transparent)]
    Network(#[from] Net),
    /// Start-up could not find the other ranks.
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    /// An environment variable or setting is wrong.
    #[error("configuration: {0}")]
    Config(String),
    /// The file of `HAN_TRACE` cannot be written; the job itself has succeeded.
    #[error("{0}")]
    Trace(String),
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

/// What has happened, for programs that act on it; C programs get the code of `han.h` that stands beside each.
///
/// ```
/// let context = han::Context::init()?;
/// match context.world().barrier().map_err(|error| error.kind()) {
///     Err(han::ErrorKind::PeerDied | han::ErrorKind::Aborted) => std::process::exit(75), // to be started again
///     others => assert_eq!(others, Ok(())),
/// }
/// context.finalize()?;
/// # Ok::<(), han::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument that nothing could make right (`HAN_ERR_ARG`).
    InvalidArgument,
    /// A variable, setting or tuning file is wrong, or not the same on all ranks (`HAN_ERR_CONFIG`).
    Config,
    /// The ranks could not find each other, or could not agree on a new communicator (`HAN_ERR_BOOTSTRAP`).
    Startup,
    /// A rank ended without finalizing, or cannot be reached: over the network these look alike (`HAN_ERR_PEER_DIED`).
    PeerDied,
    /// The ranks disagree on what is being done (`HAN_ERR_MISMATCH`).
    Mismatch,
    /// A rank has ended the job (`HAN_ERR_ABORTED`).
    Aborted,
    /// A wait exceeded the configured limit (`HAN_ERR_TIMEOUT`).
    Timeout,
    /// A call of the system or of libfabric failed, or a file cannot be written (`HAN_ERR_SYSTEM`).
    System,
    /// There is no memory (`HAN_ERR_NO_MEMORY`).
    NoMemory,
    /// The communicator is in use already (`HAN_ERR_THREAD`).
    InUse,
    /// This rank has finalized (`HAN_ERR_NOT_INITIALIZED`).
    Finalized,
    /// This process was forked by a rank (`HAN_ERR_NOT_INITIALIZED`).
    Forked,
    /// A fault of this library (`HAN_ERR_INTERNAL`).
    Internal,
}

impl Error {
    /// What has happened.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Node(error) => of_node(error),
            Self::Network(error) => of_network(error),
            Self::Bootstrap(_) => ErrorKind::Startup,
            Self::Config(_) => ErrorKind::Config,
            Self::Trace(_) => ErrorKind::System,
            Self::Finalized => ErrorKind::Finalized,
            Self::Forked => ErrorKind::Forked,
            Self::InUse(_) => ErrorKind::InUse,
            Self::NotFree(_) => ErrorKind::Internal,
        }
    }

    /// A communicator that was to be made is not there, although nobody says why.
    pub(crate) fn none_made() -> Self {
        Self::startup("no communicator was made")
    }

    /// Ranks could not agree, in words or by the error of an exchange.
    pub(crate) fn startup(why: impl ToString) -> Self {
        Self::Node(Node::Startup(why.to_string()))
    }
}

fn of_node(error: &Node) -> ErrorKind {
    match error {
        Node::PeerDied { .. } | Node::Lost { .. } => ErrorKind::PeerDied,
        Node::Mismatch(_) => ErrorKind::Mismatch,
        Node::Aborted { .. } => ErrorKind::Aborted,
        Node::InvalidArgument(_) => ErrorKind::InvalidArgument,
        Node::Timeout(_) => ErrorKind::Timeout,
        Node::NoMemory { .. } => ErrorKind::NoMemory,
        Node::Startup(_) => ErrorKind::Startup,
        // System calls, those that reach a peer's memory among them, and errors that are gained later.
        _ => ErrorKind::System,
    }
}

fn of_network(error: &Net) -> ErrorKind {
    match error {
        Net::Unreachable { .. } => ErrorKind::PeerDied,
        Net::Mismatch(_) | Net::Length { .. } => ErrorKind::Mismatch,
        Net::Aborted { .. } => ErrorKind::Aborted,
        Net::InvalidArgument(_) | Net::Nested => ErrorKind::InvalidArgument,
        Net::Timeout(_) => ErrorKind::Timeout,
        // libfabric, messages of strangers, and errors that are gained later.
        _ => ErrorKind::System,
    }
}

impl From<reduce_kernels::CallError> for Error {
    fn from(error: reduce_kernels::CallError) -> Self {
        Self::Node(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_one_kind_whichever_level_has_found_it() {
        let (rank, pid, why) = (1, 7, String::new);
        let at = |error: Node| Error::from(error).kind();
        let over = |error: Net| Error::from(error).kind();
        for (kind, found) in [
            (ErrorKind::PeerDied, at(Node::PeerDied { rank, pid, operation: why() })),
            (ErrorKind::PeerDied, at(Node::Lost { rank, why: why() })),
            (ErrorKind::PeerDied, over(Net::Unreachable { rank, reason: why() })),
            (ErrorKind::Mismatch, at(Node::Mismatch(why()))),
            (ErrorKind::Mismatch, over(Net::Mismatch(why()))),
            (ErrorKind::Mismatch, over(Net::Length { rank, sent: 1, expected: 2 })),
            (ErrorKind::Aborted, at(Node::Aborted { rank, pid, why: why() })),
            (ErrorKind::Aborted, over(Net::Aborted { rank, why: why() })),
            (ErrorKind::Timeout, at(Node::Timeout(why()))),
            (ErrorKind::Timeout, over(Net::Timeout(why()))),
            (ErrorKind::InvalidArgument, Error::from(reduce_kernels::CallError(why())).kind()),
            (ErrorKind::InvalidArgument, over(Net::InvalidArgument(why()))),
            (ErrorKind::System, at(Node::System { api: "mmap", reason: why() })),
            (ErrorKind::System, at(Node::Unreachable { rank, pid, reason: why() })),
            (ErrorKind::System, over(Net::Fabric { call: "fi_send", reason: why() })),
            (ErrorKind::System, Error::Trace(why()).kind()),
            (ErrorKind::NoMemory, at(Node::NoMemory { bytes: 1, reason: why() })),
            (ErrorKind::Startup, Error::startup("").kind()),
            (ErrorKind::Startup, Error::from(bootstrap::Error::Closed).kind()),
        ] {
            assert_eq!(kind, found);
        }
    }
}

//! What can go wrong between nodes, each with a sentence that a user can act on.

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the engine between nodes.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A function of libfabric failed.
    #[error("{call} failed: {reason}")]
    Fabric {
        /// The function, as in its manual page.
        call: &'static str,
        /// The library's words, with what would help where that is known.
        reason: String,
    },
    /// A peer cannot be reached, or is gone.
    #[error("rank {rank} cannot be reached: {reason}")]
    Unreachable {
        /// The peer's rank in the transport's world.
        rank: usize,
        /// What was seen.
        reason: String,
    },
    /// Ranks called different collectives, or the same one with different arguments.
    #[error("mismatched collective: {0}")]
    Mismatch(String),
    /// A message came from outside the job.
    #[error("a message in the name of rank {rank} does not carry the job's secret: {reason}")]
    Stranger {
        /// The rank that the message came from, or in whose name.
        rank: usize,
        /// Where it was found.
        reason: String,
    },
    /// A rank gave up and ended the job.
    #[error("rank {rank} aborted the job: {why}")]
    Aborted {
        /// The rank, in the transport's world.
        rank: usize,
        /// The reason it gave.
        why: String,
    },
    /// The wait exceeded the configured limit.
    #[error("timeout: {0}")]
    Timeout(String),
    /// A message has another length than its receiver expected.
    #[error("rank {rank} sent {sent} bytes where {expected} were expected")]
    Length {
        /// The sender's rank in the transport's world.
        rank: usize,
        /// The message's length, or as much of it as is known.
        sent: usize,
        /// What was expected.
        expected: usize,
    },
    /// An argument that nothing could make right.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// An operator that the engine has called wants something of it.
    #[error("an operator must not call collectives over the network")]
    Nested,
}

//! What can go wrong on one node, each with a sentence that a user can act on.

use std::io;

use crate::exchange::ExchangeError;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of the intra-node engine.
///
/// [`Error::PeerDied`], [`Error::Lost`], [`Error::Mismatch`], [`Error::Aborted`], [`Error::Timeout`] and
/// [`Error::Unreachable`] end the whole job: the same error is returned by the pending and all later operations of every
/// surviving rank.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank ended without finalizing.
    #[error("rank {rank} (pid {pid}) died without finalizing; {operation}")]
    PeerDied {
        /// The dead rank, counted in the world.
        rank: usize,
        /// Its process id.
        pid: u32,
        /// What it, and this rank, were doing.
        operation: String,
    },
    /// A rank of another node has died, or cannot be reached any more.
    #[error("rank {rank} cannot be reached: {why}")]
    Lost {
        /// The lost rank, counted in the world.
        rank: usize,
        /// What was seen, and by whom.
        why: String,
    },
    /// Ranks called different collectives, or the same one with different arguments.
    #[error("mismatched collective: {0}")]
    Mismatch(String),
    /// A rank gave up and ended the job.
    #[error("rank {rank} (pid {pid}) aborted the job: {why}")]
    Aborted {
        /// The rank that aborted, counted in the world.
        rank: usize,
        /// Its process id.
        pid: u32,
        /// The reason it gave.
        why: String,
    },
    /// An argument that no rank count, root or datatype could make right.
    #[error("invalid argument: {0}")]
    InvalidArgument(String),
    /// The wait exceeded the configured limit.
    #[error("timeout: {0}")]
    Timeout(String),
    /// A system call failed.
    #[error("{api} failed: {reason}")]
    System {
        /// The call, as in its manual page.
        api: &'static str,
        /// The error's text, with what would help where that is known.
        reason: String,
    },
    /// There is no memory for a buffer.
    #[error("no memory for {bytes} bytes: {reason}")]
    NoMemory {
        /// What was asked for.
        bytes: usize,
        /// What the system said.
        reason: String,
    },
    /// A peer's memory could not be read or written.
    #[error("memory of rank {rank} (pid {pid}) cannot be reached: {reason}")]
    Unreachable {
        /// The rank whose memory it is, counted in the world.
        rank: usize,
        /// Its process id.
        pid: u32,
        /// What the system said, with what would help where that is known.
        reason: String,
    },
    /// The ranks could not agree at start-up or in the making of a communicator.
    #[error("start-up: {0}")]
    Startup(String),
}

impl Error {
    /// An error of the system call `api`.
    pub(crate) fn system(api: &'static str, errno: nix::errno::Errno) -> Self {
        Self::System { api, reason: format!("{} ({errno:?})", errno.desc()) }
    }

    /// An error of the standard library's wrapper around `api`.
    pub(crate) fn io(api: &'static str, error: &io::Error) -> Self {
        Self::System { api, reason: error.to_string() }
    }
}

impl Error {
    /// The error of which `rank` has told the others in these words.
    #[must_use]
    pub fn told(rank: usize, text: &str) -> Self {
        let lack = || {
            let (bytes, reason) = text.strip_prefix("no memory for ")?.split_once(" bytes: ")?;
            Some((bytes.parse().ok()?, reason))
        };
        match lack() {
            Some((bytes, reason)) => Self::NoMemory { bytes, reason: format!("rank {rank}: {reason}") },
            None => Self::Startup(format!("rank {rank}: {}", text.strip_prefix("start-up: ").unwrap_or(text))),
        }
    }

    /// That of an exchange, which may be one of this crate.
    #[must_use]
    pub fn of_exchange(error: ExchangeError) -> Self {
        error.downcast::<Self>().map_or_else(|other| Self::Startup(other.to_string()), |own| *own)
    }

    /// An error of a call that was to give `bytes` of memory.
    pub(crate) fn of_memory(api: &'static str, bytes: u64, error: &io::Error) -> Self {
        let lacks = matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::ENOSPC | libc::EDQUOT));
        match usize::try_from(bytes) {
            Ok(bytes) if lacks => Self::NoMemory { bytes, reason: format!("{api}: {error}") },
            _ => Self::io(api, error),
        }
    }
}

impl From<reduce_kernels::CallError> for Error {
    fn from(error: reduce_kernels::CallError) -> Self {
        Self::InvalidArgument(error.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn all_ranks_learn_what_one_lacks() {
        let told = |error: &Error| Error::told(3, &error.to_string()).to_string();
        let error = Error::NoMemory { bytes: 4096, reason: "none is left".to_owned() };
        assert_eq!(told(&error), "no memory for 4096 bytes: rank 3: none is left");
        assert_eq!(told(&Error::Startup("x".to_owned())), "start-up: rank 3: x");
        assert_eq!(
            told(&Error::InvalidArgument("no memory for 1 bytes: x".to_owned())).split(':').next(),
            Some("start-up")
        );
    }
}

//! What can go wrong while the ranks of a job find each other.

use std::io;

/// Result of everything in this module.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of start-up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The launcher's environment variables do not fit together.
    #[error("launcher's environment: {0}")]
    Environment(String),
    /// Bytes that are not PMI-1, or not at this point.
    #[error("PMI-1 protocol: {0}")]
    Protocol(String),
    /// The ranks have not met at `HAN_RENDEZVOUS`, or have parted since.
    #[error("rendezvous: {0}")]
    Rendezvous(String),
    /// A PMIx launcher, or the way to it.
    #[error("PMIx: {0}")]
    Pmix(#[from] pmix_client::Error),
    /// Other ranks have not come within `timeout_s`.
    #[error("{0}: given up at HAN_SET=timeout_s")]
    Waited(String),
    /// The launcher understood and said no.
    #[error("the launcher refused `{request}`: {reason}")]
    Refused {
        /// The request's command.
        request: &'static str,
        /// The launcher's reason.
        reason: String,
    },
    /// The launcher hung up.
    #[error(
        "the launcher closed the PMI connection: it has ended, is ending the job because a rank failed, or has served another \
         program of this rank before (Hydra serves one)"
    )]
    Closed,
    /// The program has closed the connection to the launcher.
    #[error(
        "the program has closed han's connection to the launcher: close descriptors of your own alone, or all before han \
         begins"
    )]
    Gone,
    /// Talking to the launcher failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was attempted.
        action: String,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    pub(super) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::Io { action, source }
    }
}

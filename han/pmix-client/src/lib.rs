//! A process's place in a job that a PMIx launcher has started: Open MPI's `mpirun`, `prterun`, `srun --mpi=pmix`.
//!
//! Programs are not linked with libpmix, which is opened when a launcher says that it speaks PMIx, so that they start
//! where it is missing. What PMIx is needed for here is small: who one is, on which node, and values that all ranks see.

mod client;
mod library;

pub use client::Client;

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// libpmix cannot be used here.
    #[error(
        "this launcher speaks PMIx, but libpmix.so.2 cannot be opened: {0} (Debian: apt-get install libpmix2; or name the \
         folder of the one that came with the launcher in LD_LIBRARY_PATH)"
    )]
    Library(String),
    /// A program that has no loader.
    #[error("this launcher speaks PMIx, but this program cannot load libpmix.so.2: it is linked statically (-static)")]
    Static,
    /// libpmix, or the launcher behind it, refused.
    #[error("{call}: {reason}")]
    Refused {
        /// What was called, and for what.
        call: String,
        /// libpmix's word for it.
        reason: String,
    },
    /// Nobody is there to be joined.
    #[error(
        "{0}: the launcher that set PMIX_NAMESPACE has ended, or has not started this process; a process that is to be alone: \
         env -u PMIX_NAMESPACE -u OMPI_COMM_WORLD_SIZE"
    )]
    NoLauncher(Box<Error>),
    /// The launcher answered with something else.
    #[error("{call} gave {got}")]
    Unexpected {
        /// What was called, and for what.
        call: String,
        /// What came instead.
        got: String,
    },
}

/// Result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

//! `libhan_mpi`: put under an MPI program by `LD_PRELOAD`, it carries out the program's collectives with han.
//!
//! It defines the MPI functions that it takes, so the program's calls come here first; whatever is not its own goes on
//! to the MPI library by the functions' other names, `PMPI_...`, which are looked up when the program starts. Nothing of
//! any MPI is linked or included: handles are taken as machine words, and [`abi`] knows what they are called in each of
//! the three binary interfaces that there are. `README.md` of this crate tells a call's way through the modules.

// They panic where nothing can be written; `say` does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// The linker sees the functions by their names; for Rust there is no path to them.
#![allow(unreachable_pub)]

mod abi;
mod arguments;
mod collective;
mod communicator;
mod completion;
mod counted;
mod datatype;
mod deputy;
mod derived;
mod error;
mod exchange;
mod export;
mod failed;
mod gate;
mod handler;
mod lengthy;
mod lifecycle;
mod nonblocking;
mod older;
mod operator;
mod packed;
mod padded;
mod pending;
mod persistent;
mod presence;
mod process;
mod progress;
mod real;
mod report;
mod request;
mod rules;
mod waiting;

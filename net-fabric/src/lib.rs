//! Collectives between nodes.
//!
//! A collective is data here: for each rank a [`Schedule`](schedule::Schedule) of sends, receives, reductions and
//! copies over ranges of bytes. One schedule is verified, simulated, and run on a [`Transport`](transport::Transport).
//! This crate knows no shared memory.

// They panic where nothing can be written; `say` does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod algorithm;
mod comm;
pub mod engine;
mod error;
pub mod fabric;
pub mod model;
pub mod schedule;
pub mod transport;
pub mod verify;

pub use comm::{FabricComm, Link, Patience, Plan, Ranks, Rest};
pub use engine::{Announced, Policy, Secret, Wait, Watch};
pub use error::{Error, Result};

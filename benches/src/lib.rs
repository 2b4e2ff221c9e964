//! Tables from measurements: `bench-tables` prints our own numbers beside the machine's limits,
//! `bench-peers` those of han beside the rivals'.
//!
//! The programs measure nothing themselves. They start `han bench` and, for the rivals, the MPI
//! program in `peers/`, watch the state of the machine, and sum up. [`job`] starts and reads,
//! [`machine`] watches, [`contestants`] knows the rivals and their settings, [`table`] writes.

pub mod contestants;
pub mod job;
pub mod machine;
pub mod table;

/// Errors are for people: the programs print them and end.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

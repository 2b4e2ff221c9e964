//! han beside the rivals: `bench-peers` measures, `bench-tables` writes tables and plots again.
//!
//! Nothing is timed here. The program `collbench`, compiled once for each library, measures and
//! checks; these modules decide who has a turn when, watch the state of the machine, and sum up:
//! [`contestants`] knows the libraries and their settings, [`job`] starts one and reads its lines,
//! [`network`] and [`testbed`] are the nodes that it may run on, [`machine`] watches, [`plan`] orders the turns, [`record`] keeps what was measured, [`ratios`]
//! compares, [`applications`] are programs that use collectives, [`targets`] says what is behind, [`report`], [`overview`],
//! [`plot`] and [`summary`] write.

pub mod applications;
pub mod contestants;
pub mod job;
pub mod machine;
pub mod network;
pub mod overview;
pub mod plan;
pub mod plot;
pub mod ratios;
pub mod record;
pub mod report;
pub mod summary;
pub mod table;
pub mod targets;
pub mod testbed;

/// Errors are for people: the programs print them and end.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

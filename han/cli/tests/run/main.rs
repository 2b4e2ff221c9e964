//! `han run` with real processes: shells, this test binary started again as a rank, an MPICH program.
//!
//! No test depends on how fast something happens; each wait has a generous limit only so that a hang
//! becomes a failure.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

mod cleanup;
mod death;
mod exit;
mod forbid;
#[allow(dead_code)] // shared with tests of ranks, which forget lines
mod harness;
mod hydra;
mod namespaces;
mod placement;
mod pmi;
mod ranks;
mod signals;
mod streams;

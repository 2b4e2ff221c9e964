//! `HAN_TRACE` and `han trace`: real jobs, whose files are parsed as any other program would parse them.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

mod endings;
#[allow(dead_code)] // shared with the tests of `han run`, which use all of it
#[path = "../run/harness.rs"]
mod harness;
mod pictures;
mod recorded;
mod roles;
#[allow(dead_code)] // shared with the tests of several nodes, which use all of it
#[path = "../nodes/testbed.rs"]
mod testbed;
mod traced;

//! Jobs over several nodes, which are network namespaces of this machine (`benches/testbed`). These tests need root;
//! HAN_TEST_NO_NETNS=1 leaves out those that need namespaces.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

mod agreement;
mod collectives;
mod counted;
mod faults;
#[allow(dead_code)] // shared with the tests of `han run`, which use all of it
#[path = "../run/harness.rs"]
mod harness;
mod interface;
mod memory;
mod mismatch;
mod model;
mod placement;
mod ranks;
mod testbed;

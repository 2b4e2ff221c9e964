//! The same programs under every launcher, and under none: `hello` in C and `gradient`, on one node and on several, and
//! with a rank that is killed.
//!
//! `make test` runs what it has launchers for: a rendezvous and Debian's `mpirun`. `make check-launchers` runs the others,
//! too: Hydra over nodes, Open MPI 5 and Slurm. Tests of several nodes need root; HAN_TEST_NO_NETNS=1 leaves them out.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

#[allow(dead_code)] // shared with the tests of `han run`, which use all of it
#[path = "../run/harness.rs"]
mod harness;
mod launched;
#[path = "../run/ports.rs"]
mod ports;
mod programs;
mod rendezvous;
#[allow(dead_code)] // shared with the tests of `han run` over nodes, which use all of it
#[path = "../nodes/testbed.rs"]
mod testbed;

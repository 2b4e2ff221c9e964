//! Collectives between the processes of one node, over lock-free shared memory.
//!
//! [`job::Job`] is what the ranks of a node share, [`LocalComm`] a group of them that does
//! collectives, [`Call`] one collective as data. Every collective is a state machine that is
//! polled; nothing here knows of a network. `ARCHITECTURE.md` has the map.

// They panic where nothing can be written; `say` does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

pub mod sync;

#[cfg(not(loom))]
mod coll;
#[cfg(not(loom))]
mod comm;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod exchange;
#[cfg(not(loom))]
pub mod explain;
#[cfg(not(loom))]
pub mod job;
#[cfg(not(loom))]
pub mod memory;
#[cfg(not(loom))]
mod rest;
#[cfg(not(loom))]
mod ring;
#[cfg(not(loom))]
pub mod segment;
#[cfg(not(loom))]
pub mod settings;
#[cfg(not(loom))]
pub mod sys;
#[cfg(not(loom))]
pub mod topo;
#[cfg(not(loom))]
mod tree;
#[cfg(not(loom))]
mod waiting;

#[cfg(not(loom))]
pub use {
    coll::choice::Form,
    comm::LocalComm,
    copy::{Method, MethodSet, Methods},
    error::{Error, Result},
    exchange::{Exchange, ExchangeError},
    explain::{Circumstances, Explanation, Question},
    job::Job,
    memory::SharedVec,
    reduce_kernels::{Call, Collective, Owned, OwnedCall, Signature, Ticket, say},
    rest::Rest,
    settings::{Settings, Single},
};

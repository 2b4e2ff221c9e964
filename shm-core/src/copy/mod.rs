//! How bytes move between ranks, and the memory of one rank that others can reach.
//!
//! `cico` copies through chunks of a communicator's segment. The other two methods need a peer's own
//! buffer: its owner *describes* it ([`Reach::describe`]), the words of the description travel beside a
//! flag, and the peer *resolves* them ([`Reach::resolve`]) to a place in its own address space (`shared`)
//! or to one that the kernel copies from and to (`cma`). Which methods all ranks can use is found out once,
//! together, at start-up ([`probe`]).

mod by_string;
pub(crate) mod cico;
mod described;
pub(crate) mod loads;
mod method;
mod peers;
pub(crate) mod probe;
#[cfg(test)]
mod processes;
mod ranges;
mod reach;
mod regions;
mod registered;
mod remote;
pub(crate) mod stores;

pub(crate) use described::Vectors;
pub(crate) use loads::Loads;
pub use method::{Method, MethodSet, Methods};
pub use reach::Lent;
pub(crate) use reach::{Access, Home, Reach};
pub(crate) use registered::{Neighbours, Untold};
pub(crate) use stores::Stores;

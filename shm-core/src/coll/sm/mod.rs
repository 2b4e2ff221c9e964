//! SM: the forms that go through the communicator's own shared memory. From some length on they leave out the copy into it
//! where peers reach a rank's vector.

pub(crate) mod barrier;
pub(crate) mod bcast;
pub(crate) mod chain;
pub(crate) mod direct;
mod family;
pub(crate) mod flat;
mod hand_on;
pub(crate) mod relay;
pub(crate) mod rounds;
pub(crate) mod slice;
mod sliced;
pub(crate) mod tree;

pub(crate) use family::{Families, Family, has_levels, keeps_order};
pub(crate) use hand_on::{HandOn, Link};
pub(crate) use slice::{News, Shares};
pub(crate) use tree::Hangs;

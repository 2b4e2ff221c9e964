//! The engine on the loopback transport: all ranks in one thread, in random order.
#![allow(unsafe_code, clippy::unwrap_used)] // Hands the tests' vectors to the engine.

mod counted;
mod exact;
mod fabric;
mod leads;
mod limits;
mod mortal;
mod records;
mod rig;
mod vigil;
mod waiting;
mod wrapped;

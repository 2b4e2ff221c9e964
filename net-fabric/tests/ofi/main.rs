//! The transport over libfabric, with every provider that this machine has, on loopback.
#![allow(unsafe_code)] // Posts messages.
#![allow(clippy::unwrap_used)]

mod errors;
mod memory;
mod messages;
mod pacing;
mod processes;
mod world;

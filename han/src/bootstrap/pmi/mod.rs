//! PMI-1, the line protocol between a launcher and its ranks.
//!
//! [`wire`] and [`mapping`] are shared by the client here and by the server in `han run`; neither does
//! any input or output.

mod client;
pub mod mapping;
mod value;
pub mod wire;

pub use client::Client;

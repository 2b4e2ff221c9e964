//! What every transport must do, in one suite; each transport has a file here that makes its worlds.
#![allow(unsafe_code, clippy::unwrap_used)] // Sends from and receives into the suite's own vectors.

mod loopback;
mod ofi;
mod rig;
mod simulated;
mod suite;

//! The only system calls of the engine, each behind a safe function where the kernel keeps it safe.
//!
//! Nothing here knows what a rank or a collective is.

pub mod affinity;
pub mod cache;
pub mod clock;
pub mod doze;
pub mod fork;
pub mod futex;
pub mod held;
pub mod hwloc;
pub mod limits;
pub mod map;
mod maps;
pub mod own;
pub mod pages;
pub mod pidfd;
pub mod process;
pub mod remote;
pub mod socket;

//! The library as its users have it: `make install` into a private prefix, programs in C, C++ and
//! Fortran compiled with what `pkg-config` says, started by `han run` and by Hydra's `mpiexec`.
//!
//! A tool that is missing fails these tests with a hint at `make deps`.
#![allow(clippy::unwrap_used)]

mod c;
mod exports;
mod fortran;
mod layout;
mod packaging;
mod prefix;

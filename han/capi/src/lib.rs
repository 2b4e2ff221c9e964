//! `libhan`: han for C, C++ and Fortran.
//!
//! The contract is `include/han.h`; the functions here are its implementation and nothing more. Each
//! enters the [gate], which admits one call at a time and turns errors and panics into codes; turns
//! handles and C arguments into checked Rust values ([`handle`], [`arguments`]); and calls crate
//! `han`. `fortran/han.f90` describes the functions of [`fortran`] to Fortran compilers.
//!
//! The functions are safe to call as far as Rust can see, because the parameter types of [`abi`] that
//! stand for pointers can be made by C only, and a C caller has accepted the rules of `han.h`.

// They panic where nothing can be written; `say` does not.
#![deny(clippy::print_stderr, clippy::print_stdout)]
// The linker sees the functions by their names; for Rust there is no path to them.
#![allow(unreachable_pub)]

mod abi;
mod arguments;
mod collective;
mod communicator;
mod error;
mod exchange;
mod fortran;
mod gate;
mod handle;
mod lifecycle;
mod memory;
mod names;
mod operator;
mod process;
mod request;

#[cfg(test)]
mod header_test;

//! libpmix's interface as C declares it, made from the installed header, and the library that is opened at run time.
#![allow(unsafe_code)] // Declares a C library, and opens it.

use std::sync::OnceLock;

use shm_core::sys::process::is_static;

use crate::{Error, Result};

#[allow(
    missing_docs,
    dead_code,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    clippy::all,
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    clippy::multiple_unsafe_ops_per_block,
    clippy::ptr_as_ptr,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

pub(crate) use generated::*;

/// PMIx 2 to 5, under the name that their programs ask for.
const LIBRARY: &str = "libpmix.so.2";

/// What libpmix exports; the library is opened by the first call, and stays open.
pub(crate) fn library() -> Result<&'static Exports> {
    static OPENED: OnceLock<std::result::Result<Exports, String>> = OnceLock::new();
    if is_static() {
        return Err(Error::Static);
    }
    OPENED.get_or_init(open).as_ref().map_err(|reason| Error::Library(reason.clone()))
}

fn open() -> std::result::Result<Exports, String> {
    // SAFETY: the library's initialisers run, which set up their own state.
    let library = unsafe { libloading::Library::new(LIBRARY) }.map_err(|error| error.to_string())?;
    // SAFETY: these are the functions of those names in libpmix, whose types are those of its header; they have been the
    // same in all versions of this library.
    unsafe { Exports::from_library(library) }.map_err(|error| error.to_string())
}

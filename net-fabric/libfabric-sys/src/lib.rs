//! libfabric's interface as C declares it, made from the installed headers.
//!
//! Nothing is linked with libfabric: [`library`] opens it when it is first asked, so that programs start where it is
//! missing, and says what would help there. What it exports is in [`Exports`]; the calls that its headers define
//! inline are functions of this crate.
//!
//! All functions are unsafe as in C: the manual pages say what they take. Names and types are libfabric's own.
#![allow(unsafe_code)] // Declares a C library.

pub mod calls;
mod dispositions;

use std::sync::OnceLock;

use dispositions::Dispositions;

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports,
    clippy::all,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::missing_errors_doc,
    clippy::missing_safety_doc,
    clippy::multiple_unsafe_ops_per_block,
    clippy::ptr_as_ptr,
    clippy::too_many_lines,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));

    pub mod exports {
        use super::*;
        include!(concat!(env!("OUT_DIR"), "/exports.rs"));
    }
}

pub use generated::exports::Exports;
pub use generated::*;

/// An address that is none: any sender's, in receives.
pub const FI_ADDR_UNSPEC: fi_addr_t = fi_addr_t::MAX;

/// libfabric 1 and 2, under the name that its programs ask for.
const LIBRARY: &str = "libfabric.so.1";

/// What libfabric exports; the library is opened by the first call, and stays open.
///
/// # Errors
/// The library is missing, or lacks a function: in words, with what to install.
pub fn library() -> Result<&'static Exports, String> {
    static OPENED: OnceLock<Result<Exports, String>> = OnceLock::new();
    OPENED.get_or_init(open).as_ref().map_err(Clone::clone)
}

fn open() -> Result<Exports, String> {
    if is_static() {
        return Err(format!("{LIBRARY}: this program cannot load it: it is linked statically (-static)"));
    }
    let _kept = Dispositions::now();
    // SAFETY: the library's initialisers run, which set up their own state, and dispositions that are put back.
    let library = unsafe { libloading::Library::new(LIBRARY) }.map_err(|error| missing(&error.to_string()))?;
    // SAFETY: these are the functions of those names in libfabric, whose types are those of its header; the library
    // keeps older ones under their older versions.
    unsafe { Exports::from_library(library) }.map_err(|error| missing(&error.to_string()))
}

/// Whether no loader has brought this program up: one that came now would bring a second C library.
fn is_static() -> bool {
    // SAFETY: getauxval takes no pointers. It gives 0 for what the kernel did not tell: it has loaded one file only.
    let alone = unsafe { libc::getauxval(libc::AT_BASE) } == 0;
    // That file may be the loader itself, if somebody has called it with the program's name.
    let is_loader = |line: &str| line.rsplit('/').next().is_some_and(|file| file.starts_with("ld-"));
    alone && !std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.lines().any(is_loader))
}

fn missing(reason: &str) -> String {
    format!("{LIBRARY} cannot be opened: {reason} (Debian: apt-get install libfabric1)")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::CStr;
    use std::ptr;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Tests that load libfabric, send signals or count its calls do so one at a time: all of that is the process's.
    pub(crate) fn turn() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn exports_and_inline_functions_work_together() {
        let _turn = turn();
        let library = library().unwrap();
        // SAFETY: takes nothing.
        let version = unsafe { library.fi_version() };
        assert!(version >= (1 << 16) + 17, "{version:#x}");
        // SAFETY: null asks for an empty description.
        let hints = unsafe { library.fi_dupinfo(ptr::null()) };
        assert!(!hints.is_null());
        let mut found = ptr::null_mut();
        // SAFETY: a description that nothing was added to, and room for a pointer.
        let code = unsafe { library.fi_getinfo((1 << 16) + 17, ptr::null(), ptr::null(), 0, hints, &raw mut found) };
        assert_eq!(code, 0);
        // SAFETY: succeeded, so that there is at least one description.
        let attributes = unsafe { (*found).fabric_attr };
        let mut fabric = ptr::null_mut();
        // SAFETY: the attributes are the library's own.
        let code = unsafe { library.fi_fabric(attributes, &raw mut fabric, ptr::null_mut()) };
        assert_eq!(code, 0);
        // SAFETY: the fabric was just opened, and begins with its fid; the wrapper of an inline function closes it.
        assert_eq!(unsafe { fi_close(fabric.cast()) }, 0);
        // SAFETY: what the library made, once.
        unsafe { library.fi_freeinfo(found) };
        // SAFETY: as above.
        unsafe { library.fi_freeinfo(hints) };
    }

    #[test]
    fn errors_have_words() {
        let _turn = turn();
        let library = library().unwrap();
        // SAFETY: takes a number.
        let text = unsafe { library.fi_strerror(FI_ETRUNC.cast_signed()) };
        // SAFETY: a constant string of the library.
        let text = unsafe { CStr::from_ptr(text) };
        assert!(text.to_string_lossy().to_lowercase().contains("trunc"), "{text:?}");
    }
}

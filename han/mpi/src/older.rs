//! What an older MPI library lacks.
//!
//! Programs that serve MPIs of all versions look whether a function is there, and do without it otherwise. With this library
//! under them they find those that it defines. So a call with counts of type `MPI_Count` is made by the function with
//! counts of type `int`, if that can have them; what else is missing is an error, as the MPI would report one.
#![allow(unsafe_code)] // Calls the MPI library.

use std::ffi::{CStr, c_int};

use crate::abi::{Abi, Word};
use crate::gate;
use crate::real::{SUCCESS, perhaps, real};

/// `MPI_ERR_COUNT`, in every binary interface.
pub(crate) const ERR_COUNT: c_int = 2;

/// Whose error handler hears of an error.
#[derive(Clone, Copy)]
pub(crate) enum On {
    Comm(Word),
    File(Word),
    Window(Word),
    /// The call has none of these.
    Nothing,
}

impl On {
    /// Raises that the library has no function of that name.
    #[cold]
    pub(crate) fn lacks(self, name: &CStr) -> c_int {
        let text = format!("han: the MPI library has no {}", name.to_string_lossy().trim_start_matches('P'));
        let own = gate::inside(|process| process.errors.describe_as(&text));
        self.raise(own.unwrap_or_else(|| Abi::detect(real()).err_other))
    }

    /// Raises that a count is more than the library can have.
    #[cold]
    pub(crate) fn has_too_many(self) -> c_int {
        self.raise(ERR_COUNT)
    }

    /// Calls the error handler with a code; gives the one to return if it comes back.
    #[cold]
    pub(crate) fn raise(self, code: c_int) -> c_int {
        type Handle = unsafe extern "C-unwind" fn(Word, c_int) -> c_int;
        let handled = match self {
            // SAFETY: the program's call was on this communicator, or whatever the library says of the handle.
            Self::Comm(comm) => unsafe { (real().comm_call_errhandler)(comm, code) },
            Self::File(file) => {
                let handle = perhaps!(c"PMPI_File_call_errhandler", Handle);
                // SAFETY: as above, for a file.
                handle.map_or(SUCCESS, |handle| unsafe { handle(file, code) })
            }
            Self::Window(window) => {
                let handle = perhaps!(c"PMPI_Win_call_errhandler", Handle);
                // SAFETY: as above, for a window.
                handle.map_or(SUCCESS, |handle| unsafe { handle(window, code) })
            }
            // SAFETY: this communicator is always there.
            Self::Nothing => unsafe { (real().comm_call_errhandler)(Abi::detect(real()).comm_of_no_object(), code) },
        };
        if handled == SUCCESS { code } else { handled }
    }
}

/// Whether a count is one that an `int` can have.
#[inline]
pub(crate) fn is_int(count: i64) -> bool {
    c_int::try_from(count).is_ok()
}

/// Does it now: the way of calls that return at once.
#[inline]
pub(crate) fn at_once<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// Calls the library's function `real` on a communicator in some way. Where it is missing, `older` is called, which has an
/// `int` for the count, if that can have it: an `int` is the lower half of its register, or of its place on the stack.
macro_rules! call {
    ($way:path, $real:ident, $older:ident, $comm:expr, $count:expr, ($($argument:expr => $kind:ty),*)) => {{
        type Real = unsafe extern "C-unwind" fn($($kind),*) -> std::ffi::c_int;
        let on = $crate::older::On::Comm($comm);
        let name = $crate::real::name(concat!(stringify!($real), "\0"));
        match $crate::real::perhaps!(name, Real) {
            // SAFETY: the arguments are the program's own.
            Some(real) => $way(|| unsafe { real($($argument),*) }),
            None if !$crate::older::is_int($count) => on.has_too_many(),
            None => match $crate::real::perhaps!($crate::real::name(concat!(stringify!($older), "\0")), Real) {
                // SAFETY: as above.
                Some(older) => $way(|| unsafe { older($($argument),*) }),
                None => on.lacks(name),
            },
        }
    }};
}

pub(crate) use call;

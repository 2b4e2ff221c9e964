//! Failures of collectives, as the MPI reports errors: to the communicator's error handler.
#![allow(unsafe_code)] // Calls the MPI library.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_int};

use shm_core::say;

use crate::abi::{Abi, Word};
use crate::gate;
use crate::real::{Real, SUCCESS, real};

/// The error code of this library's failures.
#[derive(Debug)]
pub(crate) struct Errors {
    code: c_int,
    /// The code is this library's own, so its text can be set.
    is_own: bool,
    told: Cell<bool>,
}

/// Bytes of an error's text, at most, in any MPI.
const MAX_ERROR_STRING: usize = 1024;
/// Bytes of an error's text that every MPI takes, the final zero included.
const TEXT_BYTES: usize = 256;

impl Errors {
    /// Asks the MPI for a code of its class `MPI_ERR_OTHER`.
    pub(crate) fn new(abi: &Abi) -> Self {
        // SAFETY: MPI is initialised, and there is room for the code.
        let own = Real::number(|code| unsafe { (real().add_error_code)(abi.err_other, code) });
        let told = Cell::new(false);
        match own.filter(|&code| set_text(code, c"han") && has_text(code, c"han")) {
            Some(code) => Self { code, is_own: true, told },
            None => Self { code: abi.err_other, is_own: false, told },
        }
    }

    /// Whether any error has been raised.
    pub(crate) fn have_been_told(&self) -> bool {
        self.told.get()
    }

    /// Says on standard error what has failed.
    pub(crate) fn tell(&self, error: &han::Error) {
        say(&format!("han: {error}"));
        self.told.set(true);
    }

    /// The code of a failure, whose text the MPI now has.
    pub(crate) fn describe(&self, error: &han::Error) -> c_int {
        self.describe_as(&format!("han: {error}"))
    }

    /// The code of an error with this text.
    pub(crate) fn describe_as(&self, text: &str) -> c_int {
        let text = text.replace('\0', " ");
        let mut end = text.len().min(TEXT_BYTES - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        if let (true, Ok(text)) = (self.is_own, CString::new(&text[..end])) {
            set_text(self.code, &text);
        }
        self.code
    }

    /// Calls the error handler of `comm` with a code; gives the one to return if it comes back.
    pub(crate) fn hand(&self, comm: Word, code: c_int) -> c_int {
        // The handler is the program's, and may call MPI again.
        // SAFETY: the program's call was on this communicator.
        let handled = gate::aside(|| unsafe { (real().comm_call_errhandler)(comm, code) });
        if handled == SUCCESS { code } else { handled }
    }
}

/// Gives a code of this library's its text.
fn set_text(code: c_int, text: &CStr) -> bool {
    // SAFETY: the code was made by `MPI_Add_error_code`, and the text ends in a zero.
    unsafe { (real().add_error_string)(code, text.as_ptr()) == SUCCESS }
}

/// Whether the MPI finds the text again; MPICH 4.0 does not, for codes of its own classes.
fn has_text(code: c_int, text: &CStr) -> bool {
    let mut found = [0_u8; MAX_ERROR_STRING];
    let place = found.as_mut_ptr().cast();
    // SAFETY: there is room for the longest text of any library, and for its length.
    let length = Real::number(|length| unsafe { (real().error_string)(code, place, length) });
    length.is_some() && CStr::from_bytes_until_nul(&found).is_ok_and(|found| found == text)
}

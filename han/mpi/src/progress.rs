//! The MPI's own messages go on while a rank waits in a collective of this library.
//!
//! A program may rely on it: rank 0 has posted a receive and waits in a collective for rank 1, which gets there only
//! when its large or synchronous send has been taken. So whoever waits here tests a request of the MPI's now and then,
//! one that never completes, which makes the MPI library look after everything that is under way. (Asking for a message
//! on a communicator of this rank alone does not: MPICH knows the answer without looking anywhere.) It does so only once
//! it has waited for some microseconds, so calls that are over by then do not pay for it.
#![allow(unsafe_code)] // Calls the MPI library, which calls back.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;

use crate::abi::Word;
use crate::real::{SUCCESS, real};

/// The way to make the MPI library go on; its clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Progress(Rc<Endless>);

/// A generalised request that nobody completes, until it is dropped.
#[derive(Debug)]
struct Endless(Word);

/// Room for an `MPI_Status` of any binary interface.
#[repr(align(16))]
struct Status {
    _bytes: [u8; 256],
}

/// What the MPI library calls when the request is completed.
extern "C" fn nothing_to_tell(_: *mut c_void, _: *mut c_void) -> c_int {
    SUCCESS
}

/// What it calls when the request is given up.
extern "C" fn nothing_to_free(_: *mut c_void) -> c_int {
    SUCCESS
}

/// What it calls when it is cancelled, which it is not.
extern "C" fn not_cancelled(_: *mut c_void, _: c_int) -> c_int {
    SUCCESS
}

impl Progress {
    pub(crate) fn new() -> Result<Self, String> {
        let mut request: Word = 0;
        let state = ptr::null_mut();
        // SAFETY: the functions have the types that the library calls them by, and there is room for a handle.
        match unsafe {
            (real().grequest_start)(nothing_to_tell, nothing_to_free, not_cancelled, state, &raw mut request)
        } {
            SUCCESS => Ok(Self(Rc::new(Endless(request)))),
            code => Err(format!("MPI_Grequest_start returned error {code}")),
        }
    }

    /// Lets the MPI library go on with what it has under way.
    pub(crate) fn advance(&self) {
        let (mut completed, mut status) = (0, Status { _bytes: [0; 256] });
        let mut request = self.0.0;
        // SAFETY: the request is this library's until it is dropped, and there is room for both answers. An error has nobody to
        // go to: whatever is wrong with the MPI, the program's own calls of it tell.
        unsafe { (real().test)(&raw mut request, &raw mut completed, (&raw mut status).cast()) };
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let (mut completed, mut status) = (0, Status { _bytes: [0; 256] });
        // SAFETY: the request was made in `new`, and is under way.
        unsafe { (real().grequest_complete)(self.0) };
        // SAFETY: as in `advance`; nobody uses the request after this.
        unsafe { (real().test)(&raw mut self.0, &raw mut completed, (&raw mut status).cast()) };
    }
}

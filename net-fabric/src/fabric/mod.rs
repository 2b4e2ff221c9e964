//! libfabric's objects as values: what was found ([`Info`]), a [`Domain`] on one interface, its [`Endpoint`] with
//! [`CompletionQueue`], [`AddressVector`] and [`Registrations`].
//!
//! Errors name the C call and give the library's words for its code. Objects are closed when dropped, in the order
//! that libfabric demands, because each keeps alive what it was made from. They are used by one thread at a time
//! (`FI_THREAD_DOMAIN`); who owns all objects of a domain may send them to another thread together.
#![allow(unsafe_code)] // libfabric is a C library.

mod addresses;
mod domain;
mod endpoint;
mod info;
mod queue;
mod registrations;

use std::ffi::{CStr, c_int};
use std::ptr::NonNull;

use libfabric_sys as sys;

use crate::error::{Error, Result};

pub use addresses::AddressVector;
pub use domain::Domain;
pub use endpoint::{Endpoint, Matching, Memory, Post};
pub(crate) use info::ip_of;
pub use info::{Info, Wanted, query};
pub use queue::{CompletionQueue, Context, Event, Failure};
pub use registrations::{Registered, Registrations};

/// The interface of libfabric that is used, whatever version is installed: 1.17.
const API_VERSION: u32 = (1 << 16) | 17;

/// The library, or why it cannot be had.
fn library() -> Result<&'static sys::Exports> {
    sys::library().map_err(|reason| Error::Fabric { call: "dlopen", reason })
}

/// The library's words for one of its error codes, which are positive here.
pub fn words(code: i32) -> String {
    let Ok(library) = sys::library() else { return format!("error {code}") };
    // SAFETY: takes a number.
    let text = unsafe { library.fi_strerror(code) };
    if text.is_null() {
        return format!("error {code}");
    }
    // SAFETY: not null, so a constant string of the library.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The failure of `call` with `code`, which is positive.
pub fn failed(call: &'static str, code: i32) -> Error {
    Error::Fabric { call, reason: words(code) }
}

/// Makes an error of a negative result.
fn check(call: &'static str, result: c_int) -> Result<()> {
    if result < 0 { Err(failed(call, -result)) } else { Ok(()) }
}

/// An object of libfabric, closed when dropped.
struct Object<T: StartsWithFid>(NonNull<T>);

/// # Safety
/// The C structure begins with a `struct fid`.
unsafe trait StartsWithFid {}

// SAFETY: as its declaration says.
unsafe impl StartsWithFid for sys::fid_fabric {}
// SAFETY: as above.
unsafe impl StartsWithFid for sys::fid_domain {}
// SAFETY: as above.
unsafe impl StartsWithFid for sys::fid_ep {}
// SAFETY: as above.
unsafe impl StartsWithFid for sys::fid_cq {}
// SAFETY: as above.
unsafe impl StartsWithFid for sys::fid_av {}
// SAFETY: as above.
unsafe impl StartsWithFid for sys::fid_mr {}

impl<T: StartsWithFid> Object<T> {
    /// What `call`, which ended with `result`, has left in `raw`.
    ///
    /// # Safety
    /// If the result is not negative, `raw` is null or an open object that nobody else closes.
    unsafe fn opened(call: &'static str, result: c_int, raw: *mut T) -> Result<Self> {
        check(call, result)?;
        NonNull::new(raw).map(Self).ok_or(Error::Fabric { call, reason: "it gave no object".to_owned() })
    }

    fn raw(&self) -> *mut T {
        self.0.as_ptr()
    }

    fn fid(&self) -> *mut sys::fid {
        self.0.as_ptr().cast()
    }
}

impl<T: StartsWithFid> Drop for Object<T> {
    fn drop(&mut self) {
        // SAFETY: the object is open, and what was made from it keeps it alive, so that nothing uses it any more. A
        // failure leaves it open, about which nothing can be done.
        let _ = unsafe { sys::fi_close(self.fid()) };
    }
}

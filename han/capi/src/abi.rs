//! Parameter types that stand for C pointers.
//!
//! They have the layout of a pointer and private fields, so only a C caller can make one. Whoever
//! calls a function of `han.h` has agreed that its pointers are null or valid, which is what the
//! proofs below rest on; null is found here.
#![allow(unsafe_code)] // Reads and writes through C's pointers.

use crate::error::{Code, Failure, Outcome};
use crate::handle::Handle;
use std::ffi::c_void;

/// A pointer to where a result goes: `int *rank`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// An error if the pointer is null; `name` is the parameter's.
    pub(crate) fn check(self, name: &str) -> Outcome {
        if self.0.is_null() {
            return Err(null(Code::Arg, name));
        }
        Ok(())
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Stores the result; does nothing if the pointer is null.
    pub(crate) fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: it is not null, so the C caller vouches that it is valid for a write of a `T`;
            // unaligned, because that is one promise less to rely on.
            unsafe { self.0.write_unaligned(value) };
        }
    }
}

/// A pointer to a handle that the call may change: `han_request_t *request`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct InOut<H>(*mut H);

impl<T> InOut<Handle<T>> {
    /// The handle as it stands.
    pub(crate) fn get(self, name: &str) -> Outcome<Handle<T>> {
        if self.0.is_null() {
            return Err(null(Code::Arg, name));
        }
        // SAFETY: it is not null, so the C caller vouches that it is valid for a read of a handle,
        // any value of which is a valid `Handle`.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// Sets the handle to the null handle; does nothing if the pointer is null.
    pub(crate) fn clear(self) {
        Out(self.0).set(Handle::NULL);
    }
}

/// A pointer to an array of handles: `han_request_t requests[]`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Array<H>(*mut H);

impl<H> Array<H> {
    /// Pointers to each of the `count` handles.
    pub(crate) fn elements(self, count: usize, name: &str) -> Outcome<impl Iterator<Item = InOut<H>>> {
        if self.0.is_null() && count > 0 {
            return Err(null(Code::Arg, name));
        }
        if count == usize::MAX {
            return Err(Failure::new(Code::Count, "count is negative"));
        }
        if count > isize::MAX as usize / size_of::<H>() {
            let message = format!("{count} handles do not fit into the address space");
            return Err(Failure::new(Code::Count, message));
        }
        let base = self.0;
        Ok((0..count).map(move |index| InOut(base.wrapping_add(index))))
    }
}

/// A buffer that is only read: `const void *sendbuf`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Source(*const c_void);

impl Source {
    /// Another address in place of the one that has a meaning of its own.
    pub(crate) fn or_replace(self, special: usize, by: usize) -> Self {
        if self.0.addr() == special { Self(std::ptr::without_provenance(by)) } else { self }
    }

    pub(crate) fn address(self) -> *const u8 {
        self.0.cast()
    }
}

/// A buffer that may be written: `void *recvbuf`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Target(*mut c_void);

impl Target {
    /// As [`Source::or_replace`].
    pub(crate) fn or_replace(self, special: usize, by: usize) -> Self {
        if self.0.addr() == special { Self(std::ptr::without_provenance_mut(by)) } else { self }
    }

    pub(crate) fn address(self) -> *mut u8 {
        self.0.cast()
    }
}

/// Room for text: `char *text, size_t size`.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*mut u8);

impl Text {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// Stores `bytes` at `offset`; the caller has checked that they lie within the C caller's size.
    pub(crate) fn store(self, offset: usize, bytes: &[u8]) {
        let place = self.0.wrapping_add(offset);
        // SAFETY: the C caller vouches for `size` bytes at the pointer, and the range lies within
        // them. Rust memory cannot overlap with memory that C has lent out for writing.
        unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}

pub(crate) fn null(code: Code, name: &str) -> Failure {
    Failure::new(code, format!("{name} is a null pointer"))
}

//! Non-blocking operations that own their buffer, so that safe code cannot touch or free it early.
#![allow(unsafe_code)] // takes vectors apart and puts them together again

use std::mem::ManuallyDrop;
use std::rc::Rc;

use reduce_kernels::{Element, Op};

use crate::call::Call;
use crate::comm::{LocalComm, Ticket};
use crate::error::Result;

/// A buffer that a non-blocking operation works on. Dropped early, it is leaked, not freed.
#[derive(Debug)]
pub struct Owned<T> {
    pointer: *mut T,
    length: usize,
    capacity: usize,
    ticket: Ticket,
    /// Of the communicator that works on it.
    identity: Rc<()>,
}

/// What to do with an owned buffer.
#[derive(Debug, Clone)]
pub enum OwnedCall {
    /// Broadcast it from this root.
    Bcast(usize),
    /// Reduce it in place; the root then holds the result.
    Reduce(Op, usize),
    /// Reduce it in place on every rank.
    Allreduce(Op),
}

impl LocalComm {
    /// Begins an operation on a vector, which [`take`](Self::take) gives back.
    ///
    /// # Errors
    /// As [`LocalComm::start`]; the vector is dropped then.
    pub fn start_owned<T: Element>(&mut self, what: OwnedCall, buffer: Vec<T>) -> Result<Owned<T>> {
        let mut parts = ManuallyDrop::new(buffer);
        let (pointer, length, capacity) = (parts.as_mut_ptr(), parts.len(), parts.capacity());
        let bytes = pointer.cast::<u8>();
        let call = match what {
            // SAFETY: the vector's memory is given up only by `take`, after the call has completed.
            OwnedCall::Bcast(root) => unsafe { Call::bcast_raw(bytes, length, T::DATATYPE, root) },
            OwnedCall::Reduce(op, root) => {
                // SAFETY: as above; in place.
                unsafe { Call::reduce_raw(std::ptr::null(), bytes, length, T::DATATYPE, op, root) }
            }
            OwnedCall::Allreduce(op) => {
                // SAFETY: as above; in place.
                unsafe { Call::allreduce_raw(std::ptr::null(), bytes, length, T::DATATYPE, op) }
            }
        };
        match self.start(call) {
            Ok(ticket) => Ok(Owned { pointer, length, capacity, ticket, identity: Rc::clone(self.identity()) }),
            Err(e) => {
                drop(ManuallyDrop::into_inner(parts));
                Err(e)
            }
        }
    }

    /// The vector, if its operation has completed; else the request again.
    ///
    /// # Errors
    /// The request, when the operation is still under way, or another communicator's.
    pub fn take<T>(&mut self, owned: Owned<T>) -> std::result::Result<Vec<T>, Owned<T>> {
        if !Rc::ptr_eq(&owned.identity, self.identity()) || !self.has_completed(owned.ticket) {
            return Err(owned);
        }
        // SAFETY: these are the parts of a vector that was taken apart once, and nobody else uses its
        // memory any more because the operation has completed.
        Ok(unsafe { Vec::from_raw_parts(owned.pointer, owned.length, owned.capacity) })
    }
}

impl<T> Owned<T> {
    /// The operation to test or to wait for.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }
}

//! Buffers that operations own while they are under way, so that safe code cannot touch or free them early.
#![allow(unsafe_code)] // takes vectors apart and puts them together again

use std::mem::ManuallyDrop;
use std::rc::Rc;

use crate::call::Call;
use crate::pieces::{Keep, Pieces};
use crate::{Element, Op};

/// An operation that was begun on a communicator: the how manieth, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A buffer that a non-blocking operation works on. Dropped early, it is leaked, not freed.
#[derive(Debug)]
pub struct Owned<T> {
    pointer: *mut T,
    length: usize,
    capacity: usize,
    ticket: Ticket,
    /// Of the communicator that works on it.
    identity: Rc<()>,
    /// Who else holds it works on the buffer.
    keep: Option<Rc<Keep>>,
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

impl<T: Element> Owned<T> {
    /// Begins an operation on a vector by `start`, on the communicator that `identity` tells from others.
    ///
    /// # Errors
    /// Those of `start`; the vector is dropped then.
    ///
    /// # Safety
    /// When `start` returns an error, it has given the call up.
    pub unsafe fn begin<E>(
        what: OwnedCall,
        buffer: Vec<T>,
        identity: &Rc<()>,
        start: impl FnOnce(Call<'static>) -> Result<Ticket, E>,
    ) -> Result<Self, E> {
        let mut parts = ManuallyDrop::new(buffer);
        let (pointer, length, capacity) = (parts.as_mut_ptr(), parts.len(), parts.capacity());
        // SAFETY: the vector's memory is given up only by `into_vec`, after the call has completed.
        let call = unsafe { call_of::<T>(what, pointer.cast(), length) };
        match start(call) {
            Ok(ticket) => Ok(Self { pointer, length, capacity, ticket, identity: Rc::clone(identity), keep: None }),
            Err(e) => {
                drop(ManuallyDrop::into_inner(parts));
                Err(e)
            }
        }
    }

    /// As [`begin`](Self::begin), for one that cuts the call into `rank`'s pieces, which tell by themselves when the buffer
    /// is free: [`reclaim`](Self::reclaim) gives it back.
    ///
    /// # Errors
    /// Those of `start`; the vector is leaked then if pieces are still held.
    pub fn begin_in_pieces<E>(
        what: OwnedCall,
        buffer: Vec<T>,
        rank: usize,
        identity: &Rc<()>,
        start: impl FnOnce(Pieces) -> Result<Ticket, E>,
    ) -> Result<Self, E> {
        let mut parts = ManuallyDrop::new(buffer);
        let (pointer, length, capacity) = (parts.as_mut_ptr(), parts.len(), parts.capacity());
        // SAFETY: the vector's memory is given up only when no piece of the call is held any more.
        let call = unsafe { call_of::<T>(what, pointer.cast(), length) };
        let keep = Rc::default();
        match start(Pieces::kept_by(call, rank, &keep)) {
            Ok(ticket) => {
                let (identity, keep) = (Rc::clone(identity), Some(keep));
                Ok(Self { pointer, length, capacity, ticket, identity, keep })
            }
            Err(e) => {
                if Rc::strong_count(&keep) == 1 {
                    drop(ManuallyDrop::into_inner(parts));
                }
                Err(e)
            }
        }
    }
}

/// # Safety
/// As for the raw constructors of [`Call`], in place.
unsafe fn call_of<T: Element>(what: OwnedCall, bytes: *mut u8, length: usize) -> Call<'static> {
    let send = std::ptr::null();
    match what {
        // SAFETY: the caller's promise.
        OwnedCall::Bcast(root) => unsafe { Call::bcast_raw(bytes, length, T::DATATYPE, root) },
        // SAFETY: the caller's promise.
        OwnedCall::Reduce(op, root) => unsafe { Call::reduce_raw(send, bytes, length, T::DATATYPE, op, root) },
        // SAFETY: the caller's promise.
        OwnedCall::Allreduce(op) => unsafe { Call::allreduce_raw(send, bytes, length, T::DATATYPE, op) },
    }
}

impl<T> Owned<T> {
    /// The operation to test or to wait for.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Whether it was begun on the communicator that has this identity.
    #[must_use]
    pub fn is_of(&self, identity: &Rc<()>) -> bool {
        Rc::ptr_eq(&self.identity, identity)
    }

    /// The vector of an operation [in pieces](Self::begin_in_pieces), if none of these is held any more.
    ///
    /// # Errors
    /// Itself, when pieces are still held, or it was begun otherwise.
    pub fn reclaim(self) -> Result<Vec<T>, Self> {
        if self.keep.as_ref().is_none_or(|keep| Rc::strong_count(keep) > 1) {
            return Err(self);
        }
        // SAFETY: whatever works on the buffer holds a piece, so nothing does.
        Ok(unsafe { self.into_vec() })
    }

    /// The vector.
    ///
    /// # Safety
    /// The operation has completed.
    #[must_use]
    pub unsafe fn into_vec(self) -> Vec<T> {
        // SAFETY: these are the parts of a vector that was taken apart once, and nobody else uses its memory any
        // more because the operation has completed.
        unsafe { Vec::from_raw_parts(self.pointer, self.length, self.capacity) }
    }
}

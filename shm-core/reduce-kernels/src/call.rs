//! A collective call as data: what to do, on which buffers. The word that `shm-core` and `net-fabric` have in common.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::rc::Rc;

use crate::pieces::Keep;
use crate::{Collective, Datatype, Element, Folding, Op, Operator, Purpose, Signature};

/// A call that nothing could carry out, with what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid argument: {0}")]
pub struct CallError(pub String);

type Result<T> = std::result::Result<T, CallError>;

/// One call of a collective with its buffers, which it borrows for `'a`.
///
/// It reads as its [`Parts`]; only the constructors here make one, so the pointers are what they promise. It has its
/// buffers for itself, so it cannot be cloned:
///
/// ```compile_fail,E0308
/// # use reduce_kernels::Call;
/// let call: Call<'static> = Call::bcast(Box::leak(Box::new([0_u8; 4])), 0);
/// let twice: [Call<'static>; 2] = [call.clone(), call]; // what can be cloned are its parts
/// ```
#[derive(Debug)]
pub struct Call<'a> {
    parts: Parts,
    /// What it is a piece of.
    whole: Option<Whole>,
    _buffers: PhantomData<&'a mut [u8]>,
}

/// What a [`Call`] says. By itself it promises nothing of the pointers.
#[derive(Debug, Clone)]
pub struct Parts {
    /// Which collective.
    pub collective: Collective,
    /// The elements' type.
    pub datatype: Datatype,
    /// The operator of a reduction.
    pub op: Option<Op>,
    /// Elements of a rank's vector.
    pub count: usize,
    /// The vector's bytes, `usize::MAX` if there cannot be as many.
    pub(crate) bytes: usize,
    /// The root; 0 where there is none.
    pub root: usize,
    /// What this rank contributes; the same as `recv` when in place.
    pub send: *const u8,
    /// Where the result goes; for bcast the buffer. Not touched where the call gives no result.
    pub recv: *mut u8,
    /// What for.
    pub purpose: Purpose,
}

impl Parts {
    /// Still without vectors.
    #[inline]
    pub(crate) const fn new(
        collective: Collective,
        datatype: Datatype,
        op: Option<Op>,
        count: usize,
        root: usize,
    ) -> Self {
        let bytes = count.saturating_mul(datatype.size());
        let (send, recv, purpose) = (std::ptr::null(), std::ptr::null_mut(), Purpose::Data);
        Self { collective, datatype, op, count, bytes, root, send, recv, purpose }
    }
}

/// The call that a piece belongs to.
#[derive(Debug, Clone)]
pub(crate) struct Whole {
    /// What its ranks agree on.
    pub(crate) signature: Signature,
    /// Its memory is there as long as this is held.
    pub(crate) keep: Rc<Keep>,
}

impl Deref for Call<'_> {
    type Target = Parts;

    #[inline]
    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl<'a> Call<'a> {
    #[inline]
    const fn new(collective: Collective, datatype: Datatype, op: Option<Op>, count: usize, root: usize) -> Self {
        Self { parts: Parts::new(collective, datatype, op, count, root), whole: None, _buffers: PhantomData }
    }

    /// A barrier, which is the same every time.
    pub const BARRIER: &'static Call<'static> = &Call::<'static>::new(Collective::Barrier, Datatype::Byte, None, 0, 0);

    /// The barrier of ranks that leave: it meets no other barrier, and messages call it `finalize()`.
    pub const FINALIZE: &'static Call<'static> = &Call::<'static>::finalize();

    const fn finalize() -> Self {
        let mut call = Self::new(Collective::Barrier, Datatype::Byte, None, 0, 0);
        call.parts.purpose = Purpose::Finalize;
        call
    }

    /// The same call, made for something else than the caller's own data.
    #[must_use]
    pub fn made_for(mut self, purpose: Purpose) -> Self {
        self.parts.purpose = purpose;
        self
    }

    /// A barrier.
    #[must_use]
    #[inline]
    pub fn barrier() -> Self {
        Self::new(Collective::Barrier, Datatype::Byte, None, 0, 0)
    }

    /// A broadcast of `buffer` from `root`.
    #[must_use]
    #[inline]
    pub fn bcast<T: Element>(buffer: &'a mut [T], root: usize) -> Self {
        let mut call = Self::new(Collective::Bcast, T::DATATYPE, None, buffer.len(), root);
        call.parts.recv = buffer.as_mut_ptr().cast();
        call.parts.send = call.recv;
        call
    }

    /// A reduction of `send` into `recv` of rank `root`; elsewhere `recv` is not touched.
    ///
    /// # Errors
    /// `recv` is neither empty nor as long as `send`.
    #[inline]
    pub fn reduce<T: Element>(send: &'a [T], recv: &'a mut [T], op: Op, root: usize) -> Result<Self> {
        if !recv.is_empty() && recv.len() != send.len() {
            return Err(lengths(send.len(), recv.len()));
        }
        let mut call = Self::new(Collective::Reduce, T::DATATYPE, Some(op), send.len(), root);
        call.parts.send = send.as_ptr().cast();
        if !recv.is_empty() {
            call.parts.recv = recv.as_mut_ptr().cast();
        }
        Ok(call)
    }

    /// A reduction of every rank's `buffer`; the root's then holds the result.
    #[must_use]
    #[inline]
    pub fn reduce_in_place<T: Element>(buffer: &'a mut [T], op: Op, root: usize) -> Self {
        let mut call = Self::new(Collective::Reduce, T::DATATYPE, Some(op), buffer.len(), root);
        call.parts.recv = buffer.as_mut_ptr().cast();
        call.parts.send = call.recv;
        call
    }

    /// A reduction of every rank's `send` into every rank's `recv`.
    ///
    /// # Errors
    /// The lengths differ.
    #[inline]
    pub fn allreduce<T: Element>(send: &'a [T], recv: &'a mut [T], op: Op) -> Result<Self> {
        if recv.len() != send.len() {
            return Err(lengths(send.len(), recv.len()));
        }
        let mut call = Self::new(Collective::Allreduce, T::DATATYPE, Some(op), send.len(), 0);
        call.parts.send = send.as_ptr().cast();
        call.parts.recv = recv.as_mut_ptr().cast();
        Ok(call)
    }

    /// A reduction of every rank's `buffer` into every rank's `buffer`.
    #[must_use]
    #[inline]
    pub fn allreduce_in_place<T: Element>(buffer: &'a mut [T], op: Op) -> Self {
        let mut call = Self::new(Collective::Allreduce, T::DATATYPE, Some(op), buffer.len(), 0);
        call.parts.recv = buffer.as_mut_ptr().cast();
        call.parts.send = call.recv;
        call
    }

    /// A broadcast of `count` elements at `buffer`.
    ///
    /// # Safety
    /// `buffer` is valid for reading and writing `count` elements, holds values of `datatype` at the
    /// root, and nobody else uses it, until the call has completed.
    #[must_use]
    #[allow(unsafe_code)] // the promise that the C boundary makes
    #[inline]
    pub unsafe fn bcast_raw(buffer: *mut u8, count: usize, datatype: Datatype, root: usize) -> Self {
        let mut call = Self::new(Collective::Bcast, datatype, None, count, root);
        call.parts.recv = buffer;
        call.parts.send = buffer;
        call
    }

    /// A reduction to `root`; `send` null means in place.
    ///
    /// # Safety
    /// `send` (or `recv`, when in place) is valid for reading, and at the root `recv` for writing,
    /// `count` elements of `datatype`; the two do not overlap; nobody else writes to either, or reads
    /// `recv`, until the call has completed.
    #[must_use]
    #[allow(unsafe_code)] // the promise that the C boundary makes
    #[inline]
    pub unsafe fn reduce_raw(
        send: *const u8,
        recv: *mut u8,
        count: usize,
        datatype: Datatype,
        op: Op,
        root: usize,
    ) -> Self {
        let mut call = Self::new(Collective::Reduce, datatype, Some(op), count, root);
        call.parts.recv = recv;
        call.parts.send = if send.is_null() { recv } else { send };
        call
    }

    /// A reduction for all; `send` null means in place.
    ///
    /// # Safety
    /// As for [`reduce_raw`](Self::reduce_raw), every rank being a root.
    #[must_use]
    #[allow(unsafe_code)] // the promise that the C boundary makes
    #[inline]
    pub unsafe fn allreduce_raw(send: *const u8, recv: *mut u8, count: usize, datatype: Datatype, op: Op) -> Self {
        let mut call = Self::new(Collective::Allreduce, datatype, Some(op), count, 0);
        call.parts.recv = recv;
        call.parts.send = if send.is_null() { recv } else { send };
        call
    }

    /// The same call once more.
    ///
    /// # Safety
    /// One of the two is completed, or given up, before the other is begun.
    #[must_use]
    #[allow(unsafe_code)] // the promise that keeps buffers apart
    #[inline]
    pub unsafe fn again(&self) -> Self {
        Self { parts: self.parts.clone(), whole: self.whole.clone(), _buffers: PhantomData }
    }

    /// How the contributions may be folded.
    #[must_use]
    pub fn folding(&self) -> Folding {
        match &self.op {
            Some(_) if self.purpose == Purpose::Everywhere => Folding::AtOnce,
            Some(op) if !op.is_commutative() => Folding::InOrder,
            Some(Op::Builtin(Operator::Sum | Operator::Prod)) if self.datatype.is_short_float() => Folding::AtOnce,
            _ => Folding::Free,
        }
    }

    /// Length of one rank's vector in bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if `rank` receives a result.
    #[must_use]
    #[inline]
    pub fn receives(&self, rank: usize) -> bool {
        self.collective.gives_result(rank, self.root)
    }

    /// True if this rank's result takes the place of what it contributes.
    #[must_use]
    #[inline]
    pub fn is_in_place(&self) -> bool {
        std::ptr::eq(self.send, self.recv)
    }

    /// Checks what can be checked without the other ranks, for `rank` of `size`.
    ///
    /// # Errors
    /// No such root, an operator that is not defined for the type, a length that no memory has, or no buffer.
    #[inline]
    pub fn check(&self, rank: usize, size: usize) -> Result<()> {
        let defined = self.op.as_ref().is_none_or(|op| op.is_defined_for(self.datatype));
        let fits = self.bytes <= isize::MAX as usize;
        let has_send = !self.send.is_null() || matches!(self.collective, Collective::Barrier);
        let has_buffers = self.count == 0 || (has_send && !(self.receives(rank) && self.recv.is_null()));
        if self.root < size && defined && fits && has_buffers {
            return Ok(());
        }
        Err(self.complain(size))
    }

    #[cold]
    fn complain(&self, size: usize) -> CallError {
        let what = if self.root >= size {
            format!("root {} is not a rank of this communicator (0 to {})", self.root, size - 1)
        } else if let Some(op) = self.op.as_ref().filter(|op| !op.is_defined_for(self.datatype)) {
            format!("operator {} is not defined for {}", op.name(), self.datatype)
        } else if self.bytes() > isize::MAX as usize {
            format!("count {} of {} is more than memory can hold", self.count, self.datatype)
        } else {
            format!("this rank needs a buffer of {} elements, and has given none", self.count)
        };
        CallError(format!("{}: {what}", self.collective))
    }

    /// A piece of the call `whole`, whose memory is there as long as the piece is.
    #[inline]
    pub(crate) fn piece(parts: Parts, whole: Whole) -> Call<'static> {
        Call { parts, whole: Some(whole), _buffers: PhantomData }
    }

    /// What it says, and what keeps its memory if it is a piece itself.
    pub(crate) fn into_parts(self) -> (Parts, Option<Whole>) {
        (self.parts, self.whole)
    }

    /// What every rank must agree on; a piece's is that of the whole call, so that an error shows what was called.
    #[must_use]
    #[inline]
    pub fn signature(&self) -> Signature {
        match &self.whole {
            Some(whole) => whole.signature,
            None => Signature::of(&self.parts),
        }
    }
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.signature().fmt(f)
    }
}

fn lengths(send: usize, recv: usize) -> CallError {
    CallError(format!("send holds {send} elements but recv {recv}: they must be equally long"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Operator, UserOperator};

    /// Plain bytes.
    #[derive(Clone, Copy)]
    #[repr(C)]
    pub(crate) struct Record<const BYTES: usize>(pub(crate) [u8; BYTES]);

    #[allow(unsafe_code)]
    // SAFETY: as many bytes, aligned to 1, plain data without padding.
    unsafe impl<const BYTES: usize> Element for Record<BYTES> {
        const DATATYPE: Datatype = Datatype::record_of::<Self>();
    }

    #[test]
    fn a_record_is_reduced_by_operators_for_it_alone() {
        let mut records = [Record([1; 24]); 2];
        let by = |op: Op, records: &mut [Record<24>]| Call::allreduce_in_place(records, op).check(0, 2);
        let error = by(Op::Builtin(Operator::Bxor), &mut records).expect_err("only users' operators");
        let what = "invalid argument: allreduce: operator bxor is not defined for record of 24 bytes";
        assert_eq!(error.to_string(), what);
        assert!(by(Op::User(UserOperator::elementwise(true, |left: Record<24>, _| left)), &mut records).is_ok());
        assert!(by(Op::User(UserOperator::elementwise(true, |left: Record<23>, _| left)), &mut records).is_err());
    }

    #[test]
    fn what_other_groups_fold_as_well_is_folded_at_one_go() {
        let mut buffer = [0.0f32; 4];
        let mut folding = |purpose| {
            let op = || Op::Builtin(Operator::Sum);
            Call::allreduce_in_place(&mut buffer, op()).made_for(purpose).folding()
        };
        assert_eq!([Purpose::Data, Purpose::Everywhere].map(&mut folding), [Folding::Free, Folding::AtOnce]);
    }

    #[test]
    fn wrong_arguments_are_named() {
        let mut buffer = [0.0f64; 4];
        let error = Call::bcast(&mut buffer, 7).check(0, 4).expect_err("no such root");
        assert!(error.to_string().contains("root 7"), "{error}");
        let error = Call::allreduce_in_place(&mut buffer, Op::Builtin(Operator::Band)).check(0, 4);
        assert!(error.expect_err("band on doubles").to_string().contains("band"), "names the operator");
        assert!(Call::reduce(&[1, 2], &mut [0], Op::Builtin(Operator::Sum), 0).is_err(), "lengths differ");
        let call = Call::reduce(&[1, 2], &mut [], Op::Builtin(Operator::Sum), 0).expect("recv may be empty");
        let error = call.check(0, 2).expect_err("but not at the root").to_string();
        assert_eq!(error, "invalid argument: reduce: this rank needs a buffer of 2 elements, and has given none");
        assert!(call.check(1, 2).is_ok());
    }
}

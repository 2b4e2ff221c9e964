//! From MPI's arguments to a call of han's, or the reason why it is the MPI's.
//!
//! Every decision here is the same on all ranks of a communicator if the program is correct: it follows from arguments
//! that MPI wants to be equal on all of them. For a bcast these are the bytes, not the datatype, so that is always
//! carried as bytes; datatypes with gaps are packed. What is wrong with a call, its MPI reports.
#![allow(unsafe_code)] // Vouches for the buffers in the MPI caller's name.

use std::ffi::c_int;
use std::ptr;

use han::{Call, Datatype, Op};

use crate::abi::{Flavour, Word};
use crate::datatype::Layout;
use crate::operator::Applied;
use crate::packed::{self, Packed};
use crate::padded::Padded;
use crate::process::{Ours, Process};
use crate::real::SUCCESS;
use crate::rules::Why;

/// A call, and what must live until it has completed.
pub(crate) struct Prepared {
    pub(crate) call: Call<'static>,
    pub(crate) kept: Kept,
}

/// What a call needs besides the program's buffers.
#[derive(Default)]
pub(crate) struct Kept {
    /// What its operator needs, if the MPI applies that.
    applied: Option<Box<Applied>>,
    pub(crate) copied: Copied,
}

/// A vector that the call has in place of the program's.
#[derive(Default)]
pub(crate) enum Copied {
    #[default]
    Nothing,
    /// The elements of a broadcast, which have gaps.
    Packed(Packed),
    /// The results of a reduction of pairs with padding.
    Padded(Padded),
}

impl Kept {
    /// Whether the operator is one that the program may free.
    pub(crate) fn is_applied(&self) -> bool {
        self.applied.is_some()
    }

    /// What is left to do when the call has completed; gives the MPI's code, of which nobody has heard if it is an error.
    #[inline]
    pub(crate) fn finish(&self) -> c_int {
        match &self.copied {
            Copied::Nothing => SUCCESS,
            Copied::Packed(packed) => packed.finish(),
            Copied::Padded(padded) => {
                padded.finish();
                SUCCESS
            }
        }
    }
}

/// How much a call is about.
#[derive(Clone, Copy)]
pub(crate) struct Volume {
    count: i64,
    datatype: Word,
}

impl Volume {
    /// So many elements; none of a barrier.
    pub(crate) fn new(count: i64, datatype: Word) -> Self {
        Self { count, datatype }
    }

    /// Its bytes, which are the same on all ranks; 0 where the arguments are wrong.
    pub(crate) fn bytes(self, process: &Process) -> u64 {
        let Some(count) = u64::try_from(self.count).ok().filter(|&count| count > 0) else { return 0 };
        let layout = process.datatypes.layout(process.abi.flavour.word(self.datatype));
        layout.map_or(0, |layout| count.saturating_mul(layout.size as u64))
    }
}

/// The arguments that all reductions have.
#[derive(Clone, Copy)]
pub(crate) struct Vectors {
    pub(crate) send: *const u8,
    pub(crate) recv: *mut u8,
    pub(crate) count: i64,
    pub(crate) datatype: Word,
    pub(crate) op: Word,
}

impl Vectors {
    pub(crate) fn volume(&self) -> Volume {
        Volume::new(self.count, self.datatype)
    }
}

impl Prepared {
    pub(crate) fn barrier() -> Self {
        Self { call: Call::barrier(), kept: Kept::default() }
    }
}

/// A number of elements; an error if there are none.
#[inline]
fn elements(count: i64) -> Result<usize, Why> {
    match usize::try_from(count) {
        Ok(0) => Err(Why::Empty),
        Ok(count) => Ok(count),
        Err(_) => Err(Why::Arguments),
    }
}

#[inline]
fn rank(root: c_int, ours: &Ours) -> Result<usize, Why> {
    usize::try_from(root).ok().filter(|&root| root < ours.communicator.size()).ok_or(Why::Arguments)
}

/// `MPI_Bcast`'s arguments as a call.
#[inline]
pub(crate) fn bcast(
    process: &Process,
    ours: &Ours,
    buffer: *mut u8,
    count: i64,
    datatype: Word,
    root: c_int,
) -> Result<Prepared, Why> {
    let count = elements(count)?;
    let root = rank(root, ours)?;
    let datatype = process.abi.flavour.word(datatype);
    let layout = process.datatypes.layout(datatype).ok_or(Why::Arguments)?;
    let bytes = layout.size.checked_mul(count).filter(|&bytes| bytes <= isize::MAX as usize).ok_or(Why::Arguments)?;
    if bytes == 0 {
        return Err(Why::Empty);
    }
    if buffer.addr() == process.abi.in_place {
        return Err(Why::Arguments);
    }
    // Whether or not this rank's elements have gaps: another's may.
    if !packed::can_pack(bytes) {
        return Err(Why::Length);
    }
    if !layout.is_contiguous {
        let is_root = root == ours.communicator.rank();
        let mut packed = Packed::new(buffer, count, layout.size, datatype, process.requests.silent, is_root);
        // SAFETY: the copy has that many bytes, and is kept until the call has completed.
        let call = unsafe { Call::bcast_raw(packed.address(), bytes, Datatype::Byte, root) };
        return Ok(Prepared { call, kept: Kept { applied: None, copied: Copied::Packed(packed) } });
    }
    if buffer.is_null() {
        return Err(Why::Arguments);
    }
    // SAFETY: the MPI caller vouches for `count` elements at `buffer`, and leaves them alone until the operation is
    // complete.
    let call = unsafe { Call::bcast_raw(buffer, bytes, Datatype::Byte, root) };
    Ok(Prepared { call, kept: Kept::default() })
}

/// `MPI_Reduce`'s arguments as a call.
#[inline]
pub(crate) fn reduce(process: &Process, ours: &Ours, vectors: Vectors, root: c_int) -> Result<Prepared, Why> {
    let root = rank(root, ours)?;
    let reduction = Reduction::new(process, vectors)?;
    let Reduction { count, datatype, .. } = reduction;
    if root == ours.communicator.rank() {
        let Results { send, recv, copied } = reduction.results(process, vectors)?;
        // SAFETY: the MPI caller vouches for `count` elements at both buffers, and leaves them alone until the operation
        // is complete; `input` has seen that they do not overlap. A copy of the results is kept as long.
        return Ok(reduction.prepared(copied, |op| unsafe { Call::reduce_raw(send, recv, count, datatype, op, root) }));
    }
    if vectors.send.is_null() || vectors.send.addr() == process.abi.in_place {
        return Err(Why::Arguments);
    }
    let (send, recv) = (vectors.send, ptr::null_mut());
    // SAFETY: as above for `send`; off the root there is no `recv`.
    Ok(reduction.prepared(Copied::Nothing, |op| unsafe { Call::reduce_raw(send, recv, count, datatype, op, root) }))
}

/// `MPI_Allreduce`'s arguments as a call.
#[inline]
pub(crate) fn allreduce(process: &Process, vectors: Vectors) -> Result<Prepared, Why> {
    let reduction = Reduction::new(process, vectors)?;
    let Reduction { count, datatype, .. } = reduction;
    let Results { send, recv, copied } = reduction.results(process, vectors)?;
    // SAFETY: as in `reduce` at the root.
    Ok(reduction.prepared(copied, |op| unsafe { Call::allreduce_raw(send, recv, count, datatype, op) }))
}

/// What is reduced, and how.
struct Reduction {
    count: usize,
    datatype: Datatype,
    op: Op,
    applied: Option<Box<Applied>>,
}

/// Buffers of a rank that gets results.
struct Results {
    /// Null for in place.
    send: *const u8,
    recv: *mut u8,
    /// What `recv` is in, unless it is the program's.
    copied: Copied,
}

impl Reduction {
    #[inline]
    fn new(process: &Process, vectors: Vectors) -> Result<Self, Why> {
        let count = elements(vectors.count)?;
        let flavour = process.abi.flavour;
        let (handle, op) = (flavour.word(vectors.datatype), flavour.word(vectors.op));
        let layout = process.datatypes.layout(handle).ok_or(Why::Arguments)?;
        if let (Some(datatype), Some(operator)) = (layout.kernels, process.operators.predefined(op)) {
            let (op, applied) = (Op::Builtin(operator), None);
            if op.is_defined_for(datatype) && count <= isize::MAX as usize / datatype.size() {
                return Ok(Self { count, datatype, op, applied });
            }
        }
        Self::applied(process, count, handle, layout, op)
    }

    /// One whose operator the MPI library applies.
    #[inline(never)]
    fn applied(process: &Process, count: usize, handle: Word, layout: Layout, op: Word) -> Result<Self, Why> {
        match process.operators.predefined(op) {
            Some(operator) if layout.is_reduced_by(operator) => {}
            Some(_) => return Err(Why::Operator),
            // What is no operator of collectives, the MPI reports.
            None if !process.operators.may_be_made(op) || process.datatypes.is_predefined(op) => {
                return Err(Why::Arguments);
            }
            None => {}
        }
        let datatype = layout.unit(handle).ok_or(Why::Datatype)?;
        if count > isize::MAX as usize / datatype.size() {
            return Err(Why::Arguments);
        }
        let (operator, applied) = Applied::operator(op, handle, datatype.size()).ok_or(Why::Arguments)?;
        Ok(Self { count, datatype, op: Op::User(operator), applied: Some(applied) })
    }

    /// The call that `build` makes with the operator.
    #[inline]
    fn prepared(self, copied: Copied, build: impl FnOnce(Op) -> Call<'static>) -> Prepared {
        Prepared { call: build(self.op), kept: Kept { applied: self.applied, copied } }
    }

    /// Where a rank that gets a result has its input and wants its results.
    #[inline]
    fn results(&self, process: &Process, vectors: Vectors) -> Result<Results, Why> {
        let (send, recv) = (self.input(process, vectors)?, vectors.recv);
        let Some(mut padded) = Padded::new(self.datatype, self.count, recv) else {
            return Ok(Results { send, recv, copied: Copied::Nothing });
        };
        let send = if send.is_null() { recv.cast_const() } else { send };
        Ok(Results { send, recv: padded.address(), copied: Copied::Padded(padded) })
    }

    /// Where the input of a rank that gets a result is: null for in place, as [`Call`] has it.
    #[inline]
    fn input(&self, process: &Process, vectors: Vectors) -> Result<*const u8, Why> {
        let Vectors { send, recv, .. } = vectors;
        let in_place = process.abi.in_place;
        if recv.is_null() || recv.addr() == in_place || send.is_null() {
            return Err(Why::Arguments);
        }
        if send.addr() == in_place {
            return Ok(ptr::null());
        }
        let bytes = self.count * self.datatype.size();
        if send.addr().abs_diff(recv.addr()) < bytes {
            return self.overlap(process, vectors);
        }
        Ok(send)
    }

    /// Buffers that overlap are an error. Where the MPI finds it, it reports it; where it does not, the other ranks are
    /// in this collective already, and so must this one be: as in place.
    #[cold]
    fn overlap(&self, process: &Process, vectors: Vectors) -> Result<*const u8, Why> {
        let Vectors { send, recv, .. } = vectors;
        if process.abi.flavour != Flavour::OpenMpi && ptr::eq(send, recv) {
            return Err(Why::Arguments);
        }
        // SAFETY: the MPI caller vouches for that many bytes at both; they may overlap.
        unsafe { ptr::copy(send, recv, self.count * self.datatype.size()) };
        Ok(ptr::null())
    }
}

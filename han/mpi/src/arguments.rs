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
use crate::process::Process;
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

/// A collective's arguments, as the program gives them.
pub(crate) trait Arguments {
    /// The bytes that the call is about, which are the same on all ranks, or the reason why it is the MPI's. No buffer is
    /// touched.
    fn look(&self, process: &Process, seat: Seat) -> Result<usize, Why>;

    /// The call, or the same reason.
    fn prepare(&self, process: &Process, seat: Seat) -> Result<Prepared, Why>;
}

/// This rank's place in a communicator.
#[derive(Clone, Copy)]
pub(crate) struct Seat {
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

/// `MPI_Barrier`'s arguments: none.
#[derive(Clone, Copy)]
pub(crate) struct Barrier;

/// `MPI_Bcast`'s.
#[derive(Clone, Copy)]
pub(crate) struct Bcast {
    pub(crate) buffer: *mut u8,
    pub(crate) count: i64,
    pub(crate) datatype: Word,
    pub(crate) root: c_int,
}

/// `MPI_Reduce`'s.
#[derive(Clone, Copy)]
pub(crate) struct Reduce {
    pub(crate) vectors: Vectors,
    pub(crate) root: c_int,
}

/// `MPI_Allreduce`'s.
#[derive(Clone, Copy)]
pub(crate) struct Allreduce(pub(crate) Vectors);

/// The arguments that all reductions have.
#[derive(Clone, Copy)]
pub(crate) struct Vectors {
    pub(crate) send: *const u8,
    pub(crate) recv: *mut u8,
    pub(crate) count: i64,
    pub(crate) datatype: Word,
    pub(crate) op: Word,
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
fn rank(root: c_int, seat: Seat) -> Result<usize, Why> {
    usize::try_from(root).ok().filter(|&root| root < seat.size).ok_or(Why::Arguments)
}

impl Arguments for Barrier {
    #[inline]
    fn look(&self, _: &Process, _: Seat) -> Result<usize, Why> {
        Ok(0)
    }

    #[inline]
    fn prepare(&self, _: &Process, _: Seat) -> Result<Prepared, Why> {
        Ok(Prepared { call: Call::barrier(), kept: Kept::default() })
    }
}

/// What is broadcast.
struct Broadcast {
    root: usize,
    count: usize,
    datatype: Word,
    layout: Layout,
    bytes: usize,
}

impl Bcast {
    #[inline(always)]
    fn read(&self, process: &Process, seat: Seat) -> Result<Broadcast, Why> {
        let count = elements(self.count)?;
        let root = rank(self.root, seat)?;
        let datatype = process.abi.flavour.word(self.datatype);
        let layout = process.datatypes.layout(datatype).ok_or(Why::Arguments)?;
        let bytes =
            layout.size.checked_mul(count).filter(|&bytes| bytes <= isize::MAX as usize).ok_or(Why::Arguments)?;
        if bytes == 0 {
            return Err(Why::Empty);
        }
        if self.buffer.addr() == process.abi.in_place {
            return Err(Why::Arguments);
        }
        // Whether or not this rank's elements have gaps: another's may.
        if !packed::can_pack(bytes) {
            return Err(Why::Length);
        }
        if layout.is_contiguous && self.buffer.is_null() {
            return Err(Why::Arguments);
        }
        Ok(Broadcast { root, count, datatype, layout, bytes })
    }
}

impl Arguments for Bcast {
    fn look(&self, process: &Process, seat: Seat) -> Result<usize, Why> {
        Ok(self.read(process, seat)?.bytes)
    }

    #[inline(always)] // a call is 80 bytes: used where it was built, not returned
    fn prepare(&self, process: &Process, seat: Seat) -> Result<Prepared, Why> {
        let Broadcast { root, count, datatype, layout, bytes } = self.read(process, seat)?;
        if !layout.is_contiguous {
            let is_root = root == seat.rank;
            let mut packed = Packed::new(self.buffer, count, layout.size, datatype, process.requests.silent, is_root);
            // SAFETY: the copy has that many bytes, and is kept until the call has completed.
            let call = unsafe { Call::bcast_raw(packed.address(), bytes, Datatype::Byte, root) };
            return Ok(Prepared { call, kept: Kept { applied: None, copied: Copied::Packed(packed) } });
        }
        // SAFETY: the MPI caller vouches for `count` elements at `buffer`, and leaves them alone until the operation is
        // complete.
        let call = unsafe { Call::bcast_raw(self.buffer, bytes, Datatype::Byte, root) };
        Ok(Prepared { call, kept: Kept::default() })
    }
}

impl Reduce {
    /// An error if a rank that gets no results has nothing to send.
    #[inline]
    fn sends(&self, process: &Process) -> Result<*const u8, Why> {
        let send = self.vectors.send;
        if send.is_null() || send.addr() == process.abi.in_place { Err(Why::Arguments) } else { Ok(send) }
    }
}

impl Arguments for Reduce {
    fn look(&self, process: &Process, seat: Seat) -> Result<usize, Why> {
        let root = rank(self.root, seat)?;
        let reduction = Reduction::new(process, self.vectors)?;
        if root == seat.rank {
            reduction.input(process, self.vectors, true)?;
        } else {
            self.sends(process)?;
        }
        Ok(reduction.bytes())
    }

    #[inline]
    fn prepare(&self, process: &Process, seat: Seat) -> Result<Prepared, Why> {
        let root = rank(self.root, seat)?;
        let reduction = Reduction::new(process, self.vectors)?;
        let Reduction { count, datatype, .. } = reduction;
        if root == seat.rank {
            let Results { send, recv, copied } = reduction.results(process, self.vectors, true)?;
            // SAFETY: the MPI caller vouches for `count` elements at both buffers, and leaves them alone until the
            // operation is complete; `input` has seen that they do not overlap. A copy of the results is kept as long.
            return Ok(
                reduction.prepared(copied, |op| unsafe { Call::reduce_raw(send, recv, count, datatype, op, root) })
            );
        }
        let (send, recv) = (self.sends(process)?, ptr::null_mut());
        // SAFETY: as above for `send`; off the root there is no `recv`.
        Ok(reduction.prepared(Copied::Nothing, |op| unsafe { Call::reduce_raw(send, recv, count, datatype, op, root) }))
    }
}

impl Arguments for Allreduce {
    fn look(&self, process: &Process, _: Seat) -> Result<usize, Why> {
        let reduction = Reduction::new(process, self.0)?;
        reduction.input(process, self.0, false)?;
        Ok(reduction.bytes())
    }

    #[inline]
    fn prepare(&self, process: &Process, _: Seat) -> Result<Prepared, Why> {
        let reduction = Reduction::new(process, self.0)?;
        let Reduction { count, datatype, .. } = reduction;
        let Results { send, recv, copied } = reduction.results(process, self.0, false)?;
        // SAFETY: as in `Reduce` at the root.
        Ok(reduction.prepared(copied, |op| unsafe { Call::allreduce_raw(send, recv, count, datatype, op) }))
    }
}

/// What is reduced, and how.
struct Reduction {
    count: usize,
    datatype: Datatype,
    op: Op,
    applied: Option<Box<Applied>>,
}

/// Where the input of a rank that gets results is.
enum Input {
    At(*const u8),
    InPlace,
    /// Over some of the results, which the MPI does not find.
    Overlapping,
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
            // Whoever goes on with it would call the program's function: another thread, which may hold what that waits for, or
            // the deputy, whose stack is short.
            None if process.has_threads => return Err(Why::Threads),
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

    /// Bytes of a vector.
    #[inline]
    fn bytes(&self) -> usize {
        self.count * self.datatype.size()
    }

    /// Where a rank that gets a result, the root or each, has its input and wants its results.
    #[inline]
    fn results(&self, process: &Process, vectors: Vectors, is_root: bool) -> Result<Results, Why> {
        let recv = vectors.recv;
        let send = match self.input(process, vectors, is_root)? {
            Input::At(send) => send,
            Input::InPlace => ptr::null(),
            Input::Overlapping => self.move_in_place(vectors),
        };
        let Some(mut padded) = Padded::new(self.datatype, self.count, recv) else {
            return Ok(Results { send, recv, copied: Copied::Nothing });
        };
        let send = if send.is_null() { recv.cast_const() } else { send };
        Ok(Results { send, recv: padded.address(), copied: Copied::Padded(padded) })
    }

    /// Where the input of such a rank is.
    #[inline]
    fn input(&self, process: &Process, vectors: Vectors, is_root: bool) -> Result<Input, Why> {
        let Vectors { send, recv, .. } = vectors;
        let in_place = process.abi.in_place;
        if recv.is_null() || recv.addr() == in_place || send.is_null() {
            return Err(Why::Arguments);
        }
        if send.addr() == in_place {
            return Ok(Input::InPlace);
        }
        if send.addr().abs_diff(recv.addr()) < self.bytes() {
            return self.overlap(process, vectors, is_root);
        }
        Ok(Input::At(send))
    }

    /// Buffers that overlap are an error. Where the MPI finds it, it reports it; where it does not, the other ranks are in this
    /// collective already, and so must this one be.
    #[cold]
    fn overlap(&self, process: &Process, Vectors { send, recv, .. }: Vectors, is_root: bool) -> Result<Input, Why> {
        // Open MPI takes allreduces of one element.
        let is_found = process.finds_aliases && (process.abi.flavour != Flavour::OpenMpi || is_root || self.count > 1);
        if is_found && ptr::eq(send, recv) { Err(Why::Arguments) } else { Ok(Input::Overlapping) }
    }

    /// Makes what overlaps as in place; gives the input of such a call, as [`Call`] has it.
    #[cold]
    fn move_in_place(&self, Vectors { send, recv, .. }: Vectors) -> *const u8 {
        // SAFETY: the MPI caller vouches for that many bytes at both; they may overlap.
        unsafe { ptr::copy(send, recv, self.bytes()) };
        ptr::null()
    }
}

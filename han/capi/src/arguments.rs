//! From C's arguments to a checked [`Call`].
//!
//! `shm-core` checks its arguments too; here each kind of mistake gets its own error code and a
//! sentence in the words of `han.h`.
#![allow(unsafe_code)] // Vouches for the buffers in the C caller's name.

use crate::abi::{Source, Target, null};
use crate::error::{Code, Failure, Outcome};
use crate::handle::Handle;
use crate::names;
use crate::process::{Process, unknown};
use han::{Call, Communicator, Datatype, Op, Operator, UserOperator};
use std::ffi::c_int;
use std::ptr;

/// `HAN_IN_PLACE`.
pub(crate) const IN_PLACE: usize = usize::MAX;

/// No process of any system has more bytes: with 57-bit addresses half of them are a program's.
const ADDRESS_SPACE: u64 = 1 << 56;

/// A buffer's extent: how many elements of which datatype.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    pub(crate) count: usize,
    pub(crate) datatype: c_int,
}

/// The same, checked.
#[derive(Clone, Copy)]
struct Checked {
    count: usize,
    datatype: Datatype,
    bytes: usize,
}

impl Extent {
    #[inline]
    fn check(self) -> Outcome<Checked> {
        let (count, datatype) = (self.count, datatype(self.datatype)?);
        match count.checked_mul(datatype.size()) {
            Some(bytes) if bytes as u64 <= ADDRESS_SPACE => Ok(Checked { count, datatype, bytes }),
            _ => Err(too_large(count, datatype)),
        }
    }
}

/// The datatype of a code.
#[inline]
pub(crate) fn datatype(code: c_int) -> Outcome<Datatype> {
    match u16::try_from(code).ok().and_then(Datatype::from_code) {
        Some(datatype) => Ok(datatype),
        None => Err(no_datatype(code)),
    }
}

#[cold]
fn no_datatype(code: c_int) -> Failure {
    let bytes = code.saturating_sub(c_int::from(Datatype::RECORD_CODES));
    let message = if bytes < 0 {
        format!("datatype {code} is not one of han.h")
    } else {
        format!("datatype HAN_RECORD({bytes}): a record has 1 to {} bytes", Datatype::MOST_RECORD_BYTES)
    };
    Failure::new(Code::Datatype, message)
}

/// What becomes of a call.
pub(crate) type Then<'a> = &'a mut dyn FnMut(&Call<'static>) -> Outcome;

/// `han_bcast`'s arguments as a call.
#[inline(always)] // a call is 80 bytes: used where it was built, not returned
pub(crate) fn bcast(comm: &Communicator, buffer: Target, extent: Extent, root: c_int, then: Then<'_>) -> Outcome {
    let Checked { count, datatype, bytes } = extent.check()?;
    let root = self::root(comm, root)?;
    let buffer = buffer.address();
    needed(buffer, bytes, "buffer")?;
    // SAFETY: the C caller vouches for `count` elements at `buffer` and leaves them alone until the
    // operation is complete.
    then(&unsafe { Call::bcast_raw(buffer, count, datatype, root) })
}

/// `han_reduce`'s arguments as a call.
#[inline(always)]
pub(crate) fn reduce(
    process: &Process,
    comm: &Communicator,
    buffers: (Source, Target),
    extent: Extent,
    (op, root): (Handle<UserOperator>, c_int),
    then: Then<'_>,
) -> Outcome {
    let extent = extent.check()?;
    match builtin(op, extent.datatype) {
        Some(operator) => reduce_by(comm, buffers, extent, (Op::Builtin(operator), root), then),
        None => reduce_by_rare(process, comm, buffers, extent, (op, root), then),
    }
}

#[inline(never)]
fn reduce_by_rare(
    process: &Process,
    comm: &Communicator,
    buffers: (Source, Target),
    extent: Checked,
    (op, root): (Handle<UserOperator>, c_int),
    then: Then<'_>,
) -> Outcome {
    let op = rare_operator(process, op, extent.datatype)?;
    reduce_by(comm, buffers, extent, (op, root), then)
}

#[inline(always)]
fn reduce_by(
    comm: &Communicator,
    buffers: (Source, Target),
    Checked { count, datatype, bytes }: Checked,
    (op, root): (Op, c_int),
    then: Then<'_>,
) -> Outcome {
    let root = self::root(comm, root)?;
    let (send, recv) = (buffers.0.address(), buffers.1.address());
    if comm.rank() == root {
        let send = input(send, recv, bytes)?;
        // SAFETY: the C caller vouches for `count` elements at both buffers, which do not overlap, and
        // leaves them alone until the operation is complete.
        return then(&unsafe { Call::reduce_raw(send, recv, count, datatype, op, root) });
    }
    if send.addr() == IN_PLACE {
        let why = "sendbuf is HAN_IN_PLACE on a rank that is not the root";
        return Err(Failure::new(Code::Buffer, why));
    }
    needed(send, bytes, "sendbuf")?;
    // SAFETY: as above for `send`. `recv` is null: off the root, `han.h` says, it is not used.
    then(&unsafe { Call::reduce_raw(send, ptr::null_mut(), count, datatype, op, root) })
}

/// `han_allreduce`'s arguments as a call.
#[inline(always)]
pub(crate) fn allreduce(
    process: &Process,
    buffers: (Source, Target),
    extent: Extent,
    op: Handle<UserOperator>,
    then: Then<'_>,
) -> Outcome {
    let extent = extent.check()?;
    match builtin(op, extent.datatype) {
        Some(operator) => allreduce_by(buffers, extent, Op::Builtin(operator), then),
        None => allreduce_by_rare(process, buffers, extent, op, then),
    }
}

#[inline(never)]
fn allreduce_by_rare(
    process: &Process,
    buffers: (Source, Target),
    extent: Checked,
    op: Handle<UserOperator>,
    then: Then<'_>,
) -> Outcome {
    let op = rare_operator(process, op, extent.datatype)?;
    allreduce_by(buffers, extent, op, then)
}

#[inline(always)]
fn allreduce_by(buffers: (Source, Target), extent: Checked, op: Op, then: Then<'_>) -> Outcome {
    let Checked { count, datatype, bytes } = extent;
    let recv = buffers.1.address();
    let send = input(buffers.0.address(), recv, bytes)?;
    // SAFETY: the C caller vouches for `count` elements at both buffers, which do not overlap, and
    // leaves them alone until the operation is complete.
    then(&unsafe { Call::allreduce_raw(send, recv, count, datatype, op) })
}

/// The predefined operator of a handle, if it is one that is defined for the datatype.
#[inline]
fn builtin(handle: Handle<UserOperator>, datatype: Datatype) -> Option<Operator> {
    predefined(handle).filter(|operator| Op::Builtin(*operator).is_defined_for(datatype))
}

#[inline]
fn predefined(handle: Handle<UserOperator>) -> Option<Operator> {
    // HAN_SUM is 1, so that no predefined operator is the null handle.
    u8::try_from(handle.bits().wrapping_sub(1)).ok().and_then(Operator::from_code)
}

/// A user's operator; or what is wrong with the handle, or the datatype.
fn rare_operator(process: &Process, handle: Handle<UserOperator>, datatype: Datatype) -> Outcome<Op> {
    let op = match predefined(handle) {
        Some(operator) => Op::Builtin(operator),
        None => match process.operators.get(handle) {
            Some(user) => Op::User(user.clone()),
            None => return Err(unknown(Code::Op, "op", handle.is_null())),
        },
    };
    if op.is_defined_for(datatype) {
        return Ok(op);
    }
    let op = predefined(handle).map_or_else(|| op.name().to_owned(), names::operator);
    Err(undefined(&op, datatype))
}

#[cold]
fn undefined(op: &str, datatype: Datatype) -> Failure {
    let (name, has) = (names::datatype(datatype), names::operators_of(datatype));
    let value = names::value_of(datatype).map(names::datatype);
    let value = value.map(|value| format!("; {value} is that of a value without an index")).unwrap_or_default();
    let message = format!("the operator {op} is not defined for the datatype {name}, which has {has}{value}");
    Failure::new(Code::Op, message)
}

#[inline]
fn root(comm: &Communicator, root: c_int) -> Outcome<usize> {
    match usize::try_from(root) {
        Ok(rank) if rank < comm.size() => Ok(rank),
        _ => {
            let last = comm.size() - 1;
            let message = format!("root {root} is not a rank of this communicator, 0 to {last}");
            Err(Failure::new(Code::Root, message))
        }
    }
}

/// Where the input of a reduction with a result here is: null for in place, as [`Call`] has it.
#[inline(always)]
fn input(send: *const u8, recv: *mut u8, bytes: usize) -> Outcome<*const u8> {
    needed(recv, bytes, "recvbuf")?;
    if send.addr() == IN_PLACE {
        return Ok(ptr::null());
    }
    needed(send, bytes, "sendbuf")?;
    if bytes > 0 && send.addr().abs_diff(recv.addr()) < bytes {
        return Err(overlap(send.addr() == recv.addr()));
    }
    Ok(send)
}

/// An error if there are bytes to transfer and the buffer cannot be one.
#[inline(always)]
fn needed(buffer: *const u8, bytes: usize, name: &str) -> Outcome {
    if bytes == 0 {
        return Ok(());
    }
    if buffer.is_null() {
        return Err(null(Code::Buffer, name));
    }
    if buffer.addr() == IN_PLACE {
        let message = format!("{name} is HAN_IN_PLACE, which only a sendbuf may be");
        return Err(Failure::new(Code::Buffer, message));
    }
    Ok(())
}

#[cold]
fn overlap(same: bool) -> Failure {
    let message = if same {
        "sendbuf and recvbuf are the same; pass HAN_IN_PLACE as sendbuf"
    } else {
        "sendbuf and recvbuf overlap"
    };
    Failure::new(Code::Buffer, message)
}

#[cold]
fn too_large(count: usize, datatype: Datatype) -> Failure {
    if count == usize::MAX {
        return Failure::new(Code::Count, "count is negative");
    }
    let message = format!("{count} elements of {} do not fit into the address space", names::datatype(datatype));
    Failure::new(Code::Count, message)
}

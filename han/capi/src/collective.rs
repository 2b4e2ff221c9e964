//! The collectives of `han.h` in their three forms: blocking, non-blocking, persistent.
//!
//! All forms of a collective build the same [`Call`] and differ in what becomes of it. A blocking
//! call is used where it was built: moving its 80 bytes, written in small pieces, costs as much as a small
//! collective's way through the cache.
#![allow(unsafe_code)] // Exports C symbols.

use crate::abi::{InOut, Out, Source, Target};
use crate::arguments::{self, Extent, Then};
use crate::error::{Code, Failure, Outcome};
use crate::gate;
use crate::handle::Handle;
use crate::process::Process;
use crate::request::{Request, has_room, open, persist};
use han::{Call, Communicator, UserOperator};
use std::ffi::c_int;

type Comm = Handle<Communicator>;
type Op = Handle<UserOperator>;
type NewRequest = Out<Handle<Request>>;

// ---- what the three forms share -----------------------------------------------------------------

#[inline]
fn blocking(
    function: &'static str,
    comm: Comm,
    build: impl FnOnce(&Process, &Communicator, Then<'_>) -> Outcome,
) -> c_int {
    gate::call(function, |process| {
        let communicator = process.communicator(comm)?;
        build(process, communicator, &mut |call| Ok(communicator.run(call)?))
    })
}

/// The call itself, for who keeps it.
fn built(build: impl FnOnce(Then<'_>) -> Outcome) -> Outcome<Call<'static>> {
    let mut built = None;
    build(&mut |call| {
        // SAFETY: the one that is shown here is not begun, and given up when this function returns.
        built = Some(unsafe { call.again() });
        Ok(())
    })?;
    built.ok_or_else(|| Failure::new(Code::Internal, "no call was built"))
}

fn non_blocking(
    function: &'static str,
    comm: Comm,
    request: NewRequest,
    build: impl FnOnce(&Process, &Communicator, Then<'_>) -> Outcome,
) -> c_int {
    request.set(Handle::NULL);
    gate::call(function, |process| {
        request.check("request")?;
        let communicator = process.communicator(comm)?;
        let call = built(|then| build(process, communicator, then))?;
        // Refused before anything is under way: an error tells the caller that the buffers are free.
        has_room(process)?;
        let started = communicator.start(call)?;
        request.set(open(process, started)?);
        Ok(())
    })
}

fn persistent(
    function: &'static str,
    comm: Comm,
    request: NewRequest,
    build: impl FnOnce(&Process, &Communicator, Then<'_>) -> Outcome,
) -> c_int {
    request.set(Handle::NULL);
    gate::call(function, |process| {
        request.check("request")?;
        let communicator = process.communicator(comm)?.clone();
        let call = built(|then| build(process, &communicator, then))?;
        request.set(persist(process, communicator, call)?);
        Ok(())
    })
}

// ---- barrier ------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn han_barrier(comm: Comm) -> c_int {
    blocking("han_barrier", comm, |_, _, then| then(Call::BARRIER))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_ibarrier(comm: Comm, request: NewRequest) -> c_int {
    non_blocking("han_ibarrier", comm, request, |_, _, then| then(Call::BARRIER))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_barrier_init(comm: Comm, request: NewRequest) -> c_int {
    persistent("han_barrier_init", comm, request, |_, _, then| then(Call::BARRIER))
}

// ---- bcast --------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn han_bcast(buffer: Target, count: usize, datatype: c_int, root: c_int, comm: Comm) -> c_int {
    let extent = Extent { count, datatype };
    blocking("han_bcast", comm, |_, comm, then| arguments::bcast(comm, buffer, extent, root, then))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_ibcast(
    buffer: Target,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: Comm,
    request: NewRequest,
) -> c_int {
    let extent = Extent { count, datatype };
    non_blocking("han_ibcast", comm, request, |_, comm, then| arguments::bcast(comm, buffer, extent, root, then))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_bcast_init(
    buffer: Target,
    count: usize,
    datatype: c_int,
    root: c_int,
    comm: Comm,
    request: NewRequest,
) -> c_int {
    let extent = Extent { count, datatype };
    persistent("han_bcast_init", comm, request, |_, comm, then| arguments::bcast(comm, buffer, extent, root, then))
}

// ---- reduce -------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn han_reduce(
    sendbuf: Source,
    recvbuf: Target,
    count: usize,
    datatype: c_int,
    op: Op,
    root: c_int,
    comm: Comm,
) -> c_int {
    let extent = Extent { count, datatype };
    blocking("han_reduce", comm, |process, comm, then| {
        arguments::reduce(process, comm, (sendbuf, recvbuf), extent, (op, root), then)
    })
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)] // MPI's, of which `han.h` keeps the order.
pub extern "C" fn han_ireduce(
    sendbuf: Source,
    recvbuf: Target,
    count: usize,
    datatype: c_int,
    op: Op,
    root: c_int,
    comm: Comm,
    request: NewRequest,
) -> c_int {
    let extent = Extent { count, datatype };
    non_blocking("han_ireduce", comm, request, |process, comm, then| {
        arguments::reduce(process, comm, (sendbuf, recvbuf), extent, (op, root), then)
    })
}

#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)] // MPI's, of which `han.h` keeps the order.
pub extern "C" fn han_reduce_init(
    sendbuf: Source,
    recvbuf: Target,
    count: usize,
    datatype: c_int,
    op: Op,
    root: c_int,
    comm: Comm,
    request: NewRequest,
) -> c_int {
    let extent = Extent { count, datatype };
    persistent("han_reduce_init", comm, request, |process, comm, then| {
        arguments::reduce(process, comm, (sendbuf, recvbuf), extent, (op, root), then)
    })
}

// ---- allreduce ----------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn han_allreduce(
    sendbuf: Source,
    recvbuf: Target,
    count: usize,
    datatype: c_int,
    op: Op,
    comm: Comm,
) -> c_int {
    let extent = Extent { count, datatype };
    blocking("han_allreduce", comm, |process, _, then| {
        arguments::allreduce(process, (sendbuf, recvbuf), extent, op, then)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_iallreduce(
    sendbuf: Source,
    recvbuf: Target,
    count: usize,
    datatype: c_int,
    op: Op,
    comm: Comm,
    request: NewRequest,
) -> c_int {
    let extent = Extent { count, datatype };
    non_blocking("han_iallreduce", comm, request, |process, _, then| {
        arguments::allreduce(process, (sendbuf, recvbuf), extent, op, then)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_allreduce_init(
    sendbuf: Source,
    recvbuf: Target,
    count: usize,
    datatype: c_int,
    op: Op,
    comm: Comm,
    request: NewRequest,
) -> c_int {
    let extent = Extent { count, datatype };
    persistent("han_allreduce_init", comm, request, |process, _, then| {
        arguments::allreduce(process, (sendbuf, recvbuf), extent, op, then)
    })
}

// ---- persistent operations ----------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn han_start(request: InOut<Handle<Request>>) -> c_int {
    gate::call("han_start", |process| {
        let handle = request.get("request")?;
        crate::request::start(process, handle)
    })
}

#[unsafe(no_mangle)]
pub extern "C" fn han_request_free(request: InOut<Handle<Request>>) -> c_int {
    gate::call("han_request_free", |process| {
        let handle = request.get("request")?;
        crate::request::free(process, handle)?;
        request.clear();
        Ok(())
    })
}

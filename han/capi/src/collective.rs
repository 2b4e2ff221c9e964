//! The collectives of `han.h` in their three forms: blocking, non-blocking, persistent.
//!
//! All forms of a collective build the same [`Call`](han::Call) and differ in what becomes of it.
#![allow(unsafe_code)] // Exports C symbols.

use crate::abi::{InOut, Out, Source, Target};
use crate::arguments::{self, Extent};
use crate::error::Outcome;
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

fn blocking(
    function: &'static str,
    comm: Comm,
    build: impl FnOnce(&Process, &Communicator) -> Outcome<Call<'static>>,
) -> c_int {
    gate::call(function, |process| {
        let communicator = process.communicator(comm)?;
        let call = build(process, communicator)?;
        Ok(communicator.run(call)?)
    })
}

fn non_blocking(
    function: &'static str,
    comm: Comm,
    request: NewRequest,
    build: impl FnOnce(&Process, &Communicator) -> Outcome<Call<'static>>,
) -> c_int {
    request.set(Handle::NULL);
    gate::call(function, |process| {
        request.check("request")?;
        let communicator = process.communicator(comm)?;
        let call = build(process, communicator)?;
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
    build: impl FnOnce(&Process, &Communicator) -> Outcome<Call<'static>>,
) -> c_int {
    request.set(Handle::NULL);
    gate::call(function, |process| {
        request.check("request")?;
        let communicator = process.communicator(comm)?.clone();
        let call = build(process, &communicator)?;
        request.set(persist(process, communicator, call)?);
        Ok(())
    })
}

// ---- barrier ------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn han_barrier(comm: Comm) -> c_int {
    blocking("han_barrier", comm, |_, _| Ok(Call::barrier()))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_ibarrier(comm: Comm, request: NewRequest) -> c_int {
    non_blocking("han_ibarrier", comm, request, |_, _| Ok(Call::barrier()))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_barrier_init(comm: Comm, request: NewRequest) -> c_int {
    persistent("han_barrier_init", comm, request, |_, _| Ok(Call::barrier()))
}

// ---- bcast --------------------------------------------------------------------------------------

#[unsafe(no_mangle)]
pub extern "C" fn han_bcast(buffer: Target, count: usize, datatype: c_int, root: c_int, comm: Comm) -> c_int {
    let extent = Extent { count, datatype };
    blocking("han_bcast", comm, |_, comm| arguments::bcast(comm, buffer, extent, root))
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
    non_blocking("han_ibcast", comm, request, |_, comm| arguments::bcast(comm, buffer, extent, root))
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
    persistent("han_bcast_init", comm, request, |_, comm| arguments::bcast(comm, buffer, extent, root))
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
    blocking("han_reduce", comm, |process, comm| arguments::reduce(process, comm, (sendbuf, recvbuf), extent, op, root))
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
    non_blocking("han_ireduce", comm, request, |process, comm| {
        arguments::reduce(process, comm, (sendbuf, recvbuf), extent, op, root)
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
    persistent("han_reduce_init", comm, request, |process, comm| {
        arguments::reduce(process, comm, (sendbuf, recvbuf), extent, op, root)
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
    blocking("han_allreduce", comm, |process, _| arguments::allreduce(process, (sendbuf, recvbuf), extent, op))
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
    non_blocking("han_iallreduce", comm, request, |process, _| {
        arguments::allreduce(process, (sendbuf, recvbuf), extent, op)
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
    persistent("han_allreduce_init", comm, request, |process, _| {
        arguments::allreduce(process, (sendbuf, recvbuf), extent, op)
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

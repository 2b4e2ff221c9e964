//! Requests: operations in flight, persistent operations, and their completion.
#![allow(unsafe_code)] // Exports C symbols; starts recorded calls again.

use crate::abi::{Array, InOut, Out};
use crate::error::{Code, Failure, Outcome, report};
use crate::gate;
use crate::handle::Handle;
use crate::process::{Process, too_many, unknown};
use han::{Call, Communicator, RawRequest};
use std::ffi::c_int;

/// What a request handle stands for.
pub(crate) enum Request {
    /// Made by a non-blocking function; released when complete.
    Once(RawRequest),
    /// Made by an `_init` function; started and completed again and again.
    Persistent { comm: Communicator, call: Call<'static>, active: Option<RawRequest> },
}

impl Request {
    /// The operation in flight, if there is one.
    fn active(&mut self) -> Option<&mut RawRequest> {
        match self {
            Self::Once(started) => Some(started),
            Self::Persistent { active, .. } => active.as_mut(),
        }
    }

    /// Whether `han_finalize` would leave an operation without an end.
    pub(crate) fn is_active(&self) -> bool {
        !matches!(self, Self::Persistent { active: None, .. })
    }
}

/// Whether the table can take another request.
pub(crate) fn has_room(process: &Process) -> Outcome {
    if process.requests.has_room() { Ok(()) } else { Err(too_many()) }
}

/// Takes a started operation into the table.
pub(crate) fn open(process: &mut Process, started: RawRequest) -> Outcome<Handle<Request>> {
    process.requests.insert(Request::Once(started)).ok_or_else(too_many)
}

/// Takes a recorded operation into the table.
pub(crate) fn persist(process: &mut Process, comm: Communicator, call: Call<'static>) -> Outcome<Handle<Request>> {
    let request = Request::Persistent { comm, call, active: None };
    process.requests.insert(request).ok_or_else(too_many)
}

/// Starts a persistent request.
pub(crate) fn start(process: &mut Process, handle: Handle<Request>) -> Outcome {
    match process.requests.get_mut(handle) {
        Some(Request::Persistent { comm, call, active: active @ None }) => {
            // SAFETY: the operation that was begun with it before, if one was, has ended.
            *active = Some(comm.start(unsafe { call.again() })?);
            Ok(())
        }
        Some(Request::Persistent { .. }) => {
            let why = "the request is active; complete it by han_wait or han_test first";
            Err(Failure::new(Code::Request, why))
        }
        Some(Request::Once(_)) => {
            let why = "the request is not persistent; only those of han_*_init can be started";
            Err(Failure::new(Code::Request, why))
        }
        None => Err(unknown(Code::Request, "request", handle.is_null())),
    }
}

/// Frees a persistent request.
pub(crate) fn free(process: &mut Process, handle: Handle<Request>) -> Outcome {
    let Some(request) = process.requests.get_mut(handle) else {
        return Err(unknown(Code::Request, "request", handle.is_null()));
    };
    if request.is_active() {
        let why = "the request is active; complete it by han_wait or han_test first";
        return Err(Failure::new(Code::Request, why));
    }
    process.requests.remove(handle);
    Ok(())
}

/// Takes an operation that has ended out of its request; a request for one operation goes with it.
fn close(process: &mut Process, handle: Handle<Request>, place: InOut<Handle<Request>>) {
    if let Some(Request::Persistent { active, .. }) = process.requests.get_mut(handle) {
        *active = None;
    } else {
        process.requests.remove(handle);
        place.clear();
    }
}

/// The operation in flight behind a handle; `None` if there is nothing to wait for.
fn in_flight(process: &mut Process, handle: Handle<Request>) -> Outcome<Option<&mut RawRequest>> {
    if handle.is_null() {
        return Ok(None);
    }
    match process.requests.get_mut(handle) {
        Some(request) => Ok(request.active()),
        None => Err(unknown(Code::Request, "request", false)),
    }
}

fn wait(process: &mut Process, place: InOut<Handle<Request>>) -> Outcome {
    let handle = place.get("request")?;
    let Some(started) = in_flight(process, handle)? else { return Ok(()) };
    let result = started.wait();
    close(process, handle, place);
    Ok(result?)
}

/// Whether the operation is complete (also by failing), and the code to return.
pub(crate) fn test(place: InOut<Handle<Request>>) -> (bool, c_int) {
    let mut complete = false;
    let code = gate::call("han_test", |process| {
        let handle = place.get("request")?;
        let Some(started) = in_flight(process, handle)? else {
            complete = true;
            return Ok(());
        };
        let result = started.test();
        complete = !matches!(result, Ok(false));
        if complete {
            close(process, handle, place);
        }
        result?;
        Ok(())
    });
    (complete, code)
}

#[unsafe(no_mangle)]
pub extern "C" fn han_test(request: InOut<Handle<Request>>, flag: Out<c_int>) -> c_int {
    if let Err(failure) = flag.check("flag") {
        return report("han_test", &failure);
    }
    let (complete, code) = test(request);
    flag.set(c_int::from(complete));
    code
}

#[unsafe(no_mangle)]
pub extern "C" fn han_wait(request: InOut<Handle<Request>>) -> c_int {
    gate::call("han_wait", |process| wait(process, request))
}

#[unsafe(no_mangle)]
pub extern "C" fn han_waitall(count: usize, requests: Array<Handle<Request>>) -> c_int {
    gate::call("han_waitall", |process| {
        // All handles are looked at before any is waited for: a wrong one has no other effect.
        let mut handles = Vec::new();
        for request in requests.elements(count, "requests")? {
            let handle = request.get("requests")?;
            in_flight(process, handle)?;
            if !handle.is_null() {
                handles.push(handle.bits());
            }
        }
        handles.sort_unstable();
        if handles.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Failure::new(Code::Request, "the same request stands in requests twice"));
        }
        // Waiting for one operation advances the others too, so the order does not matter.
        let mut first = Ok(());
        for request in requests.elements(count, "requests")? {
            let result = wait(process, request);
            if first.is_ok() {
                first = result;
            }
        }
        first
    })
}

//! Requests whose collectives have failed: whoever completes one hears of it, and the error handler of its communicator.
//!
//! The request itself is a receive that succeeds ([`request`](crate::request)), since no MPI lets others fail one of its
//! own. So before requests are tested, the handles of those in which a collective may have failed are kept, and looked
//! at when the MPI says which are complete: it has put other handles in their places by then. An error of the MPI's own does
//! not say that of all of them, so there the places are looked at.
#![allow(unsafe_code)] // Reads the program's requests and writes its statuses.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use crate::abi::Word;
use crate::gate;
use crate::process::{Ours, Process};
use crate::real::{SUCCESS, handle_at};
use crate::request;

/// A collective that has failed, before its request is completed.
pub(crate) struct Failed {
    pub(crate) handle: Word,
    pub(crate) ours: Rc<Ours>,
    pub(crate) cause: Cause,
}

/// Why it has failed.
pub(crate) enum Cause {
    Han(han::Error),
    /// The MPI could not pack or unpack.
    Mpi(c_int),
}

impl Cause {
    /// That of the MPI's code, if it is one.
    pub(crate) fn of(code: c_int) -> Option<Self> {
        (code != SUCCESS).then_some(Self::Mpi(code))
    }

    /// The code to return for it.
    fn code(&self, process: &Process) -> c_int {
        match self {
            Self::Han(error) => process.errors.describe(error),
            Self::Mpi(code) => *code,
        }
    }
}

/// Requests that are about to be tested; none where no collective among them can have failed when they are complete.
pub(crate) struct Tested {
    handles: Vec<Word>,
    /// Where the handles were.
    requests: *mut Word,
}

impl Tested {
    pub(crate) fn new(count: c_int, requests: *mut c_void) -> Self {
        // Between this and the test, other threads may find that one has failed, and complete it.
        let may_fail = request::any_failed() || (gate::is_multiple() && request::any());
        let requests: *mut Word = requests.cast();
        if !may_fail || requests.is_null() {
            return Self { handles: Vec::new(), requests };
        }
        let handles = gate::inside(|process| {
            let flavour = process.abi.flavour;
            let places = (0..usize::try_from(count).unwrap_or(0)).map(|index| flavour.element(requests, index));
            // SAFETY: the program's array has as many handles.
            places.map(|place| unsafe { handle_at(place, flavour) }).collect()
        });
        Self { handles: handles.unwrap_or_default(), requests }
    }

    /// Whether there is nothing to look for.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// The one of this index is complete; gives the code to return.
    pub(crate) fn one(&self, index: c_int) -> c_int {
        let code = gate::inside(|process| {
            let failed = self.take(process, index)?;
            Some(process.hand(&failed.ours, failed.cause.code(process)))
        });
        code.flatten().unwrap_or(SUCCESS)
    }

    /// Those of these indices are complete, and `statuses` has one for each, in their order; gives the code to return.
    pub(crate) fn several(&self, indices: impl Iterator<Item = c_int>, statuses: *mut c_void) -> c_int {
        let code = gate::inside(|process| {
            let failed: Vec<_> = indices.map(|index| self.take(process, index)).collect();
            let first = failed.iter().flatten().next()?;
            for (place, failed) in failed.iter().enumerate() {
                if let Some(error) = process.abi.status.error_in(statuses, place) {
                    let code = failed.as_ref().map_or(SUCCESS, |failed| failed.cause.code(process));
                    // SAFETY: the program's array has room for the status of each request that is complete.
                    unsafe { error.write(code) };
                }
            }
            Some(process.hand(&first.ours, process.abi.err_in_status))
        });
        code.flatten().unwrap_or(SUCCESS)
    }

    /// The program hears of an error of the MPI's, which may have left some in the array, to be completed later. Those of these
    /// indices that it has not left have their errors in `statuses`, if there are any: one for each index, in their order.
    pub(crate) fn beside(&self, indices: impl Iterator<Item = c_int>, statuses: Option<*mut c_void>) {
        gate::inside(|process| {
            for (place, index) in indices.enumerate() {
                if self.is_left(process, index) {
                    continue;
                }
                let Some(failed) = self.take(process, index) else { continue };
                if let Some(error) = statuses.and_then(|statuses| process.abi.status.error_in(statuses, place)) {
                    // SAFETY: as above.
                    unsafe { error.write(failed.cause.code(process)) };
                }
            }
        });
    }

    /// Whether the one of this index is in the array still, and not completed.
    fn is_left(&self, process: &Process, index: c_int) -> bool {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let Some(&handle) = self.handles.get(index) else { return true };
        let flavour = process.abi.flavour;
        // SAFETY: the program's array has as many handles.
        let now = unsafe { handle_at(flavour.element(self.requests, index), flavour) };
        now == handle && !process.requests.is_inactive(process, handle)
    }

    /// The failure of the request of this index, if it has one, which is nobody's then.
    fn take(&self, process: &Process, index: c_int) -> Option<Failed> {
        let &handle = self.handles.get(usize::try_from(index).ok()?)?;
        process.requests.take_failed(handle)
    }
}

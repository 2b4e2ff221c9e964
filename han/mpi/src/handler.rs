//! Error handlers of the program's communicators: kept for those that it frees, and set aside for a while.
#![allow(unsafe_code)] // Calls the MPI library.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::abi::Word;
use crate::gate;
use crate::process::Process;
use crate::real::{SUCCESS, real};
use crate::request;

/// The error handler of a communicator, kept. What is under way on one that the program frees keeps it, as MPI keeps the
/// communicator.
pub(crate) struct LastHandler(Word);

impl LastHandler {
    /// That of a communicator which is being freed, if anything may be under way there.
    pub(crate) fn of(comm: Word) -> Option<Self> {
        if !gate::is_open() || !(request::any() || request::any_persistent()) {
            return None;
        }
        Self::get(comm)
    }

    /// The one that a communicator has now.
    fn get(comm: Word) -> Option<Self> {
        let mut handler: Word = 0;
        // SAFETY: the communicator is there, if only until its attributes are gone; there is room for a handle.
        let code = unsafe { (real().comm_get_errhandler)(comm, &raw mut handler) };
        (code == SUCCESS).then_some(Self(handler))
    }

    /// A communicator of this rank alone that has the handler. The program's own handle may be another's by now.
    pub(crate) fn stand_in(&self, silent: Word) -> Option<StandIn> {
        let mut comm: Word = 0;
        // SAFETY: `silent` is a communicator of this rank alone, and there is room for a handle.
        let code = unsafe { (real().comm_dup)(silent, &raw mut comm) };
        let stand_in = (code == SUCCESS).then_some(StandIn(comm))?;
        // SAFETY: the communicator was made above, and the handler is kept here.
        let code = unsafe { (real().comm_set_errhandler)(comm, self.0) };
        (code == SUCCESS).then_some(stand_in)
    }
}

impl Drop for LastHandler {
    fn drop(&mut self) {
        // SAFETY: whoever asks for a communicator's handler frees it.
        unsafe { (real().errhandler_free)(&raw mut self.0) };
    }
}

/// A communicator that stands in for one that the program has freed.
pub(crate) struct StandIn(pub(crate) Word);

impl Drop for StandIn {
    fn drop(&mut self) {
        // SAFETY: it was made in `stand_in`, and nothing is under way there.
        unsafe { (real().comm_free)(&raw mut self.0) };
    }
}

/// While it lasts, errors that are no object's are returned: the handlers of the communicators that hear of them, before MPI 4
/// and since, are kept here.
pub(crate) struct Unheard([Option<(Word, LastHandler)>; 2]);

impl Unheard {
    pub(crate) fn begin(process: &Process) -> Self {
        let returns = process.abi.errors_return();
        Self([process.abi.comm_world, process.abi.comm_self].map(|comm| {
            let handler = LastHandler::get(comm)?;
            if comm == process.abi.comm_self && process.abi.may_be_none(handler.0) {
                // To give it back would make it one, before which the world's no longer counts.
                return None;
            }
            // SAFETY: the communicator is always there, and the handler is predefined.
            unsafe { (real().comm_set_errhandler)(comm, returns) };
            Some((comm, handler))
        }))
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        for (comm, handler) in self.0.iter().flatten() {
            // SAFETY: the communicator is always there, and its handler was kept.
            unsafe { (real().comm_set_errhandler)(*comm, handler.0) };
        }
    }
}

/// While it lasts, errors of a communicator are noted, and those that are no object's returned.
pub(crate) struct Noting {
    comm: Word,
    before: LastHandler,
    /// The communicator's own handler is `MPI_ERRORS_RETURN`.
    returns: bool,
    _unheard: Unheard,
}

/// How a call of the MPI has ended of whose error no handler of the program's has heard.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    /// The error, if there is one.
    pub(crate) raised: c_int,
    /// What the MPI returns once a handler has heard of it: MPICH 5 no error, if that is the program's own.
    pub(crate) returned: c_int,
}

static NOTED: AtomicI32 = AtomicI32::new(SUCCESS);

extern "C" fn note(_: *mut Word, code: *mut c_int) {
    // SAFETY: the MPI library gives a pointer to a code.
    NOTED.store(unsafe { code.read() }, Ordering::Relaxed); // by the thread that reads it
}

impl Noting {
    pub(crate) fn begin(process: &Process, comm: Word) -> Option<Self> {
        static HANDLER: OnceLock<Option<Word>> = OnceLock::new();
        let handler = (*HANDLER.get_or_init(|| {
            let mut handler: Word = 0;
            // SAFETY: the function has the type that MPI asks for, and there is room for a handle.
            let code = unsafe { (real().comm_create_errhandler)(note, &raw mut handler) };
            (code == SUCCESS).then_some(handler)
        }))?;
        // The communicator may be one of those that hear of what is no object's.
        let before = LastHandler::get(comm)?;
        let returns = process.abi.is_errors_return(before.0);
        let noting = Self { comm, before, returns, _unheard: Unheard::begin(process) };
        NOTED.store(SUCCESS, Ordering::Relaxed);
        // SAFETY: the communicator is the program's, and the handler was made above.
        unsafe { (real().comm_set_errhandler)(comm, handler) };
        Some(noting)
    }

    /// How a call has ended that has returned this code.
    pub(crate) fn end(self, code: c_int) -> Ended {
        let noted = NOTED.load(Ordering::Relaxed);
        let raised = if noted == SUCCESS { code } else { noted };
        Ended { raised, returned: if self.returns { raised } else { code } }
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        // SAFETY: the communicator is there, and its handler was kept.
        unsafe { (real().comm_set_errhandler)(self.comm, self.before.0) };
    }
}

//! Collectives under way: requests that belong to the MPI library and are completed by this one.
//!
//! The handle that the program gets is a receive from this rank itself, on a communicator that nobody else knows, and
//! the message comes when the collective is complete. A persistent collective has a persistent receive. So arrays of
//! requests of all kinds, statuses, freeing and starting again are the MPI's own business; what this library adds is that
//! its operations go on whenever the program asks for any request ([`completion`](crate::completion)) or waits in another
//! call of the MPI ([`waiting`](crate::waiting)).
//!
//! Beginning must not wait for others, so a communicator that han has not joined yet is not joined for it: until a
//! blocking collective has seen to that, its calls are the MPI's.
#![allow(unsafe_code)] // Calls the MPI library.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use han::Communicator;

use crate::abi::{Abi, Flavour, Word};
use crate::arguments::{Arguments, Copied, Prepared};
use crate::deputy;
use crate::failed::{Cause, Failed};
use crate::gate;
use crate::pending::{Awaited, Pending, Queues, Receive};
use crate::process::{Ours, Process};
use crate::progress;
use crate::real::{SUCCESS, StatusRoom, handle_at, real, theirs};
use han::Collective;

/// Collectives of this process that are under way, or have failed and not been completed by the program.
static PENDING: AtomicUsize = AtomicUsize::new(0);
/// Those that have failed.
static FAILED: AtomicUsize = AtomicUsize::new(0);
/// Whether the program has made a persistent collective that is carried out here.
static ANY_PERSISTENT: AtomicBool = AtomicBool::new(false);

/// Whether there is anything to go on with.
#[inline]
pub(crate) fn any() -> bool {
    PENDING.load(Ordering::Relaxed) != 0
}

/// The same, and sure to see an operation whose thread does not see this one's call.
pub(crate) fn any_for_sure() -> bool {
    // D4 (SeqCst): see D2 in `deputy`.
    PENDING.load(Ordering::SeqCst) != 0
}

/// Whether the program has to hear of a failure when it completes a request.
#[inline]
pub(crate) fn any_failed() -> bool {
    FAILED.load(Ordering::Relaxed) != 0
}

/// Whether a request may be a persistent collective's.
#[inline]
pub(crate) fn any_persistent() -> bool {
    ANY_PERSISTENT.load(Ordering::Relaxed)
}

/// The handle of a request that the program has freed.
const NOBODYS: Word = 0;

/// What the library keeps of requests.
pub(crate) struct Requests {
    pending: RefCell<Queues>,
    failed: RefCell<Vec<Failed>>,
    persistent: RefCell<HashMap<Word, Rc<Persistent>>>,
    /// A duplicate of `MPI_COMM_SELF` that returns errors.
    pub(crate) silent: Word,
    byte: Word,
    /// `MPI_REQUEST_NULL`.
    null: Word,
    flavour: Flavour,
    /// Tags that were used and are free again, and the first that was never used.
    free_tags: RefCell<Vec<c_int>>,
    next_tag: Cell<c_int>,
}

/// How a persistent collective is begun each time.
pub(crate) struct Persistent {
    pub(crate) collective: Collective,
    pub(crate) ours: Rc<Ours>,
    /// Its own: ranks may start their persistent collectives in different orders.
    communicator: Communicator,
    arguments: Box<dyn Arguments>,
    tag: c_int,
}

/// The collectives under way that have these requests, if there are any.
pub(crate) fn awaited(handles: impl Iterator<Item = Word>) -> Option<Awaited> {
    if any() { gate::inside(|process| process.requests.awaited(handles.collect())) } else { None }
}

/// Goes on with everything that is under way.
pub(crate) fn advance() {
    if any() {
        gate::inside(|process| process.requests.advance(process));
    }
}

type Isend = unsafe extern "C-unwind" fn(*const c_void, c_int, Word, c_int, c_int, Word) -> c_int;
type Irecv = unsafe extern "C-unwind" fn(*mut c_void, c_int, Word, c_int, c_int, Word, *mut Word) -> c_int;

impl Requests {
    pub(crate) fn new(abi: &Abi) -> Result<Self, String> {
        let mut silent: Word = 0;
        // SAFETY: MPI is initialised, and there is room for a handle.
        let made = unsafe { (real().comm_dup)(abi.comm_self, &raw mut silent) };
        // SAFETY: the communicator was made if that was a success, and the handler is predefined.
        let returns = || unsafe { (real().comm_set_errhandler)(silent, abi.errors_return()) };
        match if made == SUCCESS { returns() } else { made } {
            SUCCESS => Ok(Self {
                pending: RefCell::default(),
                failed: RefCell::default(),
                persistent: RefCell::default(),
                silent,
                byte: abi.byte,
                null: abi.request_null,
                flavour: abi.flavour,
                free_tags: RefCell::default(),
                next_tag: Cell::new(0),
            }),
            code => Err(format!("MPI_Comm_dup returned error {code}")),
        }
    }

    /// Begins a call of `ours`, completing `request`; gives the code to return.
    pub(crate) fn begin(
        &self,
        process: &Process,
        collective: Collective,
        ours: Rc<Ours>,
        prepared: Prepared,
        request: *mut Word,
    ) -> c_int {
        let tag = self.take_tag();
        let receive = theirs!(c"PMPI_Irecv", Irecv);
        // SAFETY: the program gives room for a handle; no bytes are received.
        let code = unsafe { receive(ptr::null_mut(), 0, self.byte, 0, tag, self.silent, request) };
        if code != SUCCESS {
            return code;
        }
        // SAFETY: the MPI library has stored a handle there.
        let handle = unsafe { handle_at(request, self.flavour) };
        let communicator = ours.communicator.clone();
        let receive = Receive { handle, tag, is_persistent: false, freed: None };
        self.start(process, collective, ours, &communicator, prepared, receive)
    }

    /// Begins a call whose receive is there.
    fn start(
        &self,
        process: &Process,
        collective: Collective,
        ours: Rc<Ours>,
        communicator: &Communicator,
        prepared: Prepared,
        receive: Receive,
    ) -> c_int {
        let (since, bytes) = (Instant::now(), prepared.call.bytes());
        let Prepared { call, mut kept } = prepared;
        if let Copied::Packed(packed) = &mut kept.copied {
            // The program may free the datatype as soon as the operation is under way.
            packed.outlive();
        }
        match communicator.start(call) {
            Ok(request) => {
                let outcome = None;
                let pending =
                    Pending { request, outcome, kept, ours, receive, collective, bytes, since, awaited: None };
                self.pending.borrow_mut().push(pending);
                // D1 (SeqCst): see D2 in `deputy`.
                PENDING.fetch_add(1, Ordering::SeqCst);
                deputy::begun();
                SUCCESS
            }
            Err(error) => {
                self.complete(receive);
                process.raise(&ours, &error)
            }
        }
    }

    /// Makes a persistent request of a collective whose call is prepared each time.
    pub(crate) fn make_persistent(
        &self,
        collective: Collective,
        ours: Rc<Ours>,
        communicator: Communicator,
        arguments: Box<dyn Arguments>,
        request: *mut Word,
    ) -> c_int {
        let tag = self.take_tag();
        let receive = theirs!(c"PMPI_Recv_init", Irecv);
        // SAFETY: as in `begin`.
        let code = unsafe { receive(ptr::null_mut(), 0, self.byte, 0, tag, self.silent, request) };
        if code == SUCCESS {
            // SAFETY: the MPI library has stored a handle there.
            let handle = unsafe { handle_at(request, self.flavour) };
            let persistent = Persistent { collective, ours, communicator, arguments, tag };
            self.persistent.borrow_mut().insert(handle, Rc::new(persistent));
            ANY_PERSISTENT.store(true, Ordering::Relaxed);
        }
        code
    }

    /// Begins the persistent collective of a handle once more, if it is one; its receive has been started.
    pub(crate) fn start_again(&self, process: &Process, handle: Word) -> c_int {
        let Some(persistent) = self.persistent.borrow().get(&handle).map(Rc::clone) else { return SUCCESS };
        let Persistent { collective, ours, communicator, arguments, tag } = &*persistent;
        let receive = Receive { handle, tag: *tag, is_persistent: true, freed: None };
        match arguments.prepare(process, ours.seat()) {
            Ok(prepared) => self.start(process, *collective, Rc::clone(ours), communicator, prepared, receive),
            Err(_) => {
                // It could be prepared when it was made.
                self.complete(receive);
                process.abi.err_other
            }
        }
    }

    /// Whether a collective that is under way, has failed or is persistent has this request.
    pub(crate) fn has(&self, handle: Word) -> bool {
        self.persistent.borrow().contains_key(&handle)
            || self.failed.borrow().iter().any(|failed| failed.handle == handle)
            || self.pending.borrow_mut().all().any(|pending| pending.receive.handle == handle)
    }

    /// Whether the handle is that of a persistent collective which is not started, or has been completed since.
    pub(crate) fn is_inactive(&self, process: &Process, handle: Word) -> bool {
        type GetStatus = unsafe extern "C-unwind" fn(Word, *mut c_int, *mut c_void) -> c_int;
        if !self.persistent.borrow().contains_key(&handle) {
            return false;
        }
        let get_status = theirs!(c"PMPI_Request_get_status", GetStatus);
        let (mut flag, mut status) = (0, StatusRoom::new());
        // SAFETY: the receive is this library's, and there is room for both answers.
        let code = unsafe { get_status(handle, &raw mut flag, status.place()) };
        // SAFETY: the library has stored a status if it has set the flag.
        code == SUCCESS && flag != 0 && unsafe { process.abi.status.is_empty(status.place()) }
    }

    /// The collectives under way that have these requests.
    fn awaited(&self, mut handles: Vec<Word>) -> Awaited {
        let awaited = Awaited::default();
        handles.sort_unstable();
        for pending in self.pending.borrow_mut().all() {
            if handles.binary_search(&pending.receive.handle).is_ok() {
                pending.awaited = Some(awaited.another());
            }
        }
        awaited
    }

    /// Forgets the handle of a request that the program frees. True if its collective is under way: the receive is freed when
    /// that is complete, as MPICH 4.0 forgets a receive that is freed before, and the message would wait for ever for it.
    pub(crate) fn forget(&self, handle: Word) -> bool {
        self.take_failed(handle);
        let persistent = self.persistent.borrow_mut().remove(&handle);
        let mut pending = self.pending.borrow_mut();
        if let Some(pending) = pending.all().find(|pending| pending.receive.handle == handle) {
            // It is completed all the same, and its tag is free then.
            pending.receive = Receive { handle: NOBODYS, is_persistent: false, freed: Some(handle), ..pending.receive };
            return true;
        }
        if let Some(persistent) = persistent {
            self.free_tags.borrow_mut().push(persistent.tag);
        }
        false
    }

    /// Goes on with every operation and calls nothing of the MPI: which are complete, [`advance`](Self::advance) finds.
    pub(crate) fn go_on(&self) {
        if let Ok(mut pending) = self.pending.try_borrow_mut() {
            pending.go_on();
        }
    }

    /// Goes on with every operation.
    fn advance(&self, process: &Process) {
        self.go_on();
        let mut place = 0;
        loop {
            let complete = self.pending.borrow_mut().take_complete(&mut place);
            let Some((pending, tested)) = complete else { break };
            let Pending { kept, ours, receive, collective, bytes, since, awaited, .. } = pending;
            let cause = match tested {
                Ok(()) => Cause::of(kept.finish()),
                Err(error) => {
                    process.errors.tell(&error);
                    Some(Cause::Han(error))
                }
            };
            match cause {
                Some(cause) => self.note_failed(Failed { handle: receive.handle, ours, cause }),
                None => {
                    if let Some(report) = &process.report {
                        report.taken(collective, bytes, since);
                    }
                }
            }
            PENDING.fetch_sub(1, Ordering::Relaxed);
            progress::is_ahead();
            deputy::has_sent();
            self.complete(receive);
            drop(awaited);
        }
    }

    /// Whoever completes the request will hear of it, if it is anybody's.
    fn note_failed(&self, failed: Failed) {
        if failed.handle != NOBODYS {
            self.failed.borrow_mut().push(failed);
            FAILED.fetch_add(1, Ordering::Relaxed);
            PENDING.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How the collective of a request has failed, if it has; it is forgotten.
    pub(crate) fn take_failed(&self, handle: Word) -> Option<Failed> {
        let mut failed = self.failed.borrow_mut();
        let place = failed.iter().position(|failed| failed.handle == handle)?;
        FAILED.fetch_sub(1, Ordering::Relaxed);
        PENDING.fetch_sub(1, Ordering::Relaxed);
        Some(failed.remove(place))
    }

    /// Sends the message that completes a request.
    fn complete(&self, Receive { tag, is_persistent, freed, .. }: Receive) {
        let send = theirs!(c"PMPI_Send", Isend);
        // SAFETY: no bytes are sent, to a receive of this rank that is there already, so this waits for nobody.
        unsafe { send(ptr::null(), 0, self.byte, 0, tag, self.silent) };
        if let Some(handle) = freed {
            self.free(handle);
        }
        if !is_persistent {
            self.free_tags.borrow_mut().push(tag);
        }
    }

    /// Frees a receive whose message has been sent.
    fn free(&self, mut handle: Word) {
        let wait = theirs!(c"PMPI_Wait", unsafe extern "C-unwind" fn(*mut Word, *mut c_void) -> c_int);
        let mut status = StatusRoom::new();
        // SAFETY: the handle is a receive's, which nobody else has, and there is room for its status.
        unsafe { wait(&raw mut handle, status.place()) };
        // SAFETY: the library has left a handle there.
        if unsafe { handle_at(&raw const handle, self.flavour) } != self.null {
            let free = theirs!(c"PMPI_Request_free", unsafe extern "C-unwind" fn(*mut Word) -> c_int);
            // SAFETY: a persistent receive is there until it is freed.
            unsafe { free(&raw mut handle) };
        }
    }

    fn take_tag(&self) -> c_int {
        let next = || self.next_tag.replace(self.next_tag.get() + 1);
        self.free_tags.borrow_mut().pop().unwrap_or_else(next)
    }

    /// Gives everything back. What a program has not completed before it ends MPI is nobody's any more.
    pub(crate) fn end(mut self) {
        PENDING.store(0, Ordering::Relaxed);
        FAILED.store(0, Ordering::Relaxed);
        // SAFETY: it was made in `new`, and nobody uses it any more; the MPI keeps it while a receive is posted.
        unsafe { (real().comm_free)(&raw mut self.silent) };
    }
}

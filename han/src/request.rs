//! Operations that were begun and not yet waited for.

use std::rc::Rc;

use shm_core::sys::own::Own;
use shm_core::{Owned, Ticket};

use crate::communicator::Shared;
use crate::context::Inner;
use crate::error::{Error, Result};
use crate::trace::{Lane, What};

/// An operation under way whose buffers somebody else answers for.
#[derive(Debug)]
#[must_use = "an operation has completed only after `wait`, or when `test` says so"]
pub struct RawRequest {
    shared: Rc<Own<Shared>>,
    context: Rc<Own<Inner>>,
    ticket: Ticket,
}

impl RawRequest {
    pub(crate) fn new(shared: Rc<Own<Shared>>, context: Rc<Own<Inner>>, ticket: Ticket) -> Self {
        Self { shared, context, ticket }
    }

    /// Goes on, and tells whether the operation has completed.
    ///
    /// # Errors
    /// The job has ended.
    pub fn test(&mut self) -> Result<bool> {
        self.context.check_process()?;
        self.context.progress()?;
        let mut carrier = self.shared.carrier()?;
        let tested = carrier.test(self.ticket, &self.context);
        self.shared.note_completed(&carrier, &self.context);
        if let (Err(_), Some(trace)) = (&tested, self.context.trace()) {
            trace.write();
        }
        tested
    }

    /// Whether the operation is known to have completed, without going on.
    #[must_use]
    pub fn has_completed(&self) -> bool {
        self.shared.carrier.try_borrow().is_ok_and(|carrier| carrier.has_completed(self.ticket))
    }

    /// Whether both are operations of one communicator, which complete in the order in which they were begun.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.shared, &other.shared)
    }

    /// Waits until the operation has completed.
    ///
    /// # Errors
    /// The job has ended.
    pub fn wait(&mut self) -> Result<()> {
        self.context.check_process()?;
        let mut carrier = self.shared.carrier()?;
        let Some(trace) = self.context.trace() else { return carrier.wait(self.ticket, &self.context) };
        let open = trace.begin(Lane::Calls, What::named("wait"));
        let waited = carrier.wait(self.ticket, &self.context);
        self.shared.note_completed(&carrier, &self.context);
        trace.end(open, &waited);
        waited
    }
}

/// An operation under way that owns its buffer, of type `B`.
///
/// Dropped before it has completed, it still takes part, and its buffer is leaked.
#[derive(Debug)]
#[must_use = "an operation gives its buffer back in `wait`"]
pub struct Request<B: Buffer> {
    raw: RawRequest,
    kept: B::Kept,
}

/// What a request can own: nothing, or a vector.
pub trait Buffer: Sized {
    /// How it is kept while the operation works on it.
    type Kept;

    /// Gives it back after the operation.
    #[doc(hidden)]
    fn give_back(kept: Self::Kept, request: &RawRequest) -> Result<Self>;
}

impl Buffer for () {
    type Kept = ();

    fn give_back((): (), _: &RawRequest) -> Result<()> {
        Ok(())
    }
}

impl<T> Buffer for Vec<T> {
    type Kept = Owned<T>;

    fn give_back(kept: Owned<T>, request: &RawRequest) -> Result<Self> {
        let mut carrier = request.shared.carrier()?;
        carrier.take(kept).map_err(|_| Error::NotFree(carrier.id()))
    }
}

impl<B: Buffer> Request<B> {
    pub(crate) fn new(raw: RawRequest, kept: B::Kept) -> Self {
        Self { raw, kept }
    }

    /// Goes on, and tells whether the operation has completed; `wait` then returns at once.
    ///
    /// # Errors
    /// The job has ended.
    pub fn test(&mut self) -> Result<bool> {
        self.raw.test()
    }

    /// Waits until the operation has completed and gives the buffer back.
    ///
    /// # Errors
    /// The job has ended.
    pub fn wait(mut self) -> Result<B> {
        self.raw.wait()?;
        B::give_back(self.kept, &self.raw)
    }
}

/// Waits for all of `requests` and gives their buffers back in the same order.
///
/// # Errors
/// The job has ended.
pub fn wait_all<B: Buffer>(requests: impl IntoIterator<Item = Request<B>>) -> Result<Vec<B>> {
    requests.into_iter().map(Request::wait).collect()
}

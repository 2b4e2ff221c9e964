//! Groups of ranks that do collectives together.

use std::borrow::Borrow;
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use reduce_kernels::{Operator, Purpose, say};
use shm_core::sys::own::Own;
use shm_core::{Call, Owned, OwnedCall, SharedVec, Ticket};

use crate::carrier::Carrier;
use crate::config::LogLevel;
use crate::context::Inner;
use crate::error::{Error, Result};
use crate::group;
use crate::nodes::TaskEnd;
use crate::request::{RawRequest, Request};
use crate::select::Inter;
use crate::trace::{CallName, Lane, Open, Trace, What};
use crate::{Element, Op};

/// A group of ranks; a cheap handle, of which clones mean the same group.
///
/// All ranks of a group must call the same collectives on it, with the same root, count, datatype
/// and operator, in the same order. When they do not, every rank gets an error that shows both
/// sides, at the latest with the next operation in which it needs something of another. Ranks that only send, such as
/// a root, run at most 128 operations ahead.
#[derive(Debug, Clone)]
pub struct Communicator {
    shared: Rc<Own<Shared>>,
    context: Rc<Own<Inner>>,
}

/// What the handles of a communicator share. Not the context, which holds those that are busy.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) carrier: RefCell<Carrier>,
    rank: usize,
    size: usize,
    id: u32,
    /// The group's lowest rank in the world.
    first: usize,
    /// Calls that a trace knows.
    traced: Cell<u64>,
    /// Operations under way that a trace knows.
    open: RefCell<Vec<(Ticket, Open)>>,
}

impl Shared {
    /// What carries operations out, unless it is just doing so.
    #[inline]
    pub(crate) fn carrier(&self) -> Result<RefMut<'_, Carrier>> {
        self.carrier.try_borrow_mut().map_err(|_| Error::InUse(self.id))
    }

    /// Tells the trace which operations have completed.
    pub(crate) fn note_completed(&self, carrier: &Carrier, context: &Inner) {
        let Some(trace) = context.trace() else { return };
        let mut open = self.open.borrow_mut();
        for done in open.extract_if(.., |(ticket, _)| carrier.has_completed(*ticket)) {
            trace.done(done.1);
        }
    }
}

impl Communicator {
    pub(crate) fn new(carrier: Carrier, context: Rc<Own<Inner>>) -> Self {
        let (rank, size, id, first) = (carrier.rank(), carrier.size(), carrier.id(), carrier.first(&context));
        let (carrier, traced, open) = (RefCell::new(carrier), Cell::new(0), RefCell::default());
        let shared = Own::new(Shared { carrier, rank, size, id, first, traced, open });
        Self { shared: Rc::new(shared), context }
    }

    /// This process's rank in the group, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shared.rank
    }

    /// Number of ranks in the group.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shared.size
    }

    /// The number by which messages name the group; the world is 0.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.shared.id
    }

    /// Waits until all ranks have called it.
    ///
    /// # Errors
    /// The job has ended; see [`Error`].
    pub fn barrier(&self) -> Result<()> {
        self.run(Call::BARRIER)
    }

    /// Copies the root's `buffer` to every rank's.
    ///
    /// All ranks give slices of one length, which may be 0, and the same root. The root does not wait for the others, so it may
    /// learn only in a later call that theirs differ.
    ///
    /// # Errors
    /// No such root, ranks that disagree about the call, or the job has ended.
    pub fn bcast<T: Element>(&self, buffer: &mut [T], root: usize) -> Result<()> {
        self.run(Call::bcast(buffer, root))
    }

    /// Reduces all ranks' `send` into the root's `recv`, element by element.
    ///
    /// All ranks give a `send` of one length, which may be 0, the same operator and the same root. The root's `recv` is as long;
    /// those of others may be empty and are left alone. An operator that does not commute is applied in the order of the ranks.
    ///
    /// # Errors
    /// No such root, a `recv` of another length, an operator that is not defined for the type, ranks that disagree about the
    /// call, or the job has ended.
    pub fn reduce<T: Element>(&self, send: &[T], recv: &mut [T], op: impl Into<Op>, root: usize) -> Result<()> {
        self.run(Call::reduce(send, recv, op.into(), root)?)
    }

    /// As [`reduce`](Self::reduce), with the result in place of the root's contribution.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn reduce_in_place<T: Element>(&self, buffer: &mut [T], op: impl Into<Op>, root: usize) -> Result<()> {
        self.run(Call::reduce_in_place(buffer, op.into(), root))
    }

    /// Reduces all ranks' `send` into every rank's `recv`, element by element: the same bits on each.
    ///
    /// All ranks give slices of one length, which may be 0, and the same operator. One that does not commute is applied in the
    /// order of the ranks.
    ///
    /// # Errors
    /// Lengths that differ, an operator that is not defined for the type, ranks that disagree about the call, or the job has
    /// ended.
    pub fn allreduce<T: Element>(&self, send: &[T], recv: &mut [T], op: impl Into<Op>) -> Result<()> {
        self.run(Call::allreduce(send, recv, op.into())?)
    }

    /// As [`allreduce`](Self::allreduce), with the result in place of the contribution.
    ///
    /// # Errors
    /// As [`allreduce`](Self::allreduce).
    pub fn allreduce_in_place<T: Element>(&self, buffer: &mut [T], op: impl Into<Op>) -> Result<()> {
        self.run(Call::allreduce_in_place(buffer, op.into()))
    }

    /// Begins a [`barrier`](Self::barrier).
    ///
    /// # Errors
    /// The job has ended.
    pub fn ibarrier(&self) -> Result<Request<()>> {
        Ok(Request::new(self.start(Call::barrier())?, ()))
    }

    /// Begins a [`bcast`](Self::bcast); the request gives the buffer back.
    ///
    /// # Errors
    /// As [`bcast`](Self::bcast).
    pub fn ibcast<T: Element>(&self, buffer: Vec<T>, root: usize) -> Result<Request<Vec<T>>> {
        self.start_owned(OwnedCall::Bcast(root), buffer)
    }

    /// Begins a [`reduce_in_place`](Self::reduce_in_place); the request gives the buffer back.
    ///
    /// # Errors
    /// As [`reduce`](Self::reduce).
    pub fn ireduce<T: Element>(&self, buffer: Vec<T>, op: impl Into<Op>, root: usize) -> Result<Request<Vec<T>>> {
        self.start_owned(OwnedCall::Reduce(op.into(), root), buffer)
    }

    /// Begins an [`allreduce_in_place`](Self::allreduce_in_place); the request gives the buffer back.
    ///
    /// # Errors
    /// As [`allreduce`](Self::allreduce).
    pub fn iallreduce<T: Element>(&self, buffer: Vec<T>, op: impl Into<Op>) -> Result<Request<Vec<T>>> {
        self.start_owned(OwnedCall::Allreduce(op.into()), buffer)
    }

    /// Carries out a prepared call and waits for it.
    ///
    /// # Errors
    /// Wrong arguments, or the job has ended.
    #[inline]
    pub fn run<'a>(&self, call: impl Borrow<Call<'a>>) -> Result<()> {
        let call = call.borrow();
        self.log(call);
        let mut carrier = self.carrier()?;
        match self.context.trace() {
            None => carrier.run(call, &self.context),
            Some(trace) => self.run_traced(call, &mut carrier, trace),
        }
    }

    #[cold]
    fn run_traced(&self, call: &Call<'_>, carrier: &mut Carrier, trace: &Trace) -> Result<()> {
        let context = &self.context;
        let what = self.what(trace, call, carrier);
        let open = trace.begin(Lane::Calls, what);
        let outcome = trace.within(&what, || carrier.run(call, context));
        trace.end(open, &outcome);
        self.shared.note_completed(carrier, context);
        outcome
    }

    /// Ends the trace on the world; see [`Trace::finish`].
    pub(crate) fn finish(&self, trace: &Trace) -> Result<Option<String>> {
        let finished = trace.finish(&mut *self.carrier()?, &self.context);
        self.context.noted(finished)
    }

    /// Begins a prepared call; completed by the request's `test` or `wait`.
    ///
    /// # Errors
    /// Wrong arguments, or the job has ended.
    pub fn start(&self, call: Call<'static>) -> Result<RawRequest> {
        self.log(&call);
        let mut carrier = self.carrier()?;
        let what = self.context.trace().map(|trace| self.what(trace, &call, &mut carrier));
        let ticket = self.begin(what, &mut carrier, |carrier| carrier.start(call, &self.context), |ticket| *ticket)?;
        Ok(self.request(ticket))
    }

    fn start_owned<T: Element>(&self, call: OwnedCall, mut buffer: Vec<T>) -> Result<Request<Vec<T>>> {
        let mut carrier = self.carrier()?;
        let what = self.context.trace().map(|trace| {
            let call = match call.clone() {
                OwnedCall::Bcast(root) => Call::bcast(&mut buffer, root),
                OwnedCall::Reduce(op, root) => Call::reduce_in_place(&mut buffer, op, root),
                OwnedCall::Allreduce(op) => Call::allreduce_in_place(&mut buffer, op),
            };
            self.what(trace, &call, &mut carrier)
        });
        let start = |carrier: &mut Carrier| carrier.start_owned(call, buffer, &self.context);
        let owned = self.begin(what, &mut carrier, start, Owned::ticket)?;
        Ok(Request::new(self.request(owned.ticket()), owned))
    }

    fn request(&self, ticket: Ticket) -> RawRequest {
        RawRequest::new(Rc::clone(&self.shared), Rc::clone(&self.context), ticket)
    }

    /// Begins an operation by `start`, and notes that it is under way: `what`, if that is traced.
    fn begin<T>(
        &self,
        what: Option<What>,
        carrier: &mut Carrier,
        start: impl FnOnce(&mut Carrier) -> Result<T>,
        ticket: impl FnOnce(&T) -> Ticket,
    ) -> Result<T> {
        let started = match self.context.trace().zip(what) {
            None => start(carrier),
            Some((trace, what)) => {
                let open = trace.begin(Lane::Operations, what);
                let started = trace.within(&what, || start(carrier));
                match &started {
                    Ok(begun) => self.shared.open.borrow_mut().push((ticket(begun), open)),
                    Err(_) => trace.end(open, &started),
                }
                self.shared.note_completed(carrier, &self.context);
                started
            }
        };
        if carrier.is_busy() {
            self.context.is_busy(&self.shared);
        }
        started
    }

    /// How a trace calls the next operation, which is `call`.
    fn what(&self, trace: &Trace, call: &Call<'_>, carrier: &mut Carrier) -> What {
        let number = self.shared.traced.replace(self.shared.traced.get() + 1);
        let name = CallName { communicator: self.id(), group: self.shared.first as u64, number };
        What::call(call, name, trace.label(&carrier.next_choice(call, &self.context)))
    }

    #[inline]
    fn carrier(&self) -> Result<RefMut<'_, Carrier>> {
        self.context.check()?;
        self.shared.carrier()
    }

    #[inline]
    fn log(&self, call: &Call<'_>) {
        if self.context.config.log >= LogLevel::Debug {
            say(&format!("han: rank {}: {} on communicator {}", self.rank(), call, self.id()));
        }
    }

    /// A new group of the same ranks, whose operations are independent of this one's. Collective.
    ///
    /// # Errors
    /// No memory that all ranks of a group on one node can share, or the job has ended.
    pub fn dup(&self) -> Result<Self> {
        self.parted(Some(0), 0, Purpose::Dup)?.ok_or_else(Error::none_made)
    }

    /// New groups of the ranks that give the same `color`, ordered by `key`, then by rank. A rank that
    /// gives no colour gets no group. Collective over this group.
    ///
    /// # Errors
    /// No memory that all ranks of a group on one node can share, or the job has ended.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        self.parted(color, key, Purpose::Split)
    }

    fn parted(&self, color: Option<u32>, key: i32, purpose: Purpose) -> Result<Option<Self>> {
        let context = &self.context;
        context.check()?;
        // Else those that were freed with operations under way would pile up in a program that does no more than make others.
        context.progress()?;
        let part = group::split(&mut *self.carrier()?, color, key, purpose, context);
        let part = context.or_end(part)?;
        Ok(part.map(|part| Self::new(part, Rc::clone(context))))
    }

    /// `length` zeros in memory that the other ranks of this node can read directly, which makes collectives
    /// on them faster. Not collective; where ranks cannot map each other's memory it is ordinary memory.
    ///
    /// # Errors
    /// There is no memory.
    pub fn alloc<T: Element>(&self, length: usize) -> Result<SharedVec<T>> {
        self.context.check()?;
        Ok(SharedVec::zeroed(&self.context.job, length)?)
    }

    /// Gives up this handle; the group's memory goes with the last one.
    pub fn free(self) {}

    /// Lets `settings` decide how this group's collectives over several nodes are carried out, in place of `HAN_SET` and
    /// the tuning file; `None` goes back to those. Collective; operations that were begun stay as they are. Groups made
    /// out of this one do not have it, and a group on one node has no use for it.
    ///
    /// # Errors
    /// The ranks have given different settings, or values that their keys do not take; or the job has ended.
    pub fn choose_by(&self, settings: Option<Inter>) -> Result<()> {
        let text = settings.map_or_else(|| "the configuration".to_owned(), |settings| settings.to_string());
        let hash = crate::config::hash_of(&text);
        // The greatest of all, and that of what is left to it, which is the smallest.
        let mut bounds = [hash, !hash];
        self.allreduce_in_place(&mut bounds, Operator::Max)?;
        if bounds[0] != !bounds[1] {
            return Err(Error::Config(format!(
                "the ranks of communicator {} choose differently: this one by {text}",
                self.id()
            )));
        }
        // Only now, as all ranks find the same.
        settings.map_or(Ok(()), |settings| settings.validate()).map_err(Error::Config)?;
        if let Carrier::Nodes(nodes) = &mut *self.carrier()? {
            nodes.choose_by(settings);
        }
        Ok(())
    }

    /// Carries out `call` as [`run`](Self::run) does, and tells when each of this rank's tasks had completed; none where
    /// there are no tasks.
    ///
    /// # Errors
    /// Those of the collective.
    pub fn run_timed(&self, call: &Call<'_>) -> Result<Vec<TaskEnd>> {
        self.log(call);
        match &mut *self.carrier()? {
            Carrier::Nodes(nodes) => nodes.run_timed(call, &self.context),
            carrier => carrier.run(call, &self.context).map(|()| Vec::new()),
        }
    }

    /// Several lines on what this group is and how it works.
    #[must_use]
    pub fn describe(&self) -> String {
        let context = &self.context;
        self.shared.carrier.try_borrow().map_or_else(|_| String::new(), |carrier| carrier.describe(context))
    }

    /// The network's module by which `call` would go on between nodes: `nbc` (rounds), `adapt` (event-driven), or `blocking` for short
    /// messages between two; `None` on one node.
    #[must_use]
    pub fn module(&self, call: &Call<'_>) -> Option<&'static str> {
        self.shared.carrier.try_borrow().ok().and_then(|carrier| carrier.module(call, &self.context))
    }

    /// The module and form that `call` would take, for instance `sm/flat`; over several nodes the algorithm and its
    /// chunks.
    #[must_use]
    pub fn choice(&self, call: &Call<'_>) -> String {
        let context = &self.context;
        self.shared.carrier.try_borrow().map_or_else(|_| String::new(), |carrier| carrier.choice(call, context))
    }
}

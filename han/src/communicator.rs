//! Groups of ranks that do collectives together.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use shm_core::{Call, LocalComm, OwnedCall, SharedVec};

use crate::config::LogLevel;
use crate::context::Inner;
use crate::error::{Error, Result};
use crate::group;
use crate::request::{RawRequest, Request};
use crate::{Element, Op};

/// A group of ranks; a cheap handle, of which clones mean the same group.
///
/// All ranks of a group must call the same collectives on it, with the same root, count, datatype
/// and operator, in the same order. When they do not, every rank gets an error that shows both
/// sides, at the latest with its next operation.
#[derive(Debug, Clone)]
pub struct Communicator {
    shared: Rc<Shared>,
}

/// What the handles of a communicator share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) local: RefCell<LocalComm>,
    pub(crate) context: Rc<Inner>,
    rank: usize,
    size: usize,
    id: u32,
}

impl Communicator {
    pub(crate) fn new(local: LocalComm, context: Rc<Inner>) -> Self {
        let (rank, size, id) = (local.rank(), local.size(), local.id());
        Self { shared: Rc::new(Shared { local: RefCell::new(local), context, rank, size, id }) }
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
        self.run(Call::barrier())
    }

    /// Copies the root's `buffer` to every rank's.
    ///
    /// The root does not wait for the others.
    ///
    /// # Errors
    /// No such root, or the job has ended.
    pub fn bcast<T: Element>(&self, buffer: &mut [T], root: usize) -> Result<()> {
        self.run(Call::bcast(buffer, root))
    }

    /// Reduces all ranks' `send` into the root's `recv`, which may be empty elsewhere.
    ///
    /// # Errors
    /// No such root, lengths that differ, an operator that is not defined for the type, or the job
    /// has ended.
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

    /// Reduces all ranks' `send` into every rank's `recv`: the same bits on each.
    ///
    /// # Errors
    /// Lengths that differ, an operator that is not defined for the type, or the job has ended.
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
        Ok(Request::of_barrier(self.start(Call::barrier())?))
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
    pub fn run(&self, call: Call<'_>) -> Result<()> {
        self.log(&call);
        let mut local = self.local()?;
        Ok(local.run(call, || self.shared.context.progress())?)
    }

    /// Begins a prepared call; completed by the request's `test` or `wait`.
    ///
    /// # Errors
    /// Wrong arguments, or the job has ended.
    pub fn start(&self, call: Call<'static>) -> Result<RawRequest> {
        self.log(&call);
        let mut local = self.local()?;
        let ticket = local.start(call)?;
        self.note_busy(&local);
        Ok(RawRequest::new(Rc::clone(&self.shared), ticket))
    }

    fn start_owned<T: Element>(&self, what: OwnedCall, buffer: Vec<T>) -> Result<Request<Vec<T>>> {
        let mut local = self.local()?;
        let owned = local.start_owned(what, buffer)?;
        self.note_busy(&local);
        Ok(Request::of_buffer(RawRequest::new(Rc::clone(&self.shared), owned.ticket()), owned))
    }

    fn note_busy(&self, local: &LocalComm) {
        if local.is_busy() {
            self.shared.context.is_busy(&self.shared);
        }
    }

    #[inline]
    fn local(&self) -> Result<RefMut<'_, LocalComm>> {
        self.shared.context.check()?;
        self.shared.local.try_borrow_mut().map_err(|_| Error::InUse(self.shared.id))
    }

    #[inline]
    fn log(&self, call: &Call<'_>) {
        if self.shared.context.config.log >= LogLevel::Debug {
            eprintln!("han: rank {}: {} on communicator {}", self.rank(), call, self.id());
        }
    }

    /// A new group of the same ranks, whose operations are independent of this one's. Collective.
    ///
    /// # Errors
    /// No memory that all ranks can share, or the job has ended.
    pub fn dup(&self) -> Result<Self> {
        self.split(Some(0), 0)?.ok_or(Error::InUse(self.id()))
    }

    /// New groups of the ranks that give the same `color`, ordered by `key`, then by rank. A rank that
    /// gives no colour gets no group. Collective over this group.
    ///
    /// # Errors
    /// No memory that all ranks of a group can share, or the job has ended.
    pub fn split(&self, color: Option<u32>, key: i32) -> Result<Option<Self>> {
        let context = &self.shared.context;
        let mut local = self.local()?;
        let mut idle = || context.progress();
        let part = group::split(&mut local, color, key, &context.next_id, &mut idle)?;
        Ok(part.map(|part| Self::new(part, Rc::clone(context))))
    }

    /// `length` zeros in memory that the other ranks of this node can read directly, which makes collectives
    /// on them faster. Not collective; where ranks cannot map each other's memory it is ordinary memory.
    ///
    /// # Errors
    /// There is no memory.
    pub fn alloc<T: Element>(&self, length: usize) -> Result<SharedVec<T>> {
        self.shared.context.check()?;
        Ok(SharedVec::zeroed(&self.shared.context.job, length)?)
    }

    /// Gives up this handle; the group's memory goes with the last one.
    pub fn free(self) {}

    /// Several lines on what this group is and how it works.
    #[must_use]
    pub fn describe(&self) -> String {
        self.shared.local.try_borrow().map_or_else(|_| String::new(), |local| local.describe())
    }

    /// The module and form that `call` would take, for instance `sm/flat`.
    #[must_use]
    pub fn choice(&self, call: &Call<'_>) -> &'static str {
        self.shared.local.try_borrow().map_or("", |local| local.choice(call))
    }
}

//! The communicator of one node: begins collectives, polls them, and waits without ever waiting for
//! the dead.
#![allow(unsafe_code)] // gives back vectors that its operations owned

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::rc::Rc;

use reduce_kernels::{Call, Element, Owned, OwnedCall, Signature, Ticket};

use crate::coll::operands::{are_mapped, can_be_reached};
use crate::coll::{Operation, Progress, advance, lends, likely, run};
use crate::error::Result;
use crate::exchange::Exchange;
use crate::explain::{Explanation, Question};
use crate::job::Job;
use crate::ring::Ring;
use crate::waiting::{Vigil, wait_for};

/// Ranks of one node that do collectives together.
///
/// Operations of one communicator are carried out in the order in which they were begun, which must
/// be the same on all ranks. Used by one thread at a time.
#[derive(Debug)]
pub struct LocalComm {
    ring: Ring,
    /// Begun and not yet completed, oldest first; only the oldest is under way.
    queue: VecDeque<Queued>,
    /// Operations begun so far by [`start`](Self::start).
    started: u64,
    /// Operations of those completed so far.
    completed: u64,
    /// Tells this communicator's tickets from others'.
    identity: Rc<()>,
    /// Looks after the oldest operation while it is only tested.
    vigil: Option<Vigil>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // there are few, and they are moved once
enum Queued {
    /// Not yet begun, because an older one is under way.
    /// With the number of the call that it is a part of, or 0.
    Waiting(Call<'static>, u32),
    Running(Operation<'static>),
}

impl LocalComm {
    /// Makes a communicator together: collective over `exchange`, whose ranks are `world` in the job.
    ///
    /// `id` is a number for messages, the same on all ranks.
    ///
    /// # Errors
    /// No shared memory that all can map; `world` is not the same on all ranks, or not theirs.
    pub fn together(exchange: &mut dyn Exchange, job: Rc<Job>, id: u32, world: Vec<usize>) -> Result<Self> {
        let ring = Ring::together(exchange, job, id, world)?;
        Ok(Self { ring, queue: VecDeque::new(), started: 0, completed: 0, identity: Rc::default(), vigil: None })
    }

    /// This rank, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.ring.rank()
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ring.size()
    }

    /// Number of this communicator in messages.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.ring.id()
    }

    /// World rank of each rank.
    #[must_use]
    pub fn world(&self) -> &[usize] {
        self.ring.world()
    }

    /// The job that it belongs to.
    #[must_use]
    pub fn job(&self) -> &Rc<Job> {
        self.ring.job()
    }

    /// The module and form that `call` would take, for instance `sm/flat`, or `solo/slice` where buffers like
    /// this rank's are worked on where they are.
    #[must_use]
    pub fn choice(&self, call: &Call<'_>) -> &'static str {
        let form = likely(&self.ring, call);
        let lends = lends(form, call.collective, call.bytes(), call.is_in_place());
        form.choice(lends && can_be_reached(&self.ring, call))
    }

    /// What `call` would take, and why, if all ranks' buffers are like this rank's.
    #[must_use]
    pub fn explain(&self, call: &Call<'_>) -> Explanation {
        let question = Question {
            collective: call.collective,
            bytes: call.bytes(),
            root: call.root,
            mapped: are_mapped(&self.ring, call),
            in_place: call.is_in_place(),
            folding: call.folding(),
        };
        self.job().circumstances(self.world()).explain(question)
    }

    /// Carries out `call` and waits for it. While waiting long, `idle` is called now and then to let operations on other
    /// communicators go on; it says whether there are such, whose news then end a sleep, too.
    ///
    /// # Errors
    /// Wrong arguments, in which case nothing was begun; or the job has ended: a death, a mismatch,
    /// an abort, a timeout.
    #[inline]
    pub fn run<'a>(&mut self, call: impl Borrow<Call<'a>>, idle: impl FnMut() -> Result<bool>) -> Result<()> {
        let call = call.borrow();
        call.check(self.ring.rank(), self.ring.size())?;
        self.ring.job().check()?;
        let mut idle = idle;
        if !self.queue.is_empty() {
            self.wait_all(&mut idle)?;
        }
        self.ring.enters_latest_call();
        run(&mut self.ring, call, &mut idle)
    }

    /// Tells the others of a call that is carried out as operations of several communicators, of which this is one. All
    /// ranks make the same calls: who waits here for long, and finds that another one has not, ends the job.
    pub fn announce(&mut self, signature: Signature) {
        self.ring.announce(signature);
    }

    /// Begins `call` behind those begun before; it goes on in [`progress`](Self::progress).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn start(&mut self, call: Call<'static>) -> Result<Ticket> {
        self.start_part(call, 0)
    }

    /// The same, for a part of the `number`th call that was [announced](Self::announce), counted from 1: messages say that
    /// number.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn start_part(&mut self, call: Call<'static>, number: u32) -> Result<Ticket> {
        call.check(self.ring.rank(), self.ring.size())?;
        self.ring.job().check()?;
        self.queue.push_back(Queued::Waiting(call, number));
        self.started += 1;
        self.progress()?;
        Ok(Ticket(self.started))
    }

    /// Begins an operation on a vector, which [`take`](Self::take) gives back.
    ///
    /// # Errors
    /// As [`start`](Self::start); the vector is dropped then.
    pub fn start_owned<T: Element>(&mut self, what: OwnedCall, buffer: Vec<T>) -> Result<Owned<T>> {
        let identity = Rc::clone(&self.identity);
        // SAFETY: `start` refuses a call before it begins, or the job has ended, after which nothing touches the
        // buffers of its calls any more.
        unsafe { Owned::begin(what, buffer, &identity, |call| self.start(call)) }
    }

    /// The vector, if its operation has completed; else the request again.
    ///
    /// # Errors
    /// The request, when the operation is still under way, or another communicator's.
    pub fn take<T>(&mut self, owned: Owned<T>) -> std::result::Result<Vec<T>, Owned<T>> {
        if !owned.is_of(&self.identity) || !self.has_completed(owned.ticket()) {
            return Err(owned);
        }
        // SAFETY: it was begun here, and has completed.
        Ok(unsafe { owned.into_vec() })
    }

    /// Goes on with what was begun, without waiting.
    ///
    /// # Errors
    /// The job has ended.
    pub fn progress(&mut self) -> Result<()> {
        if self.queue.is_empty() {
            return Ok(());
        }
        // Once the job has ended nothing touches the callers' buffers any more.
        self.ring.job().check_in(|| self.ring.operation())?;
        while let Some(queued) = self.queue.front_mut() {
            if let Queued::Waiting(call, number) = queued {
                self.ring.enters_call(*number);
                let call = std::mem::replace(call, Call::barrier());
                *queued = Queued::Running(Operation::begin(&mut self.ring, call, false));
            }
            if let Queued::Running(operation) = queued
                && advance(operation, &mut self.ring)?.is_pending()
            {
                return Ok(());
            }
            self.complete_oldest();
        }
        Ok(())
    }

    fn complete_oldest(&mut self) {
        let oldest = self.queue.pop_front();
        self.completed += 1;
        if self.vigil.take().is_some() {
            self.ring.job().note_progress();
        }
        // Last, as what a user's operator holds may panic when it is dropped.
        drop(oldest);
    }

    /// True if operations were begun and have not completed.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty()
    }

    /// True if the operation of `ticket` is known to have completed.
    #[must_use]
    pub fn has_completed(&self, ticket: Ticket) -> bool {
        ticket.0 <= self.completed
    }

    /// Goes on, and tells whether the operation of `ticket` has completed.
    ///
    /// # Errors
    /// The job has ended.
    pub fn test(&mut self, ticket: Ticket) -> Result<bool> {
        if ticket.0 > self.completed {
            self.progress()?;
        }
        if !self.has_completed(ticket) {
            // A caller that only ever tests must learn of a death, too.
            self.look()?;
        }
        Ok(self.has_completed(ticket))
    }

    /// Looks after the oldest operation, for a caller that does not wait for it here; to be called now and then.
    ///
    /// # Errors
    /// The job has ended: a rank that it waits for is gone, or does something else, or has taken too long.
    pub fn look(&mut self) -> Result<()> {
        if let Some(Queued::Running(oldest)) = self.queue.front() {
            self.vigil.get_or_insert_with(Vigil::new).look(&self.ring, oldest.awaits(&self.ring))?;
        }
        Ok(())
    }

    /// Goes on; true if an operation has completed.
    pub(crate) fn moves(&mut self) -> Result<bool> {
        let before = self.completed;
        self.progress()?;
        Ok(self.completed > before)
    }

    /// Waits for the operation of `ticket`, and so for all begun before it.
    ///
    /// # Errors
    /// The job has ended.
    pub fn wait(&mut self, ticket: Ticket, mut idle: impl FnMut() -> Result<bool>) -> Result<()> {
        while ticket.0 > self.completed {
            self.progress()?;
            if ticket.0 <= self.completed {
                break;
            }
            let Some(Queued::Running(operation)) = self.queue.front_mut() else { break };
            wait_for(&mut self.ring, operation, &mut idle)?;
            self.complete_oldest();
        }
        Ok(())
    }

    /// Waits for all operations that were begun.
    ///
    /// # Errors
    /// The job has ended.
    pub fn wait_all(&mut self, idle: impl FnMut() -> Result<bool>) -> Result<()> {
        self.wait(Ticket(self.started), idle)
    }

    /// Gives up what was begun and has not completed, which ends the job; does nothing if there is none.
    ///
    /// When it returns nobody touches the vectors of its calls any more, and these are dropped.
    pub fn give_up(&mut self, why: &str) {
        if !self.queue.is_empty() {
            let _ = self.job().abort(why);
            self.queue.clear();
        }
    }

    /// Several lines on what this communicator is and how it works.
    #[must_use]
    pub fn describe(&self) -> String {
        let job = self.job();
        format!(
            "communicator {}: {} ranks of one node, this is rank {}\n\
             memory: {} (tried in order: {})\n\
             waiting: {}\n\
             hierarchy: {} ({})\n\
             {}\
             cico: {} cells of {} bytes a rank\n\
             settings: {}\n",
            self.id(),
            self.size(),
            self.rank(),
            job.backing(),
            crate::job::backings(job.settings()).iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            job.placement(),
            job.hierarchy().of_ranks(self.world()),
            job.hierarchy_origin(),
            job.reach().in_words(),
            self.ring.cell_count(),
            self.ring.cell_bytes(),
            job.settings(),
        )
    }
}

impl Drop for LocalComm {
    /// Operations under way may work on vectors that go with them: who gives them up has left the job.
    fn drop(&mut self) {
        if !self.queue.is_empty() {
            self.job().break_off();
        }
    }
}

//! Communicators over the fabric: calls in, schedules for the engine out, and waiting.
//!
//! A process has one [`Link`], with the engine and its transport; its communicators share it. A call is carried out
//! after a [`Plan`], which somebody else has chosen: here nothing is decided.
#![allow(unsafe_code)] // hands the buffers of calls to the engine

mod kept;
mod link;
mod plan;
mod ranks;

use std::collections::VecDeque;
use std::fmt::Display;
use std::rc::Rc;
use std::sync::Arc;

use reduce_kernels::{Call, Collective, Signature, Ticket};

use crate::algorithm::{Shape, Topology};
use crate::engine::{Announced, Fingerprint, Handle, Key, Operands, Policy, Work};
use crate::error::{Error, Result};
use crate::schedule::Schedule;
use kept::{Kept, Occasion};

pub use link::{Link, Patience, Rest};
pub use plan::Plan;
pub use ranks::Ranks;

/// Ranks that do collectives together over the fabric. Used by one thread.
///
/// All ranks begin the same operations in the same order; these may complete in another one.
#[derive(Debug)]
pub struct FabricComm {
    link: Rc<Link>,
    id: u32,
    /// The number that this communicator's messages carry.
    number: u16,
    rank: usize,
    world: Vec<usize>,
    /// `world` for the engine; `None` where it is the whole world in order.
    group: Option<Arc<[u32]>>,
    topology: Option<Rc<Topology>>,
    /// The ranks in short.
    digest: u32,
    /// Calls announced so far.
    calls: u32,
    /// Operations begun so far.
    begun: u64,
    /// Of the operations behind the first `begun - pending.len()`, which have completed; `None` for those that have.
    pending: VecDeque<Option<Begun>>,
    kept: Kept,
}

/// An operation under way.
#[derive(Debug)]
struct Begun {
    handle: Handle,
    /// What keeps its buffers, if they are not borrowed.
    call: Option<Call<'static>>,
}

impl FabricComm {
    /// The communicator of the ranks `world` of the link's world, this one among them. `id` is a number for messages;
    /// `number` is the same on all ranks, and no other communicator of theirs has it as long as this one lives.
    /// `topology` is for trees that follow it.
    ///
    /// # Errors
    /// This rank is not in `world`, or there is no such rank.
    pub fn new(link: Rc<Link>, id: u32, number: u16, world: Vec<usize>, topology: Option<Topology>) -> Result<Self> {
        let own = link.rank();
        let rank = world.iter().position(|&rank| rank == own).ok_or_else(|| {
            Error::InvalidArgument(format!("rank {own} makes a communicator of the ranks {world:?} without itself"))
        })?;
        let is_whole = world.len() == link.size() && world.iter().enumerate().all(|(rank, &of_world)| rank == of_world);
        let group: std::result::Result<Arc<[u32]>, _> = world.iter().map(|&rank| u32::try_from(rank)).collect();
        let group = group.map_err(|_| Error::InvalidArgument(format!("the ranks {world:?} are not all there")))?;
        let group = (!is_whole).then_some(group);
        link.take_number(number);
        let digest = world.iter().fold(id, |before, &rank| Fingerprint([rank as u64, 0]).digest(before));
        Ok(Self {
            link,
            id,
            number,
            rank,
            world,
            group,
            topology: topology.map(Rc::new),
            digest,
            calls: 0,
            begun: 0,
            pending: VecDeque::new(),
            kept: Kept::default(),
        })
    }

    /// This rank, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.world.len()
    }

    /// Number of this communicator for people.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The number that its messages carry.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// World rank of each rank.
    #[must_use]
    pub fn world(&self) -> &[usize] {
        &self.world
    }

    /// Where the ranks are, if that is known.
    #[must_use]
    pub fn topology(&self) -> Option<&Rc<Topology>> {
        self.topology.as_ref()
    }

    /// What it has in common with this process's other communicators.
    #[must_use]
    pub fn link(&self) -> &Rc<Link> {
        &self.link
    }

    /// Notes a call, which is then carried out here or on other communicators: ranks whose calls differ find out by any
    /// message of a part of it. All ranks announce every call, in the same order.
    ///
    /// # Errors
    /// The network has failed.
    pub fn announce(&mut self, signature: Signature) -> Result<Announced> {
        let key = Key { communicator: self.number, sequence: self.calls.wrapping_add(1) };
        let announced = self.link.announce(key, self.digest, Fingerprint([signature.packed, signature.count]))?;
        self.calls = key.sequence;
        Ok(announced)
    }

    /// Carries out `call`, a part of one that was announced, after `plan` and waits for it. While waiting, `idle` is called
    /// now and then.
    ///
    /// # Errors
    /// Wrong arguments, in which case nothing was begun; or the network has failed, or `idle` has: then nothing on
    /// this link works any more.
    pub fn run<E: From<Error> + Display>(
        &mut self,
        part_of: Announced,
        call: &Call<'_>,
        plan: &Plan,
        idle: impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.check(call)?;
        let link = Rc::clone(&self.link);
        // The guard within sees to it that no message comes any more.
        call.carried_out(self.rank, || {
            // SAFETY: the call's buffers are borrowed until this returns, and then the operation has completed, or the
            // guard has ended the link, after which the engine uses no memory any more.
            let ticket = unsafe { self.begin(part_of, call, plan) }?;
            let guard = EndUnlessDone { link: &link, is_done: false };
            let outcome = self.wait(ticket, idle);
            if let Err(error) = &outcome {
                link.end(&error.to_string());
            }
            guard.disarm();
            outcome
        })
    }

    /// Begins `call`, a part of one that was announced, after `plan`; it goes on in [`Link::progress`].
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn start(&mut self, part_of: Announced, call: Call<'static>, plan: &Plan) -> Result<Ticket> {
        self.check(&call)?;
        // SAFETY: the buffers of a call are valid as long as its lifetime, or until it has completed, as whoever made
        // it by hand has promised.
        let ticket = unsafe { self.begin(part_of, &call, plan) }?;
        // Else it has completed.
        if let Some(begun) = self.pending.back_mut().and_then(Option::as_mut) {
            begun.call = Some(call);
        }
        Ok(ticket)
    }

    /// Ends all that was begun here and has not completed, and so everything on the link; gives up its calls. Does
    /// nothing if there is none.
    pub fn give_up(&mut self, why: &str) {
        if self.pending.iter().all(Option::is_none) {
            return;
        }
        let ended = self.link.end(why);
        for begun in self.pending.iter_mut().flatten() {
            let call = begun.call.take();
            if !ended {
                // The engine, which is at work further up, still uses its buffers.
                std::mem::forget(call);
            }
        }
    }

    /// True if operations were begun and are not known to have completed.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.pending.is_empty()
    }

    /// True if the operation of `ticket` is known to have completed.
    #[must_use]
    pub fn has_completed(&self, ticket: Ticket) -> bool {
        let first = self.begun - self.pending.len() as u64;
        match ticket.0.checked_sub(first + 1).map(usize::try_from) {
            None => true,
            Some(Ok(place)) => self.pending.get(place).is_some_and(Option::is_none),
            Some(Err(_)) => false,
        }
    }

    /// True if the operation of `ticket` is known to have completed but for messages that it still sends: its output is what
    /// it will be, and may be read.
    #[must_use]
    pub fn has_result(&self, ticket: Ticket) -> bool {
        let first = self.begun - self.pending.len() as u64;
        let place = ticket.0.checked_sub(first + 1).and_then(|place| usize::try_from(place).ok());
        match place.and_then(|place| self.pending.get(place)) {
            Some(Some(begun)) => self.link.has_result(begun.handle),
            _ => self.has_completed(ticket),
        }
    }

    /// Lets everything on the link go on, and notes which operations of this communicator have completed.
    ///
    /// # Errors
    /// The network has failed.
    pub fn progress(&mut self) -> Result<()> {
        self.link.progress()?;
        self.note_completed()
    }

    /// Goes on, and tells whether the operation of `ticket` has completed.
    ///
    /// # Errors
    /// The network has failed.
    pub fn test(&mut self, ticket: Ticket) -> Result<bool> {
        if !self.has_completed(ticket) {
            self.progress()?;
            self.link.look()?;
        }
        Ok(self.has_completed(ticket))
    }

    /// Waits for the operation of `ticket`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn wait<E: From<Error>>(
        &mut self,
        ticket: Ticket,
        idle: impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.wait_until(|comm| comm.has_completed(ticket), idle)
    }

    /// Waits until the operation of `ticket` [has its result](Self::has_result).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn wait_for_result<E: From<Error>>(
        &mut self,
        ticket: Ticket,
        idle: impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.wait_until(|comm| comm.has_result(ticket), idle)
    }

    fn wait_until<E: From<Error>>(
        &mut self,
        is_over: impl Fn(&Self) -> bool,
        mut idle: impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        self.note_completed()?;
        let mut rest = self.link.patience().begin();
        while !is_over(self) {
            let moved = self.link.progress()?;
            if moved {
                self.note_completed()?;
            }
            if rest.is_due(moved) {
                self.link.look()?;
                idle()?;
                // It may have let messages of this operation move, as others' are on the same link.
                self.note_completed()?;
                if !moved && !is_over(self) {
                    self.link.rest(&mut rest)?;
                }
            }
        }
        Ok(self.link.glance()?)
    }

    /// Waits for all operations that were begun.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn wait_all<E: From<Error>>(
        &mut self,
        mut idle: impl FnMut() -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let first = self.begun - self.pending.len() as u64;
        (first + 1..=self.begun).try_for_each(|number| self.wait(Ticket(number), &mut idle))
    }

    /// A line on what this communicator is.
    #[must_use]
    pub fn describe(&self) -> String {
        format!("communicator {}: {} ranks, this is rank {}\n", self.id, self.size(), self.rank)
    }

    fn check(&self, call: &Call<'_>) -> Result<()> {
        call.check(self.rank, self.size()).map_err(|e| Error::InvalidArgument(e.0))
    }

    /// Begins a call that was checked.
    ///
    /// # Safety
    /// The call's buffers are what its constructor promises until the operation has completed or the link has ended.
    unsafe fn begin(&mut self, part_of: Announced, call: &Call<'_>, plan: &Plan) -> Result<Ticket> {
        let (rank, bytes) = (self.rank, call.bytes());
        // A rank that is not the root of a reduction has no result, whose place its operand could take.
        let in_place = call.is_in_place() && call.receives(rank) && call.collective != Collective::Bcast;
        let input_bytes = if in_place || call.collective == Collective::Bcast { 0 } else { bytes };
        let output_bytes = if call.receives(rank) { bytes } else { 0 };
        let operands = Operands::new(call.send, input_bytes, call.recv, output_bytes);
        let operands = match &call.op {
            Some(op) => operands.reduced_by(op.clone(), call.datatype),
            None => operands,
        };
        let schedule = self.schedule(plan, call, in_place)?;
        #[expect(clippy::cast_possible_truncation, reason = "the engine counts modulo 2^32")]
        let key = Key { communicator: self.number, sequence: self.begun as u32 };
        let (fingerprint, part_of) = (Fingerprint::default(), Some(part_of));
        let work =
            Work { schedule, operands, policy: plan.policy, key, fingerprint, part_of, group: self.group.clone() };
        // SAFETY: the caller's promise; the lengths are the call's own.
        let handle = unsafe { self.link.start(work) }?;
        self.begun += 1;
        self.pending.push_back(Some(Begun { handle, call: None }));
        self.note_completed()?;
        Ok(Ticket(self.begun))
    }

    fn schedule(&mut self, plan: &Plan, call: &Call<'_>, in_place: bool) -> Result<Arc<Schedule>> {
        let slots = match plan.policy {
            Policy::EventDriven { recvs, .. } => recvs as usize,
            Policy::Blocking | Policy::WaitAll => 2,
        };
        let occasion = Occasion {
            algorithm: plan.algorithm,
            collective: call.collective,
            root: call.root,
            bytes: call.bytes(),
            element_bytes: call.datatype.size(),
            chunk_bytes: plan.chunk_bytes,
            slots,
            in_place,
            commutative: call.op.as_ref().is_none_or(|op| op.is_commutative()),
        };
        let Occasion { root, bytes, element_bytes, chunk_bytes, commutative, .. } = occasion;
        let (rank, size) = (self.rank, self.world.len());
        self.kept.get(occasion, || {
            let topology = self.topology.as_deref();
            let shape =
                Shape { rank, size, root, bytes, element_bytes, chunk_bytes, slots, in_place, commutative, topology };
            plan.algorithm
                .build(call.collective, &shape)
                .map_err(|why| Error::InvalidArgument(format!("{} by {}: {why}", call.collective, plan.algorithm)))
        })
    }

    /// Notes which operations have completed, after progress on the link.
    ///
    /// # Errors
    /// The network has failed.
    pub fn note_completed(&mut self) -> Result<()> {
        for pending in &mut self.pending {
            if let Some(begun) = pending
                && self.link.test(begun.handle)?
            {
                *pending = None;
            }
        }
        while self.pending.front().is_some_and(Option::is_none) {
            self.pending.pop_front();
        }
        Ok(())
    }
}

impl Drop for FabricComm {
    fn drop(&mut self) {
        if self.pending.iter().flatten().any(|begun| begun.call.is_some()) {
            self.give_up("it left while operations were under way");
        }
        self.link.give_number(self.number);
    }
}

/// Ends the link when a panic leaves an operation that borrows its buffers.
struct EndUnlessDone<'a> {
    link: &'a Link,
    is_done: bool,
}

impl EndUnlessDone<'_> {
    fn disarm(mut self) {
        self.is_done = true;
    }
}

impl Drop for EndUnlessDone<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.link.end("it panicked within an operation");
        }
    }
}

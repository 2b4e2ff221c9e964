//! One operation under way: what has been begun, what has completed, and what that lets begin.
#![allow(unsafe_code)] // Hands the caller's memory to the transport.

mod blocking;
mod bound;
mod event_driven;
mod wait_all;

use std::collections::VecDeque;
use std::sync::Arc;

use super::operands::Memory;
use super::scratch::Block;
use super::seal::Seal;
use super::tag::{Key, StepName};
use super::work::Announced;
use super::{Policy, Work};
use crate::error::Result;
use crate::schedule::{Action, Schedule};
use crate::transport::{Posted, Transport};
use bound::{Bound, WithoutPlace};
use event_driven::Lanes;

/// Bytes that an operation reduces and copies before messages are looked after again.
const BYTES_AT_A_TIME: usize = 256 << 10;

/// In place of a step's number of waits, when there are none left: a reduction or copy is to be done.
const QUEUED: u32 = u32::MAX - 2;
/// The message has been posted.
const UNDER_WAY: u32 = u32::MAX - 1;
/// The step has completed.
const DONE: u32 = u32::MAX;

/// What an operation uses of its engine.
pub(super) struct Surroundings<'e, T> {
    pub(super) transport: &'e mut T,
    pub(super) seal: &'e Seal,
    pub(super) spare: &'e mut Vec<u64>,
    /// Messages that were sent to each rank of the world; empty if they are not counted.
    pub(super) sent: &'e mut [u64],
}

/// An operation under way. Its vectors are used again by later ones.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) schedule: Arc<Schedule>,
    /// The schedule of an idle place.
    nothing: Arc<Schedule>,
    pub(super) key: Key,
    /// The call that it is, or is a part of.
    pub(super) call: Announced,
    group: Option<Arc<[u32]>>,
    policy: Policy,
    name: StepName,
    memory: Memory,
    /// Owns what `memory` calls scratch.
    scratch: Block,
    /// By step: how many steps it still waits for, or how far it is.
    waiting: Vec<u32>,
    done: usize,
    /// Messages that the transport has taken.
    posted: usize,
    /// Steps that wait for nothing any more, in the order in which they came to that.
    woken: Vec<u32>,
    /// Reductions and copies that may be done.
    local: VecDeque<u32>,
    /// Receives that are to be posted once more.
    again: Vec<u32>,
    /// The transport had no room for a message: there is something to try again.
    refused: bool,
    /// The first step that `Blocking` has not completed, or of the round that `WaitAll` is in.
    cursor: usize,
    /// The steps behind that round, and behind the next one.
    round_ends: [usize; 2],
    /// Steps of that round that have not completed.
    round_left: usize,
    lanes: Lanes,
    /// Of sends and of receives, where there are more than may be under way.
    bounds: [Option<Bound>; 2],
    without_place: WithoutPlace,
}

/// What became of a step that was to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begun {
    Pending,
    Complete,
    /// There is no room, or no place: it is tried again when there may be.
    Refused,
}

impl Operation {
    /// A place for operations; `nothing` is an empty schedule.
    pub(super) fn idle(nothing: &Arc<Schedule>) -> Self {
        Self {
            schedule: Arc::clone(nothing),
            nothing: Arc::clone(nothing),
            key: Key { communicator: 0, sequence: 0 },
            call: Announced::default(),
            group: None,
            policy: Policy::Blocking,
            name: StepName { place: 0, generation: 0, step: 0 },
            memory: Memory::default(),
            scratch: Block::empty(),
            waiting: Vec::new(),
            done: 0,
            posted: 0,
            woken: Vec::new(),
            local: VecDeque::new(),
            again: Vec::new(),
            refused: false,
            cursor: 0,
            round_ends: [0; 2],
            round_left: 0,
            lanes: Lanes::default(),
            bounds: [None; 2],
            without_place: WithoutPlace::default(),
        }
    }

    /// Makes this place the operation that `work` describes, which has been checked. Nothing begins yet. At most `most`
    /// messages will be under way in either direction.
    pub(super) fn take_on(&mut self, work: Work, call: Announced, name: StepName, mut scratch: Block, most: usize) {
        let windows = work.windows();
        self.memory = work.operands.resolve(&mut scratch);
        self.scratch = scratch;
        self.schedule = work.schedule;
        self.key = work.key;
        self.call = call;
        self.group = work.group;
        self.policy = work.policy;
        self.name = name;
        (self.done, self.posted) = (0, 0);
        self.refused = false;
        self.cursor = 0;
        self.waiting.clear();
        let schedule = &self.schedule;
        if self.policy == Policy::Blocking {
            // In order, nothing has to wait for anything but its turn.
            self.waiting.resize(schedule.len(), 0);
        } else {
            #[expect(clippy::cast_possible_truncation, reason = "steps are numbered by 32 bits")]
            self.waiting.extend((0..schedule.len()).map(|step| schedule.waits(step).len() as u32));
        }
        match self.policy {
            Policy::Blocking => {}
            Policy::WaitAll => self.round_ends = [0; 2],
            Policy::EventDriven { sends, recvs } => self.lanes.lay(&self.schedule, sends, recvs),
        }
        self.bound(windows, most);
    }

    /// Gives the place free; returns the memory for another operation.
    pub(super) fn release(&mut self) -> Block {
        self.schedule = Arc::clone(&self.nothing);
        self.group = None;
        self.memory = Memory::default();
        std::mem::replace(&mut self.scratch, Block::empty())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.done == self.schedule.len()
    }

    /// Whether nothing is left but messages to be sent: they read what others may read, too.
    pub(super) fn has_result(&self) -> bool {
        let sends = |step| matches!(self.schedule.action(step), Action::Send { .. });
        self.waiting.iter().enumerate().all(|(step, &left)| left == DONE || sends(step))
    }

    /// Whether there is something to do although no message has completed.
    pub(super) fn needs_attention(&self) -> bool {
        self.refused || !self.local.is_empty()
    }

    /// Begins what can begin first.
    pub(super) fn begin<T: Transport>(&mut self, around: &mut Surroundings<'_, T>) -> Result<()> {
        match self.policy {
            Policy::Blocking => self.follow_program(around),
            Policy::WaitAll => self.enter_round(around),
            Policy::EventDriven { .. } => self.begin_all(around),
        }
    }

    /// A message has completed.
    pub(super) fn completed<T: Transport>(&mut self, step: u32, around: &mut Surroundings<'_, T>) -> Result<()> {
        self.complete(step);
        self.leave_place(step);
        if let Policy::EventDriven { .. } = self.policy {
            self.left_lane(step);
        }
        self.settle(around)
    }

    /// Tries again what was refused, and goes on reducing and copying. False if all was refused again.
    pub(super) fn attend<T: Transport>(&mut self, around: &mut Surroundings<'_, T>) -> Result<bool> {
        let before = (self.done, self.posted);
        if std::mem::take(&mut self.refused) {
            for step in std::mem::take(&mut self.again) {
                self.receive_again(step, around)?;
            }
            match self.policy {
                Policy::Blocking => {}
                Policy::WaitAll => self.retry_rounds(around)?,
                Policy::EventDriven { .. } => self.pump_all(around)?,
            }
        }
        self.settle(around)?;
        Ok(before != (self.done, self.posted))
    }

    /// Does what has become possible, messages first.
    fn settle<T: Transport>(&mut self, around: &mut Surroundings<'_, T>) -> Result<()> {
        let mut budget = BYTES_AT_A_TIME;
        loop {
            match self.policy {
                Policy::Blocking => return self.follow_program(around),
                Policy::WaitAll => self.wake_in_rounds(around)?,
                Policy::EventDriven { .. } => self.wake_in_lanes(around)?,
            }
            if budget == 0 {
                return Ok(());
            }
            let Some(step) = self.local.pop_front() else { return Ok(()) };
            budget = budget.saturating_sub(self.work(step, around));
            self.complete(step);
        }
    }

    /// Marks a step as completed, and wakes those that waited for nothing else.
    fn complete(&mut self, step: u32) {
        self.waiting[step as usize] = DONE;
        self.done += 1;
        if self.policy == Policy::Blocking {
            return;
        }
        for &follower in self.schedule.followers(step as usize) {
            let left = &mut self.waiting[follower as usize];
            *left -= 1;
            if *left == 0 {
                self.woken.push(follower);
            }
        }
        if self.policy == Policy::WaitAll && (step as usize) < self.round_ends[0] {
            self.round_left -= 1;
        }
    }

    /// Reduces or copies; returns the bytes.
    fn work<T: Transport>(&mut self, step: u32, around: &mut Surroundings<'_, T>) -> usize {
        match self.schedule.action(step as usize) {
            Action::Reduce { left, right, into } => {
                // SAFETY: whoever began the operation promised the vectors; the schedule's waits keep others away.
                unsafe { self.memory.reduce(left, right, into, around.spare) };
                around.transport.work(into.bytes, 0);
                into.bytes
            }
            Action::Copy { from, into } => {
                // SAFETY: the same.
                unsafe { self.memory.copy(from, into) };
                around.transport.work(0, into.bytes);
                into.bytes
            }
            Action::Send { .. } | Action::Receive { .. } => unreachable!("messages are posted"),
        }
    }

    /// Posts a message.
    fn post<T: Transport>(&mut self, step: u32, around: &mut Surroundings<'_, T>) -> Result<Begun> {
        let token = StepName { step, ..self.name }.token();
        let posted = match self.schedule.action(step as usize) {
            Action::Send { peer, message, from } => {
                let (peer, tag) = (self.world_rank(peer), self.key.tag(message));
                let word = around.seal.word(tag, around.transport.rank(), peer, self.call.called.digest);
                // SAFETY: whoever began the operation promised the vectors until it has completed or was given
                // up, which cancels this; the schedule's waits keep writers away until the send has completed.
                let posted =
                    unsafe { around.transport.send(peer, tag, word, self.memory.at(from), from.bytes, token) }?;
                if posted != Posted::Busy
                    && let Some(sent) = around.sent.get_mut(peer)
                {
                    *sent += 1;
                }
                posted
            }
            Action::Receive { peer, message, into } => {
                let (peer, tag) = (self.world_rank(peer), self.key.tag(message));
                // SAFETY: the same.
                unsafe { around.transport.receive(peer, tag, self.memory.at(into), into.bytes, token) }?
            }
            Action::Reduce { .. } | Action::Copy { .. } => unreachable!("no message"),
        };
        self.posted += usize::from(posted != Posted::Busy);
        Ok(match posted {
            Posted::Pending => {
                self.waiting[step as usize] = UNDER_WAY;
                Begun::Pending
            }
            Posted::Done => Begun::Complete,
            Posted::Busy => {
                self.refused = true;
                Begun::Refused
            }
        })
    }

    /// Puts a reduction or copy into the queue.
    fn enqueue(&mut self, step: u32) {
        self.waiting[step as usize] = QUEUED;
        self.local.push_back(step);
    }

    fn is_message(&self, step: u32) -> bool {
        matches!(self.schedule.action(step as usize), Action::Send { .. } | Action::Receive { .. })
    }

    pub(super) fn world_rank(&self, rank: u32) -> usize {
        self.group.as_ref().map_or(rank, |group| group[rank as usize]) as usize
    }

    /// The rank of the world that each message goes to, of those that this one sends, or else comes from.
    pub(super) fn partners(&self, sends: bool) -> impl Iterator<Item = usize> {
        (0..self.schedule.len()).filter_map(move |step| match self.schedule.action(step) {
            Action::Send { peer, .. } if sends => Some(self.world_rank(peer)),
            Action::Receive { peer, .. } if !sends => Some(self.world_rank(peer)),
            _ => None,
        })
    }

    /// The word that a message of this operation carries.
    pub(super) fn word(&self, seal: &Seal, message: u32, sender: usize, receiver: usize) -> u64 {
        seal.word(self.key.tag(message), sender, receiver, self.call.called.digest)
    }

    /// The ranks of the world that this one waits for: those that have to send to it, or else to receive from it.
    pub(super) fn awaited(&self) -> impl Iterator<Item = usize> {
        let of = |sends: bool| {
            self.under_way().filter_map(move |step| match self.schedule.action(step as usize) {
                Action::Receive { peer, .. } if !sends => Some(self.world_rank(peer)),
                Action::Send { peer, .. } if sends => Some(self.world_rank(peer)),
                _ => None,
            })
        };
        let receives = of(false).next().is_some();
        of(!receives)
    }

    /// Posts a receive once more, because what came was not for it.
    pub(super) fn receive_again<T: Transport>(&mut self, step: u32, around: &mut Surroundings<'_, T>) -> Result<()> {
        if self.post(step, around)? == Begun::Refused {
            self.again.push(step);
        }
        Ok(())
    }

    /// The messages that are under way.
    pub(super) fn under_way(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.waiting).filter(|&(_, &left)| left == UNDER_WAY).map(|(step, _)| step)
    }

    /// Takes back all that is under way: afterwards nobody uses the operation's memory.
    pub(super) fn give_up<T: Transport>(&mut self, transport: &mut T) {
        for step in self.under_way() {
            transport.cancel(StepName { step, ..self.name }.token());
        }
        self.woken.clear();
        self.local.clear();
        self.again.clear();
        self.refused = false;
    }
}

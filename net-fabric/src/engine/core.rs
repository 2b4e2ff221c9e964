//! What an engine is but for its transport: the operations of all communicators, and how completions move them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::history::History;
use super::lead::Lead;
use super::operation::{Operation, Surroundings};
use super::scratch::Pool;
use super::seal::{Fingerprint, Seal};
use super::tag::{Key, MAX_OPERATIONS, StepName};
use super::watch::Watcher;
use super::watch::note::Note;
use super::work::{self, Announced, Called, Work};
use super::{Handle, Settings};
use crate::error::{Error, Result};
use crate::schedule::{Action, Schedule};
use crate::transport::{Completion, Transport};

/// Operations that were started and have not completed, at most.
const MAX_OUTSTANDING: usize = 1 << 16;
/// Places of operations whose vectors are kept for later ones.
const KEPT_OPERATIONS: usize = 64;

/// All but the transport.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) settings: Settings,
    pub(super) seal: Seal,
    pub(super) places: Vec<Place>,
    pub(super) free: Vec<u16>,
    pub(super) turns: Vec<Turn>,
    /// The windows of the operations under way that have begun beside an older one of their communicator.
    windows: usize,
    /// Places whose operations have something to do although no message has completed.
    pub(super) attention: VecDeque<u16>,
    pub(super) completed: Vec<Completion>,
    #[allow(clippy::vec_box)] // They move between here and their places.
    pub(super) idle: Vec<Box<Operation>>,
    /// A schedule without steps.
    pub(super) nothing: Arc<Schedule>,
    pub(super) scratch: Pool,
    pub(super) spare: Vec<u64>,
    /// Messages of operations to each rank of the world; empty if nobody wants to know.
    pub(super) sent: Vec<u64>,
    pub(super) watcher: Option<Box<Watcher>>,
    /// Ranks tell each other how far ahead they are.
    pub(super) bounds_leads: bool,
    /// Why nothing works any more.
    pub(super) failed: Option<Error>,
}

#[derive(Debug, Default)]
pub(super) struct Place {
    pub(super) generation: u32,
    /// It is in the list of those that need attention.
    pub(super) listed: bool,
    pub(super) operation: Option<Box<Operation>>,
    /// What waits for its turn, and its call.
    pub(super) queued: Option<(Work, Announced)>,
    /// What the operation has of [`Core::windows`].
    window: usize,
    /// How long the operation has waited since it was first looked at.
    pub(super) waited: Option<Duration>,
}

/// The operations of a communicator.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) communicator: u16,
    pub(super) under_way: usize,
    pub(super) queue: VecDeque<u16>,
    /// The communicator's ranks in short, if they have announced calls.
    pub(super) group: u32,
    /// The digest of all calls so far.
    pub(super) digest: u32,
    pub(super) history: History,
    pub(super) lead: Lead,
}

impl Core {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings: Settings { operations: settings.operations.clamp(1, MAX_OPERATIONS / 2), ..settings },
            seal: Seal::new(settings.secret),
            places: Vec::new(),
            free: Vec::new(),
            turns: Vec::new(),
            windows: 0,
            attention: VecDeque::new(),
            completed: Vec::new(),
            idle: Vec::new(),
            nothing: Arc::default(),
            scratch: Pool::default(),
            spare: Vec::new(),
            sent: Vec::new(),
            watcher: None,
            bounds_leads: false,
            failed: None,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Begins work that has been checked, or queues it.
    pub(super) fn start<T: Transport>(&mut self, place: u16, work: Work, transport: &mut T) -> Result<Handle> {
        let call = work.part_of.unwrap_or_else(|| self.announce(work.key, 0, work.fingerprint));
        let turn = self.turn(work.key.communicator);
        let generation = self.places[usize::from(place)].generation;
        let may_begin = self.may_begin(turn, &work, transport);
        let queue = &mut self.turns[turn].queue;
        if may_begin && queue.is_empty() {
            self.begin(turn, place, work, call, transport)?;
        } else {
            queue.push_back(place);
            self.places[usize::from(place)].queued = Some((work, call));
        }
        Ok(Handle { place, generation })
    }

    /// Notes a call of a communicator.
    pub(super) fn announce(&mut self, key: Key, group: u32, fingerprint: Fingerprint) -> Announced {
        let turn = self.turn(key.communicator);
        let turn = &mut self.turns[turn];
        turn.group = group;
        if self.watcher.is_some() {
            turn.history.record(key.sequence, fingerprint, turn.digest);
        }
        turn.digest = fingerprint.digest(turn.digest);
        Announced { called: Called { key, group, fingerprint, digest: turn.digest } }
    }

    pub(super) fn has_completed(&self, handle: Handle) -> bool {
        self.places[usize::from(handle.place)].generation != handle.generation
    }

    pub(super) fn has_result(&self, handle: Handle) -> bool {
        let operation = self.places[usize::from(handle.place)].operation.as_ref();
        self.has_completed(handle) || operation.is_some_and(|operation| operation.has_result())
    }

    pub(super) fn outstanding(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub(super) fn forget(&mut self, communicator: u16) {
        self.turns.retain(|turn| turn.communicator != communicator || turn.under_way > 0 || !turn.queue.is_empty());
    }

    /// A place for an operation.
    pub(super) fn take_place(&mut self) -> Result<u16> {
        if let Some(place) = self.free.pop() {
            return Ok(place);
        }
        let Ok(place) = u16::try_from(self.places.len()) else {
            return Err(Error::InvalidArgument(format!("more than {MAX_OUTSTANDING} operations are outstanding")));
        };
        self.places.push(Place::default());
        Ok(place)
    }

    fn turn(&mut self, communicator: u16) -> usize {
        self.turns.iter().position(|turn| turn.communicator == communicator).unwrap_or_else(|| {
            self.turns.push(Turn {
                communicator,
                under_way: 0,
                queue: VecDeque::new(),
                group: 0,
                digest: 0,
                history: History::default(),
                lead: Lead::default(),
            });
            self.turns.len() - 1
        })
    }

    /// Whether another operation of a communicator may be under way. Beside an older one of its own it leaves room for
    /// those of other communicators that are the oldest there: messages of these must not be refused until the younger
    /// ones end, which may wait for them on another rank.
    #[inline]
    fn may_begin(&self, turn: usize, work: &Work, transport: &impl Transport) -> bool {
        let Turn { under_way, lead, .. } = &self.turns[turn];
        let has_room = || self.windows.saturating_add(work.window(transport)) <= transport.room() / 2;
        !lead.is_great() && (*under_way == 0 || *under_way < self.settings.operations && has_room())
    }

    /// Begins a communicator's operations, as many as may be under way. The first of those which have not
    /// completed always is, on every rank, or others have yet to receive what came before it: so operations that wait for
    /// their turn hold nobody up.
    pub(super) fn take_turns<T: Transport>(&mut self, turn: usize, transport: &mut T) -> Result<()> {
        while let Some(&place) = self.turns[turn].queue.front() {
            let first = self.places[usize::from(place)].queued.as_ref();
            if !first.is_some_and(|(work, _)| self.may_begin(turn, work, transport)) {
                break;
            }
            self.turns[turn].queue.pop_front();
            let queued = self.places[usize::from(place)].queued.take();
            let Some((work, call)) = queued else { unreachable!("what waits for its turn has work") };
            self.begin(turn, place, work, call, transport)?;
        }
        Ok(())
    }

    fn begin<T: Transport>(
        &mut self,
        turn: usize,
        place: u16,
        work: Work,
        call: Announced,
        transport: &mut T,
    ) -> Result<()> {
        let slot = &mut self.places[usize::from(place)];
        slot.window = if self.turns[turn].under_way == 0 { 0 } else { work.window(transport) };
        self.windows += slot.window;
        self.turns[turn].under_way += 1;
        let scratch = self.scratch.take(work.scratch_bytes());
        let mut operation = self.idle.pop().unwrap_or_else(|| Box::new(Operation::idle(&self.nothing)));
        let name = StepName { place, generation: slot.generation, step: 0 };
        operation.take_on(work, call, name, scratch, work::bound(transport));
        let operation = slot.operation.insert(operation);
        if self.bounds_leads {
            // Before the first one goes: who has received them may say so before the operation has completed here.
            operation.partners(true).for_each(|rank| self.turns[turn].lead.send(rank));
        }
        operation.begin(&mut Surroundings {
            transport,
            seal: &self.seal,
            spare: &mut self.spare,
            sent: &mut self.sent,
        })?;
        if operation.is_complete() {
            self.retire(place, transport);
        } else {
            self.list(place);
        }
        Ok(())
    }

    pub(super) fn progress<T: Transport>(&mut self, transport: &mut T) -> Result<bool> {
        self.exchange_notes(transport)?;
        transport.progress(&mut self.completed)?;
        if self.completed.is_empty() && self.attention.is_empty() {
            return Ok(false);
        }
        let mut moved = !self.completed.is_empty();
        let mut completed = std::mem::take(&mut self.completed);
        let mut news = completed.drain(..);
        let outcome = news.try_for_each(|completion| self.take_completion(completion, transport));
        // After an error there may still be notes among them.
        self.completed.extend(news);
        std::mem::swap(&mut self.completed, &mut completed);
        self.completed.append(&mut completed);
        outcome?;
        // What needs attention again afterwards comes behind those that are here now.
        for _ in 0..self.attention.len() {
            let Some(place) = self.attention.pop_front() else { break };
            let slot = &mut self.places[usize::from(place)];
            slot.listed = false;
            if let Some(operation) = &mut slot.operation {
                moved |= operation.attend(&mut Surroundings {
                    transport,
                    seal: &self.seal,
                    spare: &mut self.spare,
                    sent: &mut self.sent,
                })?;
                self.after(place, transport)?;
            }
        }
        // Peers may wait for what is to be said, and this rank may not look again soon.
        self.exchange_notes(transport)?;
        Ok(moved)
    }

    fn take_completion<T: Transport>(&mut self, completion: Completion, transport: &mut T) -> Result<()> {
        let Some(name) = StepName::of(completion.token) else { return self.take_mail(completion, transport) };
        let slot = &mut self.places[usize::from(name.place)];
        let Some(operation) = slot.operation.as_mut().filter(|_| name.is_of(slot.generation)) else { return Ok(()) };
        let Completion { word, outcome, .. } = completion;
        match outcome {
            Ok(_) => {}
            Err(error @ Error::Length { .. }) => return self.doubt(name, word, Some(error), transport),
            Err(error) => return Err(error),
        }
        if let Action::Receive { peer, message, .. } = operation.schedule.action(name.step as usize) {
            let (sender, receiver) = (operation.world_rank(peer), transport.rank());
            if word != operation.word(&self.seal, message, sender, receiver) {
                return self.doubt(name, word, None, transport);
            }
        }
        operation.completed(
            name.step,
            &mut Surroundings { transport, seal: &self.seal, spare: &mut self.spare, sent: &mut self.sent },
        )?;
        self.after(name.place, transport)
    }

    /// Looks at an operation that has gone on.
    pub(super) fn after<T: Transport>(&mut self, place: u16, transport: &mut T) -> Result<()> {
        let Some(operation) = &self.places[usize::from(place)].operation else { return Ok(()) };
        if !operation.is_complete() {
            self.list(place);
            return Ok(());
        }
        let (communicator, freed) = (operation.key.communicator, self.places[usize::from(place)].window);
        self.retire(place, transport);
        let own = self.turn(communicator);
        // Its window may be what another communicator's wait for.
        for turn in if freed > 0 { 0..self.turns.len() } else { own..own + 1 } {
            if !self.turns[turn].queue.is_empty() {
                self.take_turns(turn, transport)?;
            }
        }
        Ok(())
    }

    /// Lists an operation if it needs attention.
    pub(super) fn list(&mut self, place: u16) {
        let slot = &mut self.places[usize::from(place)];
        let needs = slot.operation.as_ref().is_some_and(|operation| operation.needs_attention());
        if needs && !slot.listed {
            slot.listed = true;
            self.attention.push_back(place);
        }
    }

    /// Gives the place of an operation that has completed to later ones.
    fn retire<T: Transport>(&mut self, place: u16, transport: &T) {
        let slot = &mut self.places[usize::from(place)];
        let Some(mut operation) = slot.operation.take() else { return };
        slot.generation = slot.generation.wrapping_add(1);
        self.windows -= slot.window;
        if slot.waited.take().is_some()
            && let Some(watcher) = &mut self.watcher
        {
            watcher.host.waits(None);
        }
        self.free.push(place);
        let turn = self.turn(operation.key.communicator);
        self.turns[turn].under_way -= 1;
        if let Some(watcher) = self.watcher.as_mut().filter(|_| self.bounds_leads) {
            let (communicator, lead) = (operation.key.communicator, &mut self.turns[turn].lead);
            operation.partners(false).for_each(|rank| lead.receive(rank));
            // One note of all, whatever their number.
            for rank in operation.partners(false) {
                if let Some(count) = lead.news_for(rank) {
                    watcher.mail.write(rank, &Note::Received { communicator, count }, transport);
                }
            }
        }
        self.scratch.give(operation.release());
        if self.idle.len() < KEPT_OPERATIONS {
            self.idle.push(operation);
        }
    }

    /// Takes all messages back: afterwards nobody uses any operation's memory.
    pub(super) fn give_up<T: Transport>(&mut self, transport: &mut T) {
        for slot in &mut self.places {
            if let Some(mut operation) = slot.operation.take() {
                operation.give_up(transport);
            }
            slot.queued = None;
        }
        self.turns.clear();
        self.attention.clear();
    }
}

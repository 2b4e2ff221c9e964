//! What the engine does about what its watcher sees: answers, compares, and finds who is gone or does something else.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::core::{Core, Place, Turn};
use super::operation::Surroundings;
use super::seal::Broken;
use super::tag::{Key, StepName, control_number};
use super::watch::note::{Note, State};
use super::watch::{Mailed, Suspect, Wait};
use super::work::{Announced, Called};
use crate::error::{Error, Result};
use crate::schedule::Action;
use crate::transport::{Completion, Transport};

/// Operations before one in which two ranks differ that are looked at for the first such one.
const SEARCHED: u32 = 64;
/// Ranks that are asked and named, of those that an operation waits for.
const ASKED: usize = 16;

/// The operations that are parts of a call that this rank waits in.
#[derive(Default)]
struct Waiting {
    /// How long the one that has waited longest has.
    waited: Duration,
    /// Ranks that they wait for.
    ranks: Vec<usize>,
}

/// How a peer's calls differ from this rank's, as an error.
pub(super) enum Difference {
    /// In the call itself, of which both sides are known.
    Here(Error),
    /// In one before.
    Before(Error),
}

impl Core {
    /// Sends and takes notes of the watcher's, if there are any.
    pub(super) fn exchange_notes<T: Transport>(&mut self, transport: &mut T) -> Result<()> {
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        if let Some(error) = watcher.unexplained() {
            return Err(error);
        }
        if watcher.mail.is_due
            && let Some((rank, error)) = watcher.mail.post(transport, &self.seal)?
        {
            return Err(undelivered(rank, error));
        }
        Ok(())
    }

    /// A note has come or gone.
    pub(super) fn take_mail<T: Transport>(&mut self, completion: Completion, transport: &mut T) -> Result<()> {
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        let Completion { token, word, outcome } = completion;
        match watcher.mail.completed(control_number(token), word, outcome, transport.rank(), &self.seal) {
            Mailed::Nothing => Ok(()),
            Mailed::Stranger { rank } => {
                watcher.refuse(rank);
                Ok(())
            }
            Mailed::Undelivered { rank, error } => Err(undelivered(rank, error)),
            Mailed::Note { sender, .. } if sender >= transport.size() => Ok(()),
            Mailed::Note { note: Note::End(reason), .. } => {
                watcher.told = true;
                Err(reason.into_error())
            }
            Mailed::Note { sender, note: Note::Received { communicator, count } } => {
                let is_it = |turn: &Turn| turn.communicator == communicator;
                let Some(turn) = self.turns.iter().position(is_it) else { return Ok(()) };
                self.turns[turn].lead.hear(sender, count);
                self.take_turns(turn, transport)
            }
            Mailed::Note { sender, note: Note::Ask(called) } => {
                self.compare(sender, called, transport)?;
                self.answer(sender, called, transport);
                Ok(())
            }
            Mailed::Note { sender, note: Note::Answer { key, state } } => {
                let suspected = watcher.answered(sender, key, state);
                if let State::Before { doing: Some(doing) } = state {
                    self.compare(sender, doing, transport)?;
                }
                suspected.map_or(Ok(()), |suspect| self.search_further(suspect, transport))
            }
        }
    }

    /// Compares what a peer has called with what this rank has. If they have differed before, looks for where.
    fn compare<T: Transport>(&mut self, peer: usize, called: Called, transport: &T) -> Result<()> {
        match self.difference(peer, called, transport.rank()) {
            Some(Difference::Here(error)) => Err(error),
            Some(Difference::Before(error)) if self.suspicion(peer).is_none() => {
                self.search_further(Suspect::new(peer, called, error, SEARCHED), transport)
            }
            _ => Ok(()),
        }
    }

    /// What is known of a difference between a peer, which has called this, and this rank. However far one is ahead
    /// of the other: that a call is complete here says nothing, since its last message may be on its way.
    pub(super) fn difference(&self, peer: usize, called: Called, rank: usize) -> Option<Difference> {
        let Called { key, fingerprint: theirs, digest, .. } = called;
        let watcher = self.watcher.as_ref()?;
        let (own, own_digest) = self.turn_of(called)?.history.recall(key.sequence)?;
        if own != theirs {
            return Some(Difference::Here(watcher.mismatch(key, (rank, own), (peer, theirs))));
        }
        (own_digest != digest).then(|| Difference::Before(watcher.mismatch_before(key, rank, peer)))
    }

    /// The communicator of a call, if this rank is in it.
    fn turn_of(&self, called: Called) -> Option<&Turn> {
        let is_same = |turn: &&Turn| turn.communicator == called.key.communicator && turn.group == called.group;
        self.turns.iter().find(is_same)
    }

    /// A peer that is known to differ does the same in this operation: then the two have differed in one before. Asks
    /// about that.
    fn search_further<T: Transport>(&mut self, suspect: Suspect, transport: &T) -> Result<()> {
        let Suspect { rank, called, error, steps, .. } = suspect;
        let key = Key { sequence: called.key.sequence.wrapping_sub(1), ..called.key };
        let known = self.turn_of(called).and_then(|turn| turn.history.recall(key.sequence));
        match (known, &mut self.watcher, steps.checked_sub(1)) {
            (Some((fingerprint, digest)), Some(watcher), Some(steps)) if matches!(error, Error::Mismatch(_)) => {
                watcher.suspect(
                    Suspect::new(rank, Called { key, fingerprint, digest, ..called }, error, steps),
                    transport,
                );
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Tells a peer how far this rank is with a call.
    pub(super) fn answer<T: Transport>(&mut self, peer: usize, called: Called, transport: &T) {
        let answer = Note::Answer { key: called.key, state: self.state(called) };
        if let Some(watcher) = &mut self.watcher {
            watcher.mail.write(peer, &answer, transport);
        }
    }

    /// How far this rank is with a call.
    fn state(&self, called: Called) -> State {
        if self.turn_of(called).is_none_or(|turn| turn.history.is_before(called.key.sequence)) {
            return State::Before { doing: self.doing() };
        }
        let is_it = |call: &Announced| call.called == called;
        let queued = self.queued().find(|(.., call)| is_it(call)).map(|(turn, ..)| turn);
        let operation = self.places.iter().filter_map(|place| place.operation.as_ref()).find(|own| is_it(&own.call));
        let waits_for = match (operation, queued) {
            (Some(operation), _) => operation.awaited().next(),
            (None, Some(turn)) => turn.lead.far_behind().next(),
            (None, None) => return State::Behind,
        };
        State::In { waits_for: waits_for.and_then(|rank| u32::try_from(rank).ok()) }
    }

    /// What waits for its turn: its communicator's operations, its place, and its call.
    fn queued(&self) -> impl Iterator<Item = (&Turn, &Place, &Announced)> {
        let places = self.turns.iter().flat_map(|turn| turn.queue.iter().map(move |place| (turn, place)));
        places.filter_map(|(turn, place)| {
            let place = &self.places[usize::from(*place)];
            place.queued.as_ref().map(|(_, call)| (turn, place, call))
        })
    }

    /// The call that this rank has been in for longest.
    pub(super) fn doing(&self) -> Option<Called> {
        let operations = self.places.iter().filter_map(|place| place.operation.as_ref().map(|own| (place, &own.call)));
        let calls = operations.chain(self.queued().map(|(_, place, call)| (place, call)));
        // Those that were never looked at are the youngest.
        let oldest = calls.min_by_key(|(place, call)| (Reverse(place.waited), call.called.key.sequence));
        oldest.map(|(_, call)| call.called)
    }

    /// Looks after operations that take long.
    #[cold]
    pub(super) fn look<T: Transport>(&mut self, now: Instant, transport: &mut T) -> Result<()> {
        let Some(watcher) = &mut self.watcher else { return Ok(()) };
        let Some(passed) = watcher.is_time(now) else { return Ok(()) };
        if let Some((rank, reason)) = transport.found_gone() {
            return Err(Error::Unreachable { rank, reason });
        }
        let mut waiting: BTreeMap<Called, Waiting> = BTreeMap::new();
        let mut wait = |waits: &mut Option<Duration>, called: Called, ranks: &mut dyn Iterator<Item = usize>| {
            let waited = *waits.insert(waits.map_or(Duration::ZERO, |waited| waited + passed));
            if waited >= watcher.watch.ask_after {
                let call = waiting.entry(called).or_default();
                call.waited = call.waited.max(waited);
                call.ranks.extend(ranks);
            }
        };
        for slot in &mut self.places {
            if let Some(operation) = &slot.operation {
                wait(&mut slot.waited, operation.call.called, &mut operation.awaited());
            }
        }
        // The first of those that may not begin because others are far behind.
        for turn in self.turns.iter().filter(|turn| turn.lead.is_great()) {
            let Some(first) = turn.queue.front().map(|place| &mut self.places[usize::from(*place)]) else { continue };
            if let Some((_, call)) = &first.queued {
                wait(&mut first.waited, call.called, &mut turn.lead.far_behind());
            }
        }
        watcher.spoken.retain(|called, _| waiting.contains_key(called));
        let mut overdue = None;
        for (called, Waiting { waited, ranks: mut asked }) in waiting {
            asked.sort_unstable();
            asked.dedup();
            asked.truncate(ASKED);
            let Called { key, fingerprint, .. } = called;
            watcher.host.waits(Some(&Wait { key, fingerprint, waited, ranks: &asked }));
            for &rank in &asked {
                watcher.await_rank(rank, &Note::Ask(called), now, transport);
            }
            let is_over = watcher.watch.time_limit.is_some_and(|limit| waited >= limit);
            if !is_over && !watcher.is_time_to_speak(called, waited) {
                continue;
            }
            let missing: Vec<String> = asked.iter().map(|&rank| watcher.describe(rank, now)).collect();
            let own = watcher.host.name(transport.rank());
            let (operation, missing) = (watcher.operation(called), missing.join("; "));
            let missing = if missing.is_empty() { "its own work" } else { &missing };
            let sentence = format!("{own} has waited {:.1} s in {operation} for {missing}", waited.as_secs_f64());
            if is_over {
                overdue = Some(Error::Timeout(sentence));
                break;
            }
            watcher.host.speak(&sentence);
        }
        watcher.forget_others();
        overdue.map_or(Ok(()), Err)
    }

    /// A message of an operation has come with another length or word than it should.
    #[cold]
    pub(super) fn doubt<T: Transport>(
        &mut self,
        name: StepName,
        word: u64,
        error: Option<Error>,
        transport: &mut T,
    ) -> Result<()> {
        let Some(operation) = &mut self.places[usize::from(name.place)].operation else { return Ok(()) };
        let Action::Receive { peer, message, .. } = operation.schedule.action(name.step as usize) else {
            return error.map_or(Ok(()), Err);
        };
        let (rank, own) = (operation.world_rank(peer), transport.rank());
        let called = operation.call.called;
        let of_length = error.is_some();
        if of_length && word == operation.word(&self.seal, message, rank, own) {
            // The same call, but not the same schedule.
            return error.map_or(Ok(()), Err);
        }
        let broken = self.seal.examine(word, operation.key.tag(message), rank, own);
        // A transport that cannot tell the word of a message of another length gives none.
        let is_stranger = broken == Broken::Stranger && !(of_length && word == 0);
        let Some(watcher) = &mut self.watcher else {
            return Err(error.unwrap_or_else(|| unwatched(broken, rank, called.key)));
        };
        if is_stranger {
            watcher.refuse(rank);
            operation.receive_again(
                name.step,
                &mut Surroundings { transport, seal: &self.seal, spare: &mut self.spare, sent: &mut self.sent },
            )?;
            // It may have been refused.
            self.list(name.place);
            return Ok(());
        }
        let (own, other) = (watcher.host.name(own), watcher.host.name(rank));
        let did = match error {
            Some(Error::Length { sent, expected, .. }) => {
                format!("sends {sent} bytes where {expected} are expected")
            }
            _ => "calls something else, in this operation or in one before".to_owned(),
        };
        let Called { key, fingerprint, .. } = called;
        let what = watcher.host.call(fingerprint);
        let Key { communicator, sequence } = key;
        let place = format!("operation #{sequence} on communicator {communicator}");
        let error = Error::Mismatch(format!("{place}: {own} called {what}, but {other} {did}"));
        watcher.suspect(Suspect::new(rank, called, error, SEARCHED), transport);
        Ok(())
    }
}

fn undelivered(rank: usize, error: Error) -> Error {
    match error {
        Error::Unreachable { .. } => error,
        other => Error::Unreachable { rank, reason: other.to_string() },
    }
}

fn unwatched(broken: Broken, rank: usize, key: Key) -> Error {
    let Key { communicator, sequence } = key;
    let place = format!("operation #{sequence} on communicator {communicator}");
    match broken {
        Broken::Stranger => Error::Stranger { rank, reason: format!("found in {place}") },
        Broken::OtherOperation => {
            Error::Mismatch(format!("{place}: rank {rank} called something else, in this operation or in one before"))
        }
    }
}

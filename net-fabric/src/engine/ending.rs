//! How a job ends: with one error for all, which whoever finds it tells the others before messages are given up.

use std::time::{Duration, Instant};

use super::core::Core;
use super::tag::{StepName, control_number};
use super::vigil::Difference;
use super::watch::Mailed;
use super::watch::note::{Note, Reason};
use crate::error::Error;
use crate::transport::{Completion, Transport};

/// How long an engine that goes tries to tell the others why.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How often one that finds a rank out of reach looks for the reason at least.
const LEAST_LOOKS: u32 = 64;

impl Core {
    /// Ends the job: gives everything up, and tells the others why unless they have told this rank. The first
    /// error is that of all that follows.
    #[cold]
    pub(super) fn end<T: Transport>(&mut self, error: Error, transport: &mut T) -> Error {
        if let Some(first) = &self.failed {
            return first.clone();
        }
        let known = match error {
            Error::Unreachable { rank, .. } => self.listen(transport).or_else(|| self.suspicion(rank)),
            _ => None,
        };
        let error = known.unwrap_or_else(|| self.with_circumstances(error, transport.rank()));
        self.end_for_all(error, transport)
    }

    /// The same with an error that this rank knows from elsewhere, so there is nobody to listen to; `is_told` if others know
    /// it, too.
    #[cold]
    pub(super) fn end_from_outside<T: Transport>(&mut self, error: Error, is_told: bool, transport: &mut T) -> Error {
        if let Some(first) = &self.failed {
            return first.clone();
        }
        if let Some(watcher) = &mut self.watcher {
            watcher.told |= is_told;
        }
        let error = self.with_circumstances(error, transport.rank());
        self.end_for_all(error, transport)
    }

    /// Gives everything up because of this error, and tells the others why.
    fn end_for_all<T: Transport>(&mut self, error: Error, transport: &mut T) -> Error {
        self.failed = Some(error.clone());
        if let Some(watcher) = &mut self.watcher {
            let (own, size) = (transport.rank(), transport.size());
            let lost = if let Error::Unreachable { rank, .. } = error { rank } else { own };
            // Who was told passes it on to a few, in case that the finder cannot reach them.
            let distance = |rank: usize| (rank + size - own) % size;
            let is_told = |rank: usize| !watcher.told || distance(rank).is_power_of_two();
            let mut hearers: Vec<_> = (0..size).filter(|&rank| rank != own && rank != lost && is_told(rank)).collect();
            // These pass it on; notes to a node that is gone may keep others waiting.
            hearers.sort_by_key(|&rank| !distance(rank).is_power_of_two());
            let note = Note::End(Reason::of(&error, own));
            for rank in hearers {
                watcher.mail.write(rank, &note, transport);
            }
            // Before messages are given up, for which a transport may have to close.
            self.say_all(transport);
        }
        self.give_up(transport);
        error
    }

    /// What a rank that is out of reach now was suspected of before: some transports close a connection over a
    /// message of another length than the expected one.
    pub(super) fn suspicion(&self, rank: usize) -> Option<Error> {
        self.watcher.as_ref().and_then(|watcher| watcher.suspicion(rank))
    }

    /// Whether another rank says why one is out of reach. That one may be there, and ask about a message whose length
    /// has closed the connection.
    fn listen<T: Transport>(&mut self, transport: &mut T) -> Option<Error> {
        let own = transport.rank();
        let mut watcher = self.watcher.as_mut().filter(|watcher| !watcher.told)?;
        let patience = Instant::now() + watcher.watch.listen;
        let mut looks = 0;
        loop {
            looks += 1;
            let moves = transport.progress(&mut self.completed).is_ok();
            let mut asked = Vec::new();
            for Completion { token, word, outcome } in self.completed.drain(..) {
                if StepName::of(token).is_some() {
                    continue;
                }
                match watcher.mail.completed(control_number(token), word, outcome, own, &self.seal) {
                    Mailed::Note { note: Note::End(reason), .. } => {
                        watcher.told = true;
                        return Some(reason.into_error());
                    }
                    Mailed::Note { sender, note: Note::Ask(called) } => asked.push((sender, called)),
                    _ => {}
                }
            }
            for (sender, called) in asked {
                if let Some(Difference::Here(error) | Difference::Before(error)) = self.difference(sender, called, own)
                {
                    return Some(error);
                }
                // Who knows no more than before ends the job itself, and is heard.
                self.answer(sender, called, transport);
            }
            watcher = self.watcher.as_mut()?;
            // Time may pass without this rank.
            if !moves || (looks > LEAST_LOOKS && Instant::now() >= patience) {
                return None;
            }
            while matches!(watcher.mail.post(transport, &self.seal), Ok(Some(_))) {}
        }
    }

    /// Lets notes move until all are sent, but not for long.
    fn say_all<T: Transport>(&mut self, transport: &mut T) {
        let patience = Instant::now() + LAST_WORDS;
        while self.say_why(transport) && Instant::now() < patience {}
    }

    /// Adds who has found a rank unreachable, and in what.
    fn with_circumstances(&self, error: Error, own: usize) -> Error {
        match (error, &self.watcher) {
            (Error::Unreachable { rank, reason }, Some(watcher)) if !watcher.told => {
                let doing = self.doing().map(|called| watcher.operation(called));
                let doing = doing.map_or_else(String::new, |operation| format!(" in {operation}"));
                // What its name says besides its number: process and node.
                let name = watcher.host.name(rank);
                let place = name.split_once(" (").and_then(|(_, place)| place.strip_suffix(')'));
                let place = place.map_or_else(String::new, |place| format!("it was {place}; "));
                let finder = watcher.host.name(own);
                Error::Unreachable { rank, reason: format!("{place}{reason}; found by {finder}{doing}") }
            }
            (error, _) => error,
        }
    }

    /// Lets the notes of a job that has ended move; what fails now is of no interest. Whether more is to be sent.
    pub(super) fn say_why<T: Transport>(&mut self, transport: &mut T) -> bool {
        let Some(watcher) = &mut self.watcher else { return false };
        while watcher.mail.is_due && matches!(watcher.mail.post(transport, &self.seal), Ok(Some(_))) {}
        let moves = transport.progress(&mut self.completed).is_ok();
        for Completion { token, word, outcome } in self.completed.drain(..) {
            if StepName::of(token).is_none() {
                let _ = watcher.mail.completed(control_number(token), word, outcome, transport.rank(), &self.seal);
            }
        }
        moves && watcher.mail.is_sending()
    }

    /// Gives up what is left, and all notes. A rank that leaves while it is in an operation ends the job.
    pub(super) fn close<T: Transport>(&mut self, transport: &mut T) {
        let doing = self.doing();
        if let (None, Some(called), Some(watcher)) = (&self.failed, doing, &self.watcher) {
            let why = format!("it left while in {}", watcher.operation(called));
            self.end(Error::Aborted { rank: transport.rank(), why }, transport);
        }
        self.give_up(transport);
        if let Some(watcher) = &mut self.watcher {
            watcher.mail.cancel(transport);
        }
    }
}

//! What the end of a message means: for its slot, for who posted it, and for its peer.
#![allow(unsafe_code)] // Reads words that messages have left in their slots.

use std::mem::size_of;

use super::slots::{Kind, Operation};
use super::{OfiTransport, failure};
use crate::error::{Error, Result};
use crate::fabric::Event;
use crate::transport::Completion;

/// The loss of messages that were [done](crate::transport::Posted::Done): the first is told, once.
#[derive(Default)]
pub(super) struct Loss {
    error: Option<Error>,
    is_told: bool,
}

impl Loss {
    fn note(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    pub(super) fn tell(&mut self) -> Result<()> {
        match &self.error {
            Some(error) if !self.is_told => {
                self.is_told = true;
                Err(error.clone())
            }
            _ => Ok(()),
        }
    }
}

impl OfiTransport {
    /// A message has ended.
    pub(super) fn finish(&mut self, event: Event) {
        let Some(slot) = self.slots.slot_of(event.context) else {
            if let Some(failure) = event.failure {
                let reason = format!("a message whose bytes were taken along was lost: {}", failure.words);
                self.loss.note(Error::Fabric { call: "fi_tinjectdata", reason });
            }
            return;
        };
        let Some(mut operation) = self.slots.take(slot) else { return };
        let registered = operation.registered.take();
        self.unregister(registered);
        if let (Kind::Send(_) | Kind::Copy(_), None) = (&operation.kind, &event.failure) {
            self.ahead.note_gone(operation.peer, operation.before);
        }
        match operation.kind {
            Kind::Send(token) => {
                self.sending -= 1;
                let outcome = self.outcome(&operation, &event, operation.bytes);
                self.ready.push(Completion { token, word: 0, outcome });
            }
            Kind::Copy(place) => {
                self.sending -= 1;
                self.copies.give(place);
                // The sender was told that it is done: what it hears is that the peer is lost.
                let outcome = self.outcome(&operation, &event, operation.bytes);
                if let Err(error) = outcome
                    && self.lost[operation.peer].is_none()
                {
                    let reason = match error {
                        Error::Unreachable { reason, .. } => reason,
                        other => other.to_string(),
                    };
                    // See `outcome`: the peer may have something to say first.
                    if self.limits.breaks_at_longer {
                        self.gone.get_or_insert((operation.peer, reason));
                    } else {
                        self.lose(operation.peer, reason);
                    }
                }
            }
            Kind::Receive(token) => {
                self.receiving -= 1;
                if event.failure.is_none() {
                    self.heard(operation.peer);
                }
                let (word, bytes) = match event.bytes.checked_sub(size_of::<u64>()) {
                    _ if !self.limits.word_in_message => (event.word, Some(event.bytes)),
                    // SAFETY: the slot's message has ended, so that nobody else uses its word.
                    Some(bytes) => (unsafe { *self.slots.beside(slot, 0) }, Some(bytes)),
                    // What stands in the slot is the word of a message before.
                    None => (0, None),
                };
                let outcome = match bytes {
                    None if event.failure.is_none() => Err(Error::Length {
                        rank: operation.peer,
                        sent: event.bytes,
                        expected: operation.bytes + size_of::<u64>(),
                    }),
                    bytes => self.outcome(&operation, &event, bytes.unwrap_or(0)),
                };
                self.ready.push(Completion { token, word, outcome });
            }
            Kind::Look => self.looked(operation.peer, &event),
            Kind::Claim { data, word } => {
                self.claimed(operation.peer, operation.tag, word, data, event.failure.is_some())
            }
        }
    }

    /// Something has come from a peer.
    #[inline]
    pub(super) fn heard(&mut self, peer: usize) {
        if let Some(watch) = &mut self.watch {
            watch.heard(peer);
        }
    }

    fn outcome(&mut self, operation: &Operation, event: &Event, bytes: usize) -> Result<usize> {
        let peer = operation.peer;
        let Some(failure) = &event.failure else {
            return if bytes == operation.bytes {
                Ok(bytes)
            } else {
                Err(Error::Length { rank: peer, sent: bytes, expected: operation.bytes })
            };
        };
        let error = failure::of_message(operation, failure, bytes, self.lost.get(peer).and_then(Option::as_ref));
        // Where a message of another length closes a connection, the peer may be there, and have something to say
        // about that: the next message connects again. If it is not, that is found out soon.
        if let (Error::Unreachable { reason, .. }, false) = (&error, self.limits.breaks_at_longer) {
            self.lose(peer, reason.clone());
        }
        Err(error)
    }

    /// A peer is gone: what was to come from it is given up, which its completions will tell.
    pub(super) fn lose(&mut self, peer: usize, reason: String) {
        // Nobody is lost if it can be anybody.
        let Some(lost @ None) = self.lost.get_mut(peer) else { return };
        *lost = Some(reason);
        let Some(endpoint) = &self.endpoint else { return };
        for (slot, operation) in self.slots.around(0) {
            if operation.peer == peer && matches!(operation.kind, Kind::Receive(_)) {
                endpoint.cancel(self.slots.context(slot));
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ptr;

    use crate::fabric::{Event, Failure};
    use crate::transport::ofi::{Config, world_here};
    use crate::transport::{NOTES, Posted, Tag, Token, Transport};

    #[test]
    fn the_end_of_a_note_is_told_where_the_loss_of_injected_messages_is_not() {
        let config = Config { providers: vec!["tcp;ofi_rxm".to_owned()], ..Config::default() };
        let mut ranks = world_here(&config, 2).unwrap();
        let mut send = |tag, completed: &mut Vec<_>| {
            loop {
                // SAFETY: the bytes live for ever.
                let posted = unsafe { ranks[0].send(1, tag, 7, [9; 8].as_ptr(), 8, Token(tag.0)) }.unwrap();
                ranks.iter_mut().for_each(|rank| rank.progress(completed).unwrap());
                if posted != Posted::Busy {
                    break posted;
                }
            }
        };
        let mut completed = Vec::new();
        assert_eq!(send(Tag(1), &mut completed), Posted::Done);
        assert_eq!(send(NOTES, &mut completed), Posted::Pending);
        while completed.is_empty() {
            ranks.iter_mut().for_each(|rank| rank.progress(&mut completed).unwrap());
        }
        assert_eq!((completed[0].token, completed[0].outcome.clone().unwrap()), (Token(NOTES.0), 8));
    }

    #[test]
    fn the_loss_of_a_message_that_was_done_is_told_and_others_still_go() {
        let mut ranks = world_here(&Config::default(), 2).unwrap();
        let mut lose = |words: &str| {
            let failure = Failure { code: 5, excess_bytes: 0, words: words.to_owned() };
            ranks[0].finish(Event { context: ptr::null_mut(), bytes: 0, word: 0, tag: 0, failure: Some(failure) });
            ranks[0].progress(&mut Vec::new())
        };
        let error = lose("worn out").unwrap_err().to_string();
        assert!(error.contains("was lost: worn out"), "{error}");
        lose("again").unwrap();
        let mut completed = Vec::new();
        let mut into = [0; 8];
        // SAFETY: the memory outlives the transport's use of it, which ends below.
        let posted = unsafe { ranks[1].receive(0, Tag(1), into.as_mut_ptr(), 8, Token(1)) };
        assert_eq!(posted.unwrap(), Posted::Pending);
        // SAFETY: the bytes live for ever.
        while unsafe { ranks[0].send(1, Tag(1), 7, [9; 8].as_ptr(), 8, Token(2)) }.unwrap() == Posted::Busy {
            ranks.iter_mut().for_each(|rank| rank.progress(&mut completed).unwrap());
        }
        while completed.is_empty() {
            ranks[0].progress(&mut Vec::new()).unwrap();
            ranks[1].progress(&mut completed).unwrap();
        }
        assert_eq!((completed[0].word, into), (7, [9; 8]));
    }
}

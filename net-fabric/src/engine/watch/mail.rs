//! Carries notes between engines: keeps receives posted, and sends what is to be said when there is room.
#![allow(unsafe_code)] // Hands its own buffers to the transport.

use super::note::{BYTES, Note};
use crate::engine::seal::Seal;
use crate::engine::tag::{CONTROL_TAG, control_token};
use crate::error::{Error, Result};
use crate::transport::{ANYBODY, Posted, Transport};

/// Receives that are posted for notes of anybody.
const POSTED: usize = 8;
/// Notes under way to each peer, on average: beyond that answers are not given, and are asked for again.
const NOTES_PER_PEER: usize = 4;
/// In the number of a note's token: it is being sent.
const SENT: u32 = 1 << 31;

/// The notes of one engine.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    receives: Vec<Receive>,
    sends: Vec<Send>,
    next: u32,
    /// There is something to be posted.
    pub(crate) is_due: bool,
}

#[derive(Debug)]
struct Receive {
    /// Whose notes come here; none for anybody's.
    peer: Option<usize>,
    bytes: Box<[u8; BYTES]>,
    posted: bool,
}

#[derive(Debug)]
struct Send {
    number: u32,
    peer: usize,
    bytes: Box<[u8; BYTES]>,
    posted: bool,
}

/// What a completion of a note was.
#[derive(Debug)]
pub(crate) enum Mailed {
    /// A note has come, of a rank that knows the secret.
    Note { sender: usize, note: Note },
    /// Bytes have come that no rank of the job has sent, in this rank's name.
    Stranger { rank: usize },
    /// A note could not be sent to this rank.
    Undelivered { rank: usize, error: Error },
    /// Nothing of interest.
    Nothing,
}

impl Mail {
    pub(crate) fn new(transport: &impl Transport) -> Self {
        let receive = |peer| Receive { peer, bytes: Box::new([0; BYTES]), posted: false };
        let (rank, size) = (transport.rank(), transport.size());
        let receives = if transport.receives_from_anybody() {
            (0..POSTED.min(size)).map(|_| receive(None)).collect()
        } else {
            (0..size).filter(|&peer| peer != rank).map(|peer| receive(Some(peer))).collect()
        };
        Self { receives, is_due: true, ..Self::default() }
    }

    /// Puts a note into the queue.
    pub(crate) fn write(&mut self, peer: usize, note: &Note, transport: &impl Transport) {
        // An end, and what was received, is not said again; of the latter there is one note a peer and operation.
        let is_kept = matches!(note, Note::End(_) | Note::Received { .. });
        if !is_kept && self.sends.len() >= NOTES_PER_PEER * transport.size() {
            return;
        }
        let mut bytes = Box::new([0; BYTES]);
        note.write(transport.rank(), &mut bytes);
        self.next = (self.next + 1) & !SENT;
        self.sends.push(Send { number: self.next | SENT, peer, bytes, posted: false });
        self.is_due = true;
    }

    /// Posts what is to be posted, as far as there is room. Returns the rank that a note cannot be sent to.
    ///
    /// # Errors
    /// The transport's, of a receive.
    pub(crate) fn post<T: Transport>(&mut self, transport: &mut T, seal: &Seal) -> Result<Option<(usize, Error)>> {
        self.is_due = false;
        for (number, receive) in (0..).zip(&mut self.receives).filter(|(_, receive)| !receive.posted) {
            let (peer, bytes) = (receive.peer.unwrap_or(ANYBODY), receive.bytes.as_mut_ptr());
            // SAFETY: the buffer stays where it is, untouched, until the receive has ended or was cancelled.
            match unsafe { transport.receive(peer, CONTROL_TAG, bytes, BYTES, control_token(number)) } {
                Ok(posted) => receive.posted = posted != Posted::Busy,
                // It has no more to say; who waits for it finds that out by sending.
                Err(Error::Unreachable { .. }) => receive.posted = true,
                Err(error) => return Err(error),
            }
            self.is_due |= !receive.posted;
        }
        let mut undelivered = None;
        self.sends.retain_mut(|send| {
            if send.posted || undelivered.is_some() {
                return true;
            }
            let word = seal.word_of_bytes(CONTROL_TAG, transport.rank(), send.peer, &send.bytes[..]);
            let (bytes, token) = (send.bytes.as_ptr(), control_token(send.number));
            // SAFETY: the buffer stays where it is until the send has ended or was cancelled.
            match unsafe { transport.send(send.peer, CONTROL_TAG, word, bytes, BYTES, token) } {
                Ok(Posted::Done) => return false,
                Ok(posted) => send.posted = posted == Posted::Pending,
                Err(error) => {
                    undelivered = Some((send.peer, error));
                    return false;
                }
            }
            self.is_due |= !send.posted;
            true
        });
        self.is_due |= undelivered.is_some();
        Ok(undelivered)
    }

    /// A note of this number has completed.
    pub(crate) fn completed(
        &mut self,
        number: u32,
        word: u64,
        outcome: Result<usize>,
        own: usize,
        seal: &Seal,
    ) -> Mailed {
        if number & SENT != 0 {
            let Some(at) = self.sends.iter().position(|send| send.number == number) else { return Mailed::Nothing };
            let rank = self.sends.swap_remove(at).peer;
            return outcome.err().map_or(Mailed::Nothing, |error| Mailed::Undelivered { rank, error });
        }
        let Some(receive) = self.receives.get_mut(number as usize) else { return Mailed::Nothing };
        match outcome {
            Ok(_) => {}
            // Nothing will come from there any more.
            Err(Error::Unreachable { .. }) if receive.peer.is_some() => return Mailed::Nothing,
            Err(_) => {
                receive.posted = false;
                self.is_due = true;
                return receive.peer.map_or(Mailed::Nothing, |rank| Mailed::Stranger { rank });
            }
        }
        let rank = Note::sender(&receive.bytes) as usize;
        let expected = seal.word_of_bytes(CONTROL_TAG, rank, own, &receive.bytes[..]);
        let is_genuine = word == expected && receive.peer.is_none_or(|peer| peer == rank);
        let note = is_genuine.then(|| Note::read(&receive.bytes)).flatten();
        receive.posted = false;
        self.is_due = true;
        match note {
            Some(note) => Mailed::Note { sender: rank, note },
            None => Mailed::Stranger { rank: receive.peer.unwrap_or(rank) },
        }
    }

    /// Whether a note to this rank is still being sent.
    pub(crate) fn is_writing_to(&self, rank: usize) -> bool {
        self.sends.iter().any(|send| send.peer == rank)
    }

    /// Whether something is still being sent.
    pub(crate) fn is_sending(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Takes everything back.
    pub(crate) fn cancel(&mut self, transport: &mut impl Transport) {
        for number in (0..).zip(&self.receives).filter(|(_, receive)| receive.posted).map(|(number, _)| number) {
            transport.cancel(control_token(number));
        }
        for send in self.sends.iter().filter(|send| send.posted) {
            transport.cancel(control_token(send.number));
        }
        self.sends.clear();
        self.receives.clear();
    }
}

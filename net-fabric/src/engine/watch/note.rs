//! What engines say to each other, and how it looks on the wire: 512 bytes, little-endian.

use crate::engine::seal::Fingerprint;
use crate::engine::tag::Key;
use crate::engine::work::Called;
use crate::error::Error;

/// Bytes of every note.
pub(crate) const BYTES: usize = 512;
const TEXT_AT: usize = 48;
const TEXT_BYTES: usize = BYTES - TEXT_AT;
/// In place of a rank: none.
const NOBODY: u32 = u32::MAX;

/// A note from one engine to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Note {
    /// The sender is in this operation and waits for the receiver.
    Ask(Called),
    /// What the sender knows of the operation that it was asked about, which is not a different one.
    Answer { key: Key, state: State },
    /// How many messages of the receiver's the sender has received on a communicator, modulo 2^32.
    Received { communicator: u16, count: u32 },
    /// The job has ended, and why.
    End(Reason),
}

/// How far a rank is with an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// In it, waiting for a rank or for nobody.
    In { waits_for: Option<u32> },
    /// Nothing of it is under way on the network any more, or just now; or it is longer ago than the rank remembers.
    Behind,
    /// Not there yet, but in another one or in none.
    Before { doing: Option<Called> },
}

/// Why the job has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    kind: Kind,
    rank: u32,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unreachable = 1,
    Mismatch = 2,
    Timeout = 3,
    Aborted = 4,
}

impl Reason {
    /// What the other ranks are told of an error that rank `own` has met.
    pub(crate) fn of(error: &Error, own: usize) -> Self {
        let number = |rank: usize| u32::try_from(rank).unwrap_or(NOBODY);
        let (kind, rank, text) = match error {
            Error::Unreachable { rank, reason } => (Kind::Unreachable, number(*rank), reason.clone()),
            Error::Mismatch(text) => (Kind::Mismatch, NOBODY, text.clone()),
            Error::Timeout(text) => (Kind::Timeout, NOBODY, text.clone()),
            Error::Aborted { rank, why } => (Kind::Aborted, number(*rank), why.clone()),
            other => (Kind::Aborted, number(own), other.to_string()),
        };
        Self { kind, rank, text }
    }

    pub(crate) fn into_error(self) -> Error {
        let rank = self.rank as usize;
        match self.kind {
            Kind::Unreachable => Error::Unreachable { rank, reason: self.text },
            Kind::Mismatch => Error::Mismatch(self.text),
            Kind::Timeout => Error::Timeout(self.text),
            Kind::Aborted => Error::Aborted { rank, why: self.text },
        }
    }
}

impl Note {
    /// The bytes of a note of rank `sender`.
    pub(crate) fn write(&self, sender: usize, bytes: &mut [u8; BYTES]) {
        bytes.fill(0);
        let put = |bytes: &mut [u8; BYTES], at: usize, number: u32| {
            bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
        };
        put(bytes, 4, u32::try_from(sender).unwrap_or(NOBODY));
        let put_key = |bytes: &mut [u8; BYTES], key: &Key| {
            put(bytes, 12, key.sequence);
            bytes[16..18].copy_from_slice(&key.communicator.to_le_bytes());
        };
        let put_call = |bytes: &mut [u8; BYTES], Called { key, group, fingerprint, digest }: &Called| {
            bytes[18..20].copy_from_slice(&key.communicator.to_le_bytes());
            put(bytes, 20, key.sequence);
            bytes[24..32].copy_from_slice(&fingerprint.0[0].to_le_bytes());
            bytes[32..40].copy_from_slice(&fingerprint.0[1].to_le_bytes());
            put(bytes, 40, *group);
            put(bytes, 44, *digest);
        };
        match self {
            Self::Ask(called) => {
                bytes[0] = 1;
                put_call(bytes, called);
            }
            Self::Answer { key, state } => {
                bytes[0] = 2;
                put_key(bytes, key);
                match state {
                    State::In { waits_for } => {
                        bytes[1] = 1;
                        put(bytes, 8, waits_for.unwrap_or(NOBODY));
                    }
                    State::Behind => bytes[1] = 2,
                    State::Before { doing } => {
                        bytes[1] = 3;
                        if let Some(doing) = doing {
                            bytes[1] = 4;
                            put_call(bytes, doing);
                        }
                    }
                }
            }
            Self::Received { communicator, count } => {
                bytes[0] = 4;
                put(bytes, 8, *count);
                bytes[16..18].copy_from_slice(&communicator.to_le_bytes());
            }
            Self::End(Reason { kind, rank, text }) => {
                bytes[0] = 3;
                bytes[1] = *kind as u8;
                put(bytes, 8, *rank);
                let room = (0..=text.len().min(TEXT_BYTES)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
                bytes[2..4].copy_from_slice(&u16::try_from(room).unwrap_or(0).to_le_bytes());
                bytes[TEXT_AT..TEXT_AT + room].copy_from_slice(&text.as_bytes()[..room]);
            }
        }
    }

    /// In whose name bytes came.
    pub(crate) fn sender(bytes: &[u8; BYTES]) -> u32 {
        number(bytes, 4)
    }

    /// The note, if the bytes are one.
    pub(crate) fn read(bytes: &[u8; BYTES]) -> Option<Self> {
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u64::from(number(bytes, at)) | u64::from(number(bytes, at + 4)) << 32;
        let key = Key { communicator: half(16), sequence: number(bytes, 12) };
        let called = Called {
            key: Key { communicator: half(18), sequence: number(bytes, 20) },
            group: number(bytes, 40),
            fingerprint: Fingerprint([word(24), word(32)]),
            digest: number(bytes, 44),
        };
        let rank = number(bytes, 8);
        Some(match (bytes[0], bytes[1]) {
            (1, _) => Self::Ask(called),
            (2, 1) => Self::Answer { key, state: State::In { waits_for: (rank != NOBODY).then_some(rank) } },
            (2, 2) => Self::Answer { key, state: State::Behind },
            (2, 3) => Self::Answer { key, state: State::Before { doing: None } },
            (2, 4) => Self::Answer { key, state: State::Before { doing: Some(called) } },
            (3, kind) => {
                let kind = match kind {
                    1 => Kind::Unreachable,
                    2 => Kind::Mismatch,
                    3 => Kind::Timeout,
                    4 => Kind::Aborted,
                    _ => return None,
                };
                let text = bytes.get(TEXT_AT..TEXT_AT + usize::from(half(2)))?;
                Self::End(Reason { kind, rank, text: String::from_utf8_lossy(text).into_owned() })
            }
            (4, _) => Self::Received { communicator: key.communicator, count: rank },
            _ => return None,
        })
    }
}

fn number(bytes: &[u8; BYTES], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_survive_the_wire() {
        let key = Key { communicator: 0x7ffe, sequence: 0xfedc_ba98 };
        let fingerprint = Fingerprint([u64::MAX, 1 << 40]);
        let key_of_doing = Key { communicator: 3, sequence: 5 };
        let doing = Called { key: key_of_doing, group: 0xf123_4567, fingerprint, digest: 0x89ab_cdef };
        let errors = [
            Error::Unreachable { rank: 7, reason: "gone".into() },
            Error::Mismatch("rank 0 called barrier()".into()),
            Error::Timeout("x".repeat(TEXT_BYTES)),
            Error::Aborted { rank: 2, why: String::new() },
        ];
        let ends = errors.iter().map(|error| Note::End(Reason::of(error, 1)));
        let answers = [
            State::In { waits_for: None },
            State::In { waits_for: Some(9) },
            State::Behind,
            State::Before { doing: None },
            State::Before { doing: Some(doing) },
        ];
        let answers = answers.map(|state| Note::Answer { key, state });
        let mut bytes = [0xff; BYTES];
        let received = Note::Received { communicator: 0x7ffe, count: 0x8765_4321 };
        for note in ends.chain(answers).chain([Note::Ask(doing), received]) {
            note.write(12, &mut bytes);
            assert_eq!((Note::read(&bytes), Note::sender(&bytes)), (Some(note), 12));
        }
        for error in errors {
            assert_eq!(Reason::of(&error, 1).into_error().to_string(), error.to_string());
        }
        let other = Error::InvalidArgument("no".into());
        assert_eq!(
            Reason::of(&other, 4).into_error().to_string(),
            "rank 4 aborted the job: invalid argument: no",
            "what only this rank has met"
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let mut bytes = [0; BYTES];
        Note::End(Reason::of(&Error::Mismatch("\u{20ac}".repeat(300)), 0)).write(0, &mut bytes);
        let Some(Note::End(reason)) = Note::read(&bytes) else { panic!("an end") };
        assert_eq!(reason.text, "\u{20ac}".repeat(TEXT_BYTES / 3));
    }

    #[test]
    fn any_bytes_may_come() {
        let mut state = 1u64;
        for _ in 0..100_000 {
            let mut bytes = [0; BYTES];
            for byte in &mut bytes {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (state >> 56) as u8;
            }
            bytes[0] %= 5;
            bytes[1] %= 6;
            if let Some(note) = Note::read(&bytes) {
                let mut again = [0; BYTES];
                note.write(0, &mut again);
            }
        }
    }
}

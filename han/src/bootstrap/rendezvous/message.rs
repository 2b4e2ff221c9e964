//! Messages between ranks that have proven themselves: length, kind, payload, and a code over these, the direction and
//! the message's number, so that none can be changed, repeated, left out or sent back.

use std::mem;

use super::proof::{CODE_BYTES, Key};

/// Most bytes that a rank may give to an exchange; what start-up gives is a few hundred.
pub(super) const MAX_GIVEN_BYTES: usize = 1 << 20;

/// Length and kind.
const HEAD_BYTES: usize = size_of::<u32>() + 1;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What one rank gives, or what rank 0 has put together.
    Bytes = 1,
    /// The job is over, and why.
    Failure = 2,
}

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    Root = 1,
    Member = 2,
}

/// One end of one direction of a connection: the key, and how many messages have passed.
#[derive(Debug)]
struct Line {
    key: Key,
    sender: Sender,
    number: u64,
}

impl Line {
    const PURPOSE: &str = "han rendezvous: a message";

    fn code(&self, head: &[u8], payload: &[u8]) -> [u8; CODE_BYTES] {
        self.key.code(Self::PURPOSE, &[&[self.sender as u8], &self.number.to_le_bytes(), head, payload])
    }

    fn confirms(&self, code: &[u8], head: &[u8], payload: &[u8]) -> bool {
        let number = self.number.to_le_bytes();
        self.key.confirms(code, Self::PURPOSE, &[&[self.sender as u8], &number, head, payload])
    }
}

/// Writes messages of one direction.
#[derive(Debug)]
pub(super) struct Outbox(Line);

impl Outbox {
    pub(super) fn new(key: Key, sender: Sender) -> Self {
        Self(Line { key, sender, number: 0 })
    }

    /// The message's bytes.
    ///
    /// # Errors
    /// The payload is too long for a message.
    pub(super) fn seal(&mut self, kind: Kind, payload: &[u8]) -> Result<Vec<u8>, String> {
        let bytes = payload.len();
        let length = u32::try_from(bytes).map_err(|_| format!("{bytes} bytes do not fit into a message"))?;
        let mut sealed = Vec::with_capacity(HEAD_BYTES + bytes + CODE_BYTES);
        sealed.extend(length.to_le_bytes());
        sealed.push(kind as u8);
        let code = self.0.code(&sealed, payload);
        sealed.extend(payload);
        sealed.extend(code);
        self.0.number += 1;
        Ok(sealed)
    }
}

/// Reads messages of one direction out of a stream.
#[derive(Debug)]
pub(super) struct Inbox {
    line: Line,
    max_bytes: usize,
    held: Vec<u8>,
}

impl Inbox {
    /// Takes messages of up to `max_bytes` of payload.
    pub(super) fn new(key: Key, sender: Sender, max_bytes: usize) -> Self {
        Self { line: Line { key, sender, number: 0 }, max_bytes, held: Vec::new() }
    }

    /// Appends what was read.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Whether a whole message must be here, so that nothing more needs to be read for it.
    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= HEAD_BYTES + self.max_bytes + CODE_BYTES
    }

    /// Takes the next whole message; `None` until there is one.
    ///
    /// # Errors
    /// What was read is no message of this line; nothing further can be.
    pub(super) fn next(&mut self) -> Result<Option<(Kind, Vec<u8>)>, String> {
        let Some((length, _)) = self.held.split_first_chunk() else { return Ok(None) };
        // A number that does not fit is beyond every limit, too.
        let length = usize::try_from(u32::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length > self.max_bytes {
            return Err(format!("a message of {length} bytes, where {} are allowed", self.max_bytes));
        }
        let whole = HEAD_BYTES + length + CODE_BYTES;
        if self.held.len() < whole {
            return Ok(None);
        }
        let rest = self.held.split_off(whole);
        let mut message = mem::replace(&mut self.held, rest);
        let code = message.split_off(HEAD_BYTES + length);
        let payload = message.split_off(HEAD_BYTES);
        if !self.line.confirms(&code, &message, &payload) {
            return Err("a message whose code is wrong: it was changed on the way".to_owned());
        }
        self.line.number += 1;
        match message.last() {
            Some(kind) if *kind == Kind::Bytes as u8 => Ok(Some((Kind::Bytes, payload))),
            Some(kind) if *kind == Kind::Failure as u8 => Ok(Some((Kind::Failure, payload))),
            _ => Err("a message of a kind that this build of han does not know".to_owned()),
        }
    }
}

/// All ranks' bytes in one payload: each with its length in front.
pub(super) fn join(all: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = Vec::new();
    for bytes in all {
        // Each came as a message, so its length fits.
        payload.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes());
        payload.extend(bytes);
    }
    payload
}

/// The bytes of `ranks` ranks out of one payload, if it holds exactly these.
pub(super) fn split(mut payload: &[u8], ranks: usize) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for _ in 0..ranks {
        let (length, rest) = payload.split_first_chunk()?;
        let (bytes, rest) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        all.push(bytes.to_vec());
        payload = rest;
    }
    payload.is_empty().then_some(all)
}

/// Longest payload that [`join`] makes for `ranks` ranks.
pub(super) fn max_joined_bytes(ranks: usize) -> usize {
    ranks.saturating_mul(size_of::<u32>() + MAX_GIVEN_BYTES)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(sender: Sender) -> (Outbox, Inbox) {
        let key = Key::new(b"key");
        (Outbox::new(key.clone(), sender), Inbox::new(key, sender, 1000))
    }

    #[test]
    fn lengths_are_refused_before_the_bytes_are_waited_for() {
        let (mut outbox, mut inbox) = line(Sender::Root);
        inbox.push(&outbox.seal(Kind::Bytes, &[0; 1001]).unwrap()[..4]);
        assert!(inbox.next().unwrap_err().contains("1001 bytes, where 1000"));
    }

    #[test]
    fn messages_are_not_taken_twice_nor_out_of_order_nor_from_the_other_side() {
        let (mut outbox, mut inbox) = line(Sender::Root);
        let (first, second) = (outbox.seal(Kind::Bytes, b"1").unwrap(), outbox.seal(Kind::Bytes, b"2").unwrap());
        for bytes in [&second, &line(Sender::Member).0.seal(Kind::Bytes, b"1").unwrap()] {
            let (_, mut inbox) = line(Sender::Root);
            inbox.push(bytes);
            assert!(inbox.next().unwrap_err().contains("code is wrong"));
        }
        inbox.push(&first);
        assert_eq!(inbox.next().unwrap(), Some((Kind::Bytes, b"1".to_vec())));
        inbox.push(&first);
        assert!(inbox.next().unwrap_err().contains("code is wrong"));
    }

    #[test]
    fn payloads_of_all_ranks_are_exactly_that() {
        let all = vec![b"one".to_vec(), vec![], b"three".to_vec()];
        let payload = join(&all);
        assert_eq!(split(&payload, 3), Some(all));
        assert_eq!(split(&payload, 2), None);
        assert_eq!(split(&payload, 4), None);
        assert_eq!(split(&[0xff; 8], 1), None);
    }

    proptest! {
        #[test]
        fn messages_do_not_depend_on_how_the_stream_was_cut(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            cut in 1_usize..200,
        ) {
            let (mut outbox, mut inbox) = line(Sender::Member);
            let stream: Vec<u8> =
                payloads.iter().flat_map(|payload| outbox.seal(Kind::Bytes, payload).unwrap()).collect();
            let mut seen = Vec::new();
            for chunk in stream.chunks(cut) {
                inbox.push(chunk);
                while let Some((kind, payload)) = inbox.next().unwrap() {
                    prop_assert_eq!(kind, Kind::Bytes);
                    seen.push(payload);
                }
            }
            prop_assert_eq!(seen, payloads);
        }

        #[test]
        fn damaged_messages_are_refused_or_waited_for(at in 0_usize..100, flip in 1_u8..) {
            let (mut outbox, mut inbox) = line(Sender::Root);
            let mut bytes = outbox.seal(Kind::Failure, &[5; 63]).unwrap();
            bytes[at] ^= flip;
            inbox.push(&bytes);
            prop_assert!(!matches!(inbox.next(), Ok(Some(_))));
        }

        #[test]
        fn any_bytes_are_refused_or_waited_for(bytes in prop::collection::vec(any::<u8>(), 0..2000), ranks in 0_usize..5) {
            let (_, mut inbox) = line(Sender::Root);
            inbox.push(&bytes);
            prop_assert!(!matches!(inbox.next(), Ok(Some(_))));
            if let Some(all) = split(&bytes, ranks) {
                prop_assert_eq!(join(&all), bytes);
            }
        }
    }
}

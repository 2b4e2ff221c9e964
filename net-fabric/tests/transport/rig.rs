//! Drives all ranks of a world from one thread, and keeps the memory of their messages.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use net_fabric::transport::{Completion, Posted, Tag, Token, Transport};
use net_fabric::{Error, Result};

/// How long anything may take that must happen.
const DEADLINE: Duration = Duration::from_secs(300);

/// What a transport cannot do by its nature.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Features {
    /// What is sent arrives; else only the time passes that it would take.
    pub(crate) data: bool,
    /// Sends to a rank that is gone fail.
    pub(crate) notices_death: bool,
    /// Sends that are given up harm no others; else they may take all of their rank's messages with them.
    pub(crate) parts_with_sends: bool,
    /// A message that is longer than its receive harms no others; else its sender may be out of reach then.
    pub(crate) forgives_lengths: bool,
}

/// A send or receive of one of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Message(u64);

pub(crate) struct Rig<T> {
    pub(crate) ranks: Vec<T>,
    pub(crate) features: Features,
    buffers: HashMap<u64, Vec<u8>>,
    ended: HashMap<u64, Completion>,
    next: u64,
}

impl<T: Transport> Rig<T> {
    pub(crate) fn new(ranks: Vec<T>, features: Features) -> Self {
        Self { ranks, features, buffers: HashMap::new(), ended: HashMap::new(), next: 0 }
    }

    /// One attempt. What is sent must stay where it is until the send has ended.
    pub(crate) fn try_send(
        &mut self,
        rank: usize,
        to: usize,
        tag: Tag,
        word: u64,
        data: &[u8],
        token: Token,
    ) -> Result<Posted> {
        // SAFETY: the callers keep `data` until the send has ended or was cancelled.
        unsafe { self.ranks[rank].send(to, tag, word, data.as_ptr(), data.len(), token) }
    }

    /// Begins to send a copy of `data`, as often as the transport is busy.
    pub(crate) fn send(&mut self, rank: usize, to: usize, tag: Tag, word: u64, data: &[u8]) -> Message {
        let message = self.message(data.to_vec());
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.begin_send(message, rank, to, tag, word).unwrap() {
                Posted::Busy => self.progress(),
                Posted::Pending | Posted::Done => return message,
            }
            assert!(Instant::now() < deadline, "rank {rank} has been refused to send to {to} for {DEADLINE:?}");
        }
    }

    /// One attempt to send a copy of `data`: nothing if the transport is busy.
    pub(crate) fn send_if_free(&mut self, rank: usize, to: usize, tag: Tag, data: &[u8]) -> Option<Message> {
        let message = self.message(data.to_vec());
        let posted = self.begin_send(message, rank, to, tag, 0).unwrap();
        (posted != Posted::Busy).then_some(message)
    }

    fn begin_send(&mut self, message: Message, rank: usize, to: usize, tag: Tag, word: u64) -> Result<Posted> {
        let Message(token) = message;
        let (data, bytes) = (self.buffers[&token].as_ptr(), self.buffers[&token].len());
        // SAFETY: the buffer stays in the rig until the message has ended.
        let posted = unsafe { self.ranks[rank].send(to, tag, word, data, bytes, Token(token)) }?;
        if posted == Posted::Done {
            self.ended.insert(token, Completion { token: Token(token), word: 0, outcome: Ok(bytes) });
        }
        Ok(posted)
    }

    /// Begins to receive `bytes` bytes.
    pub(crate) fn receive(&mut self, rank: usize, from: usize, tag: Tag, bytes: usize) -> Message {
        let message = self.message(vec![0xee; bytes]);
        let deadline = Instant::now() + DEADLINE;
        loop {
            let data = self.buffers.get_mut(&message.0).unwrap().as_mut_ptr();
            // SAFETY: the buffer stays in the rig until the message has ended.
            let posted = unsafe { self.ranks[rank].receive(from, tag, data, bytes, Token(message.0)) };
            match posted.unwrap() {
                Posted::Pending => return message,
                Posted::Busy => self.progress(),
                Posted::Done => panic!("a receive that is done at once has lost its word"),
            }
            assert!(Instant::now() < deadline, "rank {rank} has been refused to receive from {from} for {DEADLINE:?}");
        }
    }

    pub(crate) fn cancel(&mut self, rank: usize, message: Message) {
        self.ranks[rank].cancel(Token(message.0));
        self.buffers.remove(&message.0);
    }

    fn message(&mut self, buffer: Vec<u8>) -> Message {
        self.next += 1;
        self.buffers.insert(self.next, buffer);
        Message(self.next)
    }

    /// Lets every rank progress once.
    pub(crate) fn progress(&mut self) {
        let mut completed = Vec::new();
        for rank in &mut self.ranks {
            rank.progress(&mut completed).unwrap();
        }
        for completion in completed {
            let token = completion.token.0;
            assert!(token <= self.next, "token {token} is nobody's");
            let before = self.ended.insert(token, completion);
            assert!(before.is_none(), "message {token} has ended twice");
        }
    }

    pub(crate) fn sleep(&mut self, rank: usize, limit: Duration) {
        self.ranks[rank].sleep(limit).unwrap();
    }

    pub(crate) fn has_ended(&self, message: Message) -> bool {
        self.ended.contains_key(&message.0)
    }

    /// Waits until all have ended, with or without success.
    pub(crate) fn wait(&mut self, messages: &[Message]) {
        let deadline = Instant::now() + DEADLINE;
        while !messages.iter().all(|&message| self.has_ended(message)) {
            self.progress();
            let missing = || messages.iter().filter(|&&message| !self.has_ended(message)).count();
            assert!(Instant::now() < deadline, "{} of {} messages have not ended", missing(), messages.len());
        }
    }

    /// The bytes and the word of a message that has been received, or of one that was sent.
    pub(crate) fn take(&mut self, message: Message) -> (Vec<u8>, u64) {
        self.wait(&[message]);
        let completion = self.ended[&message.0].clone();
        let buffer = self.buffers.remove(&message.0).unwrap();
        assert_eq!(completion.outcome.unwrap(), buffer.len(), "length of a message");
        (buffer, completion.word)
    }

    /// Waits until all have ended well.
    pub(crate) fn finish(&mut self, messages: &[Message]) {
        self.wait(messages);
        for &message in messages {
            self.take(message);
        }
    }

    /// The error of a message that must fail.
    pub(crate) fn fail(&mut self, message: Message) -> Error {
        self.wait(&[message]);
        self.ended[&message.0].outcome.clone().expect_err("the message must fail")
    }

    /// Checks what was received, if the transport moves data.
    pub(crate) fn expect(&mut self, message: Message, data: &[u8], word: u64, what: &str) {
        let (received, came) = self.take(message);
        assert_eq!(came, word, "the word of {what}");
        assert_eq!(received.len(), data.len(), "{what}");
        assert!(!self.features.data || received == data, "the bytes of {what}");
    }
}

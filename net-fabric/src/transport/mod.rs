//! How messages move between ranks: tagged sends and receives that are begun, and completed by progress.
#![allow(unsafe_code)] // Declares what sends from and receives into the caller's memory.

pub mod loopback;
pub mod ofi;
pub mod simulated;

use std::time::Duration;

use crate::error::Result;

pub use loopback::Loopback;

/// What a receive is matched by, together with the sender's rank: 48 bits at most, because some providers have
/// no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tag(pub u64);

/// Tags from here on are of notes, of which there are few: a transport keeps room for them beside all other messages.
pub const NOTES: Tag = Tag(1 << 47);

/// The caller's name for a send or receive that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u64);

/// In place of a sender's rank: whoever sends a note with that tag. Such tags are used for nothing else.
pub const ANYBODY: usize = usize::MAX;

/// What became of an attempt to begin a send or a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// A send that has completed already: the memory is free again, no completion follows. Receives are never
    /// done at once, because their word comes with the completion.
    Done,
    /// A completion with its token will follow.
    Pending,
    /// The transport has no room now: nothing was begun; try again after progress.
    Busy,
}

/// A send or receive that has ended.
#[derive(Debug, Clone)]
pub struct Completion {
    /// The caller's name for it.
    pub token: Token,
    /// The word that came beside a received message; 0 for sends.
    pub word: u64,
    /// Bytes received or sent, or why it failed. A failed message leaves its memory undefined.
    pub outcome: Result<usize>,
}

/// A rank's door to the other ranks of a world.
///
/// Messages of one sender with one tag arrive in the order of their sends; others overtake each other: a message
/// that nobody receives yet does not hold up those behind it. Nothing moves but in calls. A receive from a peer
/// that is gone may stay pending for ever; a send to it fails, at once or when it completes.
pub trait Transport {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// Ranks in the world.
    fn size(&self) -> usize;

    /// The most bytes of one message.
    fn max_message_bytes(&self) -> usize {
        usize::MAX
    }

    /// How many messages may be under way in each direction, notes among them; more are refused as busy, but for some
    /// more notes.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// Whether [`receive`](Self::receive) takes [`ANYBODY`] for a peer.
    fn receives_from_anybody(&self) -> bool {
        false
    }

    /// Whether a rank has to keep what others send before it asks for that, so that they should not be far ahead; else
    /// their messages wait on their way. The same on all ranks.
    fn keeps_unasked(&self) -> bool {
        true
    }

    /// Begins to send `bytes` bytes from `data` to `peer`, with a word beside them.
    ///
    /// # Errors
    /// The peer is known to be out of reach, or the transport is broken.
    ///
    /// # Safety
    /// `data` is valid for reads of `bytes` bytes, and nobody writes them, until the send has completed, was
    /// cancelled, or the transport is gone. (A transport that moves no data, as its documentation says, takes null.)
    unsafe fn send(
        &mut self,
        peer: usize,
        tag: Tag,
        word: u64,
        data: *const u8,
        bytes: usize,
        token: Token,
    ) -> Result<Posted>;

    /// Begins to receive a message of exactly `bytes` bytes with this tag from `peer`. Another length is an error
    /// in the completion.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    ///
    /// # Safety
    /// `data` is valid for writes of `bytes` bytes, and nobody else uses them, until the receive has completed,
    /// was cancelled, or the transport is gone.
    unsafe fn receive(&mut self, peer: usize, tag: Tag, data: *mut u8, bytes: usize, token: Token) -> Result<Posted>;

    /// Lets messages move and appends what has completed to `completed`.
    ///
    /// # Errors
    /// The transport is broken: no message will complete any more. Or a message was lost that had been
    /// [done](Posted::Done), which is told once: others still move, so that whoever ends everything can tell its peers.
    fn progress(&mut self, completed: &mut Vec<Completion>) -> Result<()>;

    /// Gives a message up: when this returns, its memory is free. It may have completed before; either way a
    /// completion of that token can still follow, and nothing else.
    fn cancel(&mut self, token: Token);

    /// A peer that was found to be gone although nothing has failed yet, and why; told once. Messages to and from
    /// others still move: who must end everything because of it can tell them.
    fn found_gone(&mut self) -> Option<(usize, String)> {
        None
    }

    /// Sleeps until there may be something to progress, at most `limit`.
    ///
    /// # Errors
    /// As [`progress`](Self::progress).
    fn sleep(&mut self, limit: Duration) -> Result<()>;

    /// Waits until all ranks are here and all that this rank has sent is on its way, whatever becomes of this process:
    /// what comes before a transport is dropped in order.
    ///
    /// # Errors
    /// A peer is gone, or has not come within `limit`.
    fn leave(&mut self, limit: Duration) -> Result<()> {
        let _ = limit;
        Ok(())
    }

    /// The caller has reduced and copied so many bytes. Of interest where memory is null and time is not real.
    fn work(&mut self, reduced_bytes: usize, copied_bytes: usize) {
        let _ = (reduced_bytes, copied_bytes);
    }

    /// What carries the messages, in a few words for people.
    fn describe(&self) -> String;
}

/// A transport of which nobody has to know the kind.
impl<T: Transport + ?Sized> Transport for Box<T> {
    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn size(&self) -> usize {
        (**self).size()
    }

    fn max_message_bytes(&self) -> usize {
        (**self).max_message_bytes()
    }

    fn room(&self) -> usize {
        (**self).room()
    }

    fn receives_from_anybody(&self) -> bool {
        (**self).receives_from_anybody()
    }

    fn keeps_unasked(&self) -> bool {
        (**self).keeps_unasked()
    }

    unsafe fn send(
        &mut self,
        peer: usize,
        tag: Tag,
        word: u64,
        data: *const u8,
        bytes: usize,
        token: Token,
    ) -> Result<Posted> {
        // SAFETY: the caller's promise.
        unsafe { (**self).send(peer, tag, word, data, bytes, token) }
    }

    unsafe fn receive(&mut self, peer: usize, tag: Tag, data: *mut u8, bytes: usize, token: Token) -> Result<Posted> {
        // SAFETY: the caller's promise.
        unsafe { (**self).receive(peer, tag, data, bytes, token) }
    }

    fn progress(&mut self, completed: &mut Vec<Completion>) -> Result<()> {
        (**self).progress(completed)
    }

    fn cancel(&mut self, token: Token) {
        (**self).cancel(token);
    }

    fn found_gone(&mut self) -> Option<(usize, String)> {
        (**self).found_gone()
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        (**self).sleep(limit)
    }

    fn leave(&mut self, limit: Duration) -> Result<()> {
        (**self).leave(limit)
    }

    fn work(&mut self, reduced_bytes: usize, copied_bytes: usize) {
        (**self).work(reduced_bytes, copied_bytes);
    }

    fn describe(&self) -> String {
        (**self).describe()
    }
}

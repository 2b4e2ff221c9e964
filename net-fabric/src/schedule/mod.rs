//! A collective as data: what one rank does, step by step, and what each step has to wait for.
//!
//! An algorithm is written as the sequential program of a rank, with a [`Builder`] that derives from the ranges of
//! bytes what each step has to wait for. `docs/schedules.md` in this crate has the model and what it promises.

mod builder;
mod extent;
mod hazards;
mod packed;

pub use builder::Builder;
pub use packed::{Schedule, Step};

/// Which of a rank's memories a span lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Buffer {
    /// The rank's contribution; never written.
    Input,
    /// The rank's result, and all of a vector that is worked on in place.
    Output,
    /// Memory of the operation's own.
    Scratch,
}

/// A range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    /// Where it lies.
    pub buffer: Buffer,
    /// Its first byte.
    pub start: usize,
    /// Its length, which may be 0.
    pub bytes: usize,
}

impl Span {
    /// The bytes `start..start + bytes` of a buffer.
    #[must_use]
    pub fn new(buffer: Buffer, start: usize, bytes: usize) -> Self {
        Self { buffer, start, bytes }
    }

    /// The byte behind its last one.
    #[must_use]
    pub fn end(&self) -> usize {
        self.start + self.bytes
    }

    /// `bytes` bytes of it, from its byte `offset` on.
    ///
    /// # Panics
    /// They do not lie in it.
    #[must_use]
    pub fn part(&self, offset: usize, bytes: usize) -> Self {
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.bytes), "{offset}+{bytes} in {self:?}");
        Self { start: self.start + offset, bytes, ..*self }
    }

    /// Whether both have a byte in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.buffer == other.buffer && self.start.max(other.start) < self.end().min(other.end())
    }
}

/// What a step does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Sends bytes to a peer. `message` numbers the messages from this rank to that one, from 0, in the order of
    /// steps on both sides.
    Send {
        /// The receiver.
        peer: u32,
        /// The number by which both sides know the message.
        message: u32,
        /// What is sent.
        from: Span,
    },
    /// Receives bytes from a peer.
    Receive {
        /// The sender.
        peer: u32,
        /// The number by which both sides know the message.
        message: u32,
        /// Where it goes.
        into: Span,
    },
    /// `into = left op right`, in this order. `into` is one of the two, or apart from both.
    Reduce {
        /// The operand of the lower ranks.
        left: Span,
        /// The operand of the higher ranks.
        right: Span,
        /// The result.
        into: Span,
    },
    /// Copies bytes.
    Copy {
        /// What is copied.
        from: Span,
        /// Where it goes.
        into: Span,
    },
}

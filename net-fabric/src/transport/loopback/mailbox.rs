//! What has come for a rank and what it waits for, by sender and tag.
#![allow(unsafe_code)] // Holds and fills the caller's memory.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::transport::{ANYBODY, Completion, Tag, Token};

/// A rank's messages; whoever looks holds its lock.
#[derive(Debug, Default)]
pub(super) struct Mailbox {
    /// By the rank of the sender.
    lanes: Vec<Lane>,
    /// Receives from anybody.
    from_anybody: VecDeque<Receive>,
    /// What the rank has not fetched yet.
    pub(super) completed: Vec<Completion>,
    /// The rank has been told to look again since it last slept.
    pub(super) woken: bool,
    /// The rank sleeps.
    pub(super) sleeping: bool,
    /// The rank is gone.
    pub(super) gone: bool,
}

/// Both in the order in which they came.
#[derive(Debug, Default)]
struct Lane {
    receives: VecDeque<Receive>,
    arrivals: VecDeque<Arrival>,
    /// The sender was refused.
    refused: bool,
}

/// A receive that nothing has come for.
#[derive(Debug)]
pub(super) struct Receive {
    pub(super) tag: Tag,
    pub(super) data: *mut u8,
    pub(super) bytes: usize,
    pub(super) token: Token,
}

/// A message that nobody has received.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) tag: Tag,
    pub(super) word: u64,
    pub(super) bytes: usize,
    pub(super) payload: Payload,
}

// SAFETY: a receive's memory is used by whoever holds the lock of the mailbox that it is in, as the receiver promised
// to leave it alone.
unsafe impl Send for Receive {}
// SAFETY: the same of lent memory and its sender.
unsafe impl Send for Arrival {}

/// Longest message that is held without an allocation.
const SMALL_BYTES: usize = 64;

/// Where a message's bytes are.
#[derive(Debug)]
pub(super) enum Payload {
    Small([u8; SMALL_BYTES]),
    Held(Vec<u8>),
    /// Still at the sender, who is told by this token.
    Lent {
        data: *const u8,
        token: Token,
    },
}

impl Payload {
    /// # Safety
    /// `data` is valid for reads of `bytes`.
    pub(super) unsafe fn copy(data: *const u8, bytes: usize) -> Self {
        if bytes <= SMALL_BYTES {
            let mut small = [0; SMALL_BYTES];
            if bytes > 0 {
                // SAFETY: both are valid for `bytes`, one of them is new.
                unsafe { small.as_mut_ptr().copy_from_nonoverlapping(data, bytes) };
            }
            return Self::Small(small);
        }
        // SAFETY: the caller's promise; nobody writes while the caller is in its call.
        Self::Held(unsafe { std::slice::from_raw_parts(data, bytes) }.to_vec())
    }

    pub(super) fn data(&self) -> *const u8 {
        match self {
            Self::Small(small) => small.as_ptr(),
            Self::Held(held) => held.as_ptr(),
            Self::Lent { data, .. } => *data,
        }
    }
}

impl Receive {
    /// # Safety
    /// This receive's memory is valid for writes, and `data` for reads of `bytes`; they do not overlap.
    pub(super) unsafe fn fill(&self, sender: usize, data: *const u8, bytes: usize) -> Result<usize> {
        if bytes != self.bytes {
            return Err(Error::Length { rank: sender, sent: bytes, expected: self.bytes });
        }
        if bytes > 0 {
            // SAFETY: the caller's promise.
            unsafe { self.data.copy_from_nonoverlapping(data, bytes) };
        }
        Ok(bytes)
    }
}

/// Whom to tell after a message was taken, when the lock is free again: a lock of another mailbox is never taken
/// within one.
#[derive(Debug, Default)]
pub(super) struct Matched {
    pub(super) senders: Vec<(usize, Token, Result<usize>)>,
    pub(super) refused: Option<usize>,
}

impl Mailbox {
    pub(super) fn new(ranks: usize) -> Self {
        Self { lanes: (0..ranks).map(|_| Lane::default()).collect(), ..Self::default() }
    }

    pub(super) fn take_receive(&mut self, sender: usize, tag: Tag) -> Option<Receive> {
        [&mut self.lanes[sender].receives, &mut self.from_anybody].into_iter().find_map(|receives| {
            let index = receives.iter().position(|receive| receive.tag == tag)?;
            receives.remove(index)
        })
    }

    pub(super) fn put_receive(&mut self, sender: usize, receive: Receive) {
        if sender == ANYBODY {
            self.from_anybody.push_back(receive);
        } else {
            self.lanes[sender].receives.push_back(receive);
        }
    }

    /// A message of this sender, or of anybody, and whose it is.
    pub(super) fn take_arrival(&mut self, sender: usize, tag: Tag) -> Option<(usize, Arrival)> {
        let senders = if sender == ANYBODY { 0..self.lanes.len() } else { sender..sender + 1 };
        senders.into_iter().find_map(|sender| {
            let arrivals = &mut self.lanes[sender].arrivals;
            let index = arrivals.iter().position(|arrival| arrival.tag == tag)?;
            Some((sender, arrivals.remove(index)?))
        })
    }

    pub(super) fn put_arrival(&mut self, sender: usize, arrival: Arrival) {
        self.lanes[sender].arrivals.push_back(arrival);
    }

    pub(super) fn held(&self, sender: usize) -> usize {
        self.lanes[sender].arrivals.len()
    }

    pub(super) fn refuse(&mut self, sender: usize) {
        self.lanes[sender].refused = true;
    }

    /// The sender, if it was refused and there is room now.
    pub(super) fn admit(&mut self, sender: usize) -> Option<usize> {
        std::mem::take(&mut self.lanes[sender].refused).then_some(sender)
    }

    pub(super) fn cancel_receive(&mut self, token: Token) -> bool {
        let lanes = self.lanes.iter_mut().map(|lane| &mut lane.receives);
        lanes.chain([&mut self.from_anybody]).any(|receives| {
            let index = receives.iter().position(|receive| receive.token == token);
            index.and_then(|index| receives.remove(index)).is_some()
        })
    }

    /// Takes back what `sender` has lent by this token.
    pub(super) fn cancel_arrival(&mut self, sender: usize, token: Token) -> bool {
        let arrivals = &mut self.lanes[sender].arrivals;
        let lent = |arrival: &Arrival| matches!(arrival.payload, Payload::Lent { token: lent, .. } if lent == token);
        let index = arrivals.iter().position(lent);
        index.and_then(|index| arrivals.remove(index)).is_some()
    }

    /// Takes back all that a sender has lent which goes.
    pub(super) fn forget(&mut self, sender: usize) {
        self.lanes[sender].arrivals.retain(|arrival| !matches!(arrival.payload, Payload::Lent { .. }));
    }

    /// Ends all that this rank was in; returns who has lent what.
    pub(super) fn close(&mut self) -> Vec<(usize, Token)> {
        self.gone = true;
        self.from_anybody.clear();
        let mut lent = Vec::new();
        for (sender, lane) in self.lanes.iter_mut().enumerate() {
            lane.receives.clear();
            for arrival in lane.arrivals.drain(..) {
                if let Payload::Lent { token, .. } = arrival.payload {
                    lent.push((sender, token));
                }
            }
        }
        lent
    }
}

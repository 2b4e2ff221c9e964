//! What an engine is asked to do.

use std::sync::Arc;

use super::operands::{Operands, Reduction, Vectors};
use super::seal::Fingerprint;
use super::tag::{Key, MAX_COMMUNICATORS, MAX_MESSAGES};
use crate::error::{Error, Result};
use crate::schedule::{Action, Buffer, Schedule, Span};
use crate::transport::Transport;

/// In which order, and how far ahead, an operation's steps are begun. The result is the same under each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Policy {
    /// One step after the other.
    Blocking,
    /// Round by round, receives one round ahead.
    WaitAll,
    /// Each step as soon as what it waits for has completed.
    EventDriven {
        /// Sends to one peer that are under way at once; at least 1.
        sends: u32,
        /// Receives from one peer that are under way at once: more than `sends`, so that what a peer sends is
        /// expected.
        recvs: u32,
    },
}

impl Default for Policy {
    fn default() -> Self {
        Self::EventDriven { sends: 4, recvs: 6 }
    }
}

/// A call of a communicator, as its ranks speak of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Called {
    /// Which call of which communicator; not what its messages carry, which may be those of other communicators.
    pub(crate) key: Key,
    /// The communicator's ranks in short: others may have one of the same number.
    pub(crate) group: u32,
    pub(crate) fingerprint: Fingerprint,
    /// Of this call and all before it on its communicator.
    pub(crate) digest: u32,
}

/// A call that this rank's engine knows of; see [`Engine::announce`](super::Engine::announce).
#[derive(Debug, Clone, Copy, Default)]
pub struct Announced {
    pub(super) called: Called,
}

impl Announced {
    /// The call's number on its communicator.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.called.key.sequence
    }
}

/// One rank's part of a collective operation.
#[derive(Debug, Clone)]
pub struct Work {
    /// What is done.
    pub schedule: Arc<Schedule>,
    /// On what.
    pub operands: Operands,
    /// In which order.
    pub policy: Policy,
    /// Which operation of which communicator it is.
    pub key: Key,
    /// What the other ranks must agree with, unless it is a part of a call that was announced.
    pub fingerprint: Fingerprint,
    /// The call that it is a part of, of this communicator or another one.
    pub part_of: Option<Announced>,
    /// The communicator's ranks in the transport's world; none if they are the same.
    pub group: Option<Arc<[u32]>>,
}

impl Work {
    pub(super) fn scratch_bytes(&self) -> usize {
        if matches!(self.operands.vectors, Vectors::Null) { 0 } else { self.schedule.scratch_bytes() }
    }

    /// Whether a transport can do it at all. `extent` is the schedule's.
    pub(super) fn check(&self, extent: &Extent, transport: &impl Transport) -> Result<()> {
        self.complaint(extent, transport).map_or(Ok(()), |complaint| Err(Error::InvalidArgument(complaint)))
    }

    fn complaint(&self, extent: &Extent, transport: &impl Transport) -> Option<String> {
        let size = transport.size();
        let ranks = self.group.as_ref().map_or(size, |group| group.len());
        if let Some(rank) = self.group.as_ref().and_then(|group| group.iter().find(|rank| **rank as usize >= size)) {
            return Some(format!("rank {rank} of the group: the world's ranks are 0 to {}", size - 1));
        }
        if self.key.communicator >= MAX_COMMUNICATORS {
            let (communicator, most) = (self.key.communicator, MAX_COMMUNICATORS - 1);
            return Some(format!("communicator {communicator}: the greatest is {most}"));
        }
        if extent.ranks as usize > ranks {
            return Some(format!(
                "a schedule with messages to rank {}: ranks are 0 to {}",
                extent.ranks - 1,
                ranks - 1
            ));
        }
        if extent.messages > MAX_MESSAGES {
            let messages = extent.messages;
            return Some(format!(
                "a schedule with {messages} messages to one rank: at most {MAX_MESSAGES} are possible"
            ));
        }
        if extent.message_bytes > transport.max_message_bytes() {
            let (bytes, max, name) = (extent.message_bytes, transport.max_message_bytes(), transport.describe());
            return Some(format!(
                "a message of {bytes} bytes: {name} takes at most {max}, so smaller chunks are needed"
            ));
        }
        if let Policy::EventDriven { sends, recvs } = self.policy
            && (sends == 0 || recvs <= sends)
        {
            return Some(format!(
                "{sends} sends and {recvs} receives to a peer at once: it takes a send, and more receives than sends"
            ));
        }
        if let Some(Reduction { op, datatype }) = &self.operands.reduction {
            if !op.is_defined_for(*datatype) {
                return Some(format!("operator {} is not defined for {}", op.name(), datatype));
            }
            if !extent.reduced_bytes.is_multiple_of(datatype.size()) {
                return Some(format!("the schedule cuts elements of {datatype} apart"));
            }
        }
        let Vectors::Real { input_bytes, output_bytes, .. } = self.operands.vectors else { return None };
        if extent.input_bytes > input_bytes || extent.output_bytes > output_bytes {
            return Some(format!(
                "the schedule uses {} bytes of input and {} of output, the operands have {input_bytes} and \
                 {output_bytes}",
                extent.input_bytes, extent.output_bytes
            ));
        }
        let lacks_operator = extent.reduced_bytes > 0 && self.operands.reduction.is_none();
        lacks_operator.then(|| "the schedule reduces, so the operands need an operator".to_owned())
    }
}

/// What a schedule needs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Extent {
    input_bytes: usize,
    output_bytes: usize,
    message_bytes: usize,
    /// Ranks up to the greatest that has messages.
    ranks: u32,
    /// Messages to one rank, or from one.
    messages: u32,
    /// What the lengths of all reductions are multiples of.
    reduced_bytes: usize,
}

impl Extent {
    /// # Panics
    /// The schedule uses scratch memory beyond what it asks for: no builder makes such a thing.
    fn of(schedule: &Schedule) -> Self {
        let mut extent = Self::default();
        let mut scratch_bytes = 0;
        for step in 0..schedule.len() {
            let mut touch = |span: Span| match span.buffer {
                Buffer::Input => extent.input_bytes = extent.input_bytes.max(span.end()),
                Buffer::Output => extent.output_bytes = extent.output_bytes.max(span.end()),
                Buffer::Scratch => scratch_bytes = scratch_bytes.max(span.end()),
            };
            match schedule.action(step) {
                Action::Send { peer, message, from: span } | Action::Receive { peer, message, into: span } => {
                    touch(span);
                    extent.message_bytes = extent.message_bytes.max(span.bytes);
                    extent.ranks = extent.ranks.max(peer.saturating_add(1));
                    extent.messages = extent.messages.max(message.saturating_add(1));
                }
                Action::Copy { from, into } => [from, into].into_iter().for_each(touch),
                Action::Reduce { left, right, into } => {
                    [left, right, into].into_iter().for_each(touch);
                    extent.reduced_bytes = greatest_divisor(extent.reduced_bytes, into.bytes);
                }
            }
        }
        assert!(scratch_bytes <= schedule.scratch_bytes(), "the schedule's scratch memory holds its spans");
        extent
    }
}

fn greatest_divisor(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// The extents of schedules that were used lately, so that one which is used again need not be gone through.
#[derive(Debug, Default)]
pub(super) struct Extents {
    known: Vec<(Arc<Schedule>, Extent)>,
    next: usize,
}

/// Schedules that are remembered.
const KNOWN: usize = 8;

impl Extents {
    pub(super) fn of(&mut self, schedule: &Arc<Schedule>) -> Extent {
        if let Some((_, extent)) = self.known.iter().find(|(known, _)| Arc::ptr_eq(known, schedule)) {
            return *extent;
        }
        let extent = Extent::of(schedule);
        if self.known.len() < KNOWN {
            self.known.push((Arc::clone(schedule), extent));
        } else {
            self.known[self.next % KNOWN] = (Arc::clone(schedule), extent);
            self.next += 1;
        }
        extent
    }
}

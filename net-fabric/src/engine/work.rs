//! What an engine is asked to do.

use std::sync::Arc;

use super::operands::{Operands, Reduction, Vectors};
use super::seal::Fingerprint;
use super::tag::{Key, MAX_COMMUNICATORS, MAX_MESSAGES};
use crate::error::{Error, Result};
use crate::schedule::Schedule;
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

impl Policy {
    /// ADAPT's, as it is used where nothing else is said.
    pub const EVENT_DRIVEN: Self = Self::EventDriven { sends: 4, recvs: 6 };
}

impl Default for Policy {
    fn default() -> Self {
        Self::EVENT_DRIVEN
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

/// How many messages one operation may have under way in either direction, whatever its policy and however many its peers:
/// those of other communicators that are the oldest there need room, too.
pub(super) fn bound(transport: &impl Transport) -> usize {
    (transport.room() / 16).max(1)
}

impl Work {
    pub(super) fn scratch_bytes(&self) -> usize {
        if matches!(self.operands.vectors, Vectors::Null) { 0 } else { self.schedule.scratch_bytes() }
    }

    /// How many messages it has under way at once in either direction, at most.
    pub(super) fn window(&self, transport: &impl Transport) -> usize {
        let [sends, receives] = self.windows();
        sends.max(receives).min(bound(transport))
    }

    /// How many sends and receives its policy has under way at once, at most.
    pub(super) fn windows(&self) -> [usize; 2] {
        let (sends, recvs) = match self.policy {
            Policy::Blocking => (1, 1),
            // A round may have many with one peer.
            Policy::WaitAll => (u32::MAX, u32::MAX),
            Policy::EventDriven { sends, recvs } => (sends, recvs),
        };
        let extent = self.schedule.extent();
        [extent.sends.under_way(sends), extent.receives.under_way(recvs)]
    }

    /// Whether a transport can do it at all.
    ///
    /// # Panics
    /// The schedule uses scratch memory beyond what it asks for: no builder makes such a thing.
    pub(super) fn check(&self, transport: &impl Transport) -> Result<()> {
        self.complaint(transport).map_or(Ok(()), |complaint| Err(Error::InvalidArgument(complaint)))
    }

    fn complaint(&self, transport: &impl Transport) -> Option<String> {
        let (size, extent) = (transport.size(), self.schedule.extent());
        assert!(extent.scratch_bytes <= self.schedule.scratch_bytes(), "the schedule's scratch memory holds its spans");
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

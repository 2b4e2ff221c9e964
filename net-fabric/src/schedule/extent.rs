//! What a schedule needs of memory, ranks and messages.

use super::{Action, Buffer, Span};

/// What a schedule needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Extent {
    pub(crate) input_bytes: usize,
    pub(crate) output_bytes: usize,
    pub(crate) scratch_bytes: usize,
    /// Of the longest message.
    pub(crate) message_bytes: usize,
    /// Ranks up to the greatest that has messages.
    pub(crate) ranks: u32,
    /// Messages to one rank, or from one.
    pub(crate) messages: u32,
    pub(crate) sends: Flow,
    pub(crate) receives: Flow,
    /// What the lengths of all reductions are multiples of.
    pub(crate) reduced_bytes: usize,
}

/// The messages of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flow {
    messages: usize,
    peers: usize,
}

impl Flow {
    /// How many are under way at once, at most, if so many are with each peer.
    pub(crate) fn under_way(self, with_each: u32) -> usize {
        self.messages.min(self.peers.saturating_mul(with_each as usize))
    }

    /// A message that is the first with its peer if its number is 0.
    fn count(&mut self, number: u32) {
        self.messages += 1;
        self.peers += usize::from(number == 0);
    }
}

impl Extent {
    pub(super) fn of(actions: impl Iterator<Item = Action>) -> Self {
        let mut extent = Self::default();
        for action in actions {
            match action {
                Action::Send { message, .. } => extent.sends.count(message),
                Action::Receive { message, .. } => extent.receives.count(message),
                Action::Copy { .. } | Action::Reduce { .. } => {}
            }
            match action {
                Action::Send { peer, message, from: span } | Action::Receive { peer, message, into: span } => {
                    extent.touch(span);
                    extent.message_bytes = extent.message_bytes.max(span.bytes);
                    extent.ranks = extent.ranks.max(peer.saturating_add(1));
                    extent.messages = extent.messages.max(message.saturating_add(1));
                }
                Action::Copy { from, into } => [from, into].into_iter().for_each(|span| extent.touch(span)),
                Action::Reduce { left, right, into } => {
                    [left, right, into].into_iter().for_each(|span| extent.touch(span));
                    extent.reduced_bytes = greatest_divisor(extent.reduced_bytes, into.bytes);
                }
            }
        }
        extent
    }

    fn touch(&mut self, span: Span) {
        let bytes = match span.buffer {
            Buffer::Input => &mut self.input_bytes,
            Buffer::Output => &mut self.output_bytes,
            Buffer::Scratch => &mut self.scratch_bytes,
        };
        *bytes = span.end().max(*bytes);
    }
}

fn greatest_divisor(mut a: usize, mut b: usize) -> usize {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

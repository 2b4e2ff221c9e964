//! What a provider can do, and what of it is used.

use std::mem::size_of;

use super::Config;
use crate::fabric::Info;
use crate::transport;

/// Notes under way in each direction for which there is room whatever else is.
const NOTES: usize = 64;

/// What an endpoint can do, and how it is used.
pub(super) struct Limits {
    /// In each direction, notes among them, which may be [more](Self::room).
    pub(super) outstanding: usize,
    pub(super) inject_bytes: usize,
    pub(super) max_message_bytes: usize,
    pub(super) registers: bool,
    pub(super) word_in_message: bool,
    /// The provider cuts longer messages without a word: their end is caught by memory behind the receiver's.
    pub(super) catches_longer: bool,
    /// The provider acknowledges in the caller's own calls, so that a rank has to go on calling for its peers.
    pub(super) lingers: bool,
    /// The provider reads messages that nobody has asked for, and keeps them; others leave them in the connection.
    pub(super) keeps_unasked: bool,
    /// The provider does not tell of the loss of a message whose bytes it has taken along.
    pub(super) loses_silently: bool,
    /// How often the queue is read in vain.
    pub(super) reads: u32,
    /// The provider closes a connection over a message that is longer than its receive.
    pub(super) breaks_at_longer: bool,
}

impl Limits {
    pub(super) fn of(info: &Info, config: &Config) -> Self {
        let word_in_message = config.word_in_message || info.word_bytes() < size_of::<u64>();
        let datagrams = info.provider() == "udp;ofi_rxd";
        let word = if word_in_message { size_of::<u64>() } else { 0 };
        let most = messages(info);
        Self {
            outstanding: config.outstanding.min(most - NOTES.min(most / 2)).max(1),
            inject_bytes: info.inject_bytes(),
            max_message_bytes: info.max_message_bytes().saturating_sub(word).min(isize::MAX.cast_unsigned()),
            registers: config.register || info.registers_local_memory(),
            word_in_message,
            catches_longer: datagrams && info.pieces() > 2,
            lingers: datagrams,
            keeps_unasked: !matches!(&*info.provider(), "net" | "tcp"),
            // `udp;ofi_rxd` tells of no loss at all.
            loses_silently: !matches!(&*info.provider(), "net" | "tcp" | "sockets" | "udp;ofi_rxd"),
            reads: config.reads.max(1),
            breaks_at_longer: matches!(&*info.provider(), "net" | "tcp;ofi_rxm") && info.version() < (118, 0),
        }
    }

    /// So many messages are under way in a direction when no further one with this tag may be: no other message takes
    /// the place that a note has left before the next one is posted.
    #[inline]
    pub(super) fn room(&self, tag: u64) -> usize {
        self.outstanding + if tag >= transport::NOTES.0 { NOTES } else { 0 }
    }

    /// Messages in both directions, and one that looks for others.
    pub(super) fn slots(&self) -> usize {
        2 * (self.outstanding + NOTES) + 1
    }

    /// A completion for each, and some for the failures of messages without a slot.
    pub(super) fn completions(&self) -> usize {
        self.slots() + 64
    }
}

/// Messages that a provider takes in each direction before it refuses one. Those over sockets have a small number, and
/// take any.
fn messages(info: &Info) -> usize {
    match &*info.provider() {
        "net" | "tcp" | "sockets" => usize::MAX,
        _ => info.outstanding(),
    }
}

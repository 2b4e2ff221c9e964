//! Messages that nobody has asked for yet, kept to let those behind them past.
//!
//! The native sockets providers (`net` in libfabric 1.17, `tcp` later) leave a message that no receive was posted for
//! in its connection, the later ones after 64 of them: all that comes behind it waits, and a rank that waits for one
//! of those would wait for ever. So a rank that has receives posted, and sees nothing complete for a while, asks the
//! provider (`FI_PEEK`) whether such a message stands at the head of one of these connections, and takes it into
//! memory of its own, where the receive for it finds it later.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::transport::ANYBODY;

/// A message that came before its receive.
pub(super) struct Kept {
    pub(super) word: u64,
    pub(super) data: Box<[u8]>,
}

/// What a message takes beside its bytes, about: the shortest ones take little else.
const BESIDE_BYTES: usize = 64;

impl Kept {
    fn bytes(&self) -> usize {
        self.data.len() + BESIDE_BYTES
    }
}

/// Such messages, and when to look for more.
pub(super) struct Unexpected {
    kept: HashMap<(usize, u64), VecDeque<Kept>>,
    bytes: usize,
    /// That many are taken as they come. Beyond it only what is in front of a message that a receive awaits of one peer.
    limit: usize,
    /// Whether the provider needs this, and can do it.
    pub(super) enabled: bool,
    /// The peer whose connection is being looked at, or whose message is being taken: no receive is posted for it
    /// meanwhile, lest messages with one tag overtake each other.
    pub(super) looking_at: Option<usize>,
    /// The peer whose connection is to be looked at next.
    pub(super) look_at: Option<usize>,
    /// The slot behind that of the last look.
    pub(super) cursor: usize,
    /// The rank that is looked at next where anybody's messages are awaited, and whether its turn is next.
    pub(super) anybody: (usize, bool),
    last: Option<Instant>,
}

/// Providers that let a message bar its connection.
pub(super) fn barred_by_messages(provider: &str) -> bool {
    matches!(provider, "net" | "tcp")
}

/// Memory for a message of this length, as its header tells it; none where there is not as much.
pub(super) fn room_for(bytes: usize) -> Option<Box<[u8]>> {
    // Zeroed memory costs nothing until it is used, but to ask for too much of it ends the process.
    Vec::<u8>::new().try_reserve_exact(bytes).ok()?;
    Some(vec![0; bytes].into_boxed_slice())
}

/// How long nothing completes before a look is taken, and between looks that find nothing.
const PATIENCE: Duration = Duration::from_micros(200);

impl Unexpected {
    pub(super) fn new(enabled: bool, limit: usize) -> Self {
        Self {
            kept: HashMap::new(),
            bytes: 0,
            limit,
            enabled,
            looking_at: None,
            look_at: None,
            cursor: 0,
            anybody: (0, false),
            last: None,
        }
    }

    /// Nothing has completed for `idle`: whether it is time to look.
    pub(super) fn due(&mut self, idle: Duration) -> bool {
        let due = idle >= PATIENCE && self.can_look() && self.last.is_none_or(|last| last.elapsed() >= PATIENCE);
        if due {
            self.last = Some(Instant::now());
        }
        due
    }

    /// Whether no look is under way.
    pub(super) fn can_look(&self) -> bool {
        self.enabled && self.looking_at.is_none()
    }

    /// Whether to look again at once. Beyond the limit it is one look a stall: the message that is waited for may be behind
    /// all others.
    pub(super) fn may_go_on(&self) -> bool {
        self.can_look() && self.has_room()
    }

    /// Whether less is kept than the limit.
    pub(super) fn has_room(&self) -> bool {
        self.bytes < self.limit
    }

    pub(super) fn keep(&mut self, peer: usize, tag: u64, kept: Kept) {
        self.bytes += kept.bytes();
        self.kept.entry((peer, tag)).or_default().push_back(kept);
    }

    /// The oldest kept message of this peer, or of anybody, with this tag, and whose it is.
    pub(super) fn take(&mut self, peer: usize, tag: u64) -> Option<(usize, Kept)> {
        if self.kept.is_empty() {
            return None;
        }
        let of_anybody = || self.kept.keys().find(|(_, kept)| *kept == tag).map(|(peer, _)| *peer);
        let peer = if peer == ANYBODY { of_anybody()? } else { peer };
        let queue = self.kept.get_mut(&(peer, tag))?;
        let kept = queue.pop_front()?;
        if queue.is_empty() {
            self.kept.remove(&(peer, tag));
        }
        self.bytes -= kept.bytes();
        Some((peer, kept))
    }
}

#[cfg(test)]
mod tests {
    use super::{Kept, Unexpected, room_for};

    #[test]
    fn messages_without_bytes_take_room_as_well() {
        let mut unexpected = Unexpected::new(true, 10_000);
        let mut kept = 0;
        while unexpected.has_room() {
            unexpected.keep(1, 5, Kept { word: kept, data: Box::default() });
            kept += 1;
            assert!(kept < 10_000, "they take memory, too");
        }
        let words = std::iter::from_fn(|| unexpected.take(1, 5)).map(|(_, kept)| kept.word);
        assert!(words.eq(0..kept));
        assert_eq!(unexpected.bytes, 0);
    }

    #[test]
    fn lengths_that_cannot_be_true_find_no_room() {
        assert_eq!(room_for(5).as_deref(), Some(&[0; 5][..]));
        for bytes in [usize::MAX, isize::MAX.cast_unsigned(), 1 << 60] {
            assert_eq!(room_for(bytes), None, "{bytes}");
        }
    }
}

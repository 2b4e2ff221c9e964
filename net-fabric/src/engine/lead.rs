//! How far this rank is ahead of the others of a communicator, by the messages that they have not yet received.
//!
//! A rank whose calls only send, as the root of short bcasts, waits for nobody. What the others have not asked for yet they
//! must keep, and a slow one would have to keep all that a quick one can send. So each tells each from time to time
//! how many of its messages it has received, and who is too many ahead of one begins no further operation of this
//! communicator until it hears of that one.

use std::collections::BTreeMap;

/// Messages that a peer has not received, as far as is known, from which on no operation begins.
const MOST: u32 = 1024;
/// Messages after which a peer is told that they were received. That it has half as many as may be missing keeps a
/// peer that is no slower from ever waiting.
const TOLD_EVERY: u32 = MOST / 2;

/// Counts of messages modulo 2^32.
#[derive(Debug, Clone, Copy, Default)]
struct Peer {
    sent: u32,
    /// Those of them that it is known to have received.
    arrived: u32,
    received: u32,
    /// Those of them that it was told of.
    told: u32,
}

impl Peer {
    fn is_far_behind(&self) -> bool {
        self.sent.wrapping_sub(self.arrived) >= MOST
    }
}

/// The messages of a communicator: those to others of operations that have begun on this rank, and those from others of
/// operations that have completed.
#[derive(Debug, Default)]
pub(super) struct Lead {
    /// By rank of the world: those that there were any with.
    peers: BTreeMap<usize, Peer>,
    /// How many of them are far behind.
    far_behind: usize,
}

impl Lead {
    /// Whether no further operation may begin.
    #[inline]
    pub(super) fn is_great(&self) -> bool {
        self.far_behind > 0
    }

    /// Ranks that are too many messages behind.
    pub(super) fn far_behind(&self) -> impl Iterator<Item = usize> {
        self.peers.iter().filter(|(_, peer)| peer.is_far_behind()).map(|(&rank, _)| rank)
    }

    /// A message is going to be sent to this rank.
    #[inline]
    pub(super) fn send(&mut self, rank: usize) {
        let peer = self.peer(rank);
        let was_far = peer.is_far_behind();
        peer.sent = peer.sent.wrapping_add(1);
        self.far_behind += usize::from(!was_far && peer.is_far_behind());
    }

    /// A message of this rank's was received.
    #[inline]
    pub(super) fn receive(&mut self, rank: usize) {
        let peer = self.peer(rank);
        peer.received = peer.received.wrapping_add(1);
    }

    /// How many messages of this rank's were received, if it is time to tell it.
    #[inline]
    pub(super) fn news_for(&mut self, rank: usize) -> Option<u32> {
        let peer = self.peer(rank);
        if peer.received.wrapping_sub(peer.told) < TOLD_EVERY {
            return None;
        }
        peer.told = peer.received;
        Some(peer.received)
    }

    /// This rank says that it has received so many messages.
    pub(super) fn hear(&mut self, rank: usize, received: u32) {
        let Some(peer) = self.peers.get_mut(&rank) else { return };
        // It may speak of an earlier communicator of the same number.
        if peer.sent.wrapping_sub(received) >= peer.sent.wrapping_sub(peer.arrived) {
            return;
        }
        let was_far = peer.is_far_behind();
        peer.arrived = received;
        self.far_behind -= usize::from(was_far && !peer.is_far_behind());
    }

    fn peer(&mut self, rank: usize) -> &mut Peer {
        self.peers.entry(rank).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hears_nothing_stops_and_goes_on_when_it_hears() {
        let mut lead = Lead::default();
        // The counts wrap around on the way.
        let start = u32::MAX - MOST / 2;
        *lead.peer(1) = Peer { sent: start, arrived: start, ..Peer::default() };
        for _ in 0..MOST {
            assert!(!lead.is_great());
            [0, 1].into_iter().for_each(|rank| lead.send(rank));
        }
        assert!(lead.is_great() && lead.far_behind().eq([0, 1]));
        lead.hear(1, start.wrapping_add(3));
        assert!(lead.far_behind().eq([0]));
        // Late, from before, or of another communicator.
        for received in [3, 2, 0, MOST + 1] {
            lead.hear(0, received);
            assert!(!lead.is_great());
        }
        lead.send(0);
        assert!(!lead.is_great());
        (0..2).for_each(|_| lead.send(0));
        assert!(lead.far_behind().eq([0]), "three were missing fewer");
    }

    #[test]
    fn who_is_told_is_never_stopped_by_a_peer_that_keeps_up() {
        let (mut sender, mut receiver) = (Lead::default(), Lead::default());
        let mut news = Vec::new();
        for number in 0..10 * MOST {
            sender.send(5);
            receiver.receive(2);
            news.extend(receiver.news_for(2));
            // Half as many messages later.
            if number % TOLD_EVERY == TOLD_EVERY - 2 {
                news.drain(..).for_each(|received| sender.hear(5, received));
            }
            assert!(!sender.is_great(), "{number}");
        }
    }
}

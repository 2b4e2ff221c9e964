//! How far this rank is ahead of its peers: short messages that the provider has taken along, and may still have.
//!
//! Nobody is told when these are gone, and providers over sockets refuse none: they keep what the kernel has no room
//! for, without end if the peer is slow. So after some of them one is sent whose end is told. Messages to a peer go out in
//! the order in which they were posted, so those before it are gone then, too.

/// Messages to a peer that were taken along and are not known to be gone, at most.
const MOST: u32 = 512;

/// Counts modulo 2^32 of messages that were taken along.
#[derive(Clone, Copy, Default)]
struct Peer {
    taken: u32,
    /// Those of them that are known to be gone.
    gone: u32,
}

/// The same for each peer.
pub(super) struct Ahead(Vec<Peer>);

impl Ahead {
    pub(super) fn new(peers: usize) -> Self {
        Self(vec![Peer::default(); peers])
    }

    /// Whether the provider may take another message to this peer along.
    #[inline]
    pub(super) fn has_room(&self, peer: usize) -> bool {
        let Peer { taken, gone } = self.0[peer];
        taken.wrapping_sub(gone) < MOST
    }

    /// It has.
    #[inline]
    pub(super) fn take(&mut self, peer: usize) {
        let taken = &mut self.0[peer].taken;
        *taken = taken.wrapping_add(1);
    }

    /// How many it has taken along so far; 0 for anybody.
    pub(super) fn taken(&self, peer: usize) -> u32 {
        self.0.get(peer).map_or(0, |peer| peer.taken)
    }

    /// A message has gone that was posted when `before` had been taken along.
    pub(super) fn note_gone(&mut self, peer: usize, before: u32) {
        let Peer { taken, gone } = &mut self.0[peer];
        // Long messages may end after later ones.
        if taken.wrapping_sub(before) < taken.wrapping_sub(*gone) {
            *gone = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Ahead, MOST, Peer};

    #[test]
    fn the_end_of_a_message_tells_of_those_before_it() {
        // The counts wrap around on the way.
        let start = u32::MAX - MOST / 2;
        let mut ahead = Ahead(vec![Peer::default(), Peer { taken: start, gone: start }]);
        let mut befores = Vec::new();
        while ahead.has_room(1) {
            befores.push(ahead.taken(1));
            ahead.take(1);
        }
        assert_eq!(befores.len(), MOST as usize);
        assert!(ahead.has_room(0), "another peer");
        ahead.note_gone(1, befores[0]);
        assert!(!ahead.has_room(1), "nothing was before it");
        ahead.note_gone(1, befores[10]);
        // It is older, and says nothing new.
        ahead.note_gone(1, befores[5]);
        for _ in 0..10 {
            assert!(ahead.has_room(1));
            ahead.take(1);
        }
        assert!(!ahead.has_room(1));
        ahead.note_gone(1, ahead.taken(1));
        assert_eq!(ahead.0[1].gone, ahead.0[1].taken);
    }
}

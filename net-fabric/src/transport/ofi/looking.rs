//! What a rank does when nothing completes: looks for messages that bar others, and after its peers.
#![allow(unsafe_code)] // Posts looks, and receives into memory of its own.

use std::time::{Duration, Instant};

use libfabric_sys as sys;

use super::OfiTransport;
use super::slots::{Kind, Operation};
use super::unexpected::{Kept, room_for};
use crate::error::{Error, Result};
use crate::fabric::{Event, Matching, Post};
use crate::transport::ANYBODY;

/// Looks, and messages that they find, at a time: then the engine may know what it has asked for meanwhile.
const TAKEN_IN_A_ROW: u32 = 256;

impl OfiTransport {
    /// Nothing has completed for `idle`.
    pub(super) fn stalled(&mut self, idle: Duration) -> Result<()> {
        if self.receiving > 0
            && self.unexpected.due(idle)
            && let Some(peer) = self.next_to_look_at()
        {
            self.look(peer)?;
            self.take_unexpected()?;
        }
        // Peers that have left before this rank need no more of its sends.
        let waits = |operation: &Operation| !self.leaving || matches!(operation.kind, Kind::Receive(_));
        let awaited =
            self.slots.around(0).filter(|(_, operation)| waits(operation)).map(|(_, operation)| operation.peer);
        let awaited = awaited.chain(self.denied.filter(|_| !self.leaving));
        if let Some((peer, reason)) = self.watch.as_mut().and_then(|watch| watch.tick(idle, awaited)) {
            self.lose(peer, reason.clone());
            self.gone_since.get_or_insert_with(Instant::now);
            self.gone = Some((peer, reason));
            self.stall.moved();
        }
        if self.leaving { Ok(()) } else { self.forsake(idle) }
    }

    /// Takes messages that bar the connection of a peer, one after the other, as far as they are here: whoever waits for
    /// others meanwhile polls seldom.
    pub(super) fn take_unexpected(&mut self) -> Result<()> {
        for _ in 0..TAKEN_IN_A_ROW {
            match self.unexpected.look_at.take() {
                Some(peer) if self.unexpected.may_go_on() => self.look(peer)?,
                _ if self.unexpected.looking_at.is_some() && self.read_queue()? > 0 => {}
                _ => break,
            }
        }
        Ok(())
    }

    /// Looks whether a message that nobody asked for bars the connection of a peer.
    fn look(&mut self, peer: usize) -> Result<()> {
        let Some(slot) = self.slots.free() else { return Ok(()) };
        let handle = self.peers[peer];
        self.slots.put(
            slot,
            Operation { kind: Kind::Look, peer, tag: 0, bytes: 0, registered: None, before: 0, cancelled: false },
        );
        self.unexpected.looking_at = Some(peer);
        let Some(endpoint) = &self.endpoint else { return Ok(()) };
        // SAFETY: the slot stays until the completion.
        let posted = unsafe { endpoint.look_for_unexpected(handle, self.slots.context(slot)) };
        if posted != Post::Begun {
            self.slots.take(slot);
            self.unexpected.looking_at = None;
            // Providers that cannot look refuse; the others are asked again later.
            self.unexpected.enabled = posted == Post::Again;
        }
        self.read_queue().map(drop)
    }

    /// Those that something is awaited from in turns, and, every other time, any one if anybody's messages are: as long as
    /// there is room. What is in front of anybody's message may be no end of what this rank is to ask for much later.
    fn next_to_look_at(&mut self) -> Option<usize> {
        let receives = |operation: &Operation| matches!(operation.kind, Kind::Receive(_));
        let around = || self.slots.around(self.unexpected.cursor).filter(|(_, operation)| receives(operation));
        let named = around().find(|(_, operation)| operation.peer != ANYBODY);
        let named = named.map(|(slot, operation)| (slot, operation.peer));
        let (rank, its_turn) = self.unexpected.anybody;
        let room = self.unexpected.has_room();
        if room && (its_turn || named.is_none()) && around().any(|(_, operation)| operation.peer == ANYBODY) {
            let size = self.peers.len();
            let next = (1..=size).map(|step| (rank + step) % size).find(|next| self.lost[*next].is_none())?;
            self.unexpected.anybody = (next, false);
            return Some(next);
        }
        let (slot, peer) = named?;
        self.unexpected.cursor = slot + 1;
        self.unexpected.anybody = (rank, true);
        Some(peer)
    }

    /// A look has ended.
    pub(super) fn looked(&mut self, peer: usize, event: &Event) {
        self.unexpected.looking_at = None;
        let refused = event.failure.as_ref().map(|failure| failure.code != sys::FI_ENOMSG.cast_signed());
        match refused {
            Some(refused) => self.unexpected.enabled &= !refused,
            None => self.claim(peer, event),
        }
    }

    /// Takes the message that a look has claimed.
    pub(super) fn claim(&mut self, peer: usize, event: &Event) {
        // The same slot, just freed: a claim has to have the context of its look.
        let Some(slot) = self.slots.slot_that_was(event.context) else { return };
        let Some(mut data) = room_for(event.bytes) else {
            let reason =
                format!("a message of {} bytes from rank {peer} that nobody asked for: no memory", event.bytes);
            return drop(self.unbroken::<()>(Err(Error::Fabric { call: "fi_trecvmsg", reason })));
        };
        let start = data.as_mut_ptr();
        // SAFETY: the memory stays in the slot until the completion, and a box does not move what it holds.
        let (registered, memory) = match unsafe { self.register(start, event.bytes, true) } {
            Ok(registered) => registered,
            Err(error) => return drop(self.unbroken::<()>(Err(error))),
        };
        let kind = Kind::Claim { data, word: event.word };
        let operation =
            Operation { kind, peer, tag: event.tag, bytes: event.bytes, registered, before: 0, cancelled: false };
        self.slots.put(slot, operation);
        self.unexpected.looking_at = Some(peer);
        let with = Matching { peer: self.peers[peer], tag: event.tag };
        let Some(endpoint) = &self.endpoint else { return };
        // SAFETY: as above, and the slot stays as well.
        let posted = unsafe { endpoint.receive_claimed(with, memory, self.slots.context(slot)) };
        if posted != Post::Begun {
            let reason = format!("a message of {} bytes from rank {peer} cannot be taken: {posted:?}", event.bytes);
            self.broken.get_or_insert(Error::Fabric { call: "fi_trecvmsg", reason });
        }
    }

    /// A message that nobody asked for is here.
    pub(super) fn claimed(&mut self, peer: usize, tag: u64, word: u64, data: Box<[u8]>, failed: bool) {
        self.unexpected.looking_at = None;
        if failed {
            return self.lose(peer, "its connection was closed in the middle of a message".to_owned());
        }
        self.heard(peer);
        let (word, data) = match data.split_first_chunk() {
            Some((word, rest)) if self.limits.word_in_message => (u64::from_ne_bytes(*word), rest.into()),
            _ => (word, data),
        };
        self.unexpected.keep(peer, tag, Kept { word, data });
        // Behind it there may be more.
        self.unexpected.look_at = Some(peer);
    }
}

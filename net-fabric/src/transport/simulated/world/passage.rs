//! The way of a message from its sender's hands into its receiver's, event by event.

use super::{Ended, World, length, number};
use crate::error::Error;
use crate::transport::Completion;
use crate::transport::simulated::clock::What;
use crate::transport::simulated::machine::{Level, Model, Seconds};

impl World {
    /// Lets one thing happen; none if there is nothing. Gives the rank that wakes by it.
    pub(in super::super) fn step(&mut self) -> Option<Option<usize>> {
        match self.clock.next()? {
            What::Ready(index) => self.enter_port(index),
            What::Joins(index) => self.join_nic(index),
            What::Gone(index) => self.leave_port(index),
            What::Free(rank) => self.free_port(rank as usize),
            What::Arrived(index) => self.arrive(index),
            What::Delivered(index) => self.deliver(index),
            What::Drained(node, version) => self.drain(node, version),
            What::Settles(node) => self.settle(node),
            What::Wakes(rank) => return Some(self.woken(rank)),
        }
        Some(None)
    }

    /// The rendezvous: both sides have posted, and meet once both run. If they never do, nothing becomes of it.
    pub(super) fn agree(&mut self, index: usize, receive_at: Seconds) {
        let Some(message) = &self.messages[index] else { return };
        let posted = message.at.max(receive_at);
        if let Some(at) = self.noise.both_awake(message.from, message.to, posted) {
            self.ready(index, at);
        }
    }

    pub(super) fn ready(&mut self, index: usize, at: Seconds) {
        if at <= self.clock.now() { self.enter_port(index) } else { self.clock.add(at, What::Ready(index)) }
    }

    fn enter_port(&mut self, index: usize) {
        let Some(message) = &self.messages[index] else { return };
        let from = message.from;
        self.ranks[from].port.push_back(index);
        if !self.ranks[from].port_busy {
            self.free_port(from);
        }
    }

    /// The port takes the next message that waits.
    fn free_port(&mut self, rank: usize) {
        let Some(index) = self.ranks[rank].port.pop_front() else {
            self.ranks[rank].port_busy = false;
            return;
        };
        self.ranks[rank].port_busy = true;
        let Some(message) = &self.messages[index] else { return };
        let (from, to, bytes) = (message.from, message.to, message.bytes);
        let now = self.clock.now();
        if let Some(loggp) = self.loggp(from, to) {
            return self.clock.add(now + loggp.byte_s * length(bytes.saturating_sub(1)), What::Gone(index));
        }
        let line = *self.machine.line(self.level(from, to), bytes);
        let shared = self.machine.model == Model::MaxRate && self.layout.node(from) != self.layout.node(to);
        if shared && bytes > 0 && self.machine.injection_bytes_per_s.is_some() {
            self.clock.add(now + line.latency_s, What::Joins(index));
        } else {
            self.clock.add(now + line.latency_s + line.byte_s * length(bytes), What::Gone(index));
        }
    }

    fn join_nic(&mut self, index: usize) {
        let Some(message) = &self.messages[index] else { return };
        let (from, to, bytes) = (message.from, message.to, message.bytes);
        let cap = self.machine.line(self.level(from, to), bytes).byte_s.recip();
        let node = self.layout.node(from);
        self.nics[node].join(self.clock.now(), index, length(bytes), cap);
        self.unsettle(node);
    }

    fn unsettle(&mut self, node: usize) {
        if !self.nics[node].unsettled {
            self.nics[node].unsettled = true;
            self.clock.add(self.clock.now(), What::Settles(number(node)));
        }
    }

    fn settle(&mut self, node: u32) {
        let nic = &mut self.nics[node as usize];
        if let Some(at) = nic.settle() {
            self.clock.add(at, What::Drained(node, nic.version));
        }
    }

    fn drain(&mut self, node: u32, version: u32) {
        let now = self.clock.now();
        let nic = &mut self.nics[node as usize];
        if nic.version != version {
            return;
        }
        for index in nic.ended(now) {
            self.leave_port(index);
        }
        self.unsettle(node as usize);
    }

    /// The last byte has left: the sender has its memory back.
    fn leave_port(&mut self, index: usize) {
        let now = self.clock.now();
        let Some(message) = &mut self.messages[index] else { return };
        let (from, to, token) = (message.from, message.to, message.token.take());
        if let Some(token) = token {
            let completion = Completion { token, word: 0, outcome: Ok(message.bytes) };
            self.end(from, Ended { completion, received: None });
        }
        let (flight, gap) = self.loggp(from, to).map_or((0.0, 0.0), |loggp| (loggp.latency_s, loggp.gap_s));
        if flight > 0.0 {
            self.clock.add(now + flight, What::Arrived(index))
        } else {
            self.arrive(index)
        }
        if gap > 0.0 { self.clock.add(now + gap, What::Free(number(from))) } else { self.free_port(from) }
    }

    /// The last byte is there: but the port takes one message after the other.
    fn arrive(&mut self, index: usize) {
        let Some(message) = &self.messages[index] else { return };
        let (from, to, bytes) = (message.from, message.to, message.bytes);
        let (taken, gap) = match self.loggp(from, to) {
            Some(loggp) => (loggp.byte_s * length(bytes.saturating_sub(1)), loggp.gap_s),
            None => (self.machine.line(self.level(from, to), bytes).byte_s * length(bytes), 0.0),
        };
        let at = self.clock.now().max(self.ranks[to].incoming_until + taken);
        self.ranks[to].incoming_until = at + gap;
        if at > self.clock.now() { self.clock.add(at, What::Delivered(index)) } else { self.deliver(index) }
    }

    fn deliver(&mut self, index: usize) {
        let Some(message) = &mut self.messages[index] else { return };
        message.delivered = true;
        if message.lost {
            self.discard(index);
        } else if message.receive.is_some() {
            self.hand_over(index);
        }
    }

    /// The receiver learns of a message that is there.
    pub(super) fn hand_over(&mut self, index: usize) {
        let Some(message) = self.messages[index].take() else { return };
        self.free.push(index);
        let Some(receive) = message.receive else { return };
        let fits = message.bytes == receive.bytes;
        let outcome = if fits {
            Ok(message.bytes)
        } else {
            Err(Error::Length { rank: message.from, sent: message.bytes, expected: receive.bytes })
        };
        if let Some(loggp) = self.loggp(message.from, message.to) {
            self.busy(message.to, loggp.overhead_s);
        }
        let completion = Completion { token: receive.token, word: message.word, outcome };
        self.end(message.to, Ended { completion, received: Some((receive.id, message.data.filter(|_| fits))) });
    }

    pub(super) fn level(&self, from: usize, to: usize) -> &Level {
        self.layout.level(&self.machine, from, to)
    }
}

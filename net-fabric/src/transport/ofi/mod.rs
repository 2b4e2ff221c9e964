//! Messages over libfabric.
//!
//! A rank [`open()`]s an endpoint for reliable datagrams with tagged messages, tells the others its address, and
//! [connects](Unconnected::connect) it to theirs. Which provider is taken, and why, is in [`candidates`]. Eager and
//! rendezvous protocols are the provider's; bytes go from and to the caller's memory.
//!
//! The word beside a message is libfabric's remote CQ data where the provider carries 64 bits of it. Where it carries
//! fewer, the word goes before the bytes, as a piece of its own, so that nothing is copied.
//!
//! There are as many slots as messages may be under way, and the completion queue has room for all of them, so it is
//! never overrun; who finds no slot is [busy](Posted::Busy). Some are for [notes](super::NOTES) alone. A post that the
//! provider has no room for is tried once more after the queue was read, then it is busy as well.
//!
//! Before a transport is dropped in order, its ranks [`leave`](Transport::leave) it.
#![allow(unsafe_code)] // Memory of messages, and libfabric's promises about threads.

mod address;
mod ahead;
mod cancel;
mod choice;
mod config;
mod congestion;
mod copies;
mod failure;
mod finished;
mod interfaces;
mod leave;
mod limits;
mod listener;
mod looking;
mod open;
mod slots;
mod stall;
mod unexpected;
mod watch;
mod wire;

use std::ffi::c_void;
use std::mem::size_of;
use std::ptr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use libfabric_sys as sys;

use super::{ANYBODY, Completion, NOTES, Posted, Tag, Token, Transport};
use crate::error::{Error, Result};
use crate::fabric::{CompletionQueue, Endpoint, Matching, Memory, Post, Registered, Registrations};

use ahead::Ahead;
use copies::Copies;
use finished::Loss;
use limits::Limits;
use listener::Listener;
use slots::{Kind, Operation, Slots};
use stall::Stall;
use unexpected::Unexpected;
use watch::Watch;

pub use address::ip_of_address;
pub use choice::{Candidate, PREFERENCE, candidates, check_names};
pub use config::{Config, Interface, Reach};
pub use listener::leave_to_parent;
pub use open::{Unconnected, open, world_here};

/// A rank of a world whose messages go over libfabric.
pub struct OfiTransport {
    rank: usize,
    peers: Vec<sys::fi_addr_t>,
    /// Why a peer was given up.
    lost: Vec<Option<String>>,
    /// The peer of the last post that the provider had no room for.
    denied: Option<usize>,
    /// A peer that was looked after in vain, until the caller is told.
    gone: Option<(usize, String)>,
    /// When that was.
    gone_since: Option<Instant>,
    /// The ranks say goodbye.
    leaving: bool,
    /// None after messages had to be taken from it by closing it.
    endpoint: Option<Endpoint>,
    queue: Rc<CompletionQueue>,
    slots: Slots,
    copies: Copies,
    ahead: Ahead,
    sending: usize,
    receiving: usize,
    registrations: Option<Registrations>,
    /// Of the words, if they are registered.
    word_descriptor: *mut c_void,
    limits: Limits,
    unexpected: Unexpected,
    watch: Option<Watch>,
    /// Where peers ask whether this rank lives.
    _listener: Option<Listener>,
    stall: Stall,
    /// Ended, but not yet told.
    ready: Vec<Completion>,
    broken: Option<Error>,
    /// A message was lost of which nobody awaits the end. Others still go, so the caller can tell its peers.
    loss: Loss,
    description: String,
}

// SAFETY: this value owns all objects of its domain, which libfabric lets any thread use, one at a time
// (FI_THREAD_DOMAIN); no reference count is shared with anything outside of it. The memory that it points to is the
// caller's, who promised it to the messages, not to a thread.
unsafe impl Send for OfiTransport {}

impl OfiTransport {
    #[allow(clippy::too_many_arguments)] // Its parts, named by their types.
    fn new(
        rank: usize,
        peers: Vec<sys::fi_addr_t>,
        endpoint: Endpoint,
        queue: Rc<CompletionQueue>,
        slots: Slots,
        mut registrations: Option<Registrations>,
        limits: Limits,
        unexpected: Unexpected,
        (watch, listener): (Option<Watch>, Option<Listener>),
        description: String,
    ) -> Result<Self> {
        let mut word_descriptor = ptr::null_mut();
        if let Some(registrations) = &mut registrations {
            let (start, bytes) = slots.all_beside();
            // SAFETY: the slots live longer than all registrations. This one is never given back.
            let (_registered, descriptor) = unsafe { registrations.acquire(start, bytes, true) }?;
            word_descriptor = descriptor;
        }
        Ok(Self {
            rank,
            lost: vec![None; peers.len()],
            ahead: Ahead::new(peers.len()),
            denied: None,
            gone: None,
            gone_since: None,
            leaving: false,
            peers,
            endpoint: Some(endpoint),
            queue,
            slots,
            copies: Copies::new(!limits.word_in_message && !limits.registers),
            sending: 0,
            receiving: 0,
            registrations,
            word_descriptor,
            limits,
            unexpected,
            watch,
            _listener: listener,
            stall: Stall::default(),
            ready: Vec::new(),
            broken: None,
            loss: Loss::default(),
            description,
        })
    }

    /// Registrations of memory that were made until now, and those that live; none where none are needed.
    pub fn registrations(&self) -> (u64, usize) {
        self.registrations.as_ref().map_or((0, 0), |all| (all.made(), all.living()))
    }

    /// Where a message comes from.
    fn way_from(&self, peer: usize, bytes: usize) -> Result<sys::fi_addr_t> {
        match (&self.broken, peer) {
            (None, ANYBODY) => Ok(sys::FI_ADDR_UNSPEC),
            _ => self.way_to(peer, bytes),
        }
    }

    /// The handle of a peer that is not known to be gone.
    fn way_to(&self, peer: usize, bytes: usize) -> Result<sys::fi_addr_t> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let Some(&handle) = self.peers.get(peer) else {
            return Err(Error::InvalidArgument(format!(
                "peer {peer}: the world has ranks 0 to {}",
                self.peers.len() - 1
            )));
        };
        if let Some(reason) = &self.lost[peer] {
            return Err(Error::Unreachable { rank: peer, reason: reason.clone() });
        }
        if bytes > self.limits.max_message_bytes {
            let most = self.limits.max_message_bytes;
            return Err(Error::InvalidArgument(format!("a message of {bytes} bytes: at most {most} go at once")));
        }
        Ok(handle)
    }

    /// Posts, and if there is no room lets the provider work and posts once more.
    fn post(&mut self, call: &'static str, peer: usize, post: impl Fn(&Self, &Endpoint) -> Post) -> Result<Posted> {
        for _ in 0..2 {
            let Some(endpoint) = &self.endpoint else { break };
            match post(self, endpoint) {
                Post::Begun => {
                    self.denied = self.denied.filter(|denied| *denied != peer);
                    return Ok(Posted::Pending);
                }
                Post::Again => self.read_queue().map(drop)?,
                Post::Refused(code) => {
                    let error = failure::of_post(call, peer, code);
                    if let Error::Unreachable { reason, .. } = &error {
                        self.lose(peer, reason.clone());
                    }
                    return Err(error);
                }
            }
        }
        self.denied = Some(peer);
        Ok(Posted::Busy)
    }

    /// Registers a message's memory, if that is needed.
    ///
    /// # Safety
    /// As `Registrations::acquire`.
    unsafe fn register(
        &mut self,
        start: *const u8,
        bytes: usize,
        written: bool,
    ) -> Result<(Option<Registered>, Memory)> {
        let memory = Memory { start: start.cast_mut(), bytes, descriptor: ptr::null_mut() };
        match &mut self.registrations {
            Some(registrations) if bytes > 0 => {
                // SAFETY: by the caller's promise.
                let (registered, descriptor) = unsafe { registrations.acquire(start, bytes, written) }?;
                Ok((Some(registered), Memory { descriptor, ..memory }))
            }
            _ => Ok((None, memory)),
        }
    }

    fn unregister(&mut self, registered: Option<Registered>) {
        if let (Some(registrations), Some(registered)) = (&mut self.registrations, registered) {
            registrations.release(registered);
        }
    }

    /// The memory of a slot that goes before a message (0) or behind it (1).
    fn beside(&self, slot: usize, place: usize) -> Memory {
        let start = self.slots.beside(slot, place).cast();
        Memory { start, bytes: size_of::<u64>(), descriptor: self.word_descriptor }
    }

    /// Begins a message that takes a slot.
    ///
    /// # Safety
    /// As the transport's `send` and `receive`.
    unsafe fn begin(&mut self, kind: Kind, peer: usize, tag: u64, word: u64, data: Memory) -> Result<Posted> {
        let receives = matches!(kind, Kind::Receive(_));
        let full = (if receives { self.receiving } else { self.sending }) >= self.limits.room(tag);
        let handle = if receives { self.way_from(peer, data.bytes) } else { self.way_to(peer, data.bytes) };
        let with = Matching { peer: handle?, tag };
        let Some(slot) = self.slots.free().filter(|_| !full) else { return Ok(Posted::Busy) };
        // SAFETY: the memory is valid as long as the message is under way.
        let (registered, memory) = unsafe { self.register(data.start, data.bytes, receives) }?;
        let before = self.ahead.taken(peer);
        let operation = Operation { kind, peer, tag, bytes: data.bytes, registered, before, cancelled: false };
        // In its place before it is posted: reading the queue between two attempts may use other slots.
        self.slots.put(slot, operation);
        if self.limits.word_in_message && !receives {
            // SAFETY: the slot's message is not under way, so that nobody else uses its word.
            unsafe { *self.slots.beside(slot, 0) = word };
        }
        let call = if receives { "fi_trecv" } else { "fi_tsend" };
        let posted = self.post(call, peer, |this, endpoint| {
            let context = this.slots.context(slot);
            let first = usize::from(!this.limits.word_in_message);
            // A receive of nothing never ends with `tcp` of libfabric 2.1 if something comes: it gets some room.
            let nothing = receives && memory.bytes == 0 && first == 1;
            let pieces =
                [this.beside(slot, 0), if nothing { this.beside(slot, 1) } else { memory }, this.beside(slot, 1)];
            let last = if receives && this.limits.catches_longer && !nothing { 2 } else { 1 };
            match (receives, &pieces[first..=last]) {
                // SAFETY: memory and slot stay until the completion; see above for all four.
                (true, [one]) => unsafe { endpoint.receive(with, *one, context) },
                // SAFETY: as above.
                (true, pieces) => unsafe { endpoint.receive_pieces(with, pieces, context) },
                // SAFETY: as above.
                (false, [one]) => unsafe { endpoint.send(with, word, *one, context) },
                // SAFETY: as above.
                (false, pieces) => unsafe { endpoint.send_pieces(with, pieces, context) },
            }
        });
        if matches!(posted, Ok(Posted::Pending)) {
            *(if receives { &mut self.receiving } else { &mut self.sending }) += 1;
        } else if let Some(operation) = self.slots.take(slot) {
            self.unregister(operation.registered);
        }
        posted
    }

    /// Sends without leaving the bytes to the provider at once, so that a completion tells that they are gone.
    ///
    /// # Safety
    /// As the transport's `send`.
    unsafe fn send_tracked(&mut self, peer: usize, tag: Tag, word: u64, data: Memory, token: Token) -> Result<Posted> {
        // SAFETY: by the caller's promise.
        unsafe { self.begin(Kind::Send(token), peer, tag.0, word, data) }
    }

    /// Lets the provider work. Returns how much has completed.
    fn read_queue(&mut self) -> Result<usize> {
        let queue = Rc::clone(&self.queue);
        let read = queue.read(|event| self.finish(event));
        self.unbroken(read)
    }

    /// Remembers an error after which nothing completes any more.
    fn unbroken<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.broken.get_or_insert_with(|| error.clone());
        }
        result
    }
}

impl Transport for OfiTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.peers.len()
    }

    fn max_message_bytes(&self) -> usize {
        self.limits.max_message_bytes
    }

    fn room(&self) -> usize {
        self.limits.outstanding
    }

    fn receives_from_anybody(&self) -> bool {
        true
    }

    fn keeps_unasked(&self) -> bool {
        self.limits.keeps_unasked
    }

    unsafe fn send(
        &mut self,
        peer: usize,
        tag: Tag,
        word: u64,
        data: *const u8,
        bytes: usize,
        token: Token,
    ) -> Result<Posted> {
        let memory = Memory { start: data.cast_mut(), bytes, descriptor: ptr::null_mut() };
        if self.limits.loses_silently && tag >= NOTES {
            // Who only waits may have no other message by whose loss it learns that a peer is gone.
            // SAFETY: by the caller's promise.
            return unsafe { self.send_tracked(peer, tag, word, memory, token) };
        }
        if bytes <= self.limits.inject_bytes && !self.limits.word_in_message {
            let to = Matching { peer: self.way_to(peer, bytes)?, tag: tag.0 };
            if !self.ahead.has_room(peer) {
                // SAFETY: by the caller's promise.
                return unsafe { self.send_tracked(peer, tag, word, memory, token) };
            }
            // SAFETY: the memory is valid by the caller's promise.
            let posted =
                self.post("fi_tinjectdata", peer, |_, endpoint| unsafe { endpoint.inject(to, word, data, bytes) })?;
            if posted != Posted::Pending {
                return Ok(posted);
            }
            self.ahead.take(peer);
            return Ok(Posted::Done);
        }
        // SAFETY: by the caller's promise.
        let Some((place, start)) = (unsafe { self.copies.take(data, bytes) }) else {
            // SAFETY: by the caller's promise.
            return unsafe { self.send_tracked(peer, tag, word, memory, token) };
        };
        // SAFETY: the copy stays until its place is given back.
        let posted = unsafe { self.begin(Kind::Copy(place), peer, tag.0, word, Memory { start, ..memory }) };
        match posted {
            Ok(Posted::Pending) => Ok(Posted::Done),
            other => {
                self.copies.give(place);
                other
            }
        }
    }

    unsafe fn receive(&mut self, peer: usize, tag: Tag, data: *mut u8, bytes: usize, token: Token) -> Result<Posted> {
        if self.unexpected.looking_at.is_some_and(|looked_at| peer == looked_at || peer == ANYBODY) {
            return self.way_from(peer, bytes).map(|_| Posted::Busy);
        }
        if let Some((peer, kept)) = self.unexpected.take(peer, tag.0) {
            let outcome = if kept.data.len() == bytes {
                // SAFETY: the memory is the caller's, for so many bytes, and the message was in ours.
                unsafe { ptr::copy_nonoverlapping(kept.data.as_ptr(), data, bytes) };
                Ok(bytes)
            } else {
                Err(Error::Length { rank: peer, sent: kept.data.len(), expected: bytes })
            };
            self.ready.push(Completion { token, word: kept.word, outcome });
            return Ok(Posted::Pending);
        }
        let memory = Memory { start: data, bytes, descriptor: ptr::null_mut() };
        // SAFETY: by the caller's promise.
        unsafe { self.begin(Kind::Receive(token), peer, tag.0, 0, memory) }
    }

    fn progress(&mut self, completed: &mut Vec<Completion>) -> Result<()> {
        if let (Some(error), true) = (&self.broken, self.ready.is_empty()) {
            return Err(error.clone());
        }
        if self.endpoint.is_some() && self.broken.is_none() {
            let mut read = self.read_queue()?;
            for _ in 1..self.limits.reads {
                if read > 0 || !self.ready.is_empty() {
                    break;
                }
                read = self.read_queue()?;
            }
            if self.unexpected.look_at.is_some() {
                self.take_unexpected()?;
            }
            if read > 0 {
                self.stall.moved();
            } else if let Some(idle) = self.stall.polled() {
                self.stalled(idle)?;
            }
        }
        completed.append(&mut self.ready);
        self.loss.tell()
    }

    fn cancel(&mut self, token: Token) {
        self.give_up(token);
    }

    fn found_gone(&mut self) -> Option<(usize, String)> {
        self.gone.take()
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        self.doze(limit)
    }

    fn leave(&mut self, limit: Duration) -> Result<()> {
        self.leave_in_order(limit)
    }

    fn describe(&self) -> String {
        self.description.clone()
    }
}

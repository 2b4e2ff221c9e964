//! Messages between ranks of one process: for tests, and as the measure of what an engine costs by itself.
//!
//! Each rank may be used from a thread of its own, or all from one. A message is copied once, by whichever side
//! comes second, or is held in between if the sender need not wait. A rank that is dropped is gone like a process that
//! was killed: sends to it fail, receives from it stay pending.
#![allow(unsafe_code)] // Copies between the senders' and the receivers' memory.

mod mailbox;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{ANYBODY, Completion, Posted, Tag, Token, Transport};
use crate::error::{Error, Result};
use mailbox::{Arrival, Mailbox, Matched, Payload, Receive};

/// How a loopback world behaves.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Sends complete only when they are received.
    pub synchronous: bool,
    /// Messages of one rank that another may have unreceived; the next send is refused as busy.
    pub held_messages: usize,
    /// Makes what the contract leaves open happen at random, from this seed: sends and receives are refused as busy
    /// now and then, completions come late and in any order.
    pub disorder: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { synchronous: false, held_messages: usize::MAX, disorder: None }
    }
}

/// A rank of a world within this process.
#[derive(Debug)]
pub struct Loopback {
    world: Arc<World>,
    rank: usize,
    options: Options,
    random: u64,
}

#[derive(Debug)]
struct World {
    doors: Vec<Door>,
}

/// What peers see of a rank.
#[derive(Debug)]
struct Door {
    mailbox: Mutex<Mailbox>,
    bell: Condvar,
    /// There are completions to be fetched: saves the lock while there are none.
    ready: AtomicBool,
}

impl Door {
    fn open(&self) -> MutexGuard<'_, Mailbox> {
        // Whoever panicked while it had the door open has left nothing half-done in it.
        self.mailbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complete(&self, mailbox: &mut Mailbox, completion: Completion) {
        mailbox.completed.push(completion);
        self.ready.store(true, Ordering::Relaxed);
        self.wake(mailbox);
    }

    fn wake(&self, mailbox: &mut Mailbox) {
        mailbox.woken = true;
        if mailbox.sleeping {
            self.bell.notify_all();
        }
    }
}

impl Loopback {
    /// All ranks of a world of `ranks`, in their order.
    #[must_use]
    pub fn world(ranks: usize, options: Options) -> Vec<Self> {
        let door =
            || Door { mailbox: Mutex::new(Mailbox::new(ranks)), bell: Condvar::new(), ready: AtomicBool::new(false) };
        let world = Arc::new(World { doors: (0..ranks).map(|_| door()).collect() });
        let random = |rank: usize| options.disorder.map_or(0, |seed| seed ^ (rank as u64 + 1).wrapping_mul(ODD));
        (0..ranks).map(|rank| Self { world: Arc::clone(&world), rank, options, random: random(rank) }).collect()
    }

    fn door(&self) -> &Door {
        &self.world.doors[self.rank]
    }

    fn peer(&self, rank: usize) -> Result<&Door> {
        let size = self.world.doors.len();
        self.world
            .doors
            .get(rank)
            .ok_or_else(|| Error::InvalidArgument(format!("rank {rank}: the world's ranks are 0 to {}", size - 1)))
    }

    /// True once in `times` calls, at random; never without disorder.
    fn by_chance(&mut self, times: u64) -> bool {
        self.options.disorder.is_some() && next(&mut self.random).is_multiple_of(times)
    }

    /// Tells a sender that its message was taken, and ranks that were refused that there is room.
    fn after_taking(&self, matched: Matched) {
        for (rank, token, outcome) in matched.senders {
            let door = &self.world.doors[rank];
            door.complete(&mut door.open(), Completion { token, word: 0, outcome });
        }
        if let Some(rank) = matched.refused {
            let door = &self.world.doors[rank];
            door.wake(&mut door.open());
        }
    }
}

fn gone(rank: usize) -> Error {
    Error::Unreachable { rank, reason: "its end of the loopback was dropped".to_owned() }
}

impl Transport for Loopback {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.world.doors.len()
    }

    fn receives_from_anybody(&self) -> bool {
        true
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
        let (refuse, late) = (self.by_chance(5), self.by_chance(3));
        let door = self.peer(peer)?;
        let mut mailbox = door.open();
        if mailbox.gone {
            return Err(gone(peer));
        }
        let posted = if refuse {
            Posted::Busy
        } else if let Some(receive) = mailbox.take_receive(self.rank, tag) {
            // SAFETY: the receive's memory is valid until it is taken from the mailbox and the lock is released;
            // `data` is valid by the caller's promise.
            let outcome = unsafe { receive.fill(self.rank, data, bytes) };
            door.complete(&mut mailbox, Completion { token: receive.token, word, outcome });
            Posted::Done
        } else if mailbox.held(self.rank) >= self.options.held_messages {
            mailbox.refuse(self.rank);
            Posted::Busy
        } else {
            let (payload, posted) = if self.options.synchronous {
                (Payload::Lent { data, token }, Posted::Pending)
            } else {
                // SAFETY: valid for reads of `bytes` by the caller's promise.
                (unsafe { Payload::copy(data, bytes) }, Posted::Done)
            };
            mailbox.put_arrival(self.rank, Arrival { tag, word, bytes, payload });
            posted
        };
        drop(mailbox);
        if posted == Posted::Done && late {
            let own = self.door();
            own.complete(&mut own.open(), Completion { token, word: 0, outcome: Ok(bytes) });
            return Ok(Posted::Pending);
        }
        Ok(posted)
    }

    unsafe fn receive(&mut self, peer: usize, tag: Tag, data: *mut u8, bytes: usize, token: Token) -> Result<Posted> {
        if self.by_chance(5) {
            return Ok(Posted::Busy);
        }
        let is_gone = peer != ANYBODY && self.peer(peer)?.open().gone;
        let door = self.door();
        let mut mailbox = door.open();
        let receive = Receive { tag, data, bytes, token };
        let Some((peer, arrival)) = mailbox.take_arrival(peer, tag) else {
            if is_gone {
                return Err(gone(peer));
            }
            mailbox.put_receive(peer, receive);
            return Ok(Posted::Pending);
        };
        // SAFETY: `data` is valid by the caller's promise, and what is lent until its sender is told or has
        // cancelled it, for which it needs this mailbox's lock.
        let outcome = unsafe { receive.fill(peer, arrival.payload.data(), arrival.bytes) };
        door.complete(&mut mailbox, Completion { token, word: arrival.word, outcome });
        let mut matched = Matched { refused: mailbox.admit(peer), ..Matched::default() };
        if let Payload::Lent { token, .. } = arrival.payload {
            matched.senders.push((peer, token, Ok(arrival.bytes)));
        }
        drop(mailbox);
        self.after_taking(matched);
        Ok(Posted::Pending)
    }

    fn progress(&mut self, completed: &mut Vec<Completion>) -> Result<()> {
        if !self.door().ready.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut random = self.random;
        let mut mailbox = self.door().open();
        if self.options.disorder.is_none() {
            completed.append(&mut mailbox.completed);
        } else {
            while !mailbox.completed.is_empty() && !next(&mut random).is_multiple_of(4) {
                let chosen = next(&mut random) % mailbox.completed.len() as u64;
                completed.extend(usize::try_from(chosen).map(|index| mailbox.completed.swap_remove(index)));
            }
        }
        self.door().ready.store(!mailbox.completed.is_empty(), Ordering::Relaxed);
        drop(mailbox);
        self.random = random;
        Ok(())
    }

    fn cancel(&mut self, token: Token) {
        if self.door().open().cancel_receive(token) {
            return;
        }
        for door in &self.world.doors {
            if door.open().cancel_arrival(self.rank, token) {
                return;
            }
        }
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        let door = self.door();
        let mut mailbox = door.open();
        if !mailbox.woken && mailbox.completed.is_empty() {
            mailbox.sleeping = true;
            let asleep = |mailbox: &mut Mailbox| !mailbox.woken;
            let slept = door.bell.wait_timeout_while(mailbox, limit, asleep);
            mailbox = slept.map_or_else(|poisoned| poisoned.into_inner().0, |(mailbox, _)| mailbox);
            mailbox.sleeping = false;
        }
        mailbox.woken = false;
        Ok(())
    }

    fn describe(&self) -> String {
        format!("loopback of {} ranks within this process", self.size())
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        for door in &self.world.doors {
            door.open().forget(self.rank);
        }
        let mut mailbox = self.door().open();
        let lent = mailbox.close();
        drop(mailbox);
        let senders = lent.into_iter().map(|(rank, token)| (rank, token, Err(gone(self.rank)))).collect();
        self.after_taking(Matched { senders, refused: None });
    }
}

const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// Steele, Lea and Flood's splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(ODD);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

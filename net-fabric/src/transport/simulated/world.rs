//! The simulated network: what becomes of each message, and when.
//!
//! A message is bound to its receive in the order of the calls; only times follow from the model. It goes through
//! these: it is *ready* (at once; by rendezvous once its receive is known and both processors run), enters its
//! sender's port when those before it have left, is *gone* when its last byte has left, has *arrived* at the
//! receiver's port, which takes one message after the other, and is *delivered*. `docs/models.md` has the
//! formulas.

mod passage;

use std::collections::VecDeque;

use super::clock::{Clock, What};
use super::layout::Layout;
use super::machine::{LogGp, Machine, Model, Seconds};
use super::nic::Nic;
use super::noise::Noise;
use crate::error::{Error, Result};
use crate::transport::{Completion, Tag, Token};

/// A message's bytes; none if its sender gave null.
pub(super) type Data = Option<Box<[u8]>>;

/// A receive that a rank has posted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Receive {
    /// By which the rank finds the memory again.
    pub(super) id: u64,
    pub(super) peer: usize,
    pub(super) tag: Tag,
    pub(super) bytes: usize,
    pub(super) token: Token,
    /// When it was posted.
    at: Seconds,
}

/// A message that its sender has posted and its receiver does not have yet.
struct Message {
    from: usize,
    to: usize,
    tag: Tag,
    word: u64,
    bytes: usize,
    data: Data,
    /// For the sender's completion, unless that was given up.
    token: Option<Token>,
    /// When it was posted.
    at: Seconds,
    waits_for_receive: bool,
    delivered: bool,
    receive: Option<Receive>,
    /// Its receive was given up: nobody gets it.
    lost: bool,
}

/// Something that ended, for its rank to fetch.
pub(super) struct Ended {
    pub(super) completion: Completion,
    /// The receive's, and what came.
    pub(super) received: Option<(u64, Data)>,
}

struct Rank {
    /// Until when its processor is busy, or when it last did something.
    now: Seconds,
    /// Messages that wait for the port, and whether one is in it.
    port: VecDeque<usize>,
    port_busy: bool,
    /// Until when its incoming port is taken.
    incoming_until: Seconds,
    posted: VecDeque<Receive>,
    /// Messages for this rank that have no receive yet, in the order of their sends.
    unexpected: VecDeque<usize>,
    ended: Vec<Ended>,
    wakes: bool,
    left: bool,
}

/// All of a simulated world.
pub(super) struct World {
    machine: Machine,
    layout: Layout,
    noise: Noise,
    clock: Clock,
    ranks: Vec<Rank>,
    nics: Vec<Nic>,
    messages: Vec<Option<Message>>,
    free: Vec<usize>,
    receives: u64,
    /// Messages begun so far.
    sent: u64,
}

impl World {
    pub(super) fn new(machine: Machine, layout: Layout, noise: Noise) -> Result<Self> {
        noise.check(layout.ranks())?;
        let limit = machine.injection_bytes_per_s.unwrap_or(f64::INFINITY);
        let rank = |_| Rank {
            now: 0.0,
            port: VecDeque::new(),
            port_busy: false,
            incoming_until: 0.0,
            posted: VecDeque::new(),
            unexpected: VecDeque::new(),
            ended: Vec::new(),
            wakes: false,
            left: false,
        };
        Ok(Self {
            ranks: (0..layout.ranks()).map(rank).collect(),
            nics: (0..layout.nodes).map(|_| Nic::new(limit)).collect(),
            machine,
            layout,
            noise,
            clock: Clock::default(),
            messages: Vec::new(),
            free: Vec::new(),
            receives: 0,
            sent: 0,
        })
    }

    pub(super) fn size(&self) -> usize {
        self.ranks.len()
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Messages sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// How far a rank's processor is.
    pub(super) fn now(&self, rank: usize) -> Seconds {
        self.ranks[rank].now
    }

    /// Each rank looks around once, as soon as it runs.
    pub(super) fn wake_all(&mut self) {
        for rank in 0..self.size() {
            self.wake(rank);
        }
    }

    /// The rank's processor is busy with work of its own.
    pub(super) fn work(&mut self, rank: usize, reduced_bytes: usize, copied_bytes: usize) {
        let Machine { reduce_byte_s, copy_byte_s, .. } = self.machine;
        self.busy(rank, length(reduced_bytes) * reduce_byte_s + length(copied_bytes) * copy_byte_s);
    }

    /// A rank is done with this world.
    pub(super) fn leave(&mut self, rank: usize) {
        self.ranks[rank].left = true;
        self.ranks[rank].posted.clear();
        for waiting in 0..self.size() {
            while let Some(place) = self.ranks[waiting].posted.iter().position(|receive| receive.peer == rank) {
                if let Some(receive) = self.ranks[waiting].posted.remove(place) {
                    self.fail(waiting, &receive);
                }
            }
        }
    }

    /// A receive from a rank that has left and has sent nothing for it.
    fn fail(&mut self, rank: usize, receive: &Receive) {
        let outcome = Err(gone(receive.peer));
        let completion = Completion { token: receive.token, word: 0, outcome };
        self.end(rank, Ended { completion, received: Some((receive.id, None)) });
    }

    pub(super) fn send(&mut self, from: usize, to: usize, what: Posting, word: u64, data: Data) -> Result<()> {
        let Posting { tag, bytes, token } = what;
        if self.ranks[to].left {
            return Err(gone(to));
        }
        if let Some(loggp) = self.loggp(from, to) {
            self.busy(from, loggp.overhead_s);
        }
        let at = self.ranks[from].now;
        let posted = &mut self.ranks[to].posted;
        let place = posted.iter().position(|receive| receive.peer == from && receive.tag == tag);
        let receive = place.and_then(|place| posted.remove(place));
        let waits_for_receive = bytes >= self.machine.eager_below_bytes;
        let message = Message {
            from,
            to,
            tag,
            word,
            bytes,
            data,
            token: Some(token),
            at,
            waits_for_receive,
            delivered: false,
            receive,
            lost: false,
        };
        let index = self.keep(message);
        self.sent += 1;
        if receive.is_none() {
            self.ranks[to].unexpected.push_back(index);
        }
        match receive {
            Some(receive) if waits_for_receive => self.agree(index, receive.at),
            None if waits_for_receive => {}
            _ => self.ready(index, at),
        }
        Ok(())
    }

    /// Posts a receive; gives its id.
    pub(super) fn receive(&mut self, rank: usize, peer: usize, what: Posting) -> u64 {
        let Posting { tag, bytes, token } = what;
        let id = self.receives;
        self.receives += 1;
        let receive = Receive { id, peer, tag, bytes, token, at: self.ranks[rank].now };
        let messages = &self.messages;
        let matches =
            |&index: &usize| messages[index].as_ref().is_some_and(|message| message.from == peer && message.tag == tag);
        let unexpected = &mut self.ranks[rank].unexpected;
        let found = unexpected.iter().position(matches).and_then(|place| unexpected.remove(place));
        let Some(index) = found else {
            if self.ranks[peer].left {
                self.fail(rank, &receive);
            } else {
                self.ranks[rank].posted.push_back(receive);
            }
            return id;
        };
        let Some(message) = &mut self.messages[index] else { return id };
        message.receive = Some(receive);
        let (delivered, waits) = (message.delivered, message.waits_for_receive);
        if delivered {
            // It lies in a buffer of the library's.
            self.work(rank, 0, bytes);
            self.hand_over(index);
        } else if waits {
            self.agree(index, receive.at);
        }
        id
    }

    /// Gives up what has that token. What is already moving goes on, to nobody.
    pub(super) fn cancel(&mut self, rank: usize, token: Token) {
        self.ranks[rank].posted.retain(|receive| receive.token != token);
        for index in 0..self.messages.len() {
            let Some(message) = &mut self.messages[index] else { continue };
            if message.receive.is_some_and(|receive| message.to == rank && receive.token == token) {
                message.receive = None;
                message.lost = true;
            }
            if message.from == rank && message.token == Some(token) {
                message.token = None;
                if message.waits_for_receive && message.receive.is_none() && !message.lost {
                    let to = message.to;
                    self.ranks[to].unexpected.retain(|&waiting| waiting != index);
                    self.discard(index);
                }
            }
        }
    }

    /// What has ended for a rank.
    pub(super) fn fetch(&mut self, rank: usize) -> Vec<Ended> {
        std::mem::take(&mut self.ranks[rank].ended)
    }

    /// Goes on to the moment at which a rank has something to look at; none if nothing happens any more.
    pub(super) fn next_wake(&mut self) -> Option<usize> {
        loop {
            if let Some(rank) = self.step()? {
                return Some(rank);
            }
        }
    }

    fn woken(&mut self, rank: u32) -> Option<usize> {
        let index = rank as usize;
        let at = self.noise.awake(index, self.clock.now().max(self.ranks[index].now));
        if at > self.clock.now() {
            self.clock.add(at, What::Wakes(rank));
            return None;
        }
        self.ranks[index].wakes = false;
        self.ranks[index].now = at;
        Some(index)
    }

    fn wake(&mut self, rank: usize) {
        if !self.ranks[rank].wakes {
            self.ranks[rank].wakes = true;
            self.clock.add(self.ranks[rank].now, What::Wakes(number(rank)));
        }
    }

    fn busy(&mut self, rank: usize, work: Seconds) {
        let now = self.ranks[rank].now.max(self.clock.now());
        self.ranks[rank].now = self.noise.worked(rank, now, work);
    }

    fn end(&mut self, rank: usize, ended: Ended) {
        self.ranks[rank].ended.push(ended);
        self.wake(rank);
    }

    fn keep(&mut self, message: Message) -> usize {
        match self.free.pop() {
            Some(index) => {
                self.messages[index] = Some(message);
                index
            }
            None => {
                self.messages.push(Some(message));
                self.messages.len() - 1
            }
        }
    }

    fn discard(&mut self, index: usize) {
        self.messages[index] = None;
        self.free.push(index);
    }

    /// The parameters, if this is the model.
    fn loggp(&self, from: usize, to: usize) -> Option<LogGp> {
        if self.machine.model == Model::Loggp { self.level(from, to).loggp } else { None }
    }
}

/// What a send or receive is known by.
#[derive(Clone, Copy)]
pub(super) struct Posting {
    pub(super) tag: Tag,
    pub(super) bytes: usize,
    pub(super) token: Token,
}

fn gone(rank: usize) -> Error {
    Error::Unreachable { rank, reason: "it has left the simulated world".to_owned() }
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[allow(clippy::cast_precision_loss)] // far below 2^53
fn length(bytes: usize) -> f64 {
    bytes as f64
}

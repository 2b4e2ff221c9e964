//! Each step as soon as it can: receives are posted ahead, and each peer has its own window of sends (algorithms 3 to 5
//! of the dissertation).
//!
//! Sends to a peer may overtake each other, as their data become ready, with two limits that keep operations from
//! deadlock even if sends complete only when they are received. They never go further than `recvs` messages beyond the
//! oldest that has not been sent; and as long as that one has not begun, one of the `sends` is kept free for it.
//! Receives are posted in the order of their messages. So a message that everything waits for can always be sent, and
//! is always expected, however few the buffers of the receiver.

use super::{Begun, DONE, Operation, QUEUED, Surroundings};
use crate::error::Result;
use crate::schedule::{Action, Schedule};
use crate::transport::Transport;

/// The messages with one peer. Messages are counted from 0 in each direction.
#[derive(Debug, Default, Clone, Copy)]
struct Lane {
    /// Where the steps that send to the peer are listed, and how many there are.
    first_send: u32,
    sends: u32,
    first_receive: u32,
    receives: u32,
    /// All messages before this one have been sent.
    oldest_send: u32,
    sends_under_way: u32,
    /// The receive to be posted next.
    next_receive: u32,
    receives_under_way: u32,
}

/// The messages of an operation by peer.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    /// Sends and receives that are under way at once in each lane, at most.
    most_sends: u32,
    most_receives: u32,
    lanes: Vec<Lane>,
    /// Steps: for each lane those that send, then those that receive.
    steps: Vec<u32>,
    /// By step: its lane, and whether it receives in the highest bit.
    of: Vec<u32>,
    /// Lanes in which something may begin.
    touched: Vec<u32>,
    /// By peer in ascending order: its lane.
    peers: Vec<(u32, u32)>,
}

const RECEIVES: u32 = 1 << 31;
const LOCAL: u32 = u32::MAX;

impl Lanes {
    /// Sorts the messages of a schedule by peer, lanes in the order of their first messages.
    #[expect(clippy::cast_possible_truncation, reason = "steps and peers are numbered by 32 bits")]
    pub(super) fn lay(&mut self, schedule: &Schedule, most_sends: u32, most_receives: u32) {
        (self.most_sends, self.most_receives) = (most_sends, most_receives);
        self.lanes.clear();
        self.of.clear();
        self.touched.clear();
        self.peers.clear();
        let mut messages = 0;
        for step in 0..schedule.len() {
            let (peer, receives) = match schedule.action(step) {
                Action::Send { peer, .. } => (peer, 0),
                Action::Receive { peer, .. } => (peer, RECEIVES),
                Action::Reduce { .. } | Action::Copy { .. } => {
                    self.of.push(LOCAL);
                    continue;
                }
            };
            let lane = self.lane(peer);
            let counts = &mut self.lanes[lane as usize];
            *if receives == 0 { &mut counts.sends } else { &mut counts.receives } += 1;
            self.of.push(lane | receives);
            messages += 1;
        }
        let mut next = 0;
        for lane in &mut self.lanes {
            lane.first_send = next;
            lane.first_receive = next + lane.sends;
            next = lane.first_receive + lane.receives;
        }
        self.steps.clear();
        self.steps.resize(messages, 0);
        // Two counters serve as cursors, and end as what they are to be at first: nothing under way.
        for (step, &of) in self.of.iter().enumerate().filter(|(_, of)| **of != LOCAL) {
            let lane = &mut self.lanes[(of & !RECEIVES) as usize];
            let place = if of & RECEIVES == 0 {
                lane.sends_under_way += 1;
                lane.first_send + lane.sends_under_way - 1
            } else {
                lane.receives_under_way += 1;
                lane.first_receive + lane.receives_under_way - 1
            };
            self.steps[place as usize] = step as u32;
        }
        for lane in &mut self.lanes {
            (lane.sends_under_way, lane.receives_under_way) = (0, 0);
        }
    }

    /// The peer's lane.
    #[expect(clippy::cast_possible_truncation, reason = "no more lanes than peers")]
    fn lane(&mut self, peer: u32) -> u32 {
        match self.peers.binary_search_by_key(&peer, |&(peer, _)| peer) {
            Ok(at) => self.peers[at].1,
            Err(at) => {
                let lane = self.lanes.len() as u32;
                self.peers.insert(at, (peer, lane));
                self.lanes.push(Lane::default());
                lane
            }
        }
    }
}

impl Operation {
    /// Posts the first receives of all lanes, then begins the rest in the order of the program.
    pub(super) fn begin_all<T: Transport>(&mut self, around: &mut Surroundings<'_, T>) -> Result<()> {
        for lane in 0..self.lanes.lanes.len() {
            self.pump_receives(lane, around)?;
        }
        for step in 0..self.schedule.len() {
            let of = self.lanes.of[step];
            #[expect(clippy::cast_possible_truncation, reason = "steps are numbered by 32 bits")]
            let number = step as u32;
            if self.waiting[step] != 0 {
                continue;
            }
            if of == LOCAL {
                self.enqueue(number);
            } else if of & RECEIVES == 0 {
                let may_begin = self.sendable(of as usize).any(|ready| ready == number);
                if may_begin && !self.refused {
                    self.begin_send(of as usize, number, around)?;
                }
            }
        }
        self.settle(around)
    }

    /// Looks into all lanes again.
    pub(super) fn pump_all<T: Transport>(&mut self, around: &mut Surroundings<'_, T>) -> Result<()> {
        for lane in 0..self.lanes.lanes.len() {
            self.pump(lane, around)?;
        }
        Ok(())
    }

    /// A message is no longer under way.
    pub(super) fn left_lane(&mut self, step: u32) {
        let of = self.lanes.of[step as usize];
        let lane = &mut self.lanes.lanes[(of & !RECEIVES) as usize];
        if of & RECEIVES == 0 {
            lane.sends_under_way -= 1;
        } else {
            lane.receives_under_way -= 1;
        }
        self.lanes.touched.push(of & !RECEIVES);
    }

    /// Begins what completed steps have made possible.
    pub(super) fn wake_in_lanes<T: Transport>(&mut self, around: &mut Surroundings<'_, T>) -> Result<()> {
        loop {
            let mut at = 0;
            while let Some(&step) = self.woken.get(at) {
                at += 1;
                match self.lanes.of[step as usize] {
                    LOCAL => self.enqueue(step),
                    of => self.lanes.touched.push(of & !RECEIVES),
                }
            }
            self.woken.clear();
            let mut at = 0;
            while let Some(&lane) = self.lanes.touched.get(at) {
                at += 1;
                self.pump(lane as usize, around)?;
            }
            self.lanes.touched.clear();
            if self.woken.is_empty() && !self.wake_for_places() {
                return Ok(());
            }
        }
    }

    fn pump<T: Transport>(&mut self, lane: usize, around: &mut Surroundings<'_, T>) -> Result<()> {
        self.pump_receives(lane, around)?;
        loop {
            self.advance(lane);
            let Some(step) = self.sendable(lane).next() else { return Ok(()) };
            if self.begin_send(lane, step, around)? == Begun::Refused {
                return Ok(());
            }
        }
    }

    /// Sends to the lane's peer that may begin, the oldest message first.
    fn sendable(&self, lane: usize) -> impl Iterator<Item = u32> {
        let Lanes { most_sends, most_receives, .. } = self.lanes;
        let Lane { first_send, sends, oldest_send, sends_under_way, .. } = self.lanes.lanes[lane];
        let is_oldest_ahead = self.lanes.steps[(first_send + oldest_send) as usize..(first_send + sends) as usize]
            .first()
            .is_some_and(|&step| (1..QUEUED).contains(&self.waiting[step as usize]));
        let most = if is_oldest_ahead { most_sends - 1 } else { most_sends };
        let ahead = if sends_under_way < most { most_receives } else { 0 };
        let (from, to) = (first_send + oldest_send, first_send + oldest_send.saturating_add(ahead).min(sends));
        let steps = &self.lanes.steps[from as usize..to as usize];
        steps.iter().copied().filter(|&step| self.waiting[step as usize] == 0)
    }

    fn begin_send<T: Transport>(&mut self, lane: usize, step: u32, around: &mut Surroundings<'_, T>) -> Result<Begun> {
        let begun = self.begin_message(step, around)?;
        match begun {
            Begun::Pending => self.lanes.lanes[lane].sends_under_way += 1,
            Begun::Complete => {
                self.complete(step);
                self.advance(lane);
            }
            Begun::Refused => {}
        }
        Ok(begun)
    }

    /// Moves the window past what has been sent.
    fn advance(&mut self, lane: usize) {
        let lane = &mut self.lanes.lanes[lane];
        let is_sent = |message: u32| {
            let step = self.lanes.steps[(lane.first_send + message) as usize];
            self.waiting[step as usize] == DONE
        };
        while lane.oldest_send < lane.sends && is_sent(lane.oldest_send) {
            lane.oldest_send += 1;
        }
    }

    fn pump_receives<T: Transport>(&mut self, lane: usize, around: &mut Surroundings<'_, T>) -> Result<()> {
        loop {
            let Lane { first_receive, receives, next_receive, receives_under_way, .. } = self.lanes.lanes[lane];
            if receives_under_way >= self.lanes.most_receives || next_receive == receives {
                return Ok(());
            }
            let step = self.lanes.steps[(first_receive + next_receive) as usize];
            if self.waiting[step as usize] != 0 || self.begin_message(step, around)? == Begun::Refused {
                return Ok(());
            }
            let lane = &mut self.lanes.lanes[lane];
            lane.next_receive += 1;
            lane.receives_under_way += 1;
        }
    }
}

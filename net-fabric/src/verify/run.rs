//! Runs all ranks symbolically, each taking one group of its steps after the other, while every send waits for its
//! receive. Each schedule has the form that [`super::races`] checks.
//!
//! Each rank's next group is always the same, and a message has one sender and one receiver: whichever order ranks
//! are looked at in, the same messages complete. So if this run ends, every run in blocking order ends.

use super::memory::{Memory, Piece, push};
use super::values::Values;
use super::{Fault, Room};
use crate::schedule::{Action, Buffer, Schedule, Span};

/// What all ranks together have come to.
pub(super) struct Outcome {
    pub(super) outputs: Vec<Memory>,
    pub(super) values: Values,
    /// Bytes that each rank has written into its output.
    pub(super) written: Vec<usize>,
    pub(super) messages: usize,
}

/// A rank that is at work.
struct Rank<'a> {
    schedule: &'a Schedule,
    room: Room,
    /// Input, output, scratch.
    memory: [Memory; 3],
    /// The group at hand, two steps at most, and which of them have completed.
    first: usize,
    behind: usize,
    complete: [bool; 2],
    written: usize,
}

struct World<'a> {
    ranks: Vec<Rank<'a>>,
    values: Values,
    pieces: [Vec<Piece>; 3],
    messages: usize,
    /// Ranks whose group has got on.
    awake: Vec<usize>,
}

/// Runs the world. `notice` is told of each message: sender and its step, receiver and its step.
pub(super) fn run(
    schedules: &[Schedule],
    rooms: impl Iterator<Item = Room>,
    values: Values,
    mut notice: impl FnMut((usize, usize), (usize, usize)),
) -> Result<Outcome, Fault> {
    let ranks = schedules.iter().zip(rooms).enumerate().map(|(rank, (schedule, room))| Rank::new(rank, schedule, room));
    let mut world = World {
        ranks: ranks.collect(),
        values,
        pieces: Default::default(),
        messages: 0,
        awake: (0..schedules.len()).rev().collect(),
    };
    while let Some(rank) = world.awake.pop() {
        while world.advance(rank, &mut notice)? {}
    }
    world.check_ended()?;
    let written = world.ranks.iter().map(|rank| rank.written).collect();
    let outputs = world.ranks.into_iter().map(|Rank { memory: [_, output, _], .. }| output).collect();
    Ok(Outcome { outputs, values: world.values, written, messages: world.messages })
}

impl<'a> Rank<'a> {
    fn new(rank: usize, schedule: &'a Schedule, room: Room) -> Self {
        let own = u32::try_from(rank).expect("fewer than 2^32 ranks");
        let holding = |holds: bool, bytes| if holds { Memory::operand(bytes, own) } else { Memory::default() };
        let memory =
            [holding(true, room.input_bytes), holding(room.output_is_operand, room.output_bytes), Memory::default()];
        let mut rank = Self { schedule, room, memory, first: 0, behind: 0, complete: [false; 2], written: 0 };
        rank.enter_group(0);
        rank
    }

    fn enter_group(&mut self, first: usize) {
        let len = self.schedule.len();
        (self.first, self.behind, self.complete) = (first, len.min(first + 1), [false; 2]);
        if self.behind < len && self.schedule.joined(self.behind) {
            self.behind += 1;
        }
    }

    /// The first step of the group at hand that is not complete and fits.
    fn find(&self, fits: impl Fn(Action) -> bool) -> Option<usize> {
        (self.first..self.behind).find(|&index| !self.complete[index - self.first] && fits(self.schedule.action(index)))
    }

    fn write(&mut self, span: Span, pieces: &[Piece]) {
        if span.buffer == Buffer::Output {
            self.written += span.bytes;
        }
        self.memory[place(span.buffer)].write(span, pieces);
    }
}

impl World<'_> {
    /// Takes what can be taken of a rank's group. Whether it is complete, and the rank is at the next one.
    fn advance(&mut self, rank: usize, notice: &mut impl FnMut((usize, usize), (usize, usize))) -> Result<bool, Fault> {
        let Rank { schedule, first, behind, .. } = self.ranks[rank];
        if first == behind {
            return Ok(false);
        }
        for index in first..behind {
            if self.ranks[rank].complete[index - first] {
                continue;
            }
            match schedule.action(index) {
                Action::Send { peer, .. } => {
                    let peer = peer as usize;
                    let from_me = |action| matches!(action, Action::Receive { peer, .. } if peer as usize == rank);
                    let Some(theirs) = self.ranks[peer].find(from_me) else { continue };
                    self.deliver((rank, index), (peer, theirs))?;
                    notice((rank, index), (peer, theirs));
                }
                Action::Receive { peer, .. } => {
                    let peer = peer as usize;
                    let to_me = |action| matches!(action, Action::Send { peer, .. } if peer as usize == rank);
                    let Some(theirs) = self.ranks[peer].find(to_me) else { continue };
                    self.deliver((peer, theirs), (rank, index))?;
                    notice((peer, theirs), (rank, index));
                }
                Action::Reduce { left, right, into } => {
                    self.reduce(rank, index, [left, right, into])?;
                    self.ranks[rank].complete[index - first] = true;
                }
                Action::Copy { from, into } => {
                    self.read(rank, index, from, 0)?;
                    self.ranks[rank].write(into, &self.pieces[0]);
                    self.ranks[rank].complete[index - first] = true;
                }
            }
        }
        let own = &mut self.ranks[rank];
        let complete = own.complete[..behind - first].iter().all(|&complete| complete);
        if complete {
            own.enter_group(behind);
        }
        Ok(complete)
    }

    /// Completes a message on both sides. It is the next one of the two ranks in this direction, and both have counted.
    fn deliver(&mut self, (from, send): (usize, usize), (to, receive): (usize, usize)) -> Result<(), Fault> {
        let fault = |reason| Fault { rank: to, step: Some(receive), reason };
        let sent = self.ranks[from].schedule.action(send);
        let received = self.ranks[to].schedule.action(receive);
        let (Action::Send { from: source, .. }, Action::Receive { into, .. }) = (sent, received) else {
            unreachable!("found as such");
        };
        if source.bytes != into.bytes {
            return Err(fault(format!("receives {} bytes when rank {from} sends {}", into.bytes, source.bytes)));
        }
        self.read(from, send, source, 0)?;
        self.ranks[to].write(into, &self.pieces[0]);
        for (rank, step) in [(from, send), (to, receive)] {
            let first = self.ranks[rank].first;
            self.ranks[rank].complete[step - first] = true;
            self.awake.push(rank);
        }
        self.messages += 1;
        Ok(())
    }

    fn reduce(&mut self, rank: usize, step: usize, [left, right, into]: [Span; 3]) -> Result<(), Fault> {
        let fault = |reason| Fault { rank, step: Some(step), reason };
        self.read(rank, step, left, 0)?;
        self.read(rank, step, right, 1)?;
        let [lefts, rights, results] = &mut self.pieces;
        results.clear();
        let (mut l, mut r, mut done) = ((0, 0), (0, 0), 0);
        let element = self.ranks[rank].room.element_bytes;
        while done < into.bytes {
            let (a, b) = (lefts[l.0], rights[r.0]);
            let bytes = (a.bytes - l.1).min(b.bytes - r.1);
            let (origin, other) = (a.origin + l.1, b.origin + r.1);
            if origin != other || origin % element != 0 || bytes % element != 0 {
                return Err(fault(format!("combines byte {origin} of the vector with byte {other}, {bytes} of them")));
            }
            let value = self.values.combine(a.value, b.value).map_err(fault)?;
            push(results, Piece { bytes, value, origin });
            done += bytes;
            for (place, pieces) in [(&mut l, &*lefts), (&mut r, &*rights)] {
                place.1 += bytes;
                if place.1 == pieces[place.0].bytes {
                    *place = (place.0 + 1, 0);
                }
            }
        }
        self.ranks[rank].write(into, &self.pieces[2]);
        Ok(())
    }

    /// Reads into the list of pieces with this number.
    fn read(&mut self, rank: usize, step: usize, span: Span, list: usize) -> Result<(), Fault> {
        let pieces = &mut self.pieces[list];
        pieces.clear();
        self.ranks[rank].memory[place(span.buffer)].read(span, pieces).map_err(|byte| Fault {
            rank,
            step: Some(step),
            reason: format!("reads byte {byte} of {:?}, which nobody has written", span.buffer),
        })
    }

    fn check_ended(&self) -> Result<(), Fault> {
        let mut stuck = self.ranks.iter().enumerate().filter(|(_, rank)| rank.first < rank.behind);
        match stuck.next() {
            None => Ok(()),
            Some((rank, Rank { schedule, first, .. })) => Err(Fault {
                rank,
                step: Some(*first),
                reason: format!("and {} other ranks wait for ever; here {:?}", stuck.count(), schedule.action(*first)),
            }),
        }
    }
}

fn place(buffer: Buffer) -> usize {
    match buffer {
        Buffer::Input => 0,
        Buffer::Output => 1,
        Buffer::Scratch => 2,
    }
}

//! Writes schedules: the sequential program of a rank goes in, waits are derived.

use super::hazards::Hazards;
use super::packed::Packed;
use super::{Action, Buffer, Schedule, Span};

/// Takes a rank's program step by step.
///
/// A step waits for the steps before it whose bytes it needs or overwrites. Messages are numbered by themselves.
#[derive(Debug, Default)]
pub struct Builder {
    steps: Vec<Packed>,
    waits: Vec<u32>,
    hazards: Hazards,
    peers: Peers,
    round: u32,
    /// Where the waits of the step at hand begin: those that were asked for by name are there already.
    waits_begin: usize,
    /// The first step of the group to which the last one belongs.
    group: u32,
    scratch_bytes: usize,
}

impl Builder {
    /// A builder without steps.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A builder with room for so many steps.
    #[must_use]
    pub fn with_capacity(steps: usize) -> Self {
        Self { steps: Vec::with_capacity(steps), waits: Vec::with_capacity(2 * steps), ..Self::default() }
    }

    /// Scratch memory that nobody else has.
    ///
    /// # Panics
    /// All of it would be more than a program can address.
    pub fn scratch(&mut self, bytes: usize) -> Span {
        let start = self.scratch_bytes.next_multiple_of(Schedule::SCRATCH_ALIGNMENT);
        self.scratch_bytes = start.checked_add(bytes).expect("scratch memory within the address space");
        Span::new(Buffer::Scratch, start, bytes)
    }

    /// Sends the next message to `peer`. The number of the step comes back.
    pub fn send(&mut self, peer: usize, from: Span) -> u32 {
        let peer = rank(peer);
        let message = self.peers.next_send(peer);
        self.hazards.read(from, self.next(), &mut self.waits);
        self.push(Action::Send { peer, message, from }, false)
    }

    /// Receives the next message from `peer`. The number of the step comes back.
    ///
    /// # Panics
    /// `into` is in the input.
    pub fn receive(&mut self, peer: usize, into: Span) -> u32 {
        self.receive_step(peer, into, false)
    }

    /// Sends to `to` and receives from `of` at once, so that ranks which do this with each other, or in a circle,
    /// do not wait for each other even if they take one step after the other. The number of the receive comes
    /// back; the send's is one less.
    ///
    /// # Panics
    /// `from` and `into` overlap, or `into` is in the input.
    pub fn exchange(&mut self, to: usize, from: Span, of: usize, into: Span) -> u32 {
        assert!(!from.overlaps(&into), "{from:?} is sent while {into:?} is received");
        self.send(to, from);
        self.receive_step(of, into, true)
    }

    /// Combines two operands: `into = left op right`. The number of the step comes back.
    ///
    /// # Panics
    /// The lengths differ, `into` is in the input, or it overlaps an operand without being it.
    pub fn reduce(&mut self, left: Span, right: Span, into: Span) -> u32 {
        assert!(left.bytes == into.bytes && right.bytes == into.bytes, "{left:?} op {right:?} into {into:?}");
        for operand in [left, right] {
            assert!(operand == into || !operand.overlaps(&into), "{left:?} op {right:?} into {into:?}");
        }
        self.check_target(into);
        let step = self.next();
        self.hazards.read(left, step, &mut self.waits);
        self.hazards.read(right, step, &mut self.waits);
        self.hazards.write(into, step, &mut self.waits);
        self.push(Action::Reduce { left, right, into }, false)
    }

    /// Copies bytes. The number of the step comes back.
    ///
    /// # Panics
    /// The lengths differ, both overlap, or `into` is in the input.
    pub fn copy(&mut self, from: Span, into: Span) -> u32 {
        assert!(from.bytes == into.bytes && !from.overlaps(&into), "copy of {from:?} into {into:?}");
        self.check_target(into);
        let step = self.next();
        self.hazards.read(from, step, &mut self.waits);
        self.hazards.write(into, step, &mut self.waits);
        self.push(Action::Copy { from, into }, false)
    }

    /// The next step waits for `step` too, whatever their bytes.
    ///
    /// # Panics
    /// There is no such step yet.
    pub fn after(&mut self, step: u32) {
        assert!(step < self.next(), "step {step} of {}", self.next());
        self.waits.push(step);
    }

    /// Steps from here on belong to a new round.
    ///
    /// # Panics
    /// There are 2^29 rounds already.
    pub fn next_round(&mut self) {
        assert!(self.round < Packed::MAX_ROUNDS, "too many rounds");
        self.round += 1;
    }

    /// The schedule.
    #[must_use]
    pub fn finish(self) -> Schedule {
        Schedule::new(self.steps, self.waits, self.scratch_bytes)
    }

    fn receive_step(&mut self, peer: usize, into: Span, joined: bool) -> u32 {
        self.check_target(into);
        let peer = rank(peer);
        let message = self.peers.next_receive(peer);
        self.hazards.write(into, self.next(), &mut self.waits);
        self.push(Action::Receive { peer, message, into }, joined)
    }

    fn check_target(&self, into: Span) {
        assert!(into.buffer != Buffer::Input, "step {} would write into the input", self.steps.len());
    }

    /// The number of the next step.
    #[expect(clippy::cast_possible_truncation, reason = "checked where steps are appended")]
    fn next(&self) -> u32 {
        self.steps.len() as u32
    }

    fn push(&mut self, action: Action, joined: bool) -> u32 {
        let step = self.next();
        let waits_end = self.tidy_waits();
        if !joined {
            self.group = step;
        }
        debug_assert!(
            self.waits[self.waits_begin..].iter().all(|&wait| wait < self.group),
            "step {step} is joined with one that it waits for"
        );
        self.waits_begin = self.waits.len();
        assert!(step < u32::MAX / 8, "too many steps");
        self.steps.push(Packed::new(action, self.round, joined, waits_end));
        step
    }

    /// Sorts the waits of the step at hand, each once, and says where they end.
    fn tidy_waits(&mut self) -> u32 {
        let own = &mut self.waits[self.waits_begin..];
        if own.len() > 1 {
            own.sort_unstable();
            let mut kept = self.waits_begin;
            for at in self.waits_begin + 1..self.waits.len() {
                if self.waits[at] != self.waits[kept] {
                    kept += 1;
                    self.waits[kept] = self.waits[at];
                }
            }
            self.waits.truncate(kept + 1);
        }
        u32::try_from(self.waits.len()).expect("fewer than 2^32 waits")
    }
}

fn rank(peer: usize) -> u32 {
    u32::try_from(peer).expect("a rank")
}

/// How many messages went to and came from each peer, in the order of peers.
#[derive(Debug, Default)]
struct Peers {
    counts: Vec<Counts>,
    /// Where the last one was.
    last: usize,
}

#[derive(Debug, Clone, Copy)]
struct Counts {
    peer: u32,
    sent: u32,
    received: u32,
}

impl Peers {
    fn next_send(&mut self, peer: u32) -> u32 {
        let counts = self.of(peer);
        counts.sent += 1;
        counts.sent - 1
    }

    fn next_receive(&mut self, peer: u32) -> u32 {
        let counts = self.of(peer);
        counts.received += 1;
        counts.received - 1
    }

    fn of(&mut self, peer: u32) -> &mut Counts {
        if self.counts.get(self.last).is_none_or(|counts| counts.peer != peer) {
            self.last = self.counts.partition_point(|counts| counts.peer < peer);
            if self.counts.get(self.last).is_none_or(|counts| counts.peer != peer) {
                self.counts.insert(self.last, Counts { peer, sent: 0, received: 0 });
            }
        }
        &mut self.counts[self.last]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(start: usize, bytes: usize) -> Span {
        Span::new(Buffer::Output, start, bytes)
    }

    #[test]
    fn waits_follow_from_bytes() {
        let mut program = Builder::new();
        let scratch = program.scratch(8);
        program.receive(1, output(0, 8)); // 0
        program.receive(1, output(8, 8)); // 1: apart from 0
        program.send(2, output(4, 8)); // 2: reads parts of both
        program.send(3, output(0, 4)); // 3: reads a part of 0
        program.receive(4, scratch); // 4
        program.reduce(output(0, 8), scratch, output(0, 8)); // 5: after the readers of its bytes
        program.receive(4, scratch); // 6: after the reader of the message before
        program.send(5, output(8, 0)); // 7: no bytes, no waits
        program.receive(6, output(0, 16)); // 8: overwrites all
        let schedule = program.finish();
        let waits: Vec<&[u32]> = schedule.steps().map(|step| step.waits).collect();
        let none: &[u32] = &[];
        assert_eq!(waits, [none, none, &[0, 1], &[0], none, &[0, 2, 3, 4], &[5], none, &[1, 2, 5]]);
        assert_eq!(schedule.followers(2), [5, 8]);
        assert_eq!(schedule.followers(0), [2, 3, 5]);
        assert_eq!(schedule.followers(8), none);
    }

    #[test]
    fn messages_are_numbered_by_peer_and_direction() {
        let mut program = Builder::new();
        program.exchange(1, output(0, 1), 2, output(1, 1));
        program.next_round();
        program.exchange(2, output(0, 1), 1, output(1, 1));
        program.exchange(1, output(0, 1), 2, output(1, 1));
        let schedule = program.finish();
        let seen: Vec<_> = schedule
            .steps()
            .map(|step| match step.action {
                Action::Send { peer, message, .. } => ('s', peer, message, step.round, step.joined),
                Action::Receive { peer, message, .. } => ('r', peer, message, step.round, step.joined),
                other => unreachable!("{other:?}"),
            })
            .collect();
        assert_eq!(
            seen,
            [
                ('s', 1, 0, 0, false),
                ('r', 2, 0, 0, true),
                ('s', 2, 0, 1, false),
                ('r', 1, 0, 1, true),
                ('s', 1, 1, 1, false),
                ('r', 2, 1, 1, true)
            ]
        );
        assert_eq!(schedule.rounds(), 2);
    }

    #[test]
    fn steps_wait_for_those_that_are_named() {
        let mut program = Builder::new();
        let first = program.receive(1, output(0, 0));
        program.after(first);
        program.send(2, output(0, 0));
        assert_eq!(program.finish().waits(1), [0]);
    }

    #[test]
    fn scratch_is_handed_out_once_and_aligned() {
        let mut program = Builder::new();
        let spans = [program.scratch(1), program.scratch(64), program.scratch(3)];
        assert_eq!(spans.map(|span| span.start), [0, 64, 128]);
        assert_eq!(program.finish().scratch_bytes(), 131);
    }

    #[test]
    #[should_panic(expected = "write into the input")]
    fn nothing_is_written_into_the_input() {
        Builder::new().receive(1, Span::new(Buffer::Input, 0, 8));
    }
}

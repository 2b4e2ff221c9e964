//! Schedules in memory: a step is packed into 40 bytes, as tens of thousands of ranks are simulated in one process.

use super::extent::Extent;
use super::{Action, Buffer, Span};

/// What one rank does in a collective.
///
/// Steps are in the order of the rank's sequential program. Any order in which each step begins only when those
/// that it waits for have completed gives the same result.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    steps: Vec<Packed>,
    /// The waits of all steps, one step's behind the other's.
    waits: Vec<u32>,
    /// Where each step's followers end.
    follower_ends: Vec<u32>,
    followers: Vec<u32>,
    scratch_bytes: usize,
    extent: Extent,
}

/// One step of a schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step<'a> {
    /// What it does.
    pub action: Action,
    /// The earlier steps that must have completed before it begins, in ascending order.
    pub waits: &'a [u32],
    /// The round that it belongs to: never less than that of the step before.
    pub round: u32,
    /// Whether a rank that works through its steps one by one begins it together with the step before, as
    /// `MPI_Sendrecv` does, and completes both before the next. Neither of such steps waits for the other.
    pub joined: bool,
}

impl Schedule {
    /// Number of steps.
    #[must_use]
    pub fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The step with this number.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    #[inline]
    pub fn step(&self, index: usize) -> Step<'_> {
        let packed = &self.steps[index];
        Step { action: packed.action(), waits: self.waits(index), round: packed.round(), joined: packed.joined() }
    }

    /// All steps in order.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = Step<'_>> {
        (0..self.len()).map(|index| self.step(index))
    }

    /// What a step does.
    ///
    /// # Panics
    /// There is no such step.
    #[must_use]
    #[inline]
    pub fn action(&self, index: usize) -> Action {
        self.steps[index].action()
    }

    /// The round of a step.
    ///
    /// # Panics
    /// There is no such step.
    #[must_use]
    #[inline]
    pub fn round(&self, index: usize) -> u32 {
        self.steps[index].round()
    }

    /// Whether a step is [joined](Step::joined) with the one before.
    ///
    /// # Panics
    /// There is no such step.
    #[must_use]
    #[inline]
    pub fn joined(&self, index: usize) -> bool {
        self.steps[index].joined()
    }

    /// The steps that a step waits for.
    ///
    /// # Panics
    /// There is no such step.
    #[must_use]
    #[inline]
    pub fn waits(&self, index: usize) -> &[u32] {
        let start = index.checked_sub(1).map_or(0, |before| self.steps[before].waits_end);
        &self.waits[start as usize..self.steps[index].waits_end as usize]
    }

    /// The steps that wait for a step, in ascending order.
    ///
    /// # Panics
    /// There is no such step.
    #[must_use]
    pub fn followers(&self, index: usize) -> &[u32] {
        let start = index.checked_sub(1).map_or(0, |before| self.follower_ends[before]);
        &self.followers[start as usize..self.follower_ends[index] as usize]
    }

    /// Number of rounds.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.steps.last().map_or(0, |last| last.round() + 1)
    }

    /// Bytes of scratch memory that it needs, from a start that is aligned to [`SCRATCH_ALIGNMENT`](Self::SCRATCH_ALIGNMENT).
    #[must_use]
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// What it needs.
    pub(crate) fn extent(&self) -> &Extent {
        &self.extent
    }

    /// What the parts of scratch memory are aligned to.
    pub const SCRATCH_ALIGNMENT: usize = 64;

    /// A schedule with these steps and waits, whether they make sense or not.
    #[cfg(test)]
    pub(crate) fn from_parts<'a>(parts: impl IntoIterator<Item = Step<'a>>, scratch_bytes: usize) -> Self {
        let (mut steps, mut waits) = (Vec::new(), Vec::new());
        for Step { action, waits: own, round, joined } in parts {
            waits.extend_from_slice(own);
            let end = u32::try_from(waits.len()).expect("few waits");
            steps.push(Packed::new(action, round, joined, end));
        }
        Self::new(steps, waits, scratch_bytes)
    }

    /// A schedule of packed steps, whose waits are in `waits`.
    pub(super) fn new(steps: Vec<Packed>, waits: Vec<u32>, scratch_bytes: usize) -> Self {
        let mut follower_ends = vec![0; steps.len()];
        for &wait in &waits {
            follower_ends[wait as usize] += 1;
        }
        let mut total = 0;
        for end in &mut follower_ends {
            // For now where the followers start; each that is entered moves it on, at last to their end.
            total += std::mem::replace(end, total);
        }
        let mut followers = vec![0; waits.len()];
        let (mut index, mut start) = (0u32, 0);
        for step in &steps {
            for &wait in &waits[start..step.waits_end as usize] {
                let place = &mut follower_ends[wait as usize];
                followers[*place as usize] = index;
                *place += 1;
            }
            start = step.waits_end as usize;
            index += 1;
        }
        let extent = Extent::of(steps.iter().map(Packed::action));
        Self { steps, waits, follower_ends, followers, scratch_bytes, extent }
    }
}

/// A step in 40 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed {
    /// Round, joined, kind: 29, 1 and 2 bits.
    head: u32,
    /// Where the step's waits end; they start where those of the step before end.
    waits_end: u32,
    /// Places: buffer in the upper 2 bits, first byte in the others. For messages the second is peer and number.
    places: [u64; 3],
    bytes: u64,
}

const SEND: u32 = 0;
const RECEIVE: u32 = 1;
const REDUCE: u32 = 2;
const COPY: u32 = 3;
const JOINED: u32 = 4;
const ROUND_SHIFT: u32 = 3;

impl Packed {
    /// The most rounds that a schedule has.
    pub(super) const MAX_ROUNDS: u32 = u32::MAX >> ROUND_SHIFT;

    pub(super) fn new(action: Action, round: u32, joined: bool, waits_end: u32) -> Self {
        let message = |peer: u32, number: u32| (u64::from(peer) << 32) | u64::from(number);
        let (kind, places, bytes) = match action {
            Action::Send { peer, message: number, from } => (SEND, [place(from), message(peer, number), 0], from.bytes),
            Action::Receive { peer, message: number, into } => {
                (RECEIVE, [place(into), message(peer, number), 0], into.bytes)
            }
            Action::Reduce { left, right, into } => (REDUCE, [place(left), place(right), place(into)], into.bytes),
            Action::Copy { from, into } => (COPY, [place(from), place(into), 0], into.bytes),
        };
        Self {
            head: (round << ROUND_SHIFT) | if joined { JOINED } else { 0 } | kind,
            waits_end,
            places,
            bytes: bytes as u64,
        }
    }

    fn round(&self) -> u32 {
        self.head >> ROUND_SHIFT
    }

    fn joined(&self) -> bool {
        self.head & JOINED != 0
    }

    fn action(&self) -> Action {
        let [a, b, c] = self.places;
        #[expect(clippy::cast_possible_truncation, reason = "packed from 32 bits each, and from a usize")]
        let (peer, message, bytes) = ((b >> 32) as u32, b as u32, self.bytes as usize);
        match self.head & 3 {
            SEND => Action::Send { peer, message, from: span(a, bytes) },
            RECEIVE => Action::Receive { peer, message, into: span(a, bytes) },
            REDUCE => Action::Reduce { left: span(a, bytes), right: span(b, bytes), into: span(c, bytes) },
            _ => Action::Copy { from: span(a, bytes), into: span(b, bytes) },
        }
    }
}

const BUFFER_SHIFT: u32 = 62;

fn place(span: Span) -> u64 {
    let buffer = match span.buffer {
        Buffer::Input => 0,
        Buffer::Output => 1,
        Buffer::Scratch => 2,
    };
    debug_assert!((span.start as u64) < 1 << BUFFER_SHIFT, "no buffer is that large");
    (buffer << BUFFER_SHIFT) | span.start as u64
}

fn span(place: u64, bytes: usize) -> Span {
    let buffer = match place >> BUFFER_SHIFT {
        0 => Buffer::Input,
        1 => Buffer::Output,
        _ => Buffer::Scratch,
    };
    let start = (place & !(3 << BUFFER_SHIFT)) as usize;
    Span { buffer, start, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_comes_out_as_it_went_in() {
        let far = Span::new(Buffer::Output, (1 << 40) + 3, 5 << 32);
        let near = Span::new(Buffer::Scratch, 64, 5 << 32);
        let own = Span::new(Buffer::Input, 0, 5 << 32);
        for action in [
            Action::Send { peer: u32::MAX, message: 7, from: far },
            Action::Receive { peer: 3, message: u32::MAX, into: near },
            Action::Reduce { left: own, right: near, into: far },
            Action::Copy { from: near, into: far },
        ] {
            for (round, joined) in [(0, true), (Packed::MAX_ROUNDS, false)] {
                let packed = Packed::new(action, round, joined, 9);
                assert_eq!((packed.action(), packed.round(), packed.joined()), (action, round, joined));
            }
        }
        assert_eq!(size_of::<Packed>(), 40);
    }
}

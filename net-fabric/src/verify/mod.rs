//! Proves schedules right, without running them on data.
//!
//! [`verify`] takes the schedules of all ranks, and neither the algorithm nor the builder is believed. It shows that
//! - every message that is sent is received, with the same number and length, and each of two ranks in one direction
//!   has its own number, counted from 0;
//! - rounds go on, and of the steps that are begun together one at most sends and one receives, in one round;
//! - ranks that take one group of steps after the other end even if every send waits for its receive;
//! - no step reads what nobody has written, or writes into the input, or out of bounds;
//! - of two steps of a rank that use a byte which one of them writes, one waits for the other: so every order of
//!   execution that respects the waits computes the same as the one that was looked at;
//! - each operand is in each result once, in rank order if the operator does not commute, no element is cut, and
//!   every rank computes or gets the same bits;
//! - a bcast writes each byte of the other ranks' outputs once, and nobody leaves a barrier too early.
//!
//! `docs/schedules.md` in this crate shows why all policies are then free of deadlock.

mod barrier;
mod memory;
#[cfg(test)]
mod play;
mod races;
mod run;
mod survey;
#[cfg(test)]
mod tests;
mod values;

pub use survey::{Report, Row, Survey, pairs};

use std::fmt;

use crate::algorithm::{Collective, Shape};
use crate::schedule::{Buffer, Schedule, Span};
use values::Values;

/// What is wrong with schedules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Whose schedule shows it.
    pub rank: usize,
    /// The step that shows it, if it is one.
    pub step: Option<usize>,
    /// What is wrong, with the step as the subject, or the rank if there is none.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "rank {}: step {step} {}", self.rank, self.reason),
            None => write!(f, "rank {} {}", self.rank, self.reason),
        }
    }
}

impl std::error::Error for Fault {}

/// How much was proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Proof {
    /// Steps of all ranks.
    pub steps: usize,
    /// Messages between them.
    pub messages: usize,
}

/// A rank's memory.
#[derive(Debug, Clone, Copy)]
struct Room {
    input_bytes: usize,
    output_bytes: usize,
    output_is_operand: bool,
    scratch_bytes: usize,
    element_bytes: usize,
}

impl Room {
    fn new(collective: Collective, shape: &Shape<'_>, rank: usize, schedule: &Schedule) -> Self {
        let is_root = rank == shape.root;
        let (has_output, in_place) = match collective {
            Collective::Barrier => (false, true),
            Collective::Bcast => (true, true),
            Collective::Reduce => (is_root, is_root && shape.in_place),
            Collective::Allreduce => (true, shape.in_place),
        };
        Self {
            input_bytes: if in_place { 0 } else { shape.bytes },
            output_bytes: if has_output { shape.bytes } else { 0 },
            output_is_operand: in_place && (collective != Collective::Bcast || is_root),
            scratch_bytes: schedule.scratch_bytes(),
            element_bytes: shape.element_bytes,
        }
    }

    /// Checks that bytes may be used.
    fn check(&self, span: Span, writes: bool) -> Result<(), String> {
        let (limit, cuts) = match span.buffer {
            Buffer::Input if writes => return Err(format!("writes {span:?}")),
            Buffer::Input => (self.input_bytes, span.start % self.element_bytes),
            Buffer::Output => (self.output_bytes, span.start % self.element_bytes),
            Buffer::Scratch => (self.scratch_bytes, 0),
        };
        if span.start.checked_add(span.bytes).is_none_or(|end| end > limit) {
            return Err(format!("uses {span:?}, but there are {limit} bytes"));
        }
        if cuts != 0 || !span.bytes.is_multiple_of(self.element_bytes) {
            return Err(format!("uses {span:?}, which cuts an element of {} bytes", self.element_bytes));
        }
        Ok(())
    }
}

/// Proves that the schedules, one for each rank, do what the shape says; its rank does not matter.
///
/// # Errors
/// What is wrong.
pub fn verify(collective: Collective, shape: &Shape<'_>, schedules: &[Schedule]) -> Result<Proof, Fault> {
    if schedules.len() != shape.size {
        let reason = format!("is one of {} schedules for {} ranks", schedules.len(), shape.size);
        return Err(Fault { rank: 0, step: None, reason });
    }
    let room = |(rank, schedule): (usize, &Schedule)| Room::new(collective, shape, rank, schedule);
    let rooms = || schedules.iter().enumerate().map(room);
    let mut checker = races::Checker::default();
    for (rank, (schedule, room)) in schedules.iter().zip(rooms()).enumerate() {
        checker.check((rank, schedules.len()), schedule, &room)?;
    }
    let steps = schedules.iter().map(Schedule::len).sum();
    if collective == Collective::Barrier {
        return Ok(Proof { steps, messages: barrier::check(schedules, rooms())? });
    }
    let values = Values::new(shape.size, shape.commutative);
    let outcome = run::run(schedules, rooms(), values, |_, _| ())?;
    check_results(collective, shape, &outcome)?;
    Ok(Proof { steps, messages: outcome.messages })
}

/// Checks that the outputs hold what they should.
fn check_results(collective: Collective, shape: &Shape<'_>, outcome: &run::Outcome) -> Result<(), Fault> {
    let whole = Span::new(Buffer::Output, 0, shape.bytes);
    let mut expected = Vec::new();
    let mut pieces = Vec::new();
    for (rank, output) in outcome.outputs.iter().enumerate() {
        let fault = |reason| Fault { rank, step: None, reason };
        if collective == Collective::Reduce && rank != shape.root {
            continue;
        }
        pieces.clear();
        output.read(whole, &mut pieces).map_err(|byte| fault(format!("has no result in byte {byte}")))?;
        let mut byte = 0;
        for piece in &pieces {
            if piece.origin != byte {
                return Err(fault(format!("has byte {} of the vector in byte {byte} of its output", piece.origin)));
            }
            let right = match collective {
                Collective::Bcast => piece.value as usize == shape.root,
                _ => outcome.values.is_complete(piece.value),
            };
            if !right {
                let operands = outcome.values.describe(piece.value);
                return Err(fault(format!("has the operands of ranks {operands} from byte {byte} on")));
            }
            byte += piece.bytes;
        }
        if collective == Collective::Bcast {
            let due = if rank == shape.root { 0 } else { shape.bytes };
            if outcome.written[rank] != due {
                return Err(fault(format!("writes {} bytes of its output instead of {due}", outcome.written[rank])));
            }
        }
        if expected.is_empty() {
            expected.clone_from(&pieces);
        } else if expected != pieces {
            return Err(fault("has other bits than rank 0".into()));
        }
    }
    Ok(())
}

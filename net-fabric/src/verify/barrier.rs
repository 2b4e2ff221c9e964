//! What a barrier promises: when a rank has completed, it can be sure that every rank has begun.

use super::{Fault, Room, run, values::Values};
use crate::schedule::Schedule;

/// Sets of ranks that are known to have begun, one for each step, as bits.
struct Known {
    words: usize,
    /// Where the steps of each rank begin.
    starts: Vec<usize>,
    bits: Vec<u64>,
}

impl Known {
    fn index(&self, rank: usize, step: usize) -> usize {
        (self.starts[rank] + step) * self.words
    }

    /// Adds what one step knows to what another knows.
    fn merge(&mut self, from: usize, into: usize) {
        for word in 0..self.words {
            self.bits[into + word] |= self.bits[from + word];
        }
    }
}

/// Runs a barrier, and checks that each rank hears of all others before its last step.
pub(super) fn check(schedules: &[Schedule], rooms: impl Iterator<Item = Room>) -> Result<usize, Fault> {
    let words = schedules.len().div_ceil(64);
    let mut starts = vec![0];
    starts.extend(schedules.iter().scan(0, |total, schedule| {
        *total += schedule.len();
        Some(*total)
    }));
    let total = starts[schedules.len()];
    let mut known = Known { words, starts, bits: vec![0; total * words] };
    for (rank, schedule) in schedules.iter().enumerate() {
        for step in 0..schedule.len() {
            let at = known.index(rank, step) + rank / 64;
            known.bits[at] |= 1 << (rank % 64);
        }
    }
    let outcome = run::run(schedules, rooms, Values::new(schedules.len(), true), |(from, send), (to, receive)| {
        let at = known.index(from, send);
        for &wait in schedules[from].waits(send) {
            known.merge(known.index(from, wait as usize), at);
        }
        known.merge(at, known.index(to, receive));
    })?;
    for (rank, schedule) in schedules.iter().enumerate() {
        let mut heard = vec![0; words];
        heard[rank / 64] |= 1 << (rank % 64);
        for step in 0..schedule.len() {
            let at = known.index(rank, step);
            heard.iter_mut().zip(&known.bits[at..at + words]).for_each(|(heard, bits)| *heard |= bits);
        }
        if let Some(other) = (0..schedules.len()).find(|other| heard[other / 64] >> (other % 64) & 1 == 0) {
            return Err(Fault { rank, step: None, reason: format!("leaves without having heard of rank {other}") });
        }
    }
    Ok(outcome.messages)
}

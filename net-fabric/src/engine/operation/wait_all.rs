//! Round by round, each completed before the next begins, but for receives, which are posted one round ahead
//! (algorithm 2 of the dissertation).

use super::{Begun, Operation, Surroundings};
use crate::error::Result;
use crate::schedule::Action;
use crate::transport::Transport;

impl Operation {
    /// Enters the first round; and the next, as long as one is complete.
    pub(super) fn enter_round<T: Transport>(&mut self, around: &mut Surroundings<'_, T>) -> Result<()> {
        self.round_left = 0;
        self.next_rounds(around)?;
        self.settle(around)
    }

    /// Begins what has been woken, and enters rounds.
    pub(super) fn wake_in_rounds<T: Transport>(&mut self, around: &mut Surroundings<'_, T>) -> Result<()> {
        loop {
            let mut at = 0;
            while let Some(&step) = self.woken.get(at) {
                at += 1;
                self.begin_in_rounds(step, around)?;
            }
            self.woken.clear();
            if self.wake_for_places() {
                continue;
            }
            if self.round_left > 0 || self.round_ends[0] == self.schedule.len() {
                return Ok(());
            }
            self.next_rounds(around)?;
        }
    }

    /// Begins messages that were refused.
    pub(super) fn retry_rounds<T: Transport>(&mut self, around: &mut Surroundings<'_, T>) -> Result<()> {
        self.begin_steps(self.cursor, self.round_ends[1], false, around)
    }

    /// Makes the next round the one that the operation is in.
    fn next_rounds<T: Transport>(&mut self, around: &mut Surroundings<'_, T>) -> Result<()> {
        if self.schedule.is_empty() {
            return Ok(());
        }
        let start = self.round_ends[0];
        let end = self.round_from(start);
        let ahead = self.round_from(end);
        self.cursor = start;
        self.round_ends = [end, ahead];
        self.round_left = self.waiting[start..end].iter().filter(|&&left| left != super::DONE).count();
        self.begin_steps(start, ahead, true, around)
    }

    /// The step behind the round that begins with `start`.
    fn round_from(&self, start: usize) -> usize {
        let steps = self.schedule.len();
        if start == steps {
            return steps;
        }
        let round = self.schedule.step(start).round;
        (start..steps).find(|&step| self.schedule.step(step).round != round).unwrap_or(steps)
    }

    /// Begins what may begin; reductions and copies only if they are new to the round.
    fn begin_steps<T: Transport>(
        &mut self,
        start: usize,
        end: usize,
        new: bool,
        around: &mut Surroundings<'_, T>,
    ) -> Result<()> {
        for step in start..end {
            #[expect(clippy::cast_possible_truncation, reason = "steps are numbered by 32 bits")]
            let step = step as u32;
            if self.waiting[step as usize] == 0 && (new || self.is_message(step)) {
                self.begin_in_rounds(step, around)?;
            }
        }
        Ok(())
    }

    fn begin_in_rounds<T: Transport>(&mut self, step: u32, around: &mut Surroundings<'_, T>) -> Result<()> {
        let may_begin = (step as usize) < self.round_ends[0]
            || (step as usize) < self.round_ends[1]
                && matches!(self.schedule.action(step as usize), Action::Receive { .. });
        if !may_begin || self.waiting[step as usize] != 0 {
            return Ok(());
        }
        if !self.is_message(step) {
            self.enqueue(step);
        } else if self.begin_message(step, around)? == Begun::Complete {
            self.complete(step);
        }
        Ok(())
    }
}

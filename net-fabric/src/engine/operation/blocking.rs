//! One step after the other, in the order of the program (algorithm 1 of the dissertation).

use super::{Begun, DONE, Operation, Surroundings};
use crate::error::Result;
use crate::transport::Transport;

impl Operation {
    /// Goes on as far as possible. Steps that are joined are under way together.
    pub(super) fn follow_program<T: Transport>(&mut self, around: &mut Surroundings<'_, T>) -> Result<()> {
        loop {
            let start = self.cursor;
            if start == self.schedule.len() {
                return Ok(());
            }
            let end = (start + 1..self.schedule.len()).find(|&step| !self.schedule.step(step).joined);
            let end = end.unwrap_or(self.schedule.len());
            for step in start..end {
                if self.waiting[step] == 0 {
                    self.begin_in_order(step, around)?;
                }
            }
            if self.waiting[start..end].iter().any(|&left| left != DONE) {
                return Ok(());
            }
            self.cursor = end;
        }
    }

    fn begin_in_order<T: Transport>(&mut self, step: usize, around: &mut Surroundings<'_, T>) -> Result<()> {
        #[expect(clippy::cast_possible_truncation, reason = "steps are numbered by 32 bits")]
        let step = step as u32;
        if !self.is_message(step) {
            self.work(step, around);
            self.complete(step);
        } else if self.post(step, around)? == Begun::Complete {
            self.complete(step);
        }
        Ok(())
    }
}

//! How many messages one operation has under way, whatever its policy: a rank with many peers leaves room for operations
//! of other communicators, in which these peers may be before they come to this one.
//!
//! Half of the places are for whatever is ready, the others are taken in the order of the program: so there always is
//! one for the first message that has not completed, and nothing hangs (`docs/schedules.md`).

use super::{Begun, DONE, Operation, Policy, Surroundings, UNDER_WAY};
use crate::error::Result;
use crate::schedule::{Action, Schedule};
use crate::transport::Transport;

/// The places for messages of one direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    most: usize,
    under_way: usize,
    /// The first message of the program that has not begun; behind all steps if there is none.
    next: usize,
}

impl Bound {
    fn has_place(&self, step: u32) -> bool {
        self.under_way < self.most / 2 || self.under_way < self.most && self.next == step as usize
    }
}

impl Operation {
    /// Bounds the directions in which the policy would have more than `most` messages under way.
    pub(super) fn bound(&mut self, windows: [usize; 2], most: usize) {
        let is_bounded = |window| window > most && self.policy != Policy::Blocking;
        self.bounds = windows.map(|window| is_bounded(window).then_some(Bound { most, under_way: 0, next: 0 }));
        for (direction, bound) in self.bounds.iter_mut().enumerate() {
            if let Some(bound) = bound {
                bound.next = next(&self.schedule, &self.waiting, direction, 0);
            }
        }
    }

    /// Posts a message if there is a place for it.
    pub(super) fn begin_message<T: Transport>(&mut self, step: u32, around: &mut Surroundings<'_, T>) -> Result<Begun> {
        if self.bounds.iter().all(Option::is_none) {
            return self.post(step, around);
        }
        let direction = direction(self.schedule.action(step as usize));
        if self.bounds[direction].is_some_and(|bound| !bound.has_place(step)) {
            return Ok(Begun::Refused);
        }
        let begun = self.post(step, around)?;
        if let Some(bound) = &mut self.bounds[direction]
            && begun != Begun::Refused
        {
            bound.under_way += usize::from(begun == Begun::Pending);
            if bound.next == step as usize {
                bound.next = next(&self.schedule, &self.waiting, direction, bound.next + 1);
                self.look_at_next(direction);
            }
        }
        Ok(begun)
    }

    /// A message is no longer under way.
    pub(super) fn leave_place(&mut self, step: u32) {
        if self.bounds.iter().all(Option::is_none) {
            return;
        }
        let direction = direction(self.schedule.action(step as usize));
        if let Some(bound) = &mut self.bounds[direction] {
            bound.under_way -= 1;
            self.look_at_next(direction);
        }
    }

    /// Lets the next message of the program be tried, which may have waited for nothing but its place.
    #[expect(clippy::cast_possible_truncation, reason = "steps are numbered by 32 bits")]
    fn look_at_next(&mut self, direction: usize) {
        let next = self.bounds[direction].map(|bound| bound.next);
        self.woken.extend(next.filter(|&next| next < self.schedule.len()).map(|next| next as u32));
    }
}

/// 0 for what is sent, 1 for what is received.
fn direction(action: Action) -> usize {
    usize::from(matches!(action, Action::Receive { .. }))
}

/// The first message in a direction, from a step on, that has not begun.
fn next(schedule: &Schedule, waiting: &[u32], to: usize, from: usize) -> usize {
    let is_message = |action| match action {
        Action::Send { .. } | Action::Receive { .. } => direction(action) == to,
        Action::Reduce { .. } | Action::Copy { .. } => false,
    };
    let steps = from..schedule.len();
    let mut left =
        steps.filter(|&step| is_message(schedule.action(step)) && !matches!(waiting[step], UNDER_WAY | DONE));
    left.next().unwrap_or(schedule.len())
}

//! How many messages one operation has under way, whatever its policy: a rank with many peers leaves room for operations
//! of other communicators, in which these peers may be before they come to this one.
//!
//! Half of the places are for whatever is ready, the others are taken in the order of the program: so there always is
//! one for the first message that has not completed, and nothing hangs (`docs/schedules.md`). What is refused a place
//! queues for the first half: peers that are late take no more of that from the others than their own windows.

use std::collections::VecDeque;

use super::{Begun, DONE, Operation, Policy, Surroundings, UNDER_WAY};
use crate::error::Result;
use crate::schedule::{Action, Schedule};
use crate::transport::Transport;

/// Messages that were ready and were refused a place.
#[derive(Debug, Default)]
pub(super) struct WithoutPlace {
    /// By direction, the first one refused first. What has begun since as the next of the program stays in here.
    queues: [VecDeque<u32>; 2],
    /// By step: whether it is in a queue.
    queued: Vec<bool>,
}

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
        let WithoutPlace { queues, queued } = &mut self.without_place;
        queues.iter_mut().for_each(VecDeque::clear);
        queued.clear();
        if self.bounds.iter().any(Option::is_some) {
            queued.resize(self.schedule.len(), false);
        }
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
            if !std::mem::replace(&mut self.without_place.queued[step as usize], true) {
                self.without_place.queues[direction].push_back(step);
            }
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

    /// Lets as many of the messages without a place be tried as there are places for whatever is ready. False if none.
    pub(super) fn wake_for_places(&mut self) -> bool {
        let WithoutPlace { queues, queued } = &mut self.without_place;
        for (bound, queue) in self.bounds.iter().zip(queues) {
            let free = bound.map_or(0, |bound| (bound.most / 2).saturating_sub(bound.under_way));
            for step in queue.drain(..free.min(queue.len())) {
                queued[step as usize] = false;
                self.woken.push(step);
            }
        }
        !self.woken.is_empty()
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

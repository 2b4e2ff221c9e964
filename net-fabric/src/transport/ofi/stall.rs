//! How long nothing has completed, without looking at the clock in each poll.

use std::time::{Duration, Instant};

/// Polls between two looks at the clock; a rank that waits for its node polls seldom.
const POLLS: u32 = 8;

/// Counts polls in vain.
#[derive(Default)]
pub(super) struct Stall {
    polls: u32,
    since: Option<Instant>,
}

impl Stall {
    /// Something has completed.
    pub(super) fn moved(&mut self) {
        self.polls = 0;
        self.since = None;
    }

    /// Nothing has completed in this poll: for how long, if it is time to look.
    pub(super) fn polled(&mut self) -> Option<Duration> {
        self.polls += 1;
        if self.polls.is_multiple_of(POLLS) { Some(self.slept()) } else { None }
    }

    /// Nothing has completed: for how long.
    pub(super) fn slept(&mut self) -> Duration {
        self.since.get_or_insert_with(Instant::now).elapsed()
    }
}

//! The events of a simulated world in the order of their times.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::machine::Seconds;

/// What happens at a time. Those of one time happen in the order of these variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    /// A message can enter its sender's port.
    Ready(usize),
    /// A message's start-up is over: its bytes enter the network.
    Joins(usize),
    /// A message's last byte has left.
    Gone(usize),
    /// A rank's port is free again.
    Free(u32),
    /// A message's last byte is at its receiver's port.
    Arrived(usize),
    /// A message is in its receiver's memory.
    Delivered(usize),
    /// The first messages at a node's door end, if nothing changed since the version.
    Drained(u32, u32),
    /// A node's door is shared out anew, once all that changed it now has happened.
    Settles(u32),
    /// A rank looks at what has completed, after everything else of this time.
    Wakes(u32),
}

#[derive(PartialEq)]
struct Event {
    at: Seconds,
    what: What,
    /// Breaks ties in the order of the calls.
    number: u64,
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        let stage = |event: &Self| match event.what {
            What::Wakes(_) => 2,
            What::Settles(_) => 1,
            _ => 0,
        };
        let key = |event: &Self| (stage(event), event.number);
        self.at.total_cmp(&other.at).then_with(|| key(self).cmp(&key(other)))
    }
}

/// The clock and what is to come.
#[derive(Default)]
pub(super) struct Clock {
    now: Seconds,
    events: BinaryHeap<Reverse<Event>>,
    count: u64,
}

impl Clock {
    pub(super) fn now(&self) -> Seconds {
        self.now
    }

    /// `what` will happen, not before now.
    pub(super) fn add(&mut self, at: Seconds, what: What) {
        self.events.push(Reverse(Event { at: at.max(self.now), what, number: self.count }));
        self.count += 1;
    }

    /// Goes on to the next event.
    pub(super) fn next(&mut self) -> Option<What> {
        let Reverse(event) = self.events.pop()?;
        self.now = event.at;
        Some(event.what)
    }
}

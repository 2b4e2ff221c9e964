//! Collectives under way, by communicator.
//!
//! Those of one communicator complete in the order in which they were begun, and whoever tests one makes all communicators
//! go on. So of many that are under way one is tested at a time, the oldest of a communicator that has not completed.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use han::RawRequest;

use crate::abi::Word;
use crate::arguments::Kept;
use crate::process::Ours;
use han::Collective;

/// A collective under way.
pub(crate) struct Pending {
    pub(crate) request: RawRequest,
    /// What a test has found, if it is complete.
    pub(crate) outcome: Option<han::Result<()>>,
    pub(crate) kept: Kept,
    pub(crate) ours: Rc<Ours>,
    pub(crate) receive: Receive,
    pub(crate) collective: Collective,
    pub(crate) bytes: usize,
    pub(crate) since: Instant,
    /// Whoever waits for it, among others.
    pub(crate) awaited: Option<Awaited>,
}

/// Collectives that a thread waits for: each has one of these, and the thread another.
#[derive(Default)]
pub(crate) struct Awaited(Arc<()>);

impl Awaited {
    pub(crate) fn another(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// How many are left; to the thread.
    pub(crate) fn left(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }
}

/// What the program has as a collective's request.
#[derive(Clone, Copy)]
pub(crate) struct Receive {
    pub(crate) handle: Word,
    pub(crate) tag: c_int,
    /// Handle and tag stay with a persistent request.
    pub(crate) is_persistent: bool,
    /// The handle, if the program has freed it: the MPI keeps the receive until it is complete.
    pub(crate) freed: Option<Word>,
}

impl Pending {
    /// Goes on, and with it everything else.
    fn test(&mut self) {
        if self.outcome.is_none() {
            self.outcome = match self.request.test() {
                Ok(false) => None,
                Ok(true) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            };
        }
    }

    fn is_complete(&self) -> bool {
        self.outcome.is_some() || self.request.has_completed()
    }
}

/// All of them; no queue is empty.
#[derive(Default)]
pub(crate) struct Queues {
    queues: Vec<VecDeque<Pending>>,
    /// Whose oldest operation is tested next.
    turn: usize,
}

impl Queues {
    /// Notes one that has just begun.
    pub(crate) fn push(&mut self, pending: Pending) {
        let queue = self.queues.iter_mut().find(|queue| queue[0].request.is_beside(&pending.request));
        match queue {
            Some(queue) => queue.push_back(pending),
            None => self.queues.push(VecDeque::from([pending])),
        }
    }

    /// Goes on with everything. One that nobody tests would not learn of a death, so each communicator has its turn.
    pub(crate) fn go_on(&mut self) {
        let count = self.queues.len();
        let turn = if self.turn < count { self.turn } else { 0 };
        self.turn = turn + 1;
        let Some(queue) = self.queues.get_mut(turn) else { return };
        // Those before it may wait for long until the program takes them.
        let Some(oldest) = queue.iter_mut().find(|pending| !pending.is_complete()) else { return };
        oldest.test();
        if matches!(oldest.outcome, Some(Err(_))) {
            // The job has ended, for all of them.
            self.all().filter(|pending| !pending.is_complete()).for_each(Pending::test);
        }
    }

    /// Takes one that is complete out of the queues from `place` on, with its outcome.
    pub(crate) fn take_complete(&mut self, place: &mut usize) -> Option<(Pending, han::Result<()>)> {
        while let Some(queue) = self.queues.get_mut(*place) {
            if queue[0].is_complete() {
                let mut pending = queue.pop_front()?;
                if queue.is_empty() {
                    self.queues.swap_remove(*place);
                }
                let outcome = pending.outcome.take().unwrap_or(Ok(()));
                return Some((pending, outcome));
            }
            *place += 1;
        }
        None
    }

    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.queues.iter_mut().flatten()
    }
}

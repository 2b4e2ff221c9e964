//! How a job ends: why, found out by whom, and when the buffers of its callers are their own again.

use std::rc::Rc;
use std::thread;
use std::time::Duration;

use super::{Job, Reason};
use crate::error::{Error, Result};
use crate::segment::layout::{ABORT_WORDS, FINALIZED};
use crate::sync::Ordering;
use crate::sys::{affinity, clock};

/// How often one does that does not wait: in a ring's length of operations it would notice by itself.
const GLANCE_EVERY_NS: u64 = 200_000_000;
/// How long a process whose memory or files have gone may take to end: its other threads too, on a machine that is busy.
const PERISHED_WITHIN_NS: u64 = 3_000_000_000;
/// How long a rank that works on a peer's memory may take to its next look at the job.
const REACHING_WITHIN_NS: u64 = 1_000_000_000;

impl Job {
    /// An error if the job has ended: the same on every rank.
    ///
    /// # Errors
    /// Why the job ended.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.flags().abort.is_taken() { Err(self.reason(None)) } else { Ok(()) }
    }

    /// As [`check`](Self::check), for a rank that is in an operation.
    pub(crate) fn check_in(&self, operation: impl FnOnce() -> String) -> Result<()> {
        if self.flags().abort.is_taken() { Err(self.reason(Some(&operation()))) } else { Ok(()) }
    }

    /// Lets this rank work on its peers' own memory as long as the result lives; `operation` is what it is in.
    ///
    /// # Errors
    /// The job has ended: the peers may have taken their memory back.
    #[inline]
    pub(crate) fn reach_out(self: &Rc<Self>, operation: impl FnOnce() -> String) -> Result<AtWork> {
        if self.status(self.rank).reaching.begin(|| self.flags().abort.is_taken()) {
            return Ok(AtWork(Rc::clone(self)));
        }
        Err(self.reason(Some(&operation())))
    }

    /// Waits until no peer works on this rank's memory: as the job has ended, none begins again. A peer that
    /// is stopped while it does is waited for no longer than a second.
    #[cold]
    fn take_memory_back(&self) {
        let patience = clock::now_ns() + REACHING_WITHIN_NS;
        let is_over = |rank: usize| self.status(rank).reaching.is_over() || self.lives.has_ended(rank);
        for rank in (0..self.size()).filter(|&rank| rank != self.rank) {
            while !is_over(rank) && clock::now_ns() < patience {
                affinity::yield_now();
            }
        }
        self.left_alone.set(true);
    }

    /// Why the job has ended. Returns when the caller's buffers are its own again.
    #[cold]
    fn reason(&self, operation: Option<&str>) -> Error {
        if !self.left_alone.get() {
            self.take_memory_back();
        }
        // Whoever has said that it was not told why stays with that.
        let written = || if self.unexplained.get() { None } else { self.flags().abort.get() };
        if let Some(words) = written() {
            return Reason::from_words(&words).into_error(operation);
        }
        // It is being written. Its writer may have been killed or stopped over it.
        let writer = self.flags().abort.writer().min(self.size() - 1);
        if !self.unexplained.get() {
            let _ = within_a_moment(|| written().map(drop).or_else(|| self.lives.has_ended(writer).then_some(())));
        }
        let (number, pid) = (self.numbers[writer], self.pids[writer]);
        let written = written();
        self.unexplained.set(written.is_none());
        let reason = match written {
            Some(words) => Reason::from_words(&words),
            None if self.lives.has_ended(writer) => Reason::died(number, pid),
            None => Reason::aborted(number, pid, "it has not said why within 3 s"),
        };
        reason.into_error(operation)
    }

    /// Ends the job on every rank with `reason`, unless it has ended already; returns what all see.
    #[cold]
    pub(crate) fn end(&self, reason: &Reason, operation: Option<&str>) -> Error {
        self.announce_end(reason);
        self.reason(operation)
    }

    fn announce_end(&self, reason: &Reason) {
        self.flags().abort.set(self.rank, &reason.to_words::<ABORT_WORDS>());
        self.wake_all();
    }

    /// Ends the job on every rank because of an error that this rank alone has met in an operation: it cannot
    /// go on, and the others would wait for it. Errors that have ended the job already are returned as they
    /// are. `operation` is what this rank was in.
    #[cold]
    pub(crate) fn end_with(&self, error: Error, operation: &str) -> Error {
        let reason = match error {
            Error::PeerDied { .. }
            | Error::Lost { .. }
            | Error::Mismatch(_)
            | Error::Aborted { .. }
            | Error::Timeout(_) => return error,
            Error::Unreachable { rank, pid, .. } if self.perishes(rank) => Reason::died(self.numbers[rank], pid),
            Error::Unreachable { rank, pid, reason } => {
                let rank = self.numbers[rank];
                Reason::unreachable(rank, pid, format!("{reason}; found by {} in {operation}", self.name(self.rank)))
            }
            other => Reason::aborted(self.numbers[self.rank], std::process::id(), &format!("{other}, in {operation}")),
        };
        self.end(&reason, Some(operation))
    }

    /// True if `rank` ends within a moment, or the job has: the memory of a process goes before its end can
    /// be seen.
    fn perishes(&self, rank: usize) -> bool {
        within_a_moment(|| (self.flags().abort.is_taken() || self.lives.has_ended(rank)).then_some(())).is_some()
    }

    /// The error of ranks that could not make a communicator together, or the death that it comes of.
    #[cold]
    pub(crate) fn or_death(&self, error: Error) -> Error {
        let ended = || self.lives.ended().into_iter().find(|&rank| !self.has_finalized(rank));
        let Some(rank) = dead_behind(&error, ended) else { return error };
        self.end(&Reason::died(self.numbers[rank], self.pids[rank]), Some("the making of a communicator"))
    }

    /// Ends the job on every rank because this rank wants it.
    pub fn abort(&self, why: &str) -> Error {
        self.announce_abort(why);
        self.reason(None)
    }

    /// As [`abort`](Self::abort), for a rank that ends at once: peers may still work on its memory.
    pub fn announce_abort(&self, why: &str) {
        self.announce_end(&Reason::aborted(self.numbers[self.rank], std::process::id(), why));
    }

    /// Ends the job on every rank because of an error that was met outside of it, between nodes for instance: its ranks
    /// are counted in the world. The job's ranks see the error as it is, or, where it is not one that ends a job, that
    /// this rank has aborted because of it.
    pub fn announce(&self, error: &Error) {
        self.announce_end(&match error.clone() {
            Error::PeerDied { rank, pid, .. } => Reason::died(rank, pid),
            Error::Lost { rank, why } => Reason::lost(rank, why),
            Error::Mismatch(text) => Reason::mismatch(text),
            Error::Timeout(text) => Reason::timeout(text),
            Error::Unreachable { rank, pid, reason } => Reason::unreachable(rank, pid, reason),
            Error::Aborted { rank, pid, why } => Reason::aborted(rank, pid, &why),
            other => Reason::aborted(self.numbers[self.rank], std::process::id(), &other.to_string()),
        });
    }

    /// Looks at the peers' lives now and then, for a rank that may never wait: what it finds ends the job, and this rank learns of it
    /// with its next operation.
    pub(crate) fn glance(&self) {
        if clock::coarse_ns().saturating_sub(self.checked_ns.get()) > GLANCE_EVERY_NS {
            let _ = self.health("an operation");
        }
    }

    /// Looks at the peers' lives, at most every [`look_ms`](crate::sync::Patience); `operation` is what this rank waits in.
    ///
    /// # Errors
    /// The job has ended, or a peer has died and so ended it.
    pub fn health(&self, operation: &str) -> Result<()> {
        if self.flags().abort.is_taken() {
            return Err(self.reason(Some(operation)));
        }
        let now = clock::now_ns();
        if now.saturating_sub(self.checked_ns.get()) < self.look_every_ns() {
            return Ok(());
        }
        self.checked_ns.set(now);
        for rank in self.lives.ended() {
            if self.has_finalized(rank) {
                self.lives.forget(rank); // its end was a good one: no need to look again
                continue;
            }
            return Err(self.end(&Reason::died(self.numbers[rank], self.pids[rank]), Some(operation)));
        }
        Ok(())
    }
}

/// The rank whose death may be why ranks have no memory together, if one of those that `ended` tells ends within a moment: what it
/// had made goes before its end can be seen.
pub(super) fn dead_behind(error: &Error, ended: impl FnMut() -> Option<usize>) -> Option<usize> {
    if matches!(error, Error::Startup(_)) { within_a_moment(ended) } else { None }
}

/// What is found within the time that a process may take to end.
fn within_a_moment<R>(mut look: impl FnMut() -> Option<R>) -> Option<R> {
    let patience = clock::now_ns() + PERISHED_WITHIN_NS;
    loop {
        // Before the look: a machine that stood still meanwhile has let nobody end either.
        let is_last = clock::now_ns() > patience;
        let found = look();
        if is_last || found.is_some() {
            return found;
        }
        // Who ends may need this core.
        thread::sleep(Duration::from_micros(100));
    }
}

/// Work of this rank on its peers' own memory, until it is dropped.
#[derive(Debug)]
pub(crate) struct AtWork(Rc<Job>);

impl Drop for AtWork {
    #[inline]
    fn drop(&mut self) {
        self.0.status(self.0.rank).reaching.end();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.leave_early();
    }
}

impl Job {
    /// A rank that leaves without finalizing ends the job, also if its process lives on. When this returns nobody
    /// touches its buffers any more.
    pub(crate) fn leave_early(&self) {
        if self.status(self.rank).state.load(Ordering::Relaxed) != FINALIZED {
            self.break_off();
        }
    }

    /// True in the process that has joined the job: a forked child has a copy of it, which is not its own to act in.
    pub(crate) fn is_own(&self) -> bool {
        self.status(self.rank).pid.load(Ordering::Relaxed) == std::process::id()
    }

    /// An operation of this rank stays undone, which ends the job, be it of a rank that has finalized. When this returns nobody
    /// touches its buffers any more.
    pub(crate) fn break_off(&self) {
        if self.is_own() {
            // One that leaves because another has died, as its launcher tells it at the start, names that one.
            let dead = self.lives.ended().into_iter().find(|&rank| !self.has_finalized(rank)).unwrap_or(self.rank);
            self.end(&Reason::died(self.numbers[dead], self.pids[dead]), None);
        }
    }
}

//! The wait of a rank that drives operations on several communicators of its node by itself.

use crate::comm::LocalComm;
use crate::error::Result;
use crate::job::Job;
use crate::sync::{Sources, Waiter, Wakers};

/// A wait for any of several operations of one node, of which the oldest of each communicator counts.
#[derive(Debug)]
pub struct Rest<'a> {
    job: &'a Job,
    sources: Sources,
    waiter: Waiter<'a>,
}

impl<'a> Rest<'a> {
    /// A wait on these communicators that has not begun.
    #[must_use]
    pub fn new<'c>(job: &'a Job, comms: impl Iterator<Item = &'c mut LocalComm>) -> Self {
        let sources = comms.fold(Sources::default(), |sources, comm| sources.and(Sources::of(comm.id())));
        Self { job, sources, waiter: Waiter::new(job.patience(), job.bell(), sources) }
    }

    /// Something has moved: the next wait begins.
    pub fn restart(&mut self) {
        self.waiter = Waiter::new(self.job.patience(), self.job.bell(), self.sources);
    }

    /// Gives the core away once: yields, or later sleeps until a rank of the node has news. Looks after the job and the
    /// oldest operations meanwhile, and by `elsewhere`, if there is such, at what is under way on other communicators.
    ///
    /// # Errors
    /// The job has ended; those of `elsewhere`.
    pub fn give_way(
        &mut self,
        comms: &mut [&mut LocalComm],
        elsewhere: Option<&mut dyn FnMut() -> Result<bool>>,
    ) -> Result<()> {
        if elsewhere.is_some() {
            self.waiter.heed_all();
        }
        let mut outcome: Result<bool> = Ok(false);
        let give_way = || self.job.give_way();
        let rested = self.waiter.rest(give_way, || {
            outcome = comms.iter_mut().try_fold(false, |moved, comm| Ok(comm.moves()? || moved));
            if let (Some(elsewhere), Ok(false)) = (elsewhere, &outcome) {
                outcome = elsewhere().map(|_| false);
            }
            matches!(outcome, Ok(false)).then_some(Wakers::ALL)
        });
        if !outcome? && rested {
            comms.iter_mut().try_for_each(|comm| comm.look())?;
        }
        Ok(())
    }
}

//! The wait of a rank that drives operations on several communicators of its node by itself.

use std::rc::Rc;

use crate::comm::LocalComm;
use crate::error::Result;
use crate::job::Job;
use crate::sync::{Waiter, Wakers};

/// A wait for any of several operations of one node, of which the oldest of each communicator counts.
#[derive(Debug)]
pub struct Rest {
    job: Rc<Job>,
    waiter: Waiter,
}

impl Rest {
    /// A wait that has not begun.
    #[must_use]
    pub fn new(job: &Rc<Job>) -> Self {
        Self { job: Rc::clone(job), waiter: Waiter::new(job.patience()) }
    }

    /// Something has moved: the next wait begins.
    pub fn restart(&mut self) {
        self.waiter = Waiter::new(self.job.patience());
    }

    /// Gives the core away once: yields, or later sleeps until a rank of the node has news. Looks after the job and the
    /// oldest operations meanwhile.
    ///
    /// # Errors
    /// The job has ended.
    pub fn give_way(&mut self, comms: &mut [&mut LocalComm]) -> Result<()> {
        let mut outcome: Result<bool> = Ok(false);
        let give_way = || self.job.give_way();
        let rested = self.waiter.rest(self.job.bell(), give_way, || {
            outcome = comms.iter_mut().try_fold(false, |moved, comm| Ok(comm.moves()? || moved));
            matches!(outcome, Ok(false)).then_some(Wakers::ALL)
        });
        if !outcome? && rested {
            comms.iter_mut().try_for_each(|comm| comm.look())?;
        }
        Ok(())
    }
}

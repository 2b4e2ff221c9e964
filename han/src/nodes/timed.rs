//! Operations whose tasks are timed, for the cost model.

use std::time::{Duration, Instant};

use shm_core::Call;

use super::Nodes;
use crate::context::Inner;
use crate::error::Result;
use crate::select::Inter;
use crate::task::Kind;

/// A task that has completed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    operation: u64,
    task: usize,
    at: Instant,
}

impl Mark {
    pub(super) fn now(operation: u64, task: usize) -> Self {
        Self { operation, task, at: Instant::now() }
    }
}

/// A task of this rank, and how long after the call it had completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskEnd {
    /// What it did.
    pub kind: Kind,
    /// For which chunk.
    pub chunk: usize,
    /// Since the call.
    pub after: Duration,
}

impl Nodes {
    /// Lets `settings` decide from now on, or the configuration.
    pub(crate) fn choose_by(&mut self, settings: Option<Inter>) {
        self.kept.choose_by(settings);
    }

    /// Carries out `call`, task by task however short it is, and tells when each had completed: none where all ranks use
    /// the network.
    pub(crate) fn run_timed(&mut self, call: &Call<'_>, context: &Inner) -> Result<Vec<TaskEnd>> {
        self.marks = Some(Vec::new());
        let begun = Instant::now();
        let outcome = self.run(call, context);
        let marks = self.marks.take().unwrap_or_default();
        outcome?;
        let plan = &self.prepare(call, context).plan;
        let own = marks.iter().filter(|mark| mark.operation == self.begun);
        let ends = own.filter_map(|mark| {
            let task = plan.tasks.get(mark.task)?;
            Some(TaskEnd { kind: task.kind, chunk: task.chunk, after: mark.at.duration_since(begun) })
        });
        Ok(ends.collect())
    }
}

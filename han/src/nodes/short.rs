//! Messages of one chunk: task after task, each waited for where it is, without a queue.

use net_fabric::Announced;
use reduce_kernels::Pieces;
use shm_core::Ticket;

use super::groups::{Groups, misplaced};
use super::kept::Prepared;
use super::pipeline::{call_of, trace_begin, trace_end};
use crate::context::Inner;
use crate::error::Result;
use crate::task::{Stream, Task};
use crate::trace::{Open, Trace};

/// A task that goes on in the network while this rank does others.
struct Travels {
    task: usize,
    stream: Stream,
    ticket: Ticket,
    traced: Option<Open>,
}

impl Travels {
    /// Waits for its end.
    fn wait(self, groups: &mut Groups, context: &Inner) -> Result<()> {
        if let Some(fabric) = groups.between(self.stream) {
            fabric.wait(self.ticket, || context.idle().map(drop))?;
        }
        trace_end(context.trace(), self.traced);
        Ok(())
    }

    /// Waits for its result; what is left of it, if it has still to send that on.
    fn wait_for_result(self, groups: &mut Groups, context: &Inner) -> Result<Option<Self>> {
        if let Some(fabric) = groups.between(self.stream) {
            fabric.wait_for_result(self.ticket, || context.idle().map(drop))?;
            if !fabric.has_completed(self.ticket) {
                return Ok(Some(self));
            }
        }
        trace_end(context.trace(), self.traced);
        Ok(None)
    }
}

/// Carries out all tasks of a plan with one chunk.
pub(super) fn run(
    groups: &mut Groups,
    announced: Announced,
    prepared: &Prepared,
    pieces: &Pieces,
    context: &Inner,
) -> Result<()> {
    // What the next task does not need: a leader gives its node the data while they travel on, and takes part in the sums
    // of other slices.
    let mut under_way: Vec<Travels> = Vec::new();
    let trace = context.trace();
    let name = trace.and_then(Trace::begun);
    let tasks = &prepared.plan.tasks;
    for (number, task) in tasks.iter().enumerate() {
        let needed = under_way.extract_if(.., |travels| task.after.contains(&Some(travels.task)));
        for travels in needed.collect::<Vec<_>>() {
            if task.kind.hands_out() {
                // A late node holds up what goes on to it, and not this one.
                under_way.extend(travels.wait_for_result(groups, context)?);
            } else {
                travels.wait(groups, context)?;
            }
        }
        let call = call_of(task, pieces);
        let open = trace_begin(trace, name, prepared, number);
        if let Some((local, mut has_completed)) = groups.local_and_others(task.stream) {
            local.run(&call, || {
                let looked = context.idle_on_node();
                // What ends meanwhile has not taken as long as this.
                if trace.is_some() {
                    let still = under_way.iter_mut().filter(|travels| travels.traced.is_some());
                    let ended = still.filter_map(|of| has_completed(of.stream, of.ticket).then(|| of.traced.take()));
                    ended.for_each(|traced| trace_end(trace, traced));
                }
                looked
            })?;
        } else if let Some(fabric) = groups.between(task.stream) {
            let plan = prepared.inter(task.stream);
            // Between two nodes nothing is sent on.
            let may_send_on = fabric.size() > 2;
            let goes_on = |next: &Task| !next.after.contains(&Some(number)) || next.kind.hands_out() && may_send_on;
            if tasks.get(number + 1).is_some_and(goes_on) {
                let ticket = fabric.start(announced, call, plan)?;
                under_way.push(Travels { task: number, stream: task.stream, ticket, traced: open });
                continue;
            }
            fabric.run(announced, &call, plan, || context.idle().map(drop))?;
        } else {
            return Err(misplaced());
        }
        trace_end(trace, open);
    }
    under_way.into_iter().try_for_each(|travels| travels.wait(groups, context))
}

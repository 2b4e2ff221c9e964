//! Messages of one chunk: task after task, each waited for where it is, without a queue.

use net_fabric::Announced;
use reduce_kernels::Pieces;
use shm_core::{Collective, Ticket};

use super::groups::{Groups, misplaced};
use super::kept::Prepared;
use super::pipeline::{call_of, trace_begin, trace_end};
use crate::context::Inner;
use crate::error::Result;
use crate::task::Stream;
use crate::trace::{Open, Trace};

/// Carries out all tasks of a plan with one chunk.
pub(super) fn run(
    groups: &mut Groups,
    announced: Announced,
    prepared: &Prepared,
    pieces: &Pieces,
    context: &Inner,
) -> Result<()> {
    // The root of a broadcast gives its node the data while they travel.
    let mut travels: Option<(Stream, Ticket, Option<Open>)> = None;
    let trace = context.trace();
    let name = trace.and_then(Trace::begun);
    let tasks = &prepared.plan.tasks;
    let sends_on =
        pieces.whole().collective == Collective::Bcast && tasks.get(1).is_some_and(|sb| sb.after[0].is_none());
    for (number, task) in tasks.iter().enumerate() {
        let call = call_of(task, pieces);
        let open = trace_begin(trace, name, prepared, number);
        if let Some(local) = groups.local(task.stream) {
            local.run(&call, || context.idle_on_node())?;
        } else if let Some(fabric) = groups.rail(task.stream) {
            let plan = prepared.inter(task.stream);
            if sends_on && number == 0 {
                travels = Some((task.stream, fabric.start(announced, call, plan)?, open));
                continue;
            }
            fabric.run(announced, &call, plan, || context.idle())?;
        } else {
            return Err(misplaced());
        }
        trace_end(trace, open);
    }
    if let Some((stream, ticket, open)) = travels
        && let Some(fabric) = groups.rail(stream)
    {
        fabric.wait(ticket, || context.idle())?;
        trace_end(trace, open);
    }
    Ok(())
}

//! Communicators over several nodes: the memory of a node and the network between nodes at once.
//!
//! A call becomes a plan of tasks (`crate::task`). Each task is an operation of one of the communicator's groups: the
//! ranks of the node, which have two, one towards leaders and one from them, so that these never wait for each other; and
//! the leaders on each rail. What a task needs is all that it waits for.

mod flat;
mod groups;
mod kept;
mod pipeline;
mod short;
mod timed;

use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

use net_fabric::{Announced, FabricComm};
use reduce_kernels::{Lender, Pieces};
use shm_core::{Call, Owned, OwnedCall, Ticket};

use crate::Element;
use crate::context::Inner;
use crate::error::{Error, Result};
use crate::select::NodesForm;
use crate::select::module_name;
use crate::task::Layout;
use crate::trace::Trace;
use flat::{Flat, Flats};
use groups::Groups;
pub(crate) use groups::{OfNode, numbers};
use kept::{Kept, Prepared};
use pipeline::{Flights, Running};
pub use timed::TaskEnd;

/// Ranks of several nodes that do collectives together.
#[derive(Debug)]
pub(crate) struct Nodes {
    groups: Groups,
    layout: Layout,
    kept: Kept,
    lender: Lender,
    /// Operations begun so far, which are their numbers. Those that have not completed are in one of the two that follow, in
    /// their order.
    begun: u64,
    flats: Flats,
    running: VecDeque<Running>,
    flights: Flights,
    /// When tasks have completed, while somebody wants to know.
    marks: Option<Vec<timed::Mark>>,
    /// Tells this communicator's operations from others'.
    identity: Rc<()>,
}

impl Nodes {
    /// The communicator of the ranks of `flat`, with what this node's ranks have made together.
    ///
    /// # Errors
    /// Those of rails.
    pub(crate) fn new(flat: FabricComm, node_of: &[usize], of_node: Option<OfNode>) -> Result<Self> {
        let layout = Layout::new(node_of);
        let groups = Groups::new(flat, &layout, of_node)?;
        Ok(Self {
            flights: Flights::new(groups.streams()),
            groups,
            layout,
            kept: Kept::default(),
            lender: Lender::default(),
            begun: 0,
            flats: Flats::default(),
            running: VecDeque::new(),
            marks: None,
            identity: Rc::default(),
        })
    }

    pub(crate) fn flat(&self) -> &FabricComm {
        &self.groups.flat
    }

    /// Carries out `call` and waits for it.
    #[inline]
    pub(crate) fn run(&mut self, call: &Call<'_>, context: &Inner) -> Result<()> {
        let rank = self.groups.flat.rank();
        call.check(rank, self.groups.flat.size())?;
        let announced = context.noted(self.groups.announce(call.signature()))?;
        let prepared = self.prepare(call, context);
        if prepared.choice.form == NodesForm::Flat && !self.is_busy() {
            let outcome = self.groups.flat.run(announced, call, &prepared.choice.inter, || context.idle().map(drop));
            return context.noted(outcome);
        }
        let mut lender = mem::take(&mut self.lender);
        let scratch_bytes = prepared.plan.scratch_bytes;
        let work = |pieces: &Pieces| {
            let at_work = Unwinding(self);
            if prepared.is_short && !at_work.0.is_busy() && at_work.0.marks.is_none() {
                let outcome = short::run(&mut at_work.0.groups, announced, &prepared, pieces, context);
                return outcome.map_err(|error| at_work.0.fail(error, context));
            }
            let ticket = at_work.0.begin(announced, prepared, None, Some(pieces), context)?;
            at_work.0.wait_with(ticket, Some(pieces), context)
        };
        let outcome = call.carried_out(rank, || lender.lend(call, rank, scratch_bytes, work));
        self.lender = lender;
        outcome
    }

    /// Begins `call`.
    pub(crate) fn start(&mut self, call: Call<'static>, context: &Inner) -> Result<Ticket> {
        let rank = self.groups.flat.rank();
        call.check(rank, self.groups.flat.size())?;
        let announced = context.noted(self.groups.announce(call.signature()))?;
        let prepared = self.prepare(&call, context);
        let pieces = Pieces::of(call, rank).with_scratch(prepared.plan.scratch_bytes);
        self.begin(announced, prepared, Some(pieces), None, context)
    }

    /// Begins an operation on a vector.
    pub(crate) fn start_owned<T: Element>(
        &mut self,
        what: OwnedCall,
        buffer: Vec<T>,
        context: &Inner,
    ) -> Result<Owned<T>> {
        let (rank, identity) = (self.groups.flat.rank(), Rc::clone(&self.identity));
        Owned::begin_in_pieces(what, buffer, rank, &identity, |pieces| self.start(pieces.entire(), context))
    }

    /// The vector of an operation that has completed.
    pub(crate) fn take<T>(&mut self, owned: Owned<T>) -> std::result::Result<Vec<T>, Owned<T>> {
        if !owned.is_of(&self.identity) || !self.has_completed(owned.ticket()) {
            return Err(owned);
        }
        owned.reclaim()
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.flats.is_empty() || !self.running.is_empty()
    }

    /// Goes on with what was begun.
    pub(crate) fn progress(&mut self, context: &Inner) -> Result<()> {
        self.advance(None, context).map(|_| ())
    }

    /// Goes on, and tells whether the operation of `ticket` has completed.
    pub(crate) fn test(&mut self, ticket: Ticket, context: &Inner) -> Result<bool> {
        if !self.has_completed(ticket) {
            self.progress(context)?;
        }
        let has_completed = self.has_completed(ticket);
        if !has_completed {
            // A caller that only ever tests must learn of a death, too.
            self.look(context)?;
        }
        Ok(has_completed)
    }

    /// Waits for the operation of `ticket`.
    pub(crate) fn wait(&mut self, ticket: Ticket, context: &Inner) -> Result<()> {
        self.wait_with(ticket, None, context)
    }

    /// Waits for all operations that were begun.
    pub(crate) fn wait_all(&mut self, context: &Inner) -> Result<()> {
        let oldest = self.running.front().map(|running| running.number);
        let oldest = oldest.into_iter().chain(self.flats.oldest()).min().unwrap_or(self.begun);
        (oldest..=self.begun).try_for_each(|number| self.wait(Ticket(number), context))
    }

    /// What this is, and what is chosen for a few calls.
    pub(crate) fn describe(&self, context: &Inner) -> String {
        let layout = &self.layout;
        let here = layout.members(layout.node_of(self.groups.flat.rank())).len();
        let how = if self.groups.has_levels() {
            format!("{here} on this node through its memory, leaders through the network")
        } else {
            "all through the network".to_owned()
        };
        let flat = &self.groups.flat;
        let choices = self.kept.describe(flat, layout, context);
        format!("{}levels: {} nodes, {how}\n{choices}", flat.describe(), layout.nodes())
    }

    /// The form and algorithm that `call` would take.
    pub(crate) fn choice(&self, call: &Call<'_>, context: &Inner) -> String {
        self.kept.choose(&self.groups.flat, &self.layout, call, context).to_string()
    }

    /// The network's module that `call` would take.
    pub(crate) fn module(&self, call: &Call<'_>, context: &Inner) -> &'static str {
        module_name(self.kept.choose(&self.groups.flat, &self.layout, call, context).inter.policy)
    }

    /// The choice for a call that is about to be made, whose plan is kept.
    pub(crate) fn next_choice(&mut self, call: &Call<'_>, context: &Inner) -> String {
        match call.check(self.groups.flat.rank(), self.groups.flat.size()) {
            Ok(()) => self.prepare(call, context).choice.to_string(),
            Err(_) => String::new(),
        }
    }

    fn prepare(&mut self, call: &Call<'_>, context: &Inner) -> Rc<Prepared> {
        self.kept.get(&self.groups.flat, &self.layout, call, context)
    }

    /// Begins an operation with pieces of its own, or `lent` ones.
    fn begin(
        &mut self,
        announced: Announced,
        prepared: Rc<Prepared>,
        own: Option<Pieces>,
        lent: Option<&Pieces>,
        context: &Inner,
    ) -> Result<Ticket> {
        let to_network = own.as_ref().map(|own| context.job.lend(&own.entire(), self.groups.flat.rank()));
        self.begun += 1;
        let number = self.begun;
        if prepared.choice.form == NodesForm::Flat {
            self.flats.push(Flat { number, announced, prepared, pieces: own, _lent: to_network });
            let begun = self.flats.begin_what_can(&mut self.groups.flat, lent);
            begun.map_err(|error| self.fail(error, context))?;
        } else {
            let name = context.trace().and_then(Trace::begun);
            self.running.push_back(Running::new(number, announced, prepared, own, to_network, name));
        }
        self.advance(lent, context)?;
        Ok(Ticket(number))
    }

    /// True if the operation of `ticket` is known to have completed.
    pub(crate) fn has_completed(&self, ticket: Ticket) -> bool {
        let number = ticket.0;
        number <= self.begun && !self.flats.has(number) && pipeline::place(&self.running, number).is_none()
    }

    /// After an error: lets all ranks know, and gives up what is under way.
    #[cold]
    fn fail(&mut self, error: Error, context: &Inner) -> Error {
        let error = match error {
            Error::Node(error) => context.explain(error),
            other => other,
        };
        let Err(error) = context.noted(Err::<(), _>(error)) else { unreachable!("an error stays one") };
        // Some tasks may have been begun: the others would wait for the rest.
        context.end_node(&error);
        self.give_up(&error.to_string());
        error
    }

    /// Ends what is under way. Operations that have not completed never will; the job has ended.
    fn give_up(&mut self, why: &str) {
        self.groups.give_up(why);
        self.flats.give_up();
        self.running.iter_mut().for_each(Running::give_up);
    }
}

/// Ends everything when a panic leaves an operation that was lent its buffers.
struct Unwinding<'a>(&'a mut Nodes);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.give_up("it panicked within an operation");
        }
    }
}

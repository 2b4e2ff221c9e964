//! Operations of many chunks: one loop that begins tasks as soon as what they need is there, and lets both levels go on.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use net_fabric::Announced;
use reduce_kernels::{Pieces, Purpose};
use shm_core::memory::Lent;
use shm_core::{Call, Collective, LocalComm, Rest, Ticket};

use super::Nodes;
use super::groups::misplaced;
use super::kept::Prepared;
use super::timed::Mark;
use crate::context::Inner;
use crate::error::{Error, Result};
use crate::task::{Kind, SENDING, Stream, Task, WINDOW};
use crate::trace::{CallName, Lane as Traced, Open, Trace, What};

/// Operations of a communicator that are under way at a time: later ones wait.
const MOST_ACTIVE: usize = 8;
/// Longest sleep in the network while memory is waited for, too.
const NAP: Duration = Duration::from_micros(100);
/// After so long in vain somebody is late.
const STALLED: Duration = Duration::from_millis(2);

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Open,
    /// It has its result, and may still send it on.
    HasResult,
    Done,
}

/// An operation that is carried out task by task.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) number: u64,
    announced: Announced,
    prepared: Rc<Prepared>,
    /// `None` where its pieces are lent.
    pieces: Option<Pieces>,
    /// The vectors are lent to the network, if the caller does not wait.
    _lent: Option<Lent>,
    /// By stream of the plan: tasks that were begun.
    begun: Vec<usize>,
    /// By task.
    states: Vec<State>,
    left: usize,
    /// How a trace calls it.
    name: Option<CallName>,
}

impl Running {
    pub(super) fn new(
        number: u64,
        announced: Announced,
        prepared: Rc<Prepared>,
        pieces: Option<Pieces>,
        lent: Option<Lent>,
        name: Option<CallName>,
    ) -> Self {
        let (streams, tasks) = (prepared.plan.streams.len(), prepared.plan.tasks.len());
        let (begun, states) = (vec![0; streams], vec![State::Open; tasks]);
        Self { number, announced, pieces, _lent: lent, begun, states, left: tasks, name, prepared }
    }

    pub(super) fn give_up(&mut self) {
        self.pieces = None;
    }

    /// The next task of a stream, if all that it needs is there.
    fn next(&self, stream: usize) -> Option<usize> {
        let (_, tasks) = &self.prepared.plan.streams[stream];
        let next = *tasks.get(self.begun[stream])?;
        let task = &self.prepared.plan.tasks[next];
        let wanted = if task.kind.hands_out() { State::HasResult } else { State::Done };
        task.after.iter().flatten().all(|&before| self.states[before] >= wanted).then_some(next)
    }
}

/// The place of operation `number` among those that have not completed, if it has not.
#[inline]
pub(super) fn place(running: &VecDeque<Running>, number: u64) -> Option<usize> {
    running.binary_search_by_key(&number, |running| running.number).ok()
}

/// A task that was begun.
#[derive(Debug)]
struct Flight {
    /// Of which operation.
    operation: u64,
    task: usize,
    ticket: Ticket,
    /// All it does is send.
    has_result: bool,
    /// In a trace.
    traced: Option<Open>,
}

/// The tasks that were begun and have not completed, by stream.
#[derive(Debug)]
pub(super) struct Flights {
    lanes: Vec<Lane>,
    /// This rank has waited for long, so more tasks may be under way that only send.
    is_stalled: bool,
}

#[derive(Debug)]
struct Lane {
    stream: Stream,
    flights: VecDeque<Flight>,
    /// An earlier operation has tasks to begin here.
    is_taken: bool,
}

impl Lane {
    fn has_room(&self, is_stalled: bool) -> bool {
        let waiting = || self.flights.iter().filter(|flight| !flight.has_result).count();
        self.flights.len() < WINDOW || (is_stalled && self.flights.len() < WINDOW + SENDING && waiting() < WINDOW)
    }
}

impl Flights {
    pub(super) fn new(streams: impl Iterator<Item = Stream>) -> Self {
        let lanes = streams.map(|stream| Lane { stream, flights: VecDeque::new(), is_taken: false });
        Self { lanes: lanes.collect(), is_stalled: false }
    }

    /// Whether tasks are under way in memory, and in the network.
    fn are(&self) -> (bool, bool) {
        let any =
            |in_memory| self.lanes.iter().any(|of| of.stream.is_in_memory() == in_memory && !of.flights.is_empty());
        (any(true), any(false))
    }

    /// The place of a stream of this rank.
    fn place(&self, stream: Stream) -> Result<usize> {
        self.lanes.iter().position(|lane| lane.stream == stream).ok_or_else(misplaced)
    }
}

/// Tells the trace, if there is one, that a task of the call `name` begins.
#[inline]
pub(super) fn trace_begin(
    trace: Option<&Trace>,
    name: Option<CallName>,
    prepared: &Prepared,
    task: usize,
) -> Option<Open> {
    let ((trace, name), task) = (trace.zip(name)?, &prepared.plan.tasks[task]);
    let what = What::task(task, name, prepared.choice.shape.element_bytes);
    Some(trace.begin(Traced::Stream(task.stream), what))
}

/// Tells the trace that it has completed.
#[inline]
pub(super) fn trace_end(trace: Option<&Trace>, open: Option<Open>) {
    if let Some((trace, open)) = trace.zip(open) {
        trace.done(open);
    }
}

/// A task's call.
#[inline]
pub(super) fn call_of(task: &Task, pieces: &Pieces) -> Call<'static> {
    let range = task.range.clone();
    if pieces.whole().collective == Collective::Barrier {
        let collective = match task.kind.collective() {
            Collective::Allreduce => Collective::Barrier,
            with_root => with_root,
        };
        return pieces.signal(collective, task.root);
    }
    let call = match task.kind {
        Kind::Sr | Kind::Ir => pieces.reduce(task.from, task.to, range, task.root),
        Kind::Ia | Kind::Sa => pieces.allreduce(task.from, task.to.unwrap_or(task.from), range),
        Kind::Ib | Kind::Sb => pieces.bcast(task.from, range, task.root),
    };
    if task.is_everywhere() { call.made_for(Purpose::Everywhere) } else { call }
}

impl Nodes {
    /// Lets everything go on as far as it can. True if anything has moved. `lent`: the pieces of the operation that was
    /// lent them, if there is one.
    pub(super) fn advance(&mut self, lent: Option<&Pieces>, context: &Inner) -> Result<bool> {
        if !self.is_busy() {
            return Ok(false);
        }
        // After an error nothing goes on.
        context.job.check().map_err(|error| self.fail(Error::Node(error), context))?;
        self.try_advance(lent, context.trace()).map_err(|error| self.fail(error, context))
    }

    fn try_advance(&mut self, lent: Option<&Pieces>, trace: Option<&Trace>) -> Result<bool> {
        let mut moved = self.groups.flat.link().progress()?;
        loop {
            let Self { groups, flats, .. } = self;
            let flats = flats.begin_what_can(&mut groups.flat, lent)? | flats.collect(&mut groups.flat)?;
            if !(flats | self.begin_what_can(lent, trace)? | self.collect(trace)?) {
                return Ok(moved);
            }
            moved = true;
        }
    }

    fn begin_what_can(&mut self, lent: Option<&Pieces>, trace: Option<&Trace>) -> Result<bool> {
        let Self { groups, running, flights, .. } = self;
        let mut any = false;
        flights.lanes.iter_mut().for_each(|lane| lane.is_taken = false);
        for running in running.iter_mut().take(MOST_ACTIVE) {
            let operation = running.number;
            for number in 0..running.begun.len() {
                let stream = running.prepared.plan.streams[number].0;
                let place = flights.place(stream)?;
                let lane = &mut flights.lanes[place];
                if lane.is_taken {
                    continue;
                }
                while lane.has_room(flights.is_stalled)
                    && let Some(task) = running.next(number)
                    && let Some(pieces) = running.pieces.as_ref().or(lent)
                {
                    let call = call_of(&running.prepared.plan.tasks[task], pieces);
                    // In memory one task after the other is carried out.
                    let waits = stream.is_in_memory() && !lane.flights.is_empty();
                    let trace = trace.filter(|_| !waits);
                    let traced = trace_begin(trace, running.name, &running.prepared, task);
                    let ticket = groups.start(running.announced, stream, call, &running.prepared)?;
                    lane.flights.push_back(Flight { operation, task, ticket, has_result: false, traced });
                    running.begun[number] += 1;
                    any = true;
                }
                lane.is_taken = running.begun[number] < running.prepared.plan.streams[number].1.len();
            }
        }
        Ok(any)
    }

    /// Notes which tasks and operations have completed.
    fn collect(&mut self, trace: Option<&Trace>) -> Result<bool> {
        let Self { groups, running, flights, marks, .. } = self;
        let mut any = false;
        for Lane { stream, flights, .. } in &mut flights.lanes {
            if flights.is_empty() {
                continue;
            }
            let mut note = |flight: &mut Flight, queue: &mut VecDeque<Running>| {
                any = true;
                trace_end(trace, flight.traced.take());
                if let Some(marks) = marks {
                    marks.push(Mark::now(flight.operation, flight.task));
                }
                let Some(place) = place(queue, flight.operation) else { return };
                let running = &mut queue[place];
                running.states[flight.task] = State::Done;
                running.left -= 1;
                if running.left == 0 {
                    queue.remove(place);
                }
            };
            if let Some(local) = groups.local(*stream) {
                local.progress()?;
                while let Some(mut flight) = flights.pop_front_if(|flight| local.has_completed(flight.ticket)) {
                    note(&mut flight, running);
                    if let (Some(_), Some(next)) = (trace, flights.front_mut())
                        && let Some(place) = place(running, next.operation)
                    {
                        let running = &running[place];
                        next.traced = trace_begin(trace, running.name, &running.prepared, next.task);
                    }
                }
            } else if let Some(fabric) = groups.between(*stream) {
                fabric.note_completed()?;
                let mut has_results = false;
                flights.retain_mut(|flight| {
                    if fabric.has_completed(flight.ticket) {
                        note(flight, running);
                        return false;
                    }
                    if !flight.has_result && fabric.has_result(flight.ticket) {
                        (flight.has_result, has_results) = (true, true);
                        if let Some(place) = place(running, flight.operation) {
                            running[place].states[flight.task] = State::HasResult;
                        }
                    }
                    true
                });
                any |= has_results;
            }
        }
        Ok(any)
    }

    /// Looks after what takes long: whom it waits for, and whether they live.
    pub(super) fn look(&mut self, context: &Inner) -> Result<()> {
        let outcome = self.groups.locals().try_for_each(LocalComm::look).map_err(Error::from);
        let outcome = outcome.and_then(|()| Ok(self.groups.flat.link().look()?));
        outcome.and_then(|()| context.look_after_node()).map_err(|error| self.fail(error, context))
    }

    /// Waits for the operation of `ticket`.
    pub(super) fn wait_with(&mut self, ticket: Ticket, lent: Option<&Pieces>, context: &Inner) -> Result<()> {
        let link = Rc::clone(self.groups.flat.link());
        let mut for_network = link.patience().begin();
        let mut for_memory = Rest::new(&context.job, self.groups.locals());
        let mut stands_since = None;
        while !self.has_completed(ticket) {
            let moved = self.advance(lent, context)?;
            if moved {
                for_memory.restart();
                (stands_since, self.flights.is_stalled) = (None, false);
            }
            if !for_network.is_due(moved) {
                continue;
            }
            let elsewhere = context.idle().map_err(|error| self.fail(error, context))?;
            link.look().map_err(|error| self.fail(error.into(), context))?;
            if moved {
                continue;
            }
            self.flights.is_stalled = stands_since.get_or_insert_with(Instant::now).elapsed() >= STALLED;
            let (in_memory, in_network) = self.flights.are();
            let rested = match (in_memory, in_network || self.groups.flat.is_busy()) {
                (true, false) => {
                    let mut locals: Vec<&mut LocalComm> = self.groups.locals().collect();
                    let mut elsewhere = elsewhere.then_some(|| context.idle_on_node());
                    let elsewhere = elsewhere.as_mut().map(|look| look as &mut dyn FnMut() -> _);
                    for_memory.give_way(&mut locals, elsewhere).map_err(Error::from)
                }
                (true, true) => link.rest_at_most(&mut for_network, NAP).map_err(Error::from),
                (false, _) => link.rest(&mut for_network).map_err(Error::from),
            };
            rested.map_err(|error| self.fail(error, context))?;
        }
        link.glance().map_err(|error| self.fail(error.into(), context))
    }
}

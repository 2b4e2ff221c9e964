//! The communicator of one node: begins collectives, polls them, and waits without ever waiting for
//! the dead.

use std::collections::VecDeque;
use std::rc::Rc;

use crate::call::Call;
use crate::coll::Progress;
use crate::coll::sm::{Operation, choose};
use crate::error::{Error, Result};
use crate::exchange::Exchange;
use crate::job::{Job, Reason};
use crate::ring::Ring;
use crate::sync::Waiter;
use crate::sys::clock;

/// Ranks of one node that do collectives together.
///
/// Operations of one communicator are carried out in the order in which they were begun, which must
/// be the same on all ranks. Used by one thread at a time.
#[derive(Debug)]
pub struct LocalComm {
    ring: Ring,
    /// Begun and not yet completed, oldest first; only the oldest is under way.
    queue: VecDeque<Queued>,
    /// Operations begun so far by [`start`](Self::start).
    started: u64,
    /// Operations of those completed so far.
    completed: u64,
    /// Tells this communicator's tickets from others'.
    identity: Rc<()>,
    /// Looks after the oldest operation while it is only tested.
    vigil: Option<Vigil>,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // there are few, and they are moved once
enum Queued {
    /// Not yet begun, because an older one is under way.
    Waiting(Call<'static>),
    Running(Operation<'static>),
}

/// An operation begun by [`LocalComm::start`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

impl LocalComm {
    /// Makes a communicator together: collective over `exchange`, whose ranks are `world` in the job.
    ///
    /// `id` is a number for messages, the same on all ranks.
    ///
    /// # Errors
    /// No shared memory that all can map.
    pub fn together(exchange: &mut dyn Exchange, job: Rc<Job>, id: u32, world: Vec<usize>) -> Result<Self> {
        let ring = Ring::together(exchange, job, id, world)?;
        Ok(Self { ring, queue: VecDeque::new(), started: 0, completed: 0, identity: Rc::default(), vigil: None })
    }

    /// This rank, from 0.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.ring.rank()
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.ring.size()
    }

    /// Number of this communicator in messages.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.ring.id()
    }

    /// World rank of each rank.
    #[must_use]
    pub fn world(&self) -> &[usize] {
        self.ring.world()
    }

    /// The job that it belongs to.
    #[must_use]
    pub fn job(&self) -> &Rc<Job> {
        self.ring.job()
    }

    /// The module and form that `call` would take, for instance `sm/flat`.
    #[must_use]
    pub fn choice(&self, call: &Call<'_>) -> &'static str {
        choose(&self.ring, call).name()
    }

    /// Carries out `call` and waits for it. While waiting long, `idle` is called now and then to let
    /// operations on other communicators go on.
    ///
    /// # Errors
    /// Wrong arguments, in which case nothing was begun; or the job has ended: a death, a mismatch,
    /// an abort, a timeout.
    #[inline]
    pub fn run(&mut self, call: Call<'_>, idle: impl FnMut() -> Result<()>) -> Result<()> {
        call.check(self.ring.rank(), self.ring.size())?;
        self.ring.job().check()?;
        let mut idle = idle;
        if !self.queue.is_empty() {
            self.wait_all(&mut idle)?;
        }
        let mut operation = Operation::begin(&mut self.ring, call);
        if operation.poll(&mut self.ring)?.is_ready() {
            return Ok(());
        }
        Self::finish(&mut self.ring, &mut operation, &mut idle)
    }

    /// Begins `call` behind those begun before; it goes on in [`progress`](Self::progress).
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn start(&mut self, call: Call<'static>) -> Result<Ticket> {
        call.check(self.ring.rank(), self.ring.size())?;
        self.ring.job().check()?;
        self.queue.push_back(Queued::Waiting(call));
        self.started += 1;
        self.progress()?;
        Ok(Ticket(self.started))
    }

    /// Goes on with what was begun, without waiting.
    ///
    /// # Errors
    /// The job has ended.
    pub fn progress(&mut self) -> Result<()> {
        if self.queue.is_empty() {
            return Ok(());
        }
        // Once the job has ended nothing touches the callers' buffers any more.
        self.ring.job().check_in(|| self.ring.operation())?;
        while let Some(queued) = self.queue.front_mut() {
            if let Queued::Waiting(call) = queued {
                *queued = Queued::Running(Operation::begin(&mut self.ring, call.clone()));
            }
            if let Queued::Running(operation) = queued
                && operation.poll(&mut self.ring)?.is_pending()
            {
                return Ok(());
            }
            self.complete_oldest();
        }
        Ok(())
    }

    fn complete_oldest(&mut self) {
        self.queue.pop_front();
        self.completed += 1;
        if self.vigil.take().is_some() {
            self.ring.job().note_progress();
        }
    }

    /// Tells this communicator's tickets from others'.
    pub(crate) fn identity(&self) -> &Rc<()> {
        &self.identity
    }

    /// True if operations were begun and have not completed.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        !self.queue.is_empty()
    }

    /// True if the operation of `ticket` is known to have completed.
    #[must_use]
    pub fn has_completed(&self, ticket: Ticket) -> bool {
        ticket.0 <= self.completed
    }

    /// Goes on, and tells whether the operation of `ticket` has completed.
    ///
    /// # Errors
    /// The job has ended.
    pub fn test(&mut self, ticket: Ticket) -> Result<bool> {
        if ticket.0 > self.completed {
            self.progress()?;
        }
        if let (false, Some(Queued::Running(oldest))) = (self.has_completed(ticket), self.queue.front()) {
            // A caller that only ever tests must learn of a death, too.
            self.vigil.get_or_insert_with(Vigil::new).look(&self.ring, oldest.awaits(&self.ring))?;
        }
        Ok(self.has_completed(ticket))
    }

    /// Waits for the operation of `ticket`, and so for all begun before it.
    ///
    /// # Errors
    /// The job has ended.
    pub fn wait(&mut self, ticket: Ticket, mut idle: impl FnMut() -> Result<()>) -> Result<()> {
        while ticket.0 > self.completed {
            self.progress()?;
            if ticket.0 <= self.completed {
                break;
            }
            let Some(Queued::Running(operation)) = self.queue.front_mut() else { break };
            Self::finish(&mut self.ring, operation, &mut idle)?;
            self.complete_oldest();
        }
        Ok(())
    }

    /// Waits for all operations that were begun.
    ///
    /// # Errors
    /// The job has ended.
    pub fn wait_all(&mut self, idle: impl FnMut() -> Result<()>) -> Result<()> {
        self.wait(Ticket(self.started), idle)
    }

    /// Waits for the operation under way: spins, yields, sleeps, and between that looks after the job.
    #[inline(never)]
    fn finish(ring: &mut Ring, operation: &mut Operation<'_>, idle: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let job = Rc::clone(ring.job());
        let mut waiter = Waiter::new(job.patience());
        let mut vigil: Option<Vigil> = None;
        loop {
            let apart = operation.awaits(ring).is_some_and(|rank| !ring.shares_core(rank));
            if waiter.spin(apart, || operation.poll(ring).map(|poll| poll.is_ready()))? {
                break;
            }
            job.check_in(|| ring.operation())?;
            idle()?;
            let mut outcome = Ok(false);
            let rested = waiter.rest(job.bell(), || {
                outcome = operation.poll(ring).map(|poll| poll.is_ready());
                !matches!(outcome, Ok(false))
            });
            if outcome? {
                break;
            }
            if rested {
                vigil.get_or_insert_with(Vigil::new).look(ring, operation.awaits(ring))?;
            }
        }
        if vigil.is_some() {
            job.note_progress();
        }
        Ok(())
    }

    /// Several lines on what this communicator is and how it works.
    #[must_use]
    pub fn describe(&self) -> String {
        let job = self.job();
        format!(
            "communicator {}: {} ranks of one node, this is rank {}\n\
             memory: {} (tried in order: {})\n\
             waiting: {}\n\
             copy method: cico through {} cells of {} bytes a rank (single-copy is not built in this version)\n\
             settings: {}\n",
            self.id(),
            self.size(),
            self.rank(),
            job.backing(),
            crate::job::backings(job.settings()).iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
            job.placement(),
            crate::segment::layout::RING,
            self.ring.cell_bytes(),
            job.settings(),
        )
    }
}

/// A wait that has become long: looks for the dead, for ranks that do something else, and for time.
#[derive(Debug)]
struct Vigil {
    since_ns: u64,
    looked_ns: u64,
    /// When the watchdog speaks next, in seconds of waiting.
    speak_s: f64,
    /// The rank that was awaited at the last look, if it had finalized by then.
    gone: Option<usize>,
}

/// Time between two looks at the peers' operations.
const LOOK_EVERY_NS: u64 = 20_000_000;

impl Vigil {
    fn new() -> Self {
        Self { since_ns: clock::now_ns(), looked_ns: 0, speak_s: 0.0, gone: None }
    }

    #[cold]
    fn look(&mut self, ring: &Ring, awaits: Option<usize>) -> Result<()> {
        let now = clock::now_ns();
        if now.saturating_sub(self.looked_ns) < LOOK_EVERY_NS {
            return Ok(());
        }
        self.looked_ns = now;
        let job = ring.job();
        let operation = ring.operation();
        ring.compare()?;
        job.health(&operation)?;
        let missing = missing(ring, awaits);
        job.note_wait(ring.id(), ring.sequence(), ring.signature(), &missing);
        if let Some(gone) = self.finalized(ring, awaits) {
            let text =
                format!("{} has called finalize, but {} is in {operation}", job.name(gone), job.name(job.rank()));
            return Err(job.end(&Reason::mismatch(text), None));
        }
        #[allow(clippy::cast_precision_loss)] // seconds for people
        let waited_s = now.saturating_sub(self.since_ns) as f64 / 1e9;
        let settings = job.settings();
        let sentence = || {
            let names: Vec<String> = missing.iter().map(|&rank| job.name_and_state(rank)).collect();
            format!(
                "{} has waited {waited_s:.1} s in {operation} for {}",
                job.name(job.rank()),
                if names.is_empty() { "data".to_owned() } else { names.join(", ") }
            )
        };
        if settings.timeout_s > 0.0 && waited_s >= settings.timeout_s {
            return Err(job.end(&Reason::timeout(sentence()), None));
        }
        if self.speak_s == 0.0 {
            self.speak_s = settings.watchdog_s;
        }
        if settings.watchdog_s > 0.0 && waited_s >= self.speak_s {
            eprintln!("han: watchdog: {}", sentence());
            self.speak_s *= 2.0;
        }
        Ok(())
    }
}

impl Vigil {
    /// A world rank that is waited for in vain because it has finalized.
    fn finalized(&mut self, ring: &Ring, awaits: Option<usize>) -> Option<usize> {
        let job = ring.job();
        let world = |rank: usize| ring.world()[rank];
        // Who finalizes comes to the world's last barrier, and to no other operation.
        let leaves = |&rank: &usize| job.has_finalized(rank) || (ring.id() != 0 && job.is_finalizing(rank));
        if let Some(rank) = ring.not_entered().into_iter().map(world).find(leaves) {
            return Some(rank);
        }
        // One that has entered may have published all it had to before it finalized: the operation was
        // polled since the last look, so if it is still awaited, it was not so.
        let gone = awaits.map(world).filter(|&rank| job.has_finalized(rank));
        let in_vain = gone.filter(|_| gone == self.gone);
        self.gone = gone;
        in_vain
    }
}

/// World ranks that have not come, or else the one whose data is not there yet.
fn missing(ring: &Ring, awaits: Option<usize>) -> Vec<usize> {
    let mut missing = ring.not_entered();
    if missing.is_empty() {
        missing.extend(awaits);
    }
    missing.into_iter().map(|rank| ring.world()[rank]).collect()
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        Self::other(error)
    }
}

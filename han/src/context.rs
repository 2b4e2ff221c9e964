//! This process's place in a job.

use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use reduce_kernels::say;
use shm_core::job::Job;
use shm_core::sys::own::Own;
use shm_core::sys::process;
use shm_core::{Call, Exchange, LocalComm};

use crate::carrier::Carrier;
use crate::communicator::{Communicator, Shared};
use crate::config::{Config, LogLevel};
use crate::error::{Error, Result};
use crate::forked::Process;
use crate::network::Network;
use crate::trace::{self, Trace};
use crate::{Element, bootstrap, group, network, nodes, placing};

/// This process's place in a job: made once, given back by [`finalize`](Self::finalize).
///
/// A process that ends without finalizing ends the job: its peers' operations fail with an error
/// that names it. A child that a rank forks is no rank: all that it calls fails ([`Error::Forked`]), and it may drop everything.
#[derive(Debug)]
#[must_use = "a process that ends without `finalize` ends the whole job with an error"]
pub struct Context {
    inner: Rc<Own<Inner>>,
    world: Communicator,
}

/// How long the last rank may take from the last barrier to its goodbye.
const LEAVE_WITHIN: Duration = Duration::from_secs(300);
/// A rank that waits for its node looks at the network no more often: a look is a system call, and somebody else may need
/// the core.
const NETWORK_EVERY: Duration = Duration::from_micros(50);

/// What the communicators of a process share.
pub(crate) struct Inner {
    pub(crate) config: Config,
    /// The ranks of this node.
    pub(crate) job: Rc<Job>,
    /// The ranks of all nodes, if there are several.
    pub(crate) network: Option<Network>,
    exchange: RefCell<Box<dyn Exchange>>,
    /// Communicators with operations under way: they go on while another one waits, and live until
    /// they are done, whoever drops them.
    busy: RefCell<Vec<Rc<Own<Shared>>>>,
    /// No communicator may be used any more.
    finalized: Cell<bool>,
    /// Who has joined the job; its children have not.
    process: Process,
    /// The smallest communicator number that this rank has not used.
    pub(crate) next_id: Cell<u32>,
    /// What is recorded for `HAN_TRACE`; not set if nothing is.
    trace: OnceCell<Trace>,
    /// What a caller does meanwhile when an operation takes long.
    meanwhile: OnceCell<Box<dyn Fn()>>,
    /// When this rank last looked at the network while it waited for its node.
    looked_at_network: Cell<Option<Instant>>,
}

impl Context {
    /// Joins the job that a launcher started this process in, or is a world of one rank. A process can join a launcher's job
    /// once, also after [`finalize`](Self::finalize).
    ///
    /// # Errors
    /// A wrong `HAN_` variable, a launcher that cannot be understood, no memory that all ranks of a node can share,
    /// or no network that connects all nodes.
    pub fn init() -> Result<Self> {
        let config = Config::from_environment()?;
        Self::with(bootstrap::connect(&config)?, config)
    }

    /// Joins the ranks that `exchange` connects; the configuration comes from the environment.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn from_exchange(exchange: Box<dyn Exchange>) -> Result<Self> {
        Self::with(exchange, Config::from_environment()?)
    }

    /// Joins the ranks that `exchange` connects, with a configuration of the caller's.
    ///
    /// # Errors
    /// As [`init`](Self::init), or a field of `config` has a value that its variable or key does not take.
    pub fn with(mut exchange: Box<dyn Exchange>, config: Config) -> Result<Self> {
        config.check()?;
        // Shared memory could get their numbers.
        process::occupy_standard_streams();
        let size = exchange.size();
        let everybody = (0..size).collect();
        let (job, network, world) = match placing::find(exchange.as_mut(), &config)? {
            None => {
                let job = Rc::new(Job::together(exchange.as_mut(), config.settings.clone())?);
                placing::agree(exchange.as_mut(), &config)?;
                let local = LocalComm::together(exchange.as_mut(), Rc::clone(&job), 0, everybody)?;
                (job, None, Carrier::Node(local))
            }
            Some(placing) => {
                let (job, network, world) = network::join(exchange.as_mut(), placing, &config)?;
                (job, Some(network), Carrier::Nodes(world))
            }
        };
        let next_id = network.as_ref().map_or(1, |network| nodes::numbers(&network.placing.nodes));
        let inner = Rc::new(Own::new(Inner {
            config,
            job,
            network,
            exchange: RefCell::new(exchange),
            busy: RefCell::default(),
            finalized: Cell::new(false),
            process: Process::this(),
            next_id: Cell::new(next_id),
            trace: OnceCell::new(),
            meanwhile: OnceCell::new(),
            looked_at_network: Cell::new(None),
        }));
        if let Some(trace) = inner.noted(trace::start(&inner))? {
            let _ = inner.trace.set(trace);
        }
        let world = Communicator::new(world, Rc::clone(&inner));
        if inner.config.log >= LogLevel::Warn && world.rank() == 0 {
            inner.config.doubts().iter().for_each(|doubt| say(&format!("han: {doubt}")));
        }
        if inner.config.log >= LogLevel::Info && world.rank() == 0 {
            say(&format!("han: {}", world.describe().trim_end()));
        }
        Ok(Self { inner, world })
    }

    /// The communicator of all ranks.
    #[must_use]
    pub fn world(&self) -> &Communicator {
        &self.world
    }

    /// Number of nodes that the ranks are on.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.inner.network.as_ref().map_or(1, |network| network.placing.node_count())
    }

    /// By rank of the world: the number of its node, from 0.
    #[must_use]
    pub fn nodes(&self) -> Vec<usize> {
        let network = self.inner.network.as_ref();
        network.map_or_else(|| vec![0; self.world.size()], |network| network.placing.nodes.clone())
    }

    /// libfabric's name of what connects the nodes, if there are several.
    #[must_use]
    pub fn provider(&self) -> Option<&str> {
        self.inner.network.as_ref().map(|network| network.provider.as_str())
    }

    /// Whether ranks share cores somewhere, by which choices between nodes differ; false on one node.
    #[must_use]
    pub fn shares_cores(&self) -> bool {
        self.inner.shares_cores()
    }

    /// Megabits a second that the slowest node's wire carries, if there are several nodes and anybody says.
    #[must_use]
    pub fn wire_mbit_s(&self) -> Option<u64> {
        self.inner.wire_mbit_s()
    }

    /// What was configured, and where.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// A new communicator of the ranks that `exchange` connects, which are some of the world's: its
    /// [`number`](Exchange::number) says which. Collective over them; no other rank takes part.
    ///
    /// # Errors
    /// No such rank, no memory that all ranks of a group on one node can share, or the job has ended.
    pub fn communicator(&self, exchange: &mut dyn Exchange) -> Result<Communicator> {
        self.inner.check()?;
        // A failure is found again in the exchange, for which the others must not wait in vain.
        let _ = self.inner.progress();
        if let Some(number) = (0..exchange.size()).map(|rank| exchange.number(rank)).find(|&n| n >= self.world.size()) {
            let why = format!("rank {number} is not in this world of {} ranks", self.world.size());
            return Err(Error::Node(shm_core::Error::InvalidArgument(why)));
        }
        let made = self.inner.or_end(self.inner.noted(group::together(exchange, &self.inner)))?;
        Ok(Communicator::new(made, Rc::clone(&self.inner)))
    }

    /// Calls `work` now and then, from now on, while this rank waits for others in an operation: for what must go on
    /// meanwhile, and must not call this context. False if there is something already. With
    /// [`Settings::attentive`](shm_core::settings::Settings::attentive) that is every few microseconds of waiting.
    pub fn meanwhile(&self, work: impl Fn() + 'static) -> bool {
        self.inner.meanwhile.set(Box::new(work)).is_ok()
    }

    /// Lets operations that were begun go on, and what those that have completed have sent to other nodes, which may still lie
    /// here: for a rank that otherwise calls nothing of this context for long, although others wait for that.
    ///
    /// # Errors
    /// The job has ended.
    pub fn progress(&self) -> Result<()> {
        self.inner.check_process()?;
        self.inner.keep_network()?;
        self.inner.progress().map(drop)
    }

    /// Does `work` while the other ranks of this node can read and write `slice` directly when it is used in
    /// collectives, as if it came from [`Communicator::alloc`]. Not collective.
    ///
    /// The slice's pages are moved into memory that can be shared, in place, and back afterwards. An empty slice has none, and
    /// `work` is done all the same.
    ///
    /// # Errors
    /// The slice is no private memory (for instance a stack, or a mapping of a file), or shares its first or
    /// last page with data of other threads; see [`Job::with_registered`]. `work` was not done then.
    pub fn with_registered<T: Element, R>(&self, slice: &mut [T], work: impl FnOnce(&mut [T]) -> R) -> Result<R> {
        self.inner.check_process()?;
        Ok(self.inner.job.with_registered(slice, work)?)
    }

    /// What the ranks of this node share; for memory that is taken, given back and registered by hand.
    #[must_use]
    pub fn job(&self) -> &Rc<Job> {
        &self.inner.job
    }

    /// Completes what is under way, waits until all ranks have come here, and leaves the job. Collective.
    ///
    /// Communicators that are still held cannot be used any more.
    ///
    /// # Errors
    /// The job has ended with an error before, or the file of `HAN_TRACE` cannot be written; this rank has left the job
    /// all the same.
    pub fn finalize(self) -> Result<()> {
        self.inner.check_process()?;
        let drained = self.inner.drain();
        let traced = drained.and_then(|()| self.inner.trace().map_or(Ok(None), |trace| self.world.finish(trace)));
        self.inner.job.begin_to_finalize();
        let (trouble, drained) = match traced {
            Ok(trouble) => (trouble, Ok(())),
            Err(error) => (None, Err(error)),
        };
        let barrier = drained.and_then(|()| self.world.run(Call::FINALIZE));
        let barrier = barrier.and_then(|()| self.inner.part());
        self.inner.finalized.set(true);
        self.inner.busy.take();
        self.inner.job.finalize();
        let farewell = self.inner.exchange.borrow_mut().finalize();
        barrier?;
        farewell.map_err(Error::startup)?;
        trouble.map_or(Ok(()), |why| Err(Error::Trace(why)))
    }

    /// Ends the job on all ranks, and this process with exit code `code`. In a forked child of a rank it ends the child alone.
    pub fn abort(&self, code: i32, why: &str) -> ! {
        self.announce_abort(code, why);
        std::process::exit(code)
    }

    /// Ends the job on all ranks; this process, whose exit code will be `code`, the caller ends.
    pub fn announce_abort(&self, code: i32, why: &str) {
        if !self.inner.process.is_this() {
            return;
        }
        if let Some(trace) = self.inner.trace() {
            trace.write();
        }
        // The launcher first: else a peer that ends because of it might tell the job's exit code.
        if let Ok(mut exchange) = self.inner.exchange.try_borrow_mut() {
            exchange.abort(code, why);
        }
        self.inner.job.announce_abort(why);
        self.inner.end_network(why);
    }

    /// Ends the job on all ranks because this one cannot go on, though its process may: when this returns, no peer works on
    /// its vectors any more.
    pub fn give_up(&self, why: &str) {
        if !self.inner.process.is_this() {
            return;
        }
        self.inner.job.abort(why);
        self.inner.end_network(why);
    }
}

impl Inner {
    fn end_network(&self, why: &str) {
        if let Some(network) = &self.network {
            network.link.end(why);
            network.link.spread();
        }
    }

    /// A carrier of all ranks whose calls are not among those of the world. Collective over them.
    pub(crate) fn beside_world(&self) -> Result<Carrier> {
        group::together(self.exchange.borrow_mut().as_mut(), self)
    }

    /// What is recorded, if anything is.
    #[inline]
    pub(crate) fn trace(&self) -> Option<&Trace> {
        self.trace.get()
    }

    /// Lets operations on all communicators that are not in use go on; true if there are still such.
    pub(crate) fn progress(&self) -> Result<bool> {
        if let Some(trace) = self.trace() {
            trace.idle();
        }
        if self.busy.borrow().is_empty() {
            return Ok(false);
        }
        let mut busy = self.busy.take();
        let outcome = busy.iter().try_for_each(|shared| {
            if let Ok(mut carrier) = shared.carrier.try_borrow_mut() {
                self.noted(carrier.progress(self))?;
                shared.note_completed(&carrier, self);
            }
            Ok(())
        });
        let mut elsewhere = false;
        busy.retain(|shared| match shared.carrier.try_borrow() {
            Ok(carrier) => {
                elsewhere |= carrier.is_busy();
                carrier.is_busy()
            }
            Err(_) => true,
        });
        // An operator may have begun something meanwhile.
        self.busy.borrow_mut().append(&mut busy);
        outcome.map(|()| elsewhere)
    }

    /// What a rank does now and then while it waits for messages: goes on elsewhere, and looks after its node. True if
    /// something is under way elsewhere.
    pub(crate) fn idle(&self) -> Result<bool> {
        self.do_meanwhile();
        let elsewhere = self.progress()?;
        self.look_after_node().map(|()| elsewhere)
    }

    /// The same while it waits for ranks of its node, which look after each other.
    pub(crate) fn idle_on_node(&self) -> shm_core::Result<bool> {
        self.do_meanwhile();
        let outcome = self.keep_network().and_then(|()| self.progress());
        outcome.map_err(|error| match error {
            Error::Node(error) => error,
            // Noted already, so the job has ended, and `explain` gives the error back.
            other => self.job.check().err().unwrap_or_else(|| shm_core::Error::Startup(other.to_string())),
        })
    }

    /// Lets messages move now and then while this rank waits for others of its node: what it has sent may still lie here, and
    /// other nodes may ask what it does.
    pub(crate) fn keep_network(&self) -> Result<()> {
        let Some(network) = self.network.as_ref().filter(|_| self.is_time_for_network()) else { return Ok(()) };
        match network.link.progress() {
            // This is an operator that the network has called; it goes on there.
            Err(net_fabric::Error::Nested) => Ok(()),
            moved => self.noted(moved.map(|_| ()).map_err(Error::from)),
        }
    }

    /// True once in a while.
    fn is_time_for_network(&self) -> bool {
        let (now, looked) = (Instant::now(), self.looked_at_network.get());
        let is_due = looked.is_none_or(|looked| now.duration_since(looked) >= NETWORK_EVERY);
        if is_due {
            self.looked_at_network.set(Some(now));
        }
        is_due
    }

    fn do_meanwhile(&self) {
        if let Some(work) = self.meanwhile.get() {
            work();
        }
    }

    /// Takes note of an error: what ends the network ends this node's job, and the other way round.
    pub(crate) fn noted<T>(&self, result: Result<T>) -> Result<T> {
        if let (Err(error), Some(network)) = (&result, &self.network) {
            network.note(error, &self.job);
        }
        result
    }

    /// What has ended the job, if it has, in place of an error that comes of that.
    pub(crate) fn or_end<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|error| self.job.check().err().map_or(error, |end| self.explain(end)))
    }

    /// Ends the job of this node because of an error, unless it has ended.
    pub(crate) fn end_node(&self, error: &Error) {
        match (error, &self.network) {
            (Error::Network(error), Some(network)) => self.job.announce(&network.as_of_node(error)),
            (Error::Node(error), _) => self.job.announce(error),
            _ => self.job.announce_abort(&error.to_string()),
        }
    }

    /// An outcome on this node's memory as the caller is told of it.
    #[inline]
    pub(crate) fn of_node<T>(&self, outcome: shm_core::Result<T>) -> Result<T> {
        match outcome {
            Ok(value) => Ok(value),
            Err(error) => self.noted(Err(self.explain(error))),
        }
    }

    /// What is behind an error of this node.
    pub(crate) fn explain(&self, error: shm_core::Error) -> Error {
        let behind = self.network.as_ref().and_then(Network::failure);
        behind.map_or(Error::Node(error), Error::Network)
    }

    /// Looks whether the other ranks of this node live, where nothing else does.
    pub(crate) fn look_after_node(&self) -> Result<()> {
        self.noted(self.job.health("an operation over the network").map_err(Error::from))
    }

    /// The world rank of a rank of this node's job.
    pub(crate) fn world_rank(&self, on_node: usize) -> usize {
        self.network.as_ref().map_or(on_node, |network| network.placing.here[on_node])
    }

    /// The rank in this node's job of a world rank, if it is here.
    pub(crate) fn rank_on_node(&self, world: usize) -> Option<usize> {
        match &self.network {
            Some(network) => network.placing.here.iter().position(|&rank| rank == world),
            None => Some(world),
        }
    }

    /// Whether ranks share cores on some node.
    pub(crate) fn shares_cores(&self) -> bool {
        self.network.as_ref().is_some_and(|network| network.shares_cores)
    }

    /// Megabits a second that the slowest node's wire carries, as far as the systems say.
    pub(crate) fn wire_mbit_s(&self) -> Option<u64> {
        self.network.as_ref().and_then(|network| network.wire_mbit_s)
    }

    /// Several lines on the nodes and the network between them.
    pub(crate) fn describe_nodes(&self) -> String {
        self.network.as_ref().map_or_else(String::new, |network| network.describe(&self.job, &self.config))
    }

    /// Waits until no rank needs the network any more.
    fn part(&self) -> Result<()> {
        if let Some(network) = &self.network {
            self.noted(network.link.leave(LEAVE_WITHIN).map_err(Error::from))?;
            // An endpoint that is closed before others have left would look like one of a rank that has died.
            self.exchange.borrow_mut().allgather(b"").map_err(Error::startup)?;
        }
        Ok(())
    }

    /// Remembers that `shared` has operations under way.
    pub(crate) fn is_busy(&self, shared: &Rc<Own<Shared>>) {
        let mut busy = self.busy.borrow_mut();
        if !busy.iter().any(|known| Rc::ptr_eq(known, shared)) {
            busy.push(Rc::clone(shared));
        }
    }

    /// Waits for everything that is under way on any communicator.
    fn drain(&self) -> Result<()> {
        loop {
            let Some(shared) = self.busy.borrow().first().map(Rc::clone) else { return Ok(()) };
            let mut carrier = shared.carrier.borrow_mut();
            carrier.wait_all(self)?;
            shared.note_completed(&carrier, self);
            drop(carrier);
            self.progress()?;
        }
    }

    /// An error once this rank has finalized, or in a child that it has forked.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        if self.finalized.get() {
            return Err(Error::Finalized);
        }
        self.check_process()
    }

    /// An error in a child that this rank has forked: what it did would be done in its parent's name.
    #[inline]
    pub(crate) fn check_process(&self) -> Result<()> {
        if self.process.is_this() { Ok(()) } else { Err(Error::Forked) }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("config", &self.config).finish_non_exhaustive()
    }
}

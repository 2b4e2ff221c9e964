//! This process's place in a job.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use shm_core::job::Job;
use shm_core::{Exchange, LocalComm, Registered};

use crate::communicator::{Communicator, Shared};
use crate::config::{Config, LogLevel};
use crate::error::{Error, Result};
use crate::{Element, bootstrap};

/// This process's place in a job: made once, given back by [`finalize`](Self::finalize).
///
/// A process that ends without finalizing ends the job: its peers' operations fail with an error
/// that names it.
#[derive(Debug)]
#[must_use = "a process that ends without `finalize` ends the whole job with an error"]
pub struct Context {
    inner: Rc<Inner>,
    world: Communicator,
}

/// What the communicators of a process share.
pub(crate) struct Inner {
    pub(crate) config: Config,
    pub(crate) job: Rc<Job>,
    exchange: RefCell<Box<dyn Exchange>>,
    /// Communicators with operations under way: they go on while another one waits, and live until
    /// they are done, whoever drops them.
    busy: RefCell<Vec<Rc<Shared>>>,
    /// No communicator may be used any more.
    finalized: Cell<bool>,
    /// The smallest communicator number that this rank has not used.
    pub(crate) next_id: Cell<u32>,
}

impl Context {
    /// Joins the job that a launcher started this process in, or is a world of one rank.
    ///
    /// # Errors
    /// A wrong `HAN_` variable, a launcher that cannot be understood, ranks on several nodes, or no
    /// memory that all ranks can share.
    pub fn init() -> Result<Self> {
        let config = Config::from_environment()?;
        Self::with(bootstrap::connect()?, config)
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
    /// As [`init`](Self::init).
    pub fn with(mut exchange: Box<dyn Exchange>, config: Config) -> Result<Self> {
        let size = exchange.size();
        if let Some(mut nodes) = exchange.nodes() {
            nodes.sort_unstable();
            nodes.dedup();
            if nodes.len() > 1 {
                return Err(Error::SeveralNodes { size, nodes: nodes.len() });
            }
        }
        let job = Rc::new(Job::together(exchange.as_mut(), config.settings.clone())?);
        let local = LocalComm::together(exchange.as_mut(), Rc::clone(&job), 0, (0..size).collect())?;
        let inner = Rc::new(Inner {
            config,
            job,
            exchange: RefCell::new(exchange),
            busy: RefCell::default(),
            finalized: Cell::new(false),
            next_id: Cell::new(1),
        });
        let world = Communicator::new(local, Rc::clone(&inner));
        if inner.config.log >= LogLevel::Info && world.rank() == 0 {
            eprint!("han: {}", world.describe());
        }
        Ok(Self { inner, world })
    }

    /// The communicator of all ranks.
    #[must_use]
    pub fn world(&self) -> &Communicator {
        &self.world
    }

    /// What was configured, and where.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Lets the other ranks of this node read and write `slice` directly while it is used in collectives, as
    /// if it came from [`Communicator::alloc`]. Not collective.
    ///
    /// The slice's pages are moved into memory that can be shared, in place. While the guard lives the slice
    /// is used through it.
    ///
    /// # Errors
    /// The slice is no private memory (for instance a stack, or a mapping of a file), or shares its first or
    /// last page with data of other threads; see [`Registered::new`].
    pub fn register<'a, T: Element>(&self, slice: &'a mut [T]) -> Result<Registered<'a, T>> {
        Ok(Registered::new(&self.inner.job, slice)?)
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
    /// The job has ended with an error before; this rank has left it all the same.
    pub fn finalize(self) -> Result<()> {
        let drained = self.inner.drain();
        self.inner.job.begin_to_finalize();
        let barrier = drained.and_then(|()| self.world.barrier());
        self.inner.finalized.set(true);
        self.inner.busy.take();
        self.inner.job.finalize();
        let farewell = self.inner.exchange.borrow_mut().finalize();
        barrier?;
        farewell.map_err(|e| Error::Node(shm_core::Error::Startup(e.to_string())))
    }

    /// Ends the job on all ranks, and this process with exit code `code`.
    pub fn abort(&self, code: i32, why: &str) -> ! {
        self.inner.job.announce_abort(why);
        if let Ok(mut exchange) = self.inner.exchange.try_borrow_mut() {
            exchange.abort(code, why);
        }
        std::process::exit(code)
    }
}

impl Inner {
    /// Lets operations on all communicators that are not in use go on.
    pub(crate) fn progress(&self) -> shm_core::Result<()> {
        if self.busy.borrow().is_empty() {
            return Ok(());
        }
        let mut busy = self.busy.take();
        for shared in &busy {
            if let Ok(mut local) = shared.local.try_borrow_mut() {
                local.progress()?;
            }
        }
        busy.retain(|shared| shared.local.try_borrow().map_or(true, |local| local.is_busy()));
        // An operator may have begun something meanwhile.
        self.busy.borrow_mut().append(&mut busy);
        Ok(())
    }

    /// Remembers that `shared` has operations under way.
    pub(crate) fn is_busy(&self, shared: &Rc<Shared>) {
        let mut busy = self.busy.borrow_mut();
        if !busy.iter().any(|known| Rc::ptr_eq(known, shared)) {
            busy.push(Rc::clone(shared));
        }
    }

    /// Waits for everything that is under way on any communicator.
    fn drain(&self) -> Result<()> {
        loop {
            let Some(shared) = self.busy.borrow().first().map(Rc::clone) else { return Ok(()) };
            shared.local.borrow_mut().wait_all(|| self.progress())?;
            self.progress()?;
        }
    }

    /// An error once this rank has finalized.
    pub(crate) fn check(&self) -> Result<()> {
        if self.finalized.get() { Err(Error::Finalized) } else { Ok(()) }
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("config", &self.config).finish_non_exhaustive()
    }
}

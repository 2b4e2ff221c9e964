//! Runs schedules on a transport: many operations at a time, each under a policy, none of them ever waiting.
//!
//! An [`Engine`] owns a rank's transport. [`start`](Engine::start) begins an operation, [`progress`](Engine::progress)
//! moves all of them, [`test`](Engine::test) tells whether one has completed. `docs/engine.md` in this crate says why
//! it is built as it is, and what it costs.

mod core;
mod ending;
mod history;
mod lead;
mod operands;
mod operation;
mod scratch;
mod seal;
mod tag;
mod vigil;
mod watch;
mod work;

use std::time::{Duration, Instant};

use self::core::Core;
use watch::Watcher;

use crate::error::{Error, Result};
use crate::transport::Transport;

pub use operands::{Operands, Reduction};
pub use seal::{Fingerprint, Secret};
pub use tag::{Key, MAX_COMMUNICATORS, MAX_MESSAGES};
pub use watch::{Host, Wait, Watch};
pub use work::{Announced, Policy, Work};

/// What an engine is told at its start.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The job's secret.
    pub secret: Secret,
    /// Operations of one communicator that are under way at once; more wait for their turn. At least 1.
    pub operations: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { secret: Secret::default(), operations: 64 }
    }
}

/// Polls without news before a waiting rank sleeps, and how long at a time.
const POLLS: u32 = 1000;
const SLEEP: Duration = Duration::from_millis(20);

/// An operation that was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    place: u16,
    generation: u32,
}

/// Runs a rank's operations on its transport.
#[derive(Debug)]
pub struct Engine<T: Transport> {
    // Dropped first, whatever happens: the core has memory of messages that are under way.
    transport: T,
    core: Core,
}

impl<T: Transport> Engine<T> {
    /// An engine that has the transport for itself.
    #[must_use]
    pub fn new(transport: T, settings: Settings) -> Self {
        Self { core: Core::new(settings), transport }
    }

    /// As [`new`](Self::new), but the engine looks after what takes long: see [`look`](Self::look).
    #[must_use]
    pub fn watched(transport: T, settings: Settings, watch: Watch, host: Box<dyn Host>) -> Self {
        let mut engine = Self::new(transport, settings);
        engine.core.watcher = Some(Box::new(Watcher::new(watch, host, &engine.transport)));
        engine.core.bounds_leads = engine.transport.keeps_unasked();
        engine
    }

    /// Counts from now on the messages that operations send to each rank, for [`sent`](Self::sent): eight bytes a rank.
    #[must_use]
    pub fn counting(mut self) -> Self {
        self.core.sent = vec![0; self.transport.size()];
        self
    }

    /// Messages that operations have sent to each rank of the world, if the engine is [`counting`](Self::counting) them;
    /// else nothing. What it says to look after operations is not among them.
    #[must_use]
    pub fn sent(&self) -> &[u64] {
        &self.core.sent
    }

    /// The transport, to look at.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// The transport, to sleep on it. Messages are the engine's.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Begins an operation. All ranks of a communicator start its operations in the same order, with the same keys.
    ///
    /// # Errors
    /// The work cannot be done by anybody, or nothing works any more: then no memory is in use.
    ///
    /// # Safety
    /// Until the operation has completed, or any call has returned an error other than
    /// [`Error::InvalidArgument`], or the engine is gone: the operands' input is valid for reads and nobody writes it;
    /// their output is valid for reads and writes and nobody else uses it; the two do not overlap. What they hold are
    /// values of the reduction's datatype. Operands that are [null](Operands::null) are for transports that move no data.
    #[allow(unsafe_code)] // Takes over the promise about the operands.
    pub unsafe fn start(&mut self, work: Work) -> Result<Handle> {
        self.core.check()?;
        work.check(&self.transport)?;
        let place = self.core.take_place()?;
        self.core.start(place, work, &mut self.transport).map_err(|error| self.fail(error))
    }

    /// Notes a call of a communicator whose work is begun in parts, maybe on other communicators: all ranks must agree on
    /// it, and on all before it. All ranks of a communicator announce the same calls in the same order, or none. `group`
    /// stands for its ranks.
    ///
    /// # Errors
    /// Nothing works any more.
    pub fn announce(&mut self, key: Key, group: u32, fingerprint: Fingerprint) -> Result<Announced> {
        self.core.check()?;
        Ok(self.core.announce(key, group, fingerprint))
    }

    /// Forgets a communicator that nobody uses any more, so that its number may be used for another one: on all of
    /// its ranks, when its last operation has completed.
    pub fn forget(&mut self, communicator: u16) {
        self.core.forget(communicator);
    }

    /// Lets messages move and operations go on. True if anything happened.
    ///
    /// # Errors
    /// Nothing works any more, for this reason.
    pub fn progress(&mut self) -> Result<bool> {
        if let Err(error) = self.core.check() {
            self.core.say_why(&mut self.transport);
            return Err(error);
        }
        self.core.progress(&mut self.transport).map_err(|error| self.fail(error))
    }

    /// Looks after operations that take long, if the engine is [watched](Self::watched): asks the ranks that are
    /// waited for what they do, says who is missing, and finds those that are gone or do something else. To be
    /// called now and then while one waits; most calls only look at the clock.
    ///
    /// # Errors
    /// Nothing works any more, for this reason.
    pub fn look(&mut self) -> Result<()> {
        self.core.check()?;
        self.core.look(Instant::now(), &mut self.transport).map_err(|error| self.fail(error))
    }

    /// Waits until an operation has completed; polls for a while, then sleeps.
    ///
    /// # Errors
    /// As [`test`](Self::test).
    pub fn wait(&mut self, handle: Handle) -> Result<()> {
        let mut polls = 0;
        while !self.test(handle)? {
            polls = if self.progress()? { 0 } else { polls + 1 };
            if polls > POLLS {
                self.look()?;
                self.transport.sleep(SLEEP).map_err(|error| self.fail(error))?;
            }
        }
        Ok(())
    }

    /// Ends the job on every rank because this rank wants it.
    pub fn abort(&mut self, why: &str) -> Error {
        self.fail(Error::Aborted { rank: self.transport.rank(), why: why.to_owned() })
    }

    /// Ends the job on every rank because of an error that this rank knows from elsewhere. `is_told` says that it is another
    /// rank's news, which that one has told the others.
    pub fn end(&mut self, error: Error, is_told: bool) -> Error {
        self.core.end_from_outside(error, is_told, &mut self.transport)
    }

    /// Whether an operation has completed. It needs [`progress`](Self::progress) to come to that.
    ///
    /// # Errors
    /// It never will, for this reason; its memory is free.
    pub fn test(&self, handle: Handle) -> Result<bool> {
        if self.core.has_completed(handle) {
            return Ok(true);
        }
        self.core.check().map(|()| false)
    }

    /// Whether an operation's output is what it will be: all that it may still do is send parts of its operands.
    #[must_use]
    pub fn has_result(&self, handle: Handle) -> bool {
        self.core.has_result(handle)
    }

    /// Operations that were started and have not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.core.outstanding()
    }

    /// Ends everything: the first error is that of all that follows.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.core.end(error, &mut self.transport)
    }
}

impl<T: Transport> Drop for Engine<T> {
    fn drop(&mut self) {
        self.core.close(&mut self.transport);
    }
}

//! What the communicators of a process share: the engine with its transport.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::rc::Rc;
use std::thread;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use reduce_kernels::Strangers;

use super::ranks::Ranks;
use crate::engine::{Announced, Engine, Fingerprint, Handle, Key, MAX_COMMUNICATORS, Secret, Settings, Watch, Work};
use crate::error::{Error, Result};
use crate::transport::Transport;

/// How long a rank that has met an error goes on to tell others.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// Calls that end one after the other without a look at the network, and how long they do.
const CALLS_UNSEEN: u32 = 1024;
const UNSEEN: Duration = Duration::from_millis(5);

/// This process's place among the ranks that the fabric connects.
pub struct Link {
    engine: RefCell<Engine<Box<dyn Transport>>>,
    rank: usize,
    size: usize,
    patience: Patience,
    strangers: Rc<Strangers>,
    /// Numbers that the communicators of this process have.
    numbers: RefCell<BTreeSet<u16>>,
    /// Calls that have ended since the last glance, and when that was.
    unseen: Cell<(u32, Duration)>,
}

/// How a rank waits for messages.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// Looks at the network before the core is first given away.
    pub spins: u32,
    /// Times that the core is given away, with one look after each, before sleeping; fewer where strangers would take it.
    pub yields: u32,
    /// Longest single sleep.
    pub sleep: Duration,
}

/// A wait for messages.
#[derive(Debug)]
pub struct Rest {
    patience: Patience,
    /// Looks in vain since something moved.
    in_vain: u32,
    /// Looks that found something.
    moved: u32,
}

/// A rank whose messages keep coming does something else after so many of them, too.
const BUSY_LOOKS: u32 = 4096;

impl Patience {
    /// For a rank that has a core to itself.
    pub const OWN_CORE: Self = Self { spins: 10_000, yields: 100, sleep: Duration::from_millis(1) };
    /// For ranks that share cores: the peer that is waited for may need this very core. A message wakes a rank that
    /// sleeps; one that gives its core away again and again costs those who have work, and waits for its turn.
    pub const SHARED_CORE: Self = Self { spins: 1, yields: 40, sleep: Duration::from_millis(1) };

    /// The same for a rank that has other things to do now and then while it waits.
    #[must_use]
    pub fn attentive(self) -> Self {
        Self { spins: self.spins.min(32), sleep: self.sleep.min(Duration::from_micros(100)), ..self }
    }

    /// A wait that begins.
    #[must_use]
    pub fn begin(self) -> Rest {
        Rest { patience: self, in_vain: 0, moved: 0 }
    }
}

impl Rest {
    /// Counts a look at the network, which has found something or not. True if it is time to do something else.
    pub fn is_due(&mut self, moved: bool) -> bool {
        if moved {
            self.in_vain = 0;
            self.moved = self.moved.wrapping_add(1);
            return self.moved.is_multiple_of(BUSY_LOOKS);
        }
        self.in_vain = self.in_vain.saturating_add(1);
        self.in_vain >= self.patience.spins
    }
}

impl Link {
    /// A link over a transport, which it has for itself. `ranks` names the ranks in messages; `strangers` are beside those
    /// of this node.
    #[must_use]
    pub fn new(
        transport: Box<dyn Transport>,
        secret: Secret,
        ranks: Ranks,
        watch: Watch,
        patience: Patience,
        strangers: Rc<Strangers>,
    ) -> Self {
        let (rank, size) = (transport.rank(), transport.size());
        let settings = Settings { secret, ..Settings::default() };
        let engine = Engine::watched(transport, settings, watch, Box::new(ranks)).counting();
        Self {
            engine: RefCell::new(engine),
            rank,
            size,
            patience,
            strangers,
            numbers: RefCell::default(),
            unseen: Cell::default(),
        }
    }

    /// This rank in the world.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks of the world.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Lets messages move and operations go on. True if anything happened.
    ///
    /// # Errors
    /// The network has failed, or this is an operator that one of the operations has called.
    pub fn progress(&self) -> Result<bool> {
        self.engine()?.progress()
    }

    /// Looks after operations that take long; to be called now and then while one waits.
    ///
    /// # Errors
    /// As [`progress`](Self::progress): a rank is gone, or does something else.
    pub fn look(&self) -> Result<()> {
        self.engine()?.look()
    }

    /// Ends a call, which may not have waited at all: now and then lets messages move and looks after operations, or a rank
    /// whose calls only send would never hear that another one is gone, or does something else.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    #[inline]
    pub fn glance(&self) -> Result<()> {
        let (calls, since) = self.unseen.get();
        let now = coarse_time();
        if calls < CALLS_UNSEEN && now.saturating_sub(since) < UNSEEN {
            self.unseen.set((calls + 1, since));
            return Ok(());
        }
        self.unseen.set((0, now));
        self.progress()?;
        self.look()
    }

    /// Ends all operations on this rank, and tells the other ranks why. False if it cannot, because this is an operator
    /// that one of them has called.
    pub fn end(&self, why: &str) -> bool {
        let engine = self.engine.try_borrow_mut();
        engine.map(|mut engine| engine.abort(why)).is_ok()
    }

    /// The same because of an error that this rank knows from elsewhere. `is_told` says that it is another rank's
    /// news, which that one has told the others.
    pub fn end_with(&self, error: Error, is_told: bool) -> bool {
        let engine = self.engine.try_borrow_mut();
        engine.map(|mut engine| engine.end(error, is_told)).is_ok()
    }

    /// After an error: gives the other ranks a moment to hear of it, in case this process ends at once.
    pub fn spread(&self) {
        let patience = Instant::now() + LAST_WORDS;
        while Instant::now() < patience {
            // The error is known; this sends what is still to be told.
            let _ = self.progress();
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until all ranks are here and all that this rank has sent is on its way.
    ///
    /// # Errors
    /// A peer is gone, or has not come within `limit`.
    pub fn leave(&self, limit: Duration) -> Result<()> {
        self.engine()?.transport_mut().leave(limit)
    }

    /// What carries the messages, and how they are waited for, in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let Patience { spins, yields, sleep } = self.patience;
        let transport = self.engine.try_borrow().map_or_else(|_| String::new(), |e| e.transport().describe());
        format!("{transport}; waiting is {spins} looks, {yields} yields, then sleeps of up to {sleep:?}")
    }

    /// Messages that the operations of all communicators have sent to each rank of the world; nothing within an operator
    /// that one of them has called.
    #[must_use]
    pub fn sent(&self) -> Vec<u64> {
        self.engine.try_borrow().map_or_else(|_| Vec::new(), |engine| engine.sent().to_vec())
    }

    /// Whether a communicator of this process has this number.
    #[must_use]
    pub fn has_number(&self, number: u16) -> bool {
        self.numbers.borrow().contains(&number)
    }

    /// The number for messages of the communicator that people know as `id`.
    #[must_use]
    pub fn number_of(id: u32) -> u16 {
        u16::try_from(id % u32::from(MAX_COMMUNICATORS)).unwrap_or(0)
    }

    pub(super) fn take_number(&self, number: u16) {
        self.numbers.borrow_mut().insert(number);
        // If an operator has given it back, the engine, which was at work, has not heard of that.
        self.forget(number);
    }

    pub(super) fn give_number(&self, number: u16) {
        self.numbers.borrow_mut().remove(&number);
        self.forget(number);
    }

    fn forget(&self, number: u16) {
        if let Ok(mut engine) = self.engine.try_borrow_mut() {
            engine.forget(number);
        }
    }

    /// How this rank waits.
    #[must_use]
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Gives the core away, or later sleeps until a message comes.
    ///
    /// # Errors
    /// As [`progress`](Self::progress).
    pub fn rest(&self, rest: &mut Rest) -> Result<()> {
        self.rest_at_most(rest, rest.patience.sleep)
    }

    /// The same with a shorter sleep, for a rank that waits for something else, too.
    ///
    /// # Errors
    /// As [`progress`](Self::progress).
    pub fn rest_at_most(&self, rest: &mut Rest, limit: Duration) -> Result<()> {
        let waits_long = rest.in_vain >= rest.patience.spins.saturating_add(rest.patience.yields);
        if !waits_long && self.strangers.give_way() {
            return Ok(());
        }
        self.engine()?.transport_mut().sleep(limit.min(rest.patience.sleep))
    }

    /// # Safety
    /// As for [`Engine::start`].
    pub(super) unsafe fn start(&self, work: Work) -> Result<Handle> {
        // SAFETY: the caller's promise.
        unsafe { self.engine()?.start(work) }
    }

    pub(super) fn announce(&self, key: Key, group: u32, fingerprint: Fingerprint) -> Result<Announced> {
        self.engine()?.announce(key, group, fingerprint)
    }

    pub(super) fn test(&self, handle: Handle) -> Result<bool> {
        self.engine()?.test(handle)
    }

    pub(super) fn has_result(&self, handle: Handle) -> bool {
        self.engine.try_borrow().is_ok_and(|engine| engine.has_result(handle))
    }

    fn engine(&self) -> Result<std::cell::RefMut<'_, Engine<Box<dyn Transport>>>> {
        self.engine.try_borrow_mut().map_err(|_| Error::Nested)
    }
}

/// The time of the kernel's last tick, some milliseconds ago at most: it takes some nanoseconds.
fn coarse_time() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).map_or(Duration::ZERO, Duration::from)
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

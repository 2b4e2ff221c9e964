//! Waiting for an operation without ever waiting for the dead: spins, yields, sleeps, and between that
//! looks after the job.

use std::rc::Rc;

use reduce_kernels::say;

use crate::coll::{Progress, advance};
use crate::error::Result;
use crate::job::{Job, Reason};
use crate::ring::Ring;
use crate::sync::{Sources, Waiter, Wakers, breathe};
use crate::sys::clock;

/// Polls right after an operation was begun, before any of the machinery of a longer wait.
const EAGER_POLLS: u32 = 64;

/// Carries `operation` out. While waiting long, `idle` is called now and then, and says whether anything else is under way.
#[inline]
pub(crate) fn carry_out(
    ring: &mut Ring,
    mut operation: impl Progress,
    idle: &mut dyn FnMut() -> Result<bool>,
) -> Result<()> {
    // Where ranks share cores, one look tells whether to give the core away.
    let polls = if ring.own_cores() { EAGER_POLLS } else { 1 };
    for _ in 0..polls {
        if advance(&mut operation, ring)?.is_ready() {
            return Ok(());
        }
        breathe();
    }
    wait_for(ring, &mut operation, idle)
}

/// Waits for an operation that is under way.
#[inline(never)]
pub(crate) fn wait_for(
    ring: &mut Ring,
    operation: &mut dyn Progress,
    idle: &mut dyn FnMut() -> Result<bool>,
) -> Result<()> {
    let job = Rc::clone(ring.job());
    let mut waiter = Waiter::new(job.patience(), job.bell(), Sources::of(ring.id()));
    let mut vigil: Option<Vigil> = None;
    let mut told = ring.told();
    loop {
        let apart = operation.awaits(ring).is_some_and(|rank| !ring.shares_core(rank));
        if waiter.spin(apart, || advance(operation, ring).map(|poll| poll.is_ready()))? {
            break;
        }
        // Whoever goes on does not sleep: a long operation has many short waits, and each sleeper costs all others.
        if ring.told() != told {
            told = ring.told();
            waiter.go_on();
        }
        if has_ended(job.check_in(|| ring.operation()), operation, ring)? {
            break;
        }
        let elsewhere = meanwhile(&job, ring, idle)?;
        if elsewhere {
            waiter.heed_all();
        }
        if ring.takes_work_left() {
            continue;
        }
        let mut outcome = Ok(false);
        let give_way = || job.give_way();
        let rested = waiter.rest(give_way, || {
            outcome = advance(operation, ring).map(|poll| poll.is_ready());
            if elsewhere && matches!(outcome, Ok(false)) {
                // News of these that came before the sleep was announced rang no bell.
                outcome = meanwhile(&job, ring, idle).map(|_| false);
            }
            let wakers = || if elsewhere { Wakers::ALL } else { operation.wakers(ring) };
            (matches!(outcome, Ok(false)) && !ring.takes_work_left()).then(wakers)
        });
        if outcome? {
            break;
        }
        if rested {
            let seen = vigil.get_or_insert_with(Vigil::new).look(ring, operation.awaits(ring));
            if has_ended(seen, operation, ring)? {
                break;
            }
        }
    }
    if vigil.is_some() {
        job.note_progress();
    }
    Ok(())
}

/// True if the operation is done, where a look at the job has failed: what ended the job may have come behind the last
/// thing that the operation needed, since this rank has looked for that.
fn has_ended(looked: Result<()>, operation: &mut dyn Progress, ring: &mut Ring) -> Result<bool> {
    let Err(error) = looked else { return Ok(false) };
    // Nobody works on peers' vectors any more: to reach out is refused.
    if advance(operation, ring).is_ok_and(|poll| poll.is_ready()) { Ok(true) } else { Err(error) }
}

/// Does what the caller does while it waits. If that fails, or panics, the job ends: this rank's operation stays
/// undone, and its vectors are the caller's again.
fn meanwhile(job: &Job, ring: &Ring, idle: &mut dyn FnMut() -> Result<bool>) -> Result<bool> {
    let panics = LeavesInPanic(job);
    let outcome = idle();
    std::mem::forget(panics);
    outcome.map_err(|error| job.end_with(error, &ring.operation()))
}

struct LeavesInPanic<'a>(&'a Job);

impl Drop for LeavesInPanic<'_> {
    fn drop(&mut self) {
        self.0.break_off();
    }
}

/// What counts as waiting of the time between two looks: who waits looks more often, so in the rest the process has been
/// stopped, or has done something else.
const MOST_BETWEEN_LOOKS_NS: u64 = 1_000_000_000;

/// A wait that has become long: looks for the dead, for ranks that do something else, and for time.
#[derive(Debug)]
pub(crate) struct Vigil {
    waited_ns: u64,
    looked_ns: u64,
    /// [`Ring::told`] at the last look.
    told: u32,
    /// When the watchdog speaks next, in seconds of waiting.
    speak_s: f64,
    /// The rank that was awaited at the last look, if it had left by then.
    gone: Option<usize>,
}

impl Vigil {
    pub(crate) fn new() -> Self {
        Self { waited_ns: 0, looked_ns: 0, told: 0, speak_s: 0.0, gone: None }
    }

    #[cold]
    pub(crate) fn look(&mut self, ring: &Ring, awaits: Option<usize>) -> Result<()> {
        let now = clock::now_ns();
        let job = ring.job();
        if now.saturating_sub(self.looked_ns) < job.look_every_ns() {
            return Ok(());
        }
        if self.told != ring.told() {
            // It works: the wait that counts is the one that begins now.
            (self.told, self.waited_ns, self.speak_s) = (ring.told(), 0, 0.0);
        } else if self.looked_ns > 0 {
            self.waited_ns += (now - self.looked_ns).min(MOST_BETWEEN_LOOKS_NS);
        }
        self.looked_ns = now;
        let operation = ring.operation();
        ring.compare()?;
        job.health(&operation)?;
        let missing = missing(ring, awaits);
        job.note_wait(ring.id(), ring.number(), ring.signature(), &missing);
        if let Some(gone) = self.gone(ring, awaits) {
            let what = if job.has_finalized(gone) || job.is_finalizing(gone) {
                "called finalize"
            } else {
                "freed the communicator"
            };
            let text = format!("{} has {what}, but {} is in {operation}", job.name(gone), job.name(job.rank()));
            return Err(job.end(&Reason::mismatch(text), None));
        }
        #[allow(clippy::cast_precision_loss)] // seconds for people
        let waited_s = self.waited_ns as f64 / 1e9;
        let settings = job.settings();
        let sentence = || {
            let names: Vec<String> = missing.iter().map(|&rank| job.name_and_state(rank)).collect();
            let elsewhere = missing.iter().find_map(|&rank| job.waits_elsewhere(rank, &operation));
            format!(
                "{} has waited {waited_s:.1} s in {operation} for {}{}",
                job.name(job.rank()),
                if names.is_empty() { "data".to_owned() } else { names.join(", ") },
                elsewhere.unwrap_or_default()
            )
        };
        if settings.timeout_s > 0.0 && waited_s >= settings.timeout_s {
            return Err(job.end(&Reason::timeout(sentence()), None));
        }
        if self.speak_s == 0.0 {
            self.speak_s = settings.watchdog_s;
        }
        if settings.watchdog_s > 0.0 && waited_s >= self.speak_s {
            say(&format!("han: watchdog: {}", sentence()));
            self.speak_s *= 2.0;
        }
        Ok(())
    }

    /// A world rank that is waited for in vain because it has finalized, or freed the communicator.
    fn gone(&mut self, ring: &Ring, awaits: Option<usize>) -> Option<usize> {
        let job = ring.job();
        let world = |rank: usize| ring.world()[rank];
        let is_gone = |rank: usize| job.has_finalized(world(rank)) || ring.has_freed(rank);
        // Who finalizes comes to the world's last barrier, and to no other operation.
        let leaves = |&rank: &usize| is_gone(rank) || (ring.id() != 0 && job.is_finalizing(world(rank)));
        // Looked at in this order: one that is seen to have left has entered all that it ever will.
        let left: Vec<usize> = (0..ring.size()).filter(leaves).collect();
        if let Some(rank) = ring.not_entered().into_iter().find(|rank| left.contains(rank)) {
            return Some(world(rank));
        }
        // One that has entered may have published all it had to before it left: the operation was
        // polled since the last look, so if it is still awaited, it was not so.
        let gone = awaits.filter(|&rank| is_gone(rank)).map(world);
        let in_vain = gone.filter(|_| gone == self.gone);
        self.gone = gone;
        in_vain
    }
}

/// World ranks that have not come, or else those that make no room, or else the one whose data is not there yet.
fn missing(ring: &Ring, awaits: Option<usize>) -> Vec<usize> {
    let mut missing = ring.not_entered();
    if missing.is_empty() {
        missing = ring.without_room();
    }
    if missing.is_empty() {
        missing.extend(awaits);
    }
    missing.into_iter().map(|rank| ring.world()[rank]).collect()
}

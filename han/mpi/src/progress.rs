//! The MPI's own messages go on while a rank waits in a collective of this library.
//!
//! A program may rely on it: rank 0 has posted a receive and waits in a collective for rank 1, which gets there only
//! when its large or synchronous send has been taken. So whoever waits here tests a request of the MPI's now and then,
//! one that never completes, which makes the MPI library look after everything that is under way. (Asking for a message
//! on a communicator of this rank alone does not: MPICH knows the answer without looking anywhere.)
//!
//! Such a test takes from a tenth of a microsecond to several, by what the MPI looks after. While it takes, the rank does
//! not see that what it waits for has come, and the others wait for it: when that is long enough for them to test, too,
//! ranks keep each other waiting for good. So a test must be a small share of the wait so far, unless the last ones have
//! found something to do ([`Pace`]).
//!
//! Threads of a program that may have several in MPI wait outside the [gate](crate::gate), so several may look at a time. One
//! of them is enough: the others go on polling.
//!
//! Who comes out of a collective of this library is ahead of the MPI: messages that were sent before it are where the MPI
//! would have found them in a collective of its own, but it has not looked. Programs ask once whether one has come, and
//! many an MPI answers before it looks. So a call that says no just after a collective is made again when the MPI has
//! [caught up](ask).
#![allow(unsafe_code)] // Calls the MPI library, which calls back.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::abi::{Flavour, Word};
use crate::gate;
use crate::real::{SUCCESS, StatusRoom, real};

/// The way to make the MPI library go on; its clones are one.
#[derive(Clone, Debug)]
pub(crate) struct Progress(Arc<Looks>);

#[derive(Debug)]
struct Looks {
    request: Endless,
    /// Waits that have begun.
    waits: AtomicU64,
    /// Whoever has it may test the request: MPI allows that to one thread at a time.
    pace: Mutex<Option<Pace>>,
    /// Tests in which the MPI catches up.
    tests: usize,
}

/// A collective of this library is over, and the MPI has not caught up since.
static IS_AHEAD: AtomicBool = AtomicBool::new(false);

/// A collective of this library is over.
#[inline]
pub(crate) fn is_ahead() {
    // Relaxed, here and below: a thread that has been in the collective itself sees its own note.
    IS_AHEAD.store(true, Ordering::Relaxed);
}

/// Asks the MPI whether something has come, and once more if it has `said_no` and was not up to date.
#[inline]
pub(crate) fn ask(ask: impl Fn() -> c_int, said_no: impl Fn() -> bool) -> c_int {
    let code = ask();
    if code != SUCCESS || !IS_AHEAD.load(Ordering::Relaxed) || !said_no() {
        return code;
    }
    catch_up();
    let code = ask();
    if code == SUCCESS && !said_no() {
        is_ahead(); // there may be more
    }
    code
}

/// Lets the MPI take what was sent before a collective of this library, if there has been one since it last did.
#[cold]
pub(crate) fn catch_up() {
    if IS_AHEAD.swap(false, Ordering::Relaxed)
        && let Some(progress) = gate::inside(|process| process.progress.clone())
    {
        progress.catch_up();
    }
}

/// Tests in which the MPI catches up, in a world of so many ranks. MPICH's takes one message of any rank: two of each. Open
/// MPI's takes some dozens, as the question before it does, and may yield the core.
fn tests_to_catch_up(flavour: Flavour, ranks: usize) -> usize {
    if flavour == Flavour::OpenMpi { 1 } else { (2 * ranks).clamp(4, 64) }
}

/// When the MPI is looked after next.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// The wait that this is about.
    wait: u64,
    /// When it, or the last test in it, was first known to be over.
    since: Instant,
    /// What a test takes that finds nothing to do.
    cost: Duration,
    /// Share of a wait until the next test that this may take: one part in so many.
    parts: u32,
}

/// The share of a wait while there is nothing to do.
const MOST_PARTS: u32 = 32;
/// A test that takes so many times as long as one that finds nothing has found something.
const WORKED: u32 = 2;

impl Pace {
    /// At the first look of the first wait. Tests are taken for cheap until one has been timed.
    fn new(wait: u64, now: Instant) -> Self {
        Self { wait, since: now, cost: Duration::from_nanos(100), parts: MOST_PARTS }
    }

    /// Whether a look in this wait is a test.
    fn is_due(&mut self, wait: u64, now: Instant) -> bool {
        if self.wait != wait {
            (self.wait, self.since) = (wait, now);
        }
        now.duration_since(self.since) >= self.cost * self.parts
    }

    /// Notes a test that took from `begin` to `end`.
    fn tested(&mut self, begin: Instant, end: Instant) {
        let took = end.duration_since(begin);
        let has_worked = took > self.cost * WORKED;
        self.parts = if has_worked { 1 } else { (2 * self.parts).min(MOST_PARTS) };
        // One that was interrupted, or has worked, counts little; what is less is true.
        self.cost = if took < self.cost { took } else { self.cost + (took - self.cost).min(self.cost) / 8 };
        self.since = end;
    }
}

/// A generalised request that nobody completes, until it is dropped.
#[derive(Debug)]
struct Endless(Word);

/// What the MPI library calls when the request is completed.
extern "C" fn nothing_to_tell(_: *mut c_void, _: *mut c_void) -> c_int {
    SUCCESS
}

/// What it calls when the request is given up.
extern "C" fn nothing_to_free(_: *mut c_void) -> c_int {
    SUCCESS
}

/// What it calls when it is cancelled, which it is not.
extern "C" fn not_cancelled(_: *mut c_void, _: c_int) -> c_int {
    SUCCESS
}

impl Progress {
    /// Of a world of so many ranks.
    pub(crate) fn new(flavour: Flavour, ranks: usize) -> Result<Self, String> {
        let mut request: Word = 0;
        let state = ptr::null_mut();
        // SAFETY: the functions have the types that the library calls them by, and there is room for a handle.
        match unsafe {
            (real().grequest_start)(nothing_to_tell, nothing_to_free, not_cancelled, state, &raw mut request)
        } {
            SUCCESS => {
                let (request, waits, pace) = (Endless(request), AtomicU64::new(0), Mutex::new(None));
                let tests = tests_to_catch_up(flavour, ranks);
                Ok(Self(Arc::new(Looks { request, waits, pace, tests })))
            }
            code => Err(format!("MPI_Grequest_start returned error {code}")),
        }
    }

    /// A wait begins; called inside the gate, so by one thread at a time.
    #[inline]
    pub(crate) fn wait_begins(&self) {
        // Relaxed, here and below: a number that orders nothing, with one writer at a time.
        let waits = self.0.waits.load(Ordering::Relaxed);
        self.0.waits.store(waits.wrapping_add(1), Ordering::Relaxed);
    }

    /// Lets the MPI library go on with what it has under way, if it is time for that; called again and again while a
    /// rank waits.
    pub(crate) fn look(&self) {
        let Ok(mut pace) = self.0.pace.try_lock() else { return };
        let (now, wait) = (Instant::now(), self.0.waits.load(Ordering::Relaxed));
        let pace = pace.get_or_insert_with(|| Pace::new(wait, now));
        if pace.is_due(wait, now) {
            self.0.request.test();
            pace.tested(now, Instant::now());
        }
    }

    /// Lets the MPI library take what has come; unless another thread is just seeing to that.
    fn catch_up(&self) {
        if let Ok(_pace) = self.0.pace.try_lock() {
            (0..self.0.tests).for_each(|_| self.0.request.test());
        }
    }
}

impl Endless {
    /// Tests the request, as nobody else does at the same time, which the MPI takes for an occasion to look after everything.
    fn test(&self) {
        let (mut completed, mut status) = (0, StatusRoom::new());
        let mut request = self.0;
        // SAFETY: the request is this library's until it is dropped, and there is room for both answers. An error has nobody to
        // go to: whatever is wrong with the MPI, the program's own calls of it tell.
        unsafe { (real().test)(&raw mut request, &raw mut completed, status.place()) };
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let (mut completed, mut status) = (0, StatusRoom::new());
        // SAFETY: the request was made in `new`, and is under way.
        unsafe { (real().grequest_complete)(self.0) };
        // SAFETY: as in `test`; nobody uses the request after this.
        unsafe { (real().test)(&raw mut self.0, &raw mut completed, status.place()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads look at the same time.
    const _: fn() = || {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Progress>();
    };

    const TEST: Duration = Duration::from_micros(6);

    /// Tests in `waits` new ones of a length each, looked at every microsecond, with tests that take `TEST`.
    fn tests_in(pace: &mut Pace, start: Instant, waits: u64, length: Duration) -> u32 {
        let (mut tests, mut now) = (0, start);
        let first = pace.wait + 1;
        for wait in first..first + waits {
            let end = now + length;
            while now < end {
                if pace.is_due(wait, now) {
                    pace.tested(now, now + TEST);
                    (tests, now) = (tests + 1, now + TEST);
                }
                now += Duration::from_micros(1);
            }
        }
        tests
    }

    #[test]
    fn tests_are_a_small_share_of_long_waits_and_none_of_short_ones() {
        let start = Instant::now();
        let mut pace = Pace::new(0, start);
        // What a test takes is found out soon.
        tests_in(&mut pace, start, 1, Duration::from_millis(10));
        assert!(pace.cost <= TEST && pace.cost > TEST * 9 / 10, "{pace:?}");
        let start = start + Duration::from_secs(1);
        assert_eq!(tests_in(&mut pace, start, 1000, Duration::from_micros(100)), 0);
        let tests = tests_in(&mut pace, start + Duration::from_secs(2), 1, Duration::from_millis(100));
        assert!((400..=600).contains(&tests), "{tests}");
    }

    #[test]
    fn what_has_worked_is_tried_again_at_once() {
        let start = Instant::now();
        let mut pace = Pace::new(0, start);
        tests_in(&mut pace, start, 1, Duration::from_millis(10));
        let now = start + Duration::from_secs(1);
        assert!(!pace.is_due(9, now) && pace.is_due(9, now + TEST * MOST_PARTS));
        pace.tested(now, now + TEST * 5);
        assert!(pace.is_due(9, now + TEST * 7), "{pace:?}");
        let cost = pace.cost;
        for _ in 0..10 {
            pace.tested(now, now + cost);
        }
        assert!(!pace.is_due(9, now + cost * 20), "{pace:?}");
    }
}

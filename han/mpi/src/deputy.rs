//! A thread that goes on with collectives under way here while the program's own is in a call of the MPI that may wait.
//!
//! Ranks for which the call waits may wait in turn for such a collective. Calls between two ranks are begun without
//! blocking and tested instead ([`waiting`](crate::waiting)). Collectives cannot be: `MPI_Gather` on one rank does not
//! match `MPI_Igather` on another, and only this rank knows that it has something under way. Others, such as
//! `MPI_Comm_dup` or `MPI_Win_fence`, have no form that returns at once.
//!
//! Where threads may come at the same time (`MPI_THREAD_MULTIPLE`), one may be in any call that waits, a receive too, when
//! another begins a collective and waits for the first. So every such call is counted then, and what is begun beside one
//! is the deputy's, too.
//!
//! What a collective has sent to another node may lie here when it is over, because the other rank is late and the network
//! takes no more: providers keep it, and send it when they are asked again. The program asks nothing while it waits in the MPI
//! for that very rank, or tests a request of it. So over several nodes the deputy lets the network go on now and then.
//!
//! The thread never calls MPI, so the program's thread level does not matter: it polls han's operations, and what has
//! completed waits for the program's next call. It is made when it is first needed, and rests when it is not.
#![allow(unsafe_code)] // Keeps signals from the thread.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

use shm_core::say;

use crate::gate;
use crate::process::Process;
use crate::request;

/// Calls that may wait, now.
static CALLS: AtomicUsize = AtomicUsize::new(0);
/// The deputy, once it was needed; none if there can be none.
static DEPUTY: OnceLock<Option<Thread>> = OnceLock::new();

/// There are several nodes.
static OVER_NODES: AtomicBool = AtomicBool::new(false);
/// A collective is over since the deputy last let the network go on.
static HAS_SENT: AtomicBool = AtomicBool::new(false);
/// The deputy's next look at the network may be far off.
static LOOKS_SELDOM: AtomicBool = AtomicBool::new(false);
/// The process ends, and with it what the deputy would use.
static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Polls at a time.
const POLLS: u32 = 64;
/// Between two times: the core may be the program's.
const PAUSE: Duration = Duration::from_micros(50);
/// Pauses with nothing to do after which the deputy rests.
const PAUSES: u32 = 200;
/// From one look at the network to the next while there are collectives.
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// Looks since the last one after which they become rare: the rank that is late may be so for long.
const LOOKS: u32 = 100;
/// From one rare look to the next.
const BETWEEN_RARE_LOOKS: Duration = Duration::from_millis(100);

/// Makes a call of the MPI that may wait for other ranks; collectives under way here go on meanwhile.
#[inline]
pub(crate) fn during<T>(call: impl FnOnce() -> T) -> T {
    if gate::is_multiple() || request::any() { beside(call) } else { call() }
}

/// The same for a thread that may be inside the gate; others come in meanwhile.
pub(crate) fn during_outside<T>(call: impl FnOnce() -> T) -> T {
    let has_work = || gate::is_multiple() || request::any() || OVER_NODES.load(Ordering::Relaxed);
    let may_go_on = gate::is_open() && has_work();
    if may_go_on { gate::aside(|| during(call)) } else { call() }
}

/// A collective is under way from now on; calls of other threads may have waited before.
#[inline]
pub(crate) fn begun() {
    // D2 (SeqCst): of two threads, of which one begins an operation (D1) and looks for calls (D2), and the other counts its
    // call (D3) and looks for operations (D4), at least one sees the other's.
    if CALLS.load(Ordering::SeqCst) > 0 {
        wake();
    }
}

/// The job has several nodes; called when it is joined.
pub(crate) fn look_after_network() {
    OVER_NODES.store(true, Ordering::Relaxed);
}

/// A collective is over.
#[inline]
pub(crate) fn has_sent() {
    // Relaxed: a look that comes too late is made up for by the next.
    if OVER_NODES.load(Ordering::Relaxed) && !HAS_SENT.load(Ordering::Relaxed) {
        HAS_SENT.store(true, Ordering::Relaxed);
        if LOOKS_SELDOM.load(Ordering::Relaxed) || DEPUTY.get().is_none() {
            wake();
        }
    }
}

fn beside<T>(call: impl FnOnce() -> T) -> T {
    // A thread that is inside goes on by itself afterwards.
    if !gate::watch() {
        return call();
    }
    let counted = Counted::new();
    if request::any_for_sure() {
        wake();
    }
    let result = call();
    drop(counted);
    result
}

/// A call that may wait, while it lasts.
struct Counted;

impl Counted {
    fn new() -> Self {
        // D3 (SeqCst): see D2.
        CALLS.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cold]
fn wake() {
    // It sees call and operation when it wakes, or does not go to rest: a thread that was unparked does not park.
    if let Some(deputy) = DEPUTY.get_or_init(start) {
        deputy.unpark();
    }
}

/// Starts the thread, which takes no signals: those are the program's.
fn start() -> Option<Thread> {
    gate::keep_free_at_forks();
    // SAFETY: the function takes nothing and gives nothing.
    unsafe { libc::atexit(stop) };
    let (mut every, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: there is room for a set of signals.
    unsafe { libc::sigfillset(every.as_mut_ptr()) };
    // SAFETY: the set was filled above, and there is room for the one before.
    let masked = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, every.as_ptr(), before.as_mut_ptr()) };
    let started = thread::Builder::new().name("han-deputy".to_owned()).stack_size(1 << 20).spawn(serve);
    if masked == 0 {
        // SAFETY: the call above has stored it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    match started {
        Ok(handle) => Some(handle.thread().clone()),
        Err(why) => {
            say(&format!("libhan_mpi: no thread of its own: {why}; collectives do not go on in other calls of MPI"));
            None
        }
    }
}

/// The process ends, perhaps without `MPI_Finalize`: the libraries that the deputy calls are about to go.
extern "C" fn stop() {
    // Relaxed: whoever comes in after this visit sees it by the gate's order.
    IS_OVER.store(true, Ordering::Relaxed);
    gate::visit();
}

fn serve() {
    let (mut idle, mut looks) = (0, 0);
    loop {
        let over_nodes = OVER_NODES.load(Ordering::Relaxed);
        if CALLS.load(Ordering::Relaxed) > 0 && request::any() {
            idle = 0;
            for _ in 0..POLLS {
                look(|process| process.requests.go_on());
            }
            if over_nodes {
                let_network_go_on();
            }
        }
        if idle < PAUSES {
            idle += 1;
            thread::sleep(PAUSE);
        } else if over_nodes && gate::is_open() {
            let is_seldom = looks == LOOKS;
            LOOKS_SELDOM.store(is_seldom, Ordering::Relaxed);
            thread::park_timeout(if is_seldom { BETWEEN_RARE_LOOKS } else { BETWEEN_LOOKS });
            if HAS_SENT.swap(false, Ordering::Relaxed) {
                looks = 0;
            }
            looks = LOOKS.min(looks + u32::from(let_network_go_on()));
        } else {
            thread::park();
        }
    }
}

/// Whether the deputy could look. What has failed, the next collective finds.
fn let_network_go_on() -> bool {
    look(|process| process.context.progress()).is_some()
}

/// Does `work` if the program's threads leave the process state to the deputy.
fn look<T>(work: impl FnOnce(&Process) -> T) -> Option<T> {
    gate::inside_if_free(|process| (!IS_OVER.load(Ordering::Relaxed)).then(|| work(process))).flatten()
}

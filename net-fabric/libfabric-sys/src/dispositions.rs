//! What the program does on signals, kept as it is while a library is loaded.
//!
//! A library that libfabric's psm provider needs (`libinfinipath`) takes over SIGINT, SIGTERM and those of crashes as soon
//! as it is loaded, for every program, to write a file with a backtrace and exit with 1. So the program's own dispositions
//! are put back, and until then no signal is delivered to the thread that loads: it meets them afterwards.
//!
//! A fault in an initialiser cannot wait: while its signal is blocked the kernel ends the process by it, whatever handler
//! there is. What is sent to the process may be taken by another thread, where the library's handler is in force for that
//! moment; `IPATH_NO_BACKTRACE` in the environment keeps the library from having one.

use std::mem::MaybeUninit;
use std::ptr;

/// The signals before those of real time.
const SIGNALS: std::ops::Range<libc::c_int> = 1..32;

/// The dispositions that were in force when it was made; they are again when it is dropped, and this thread, which has
/// to be the same, handles no signal until then.
pub(crate) struct Dispositions {
    actions: Vec<(libc::c_int, libc::sigaction)>,
    /// The thread's mask from before; none where it could not be changed.
    mask: Option<libc::sigset_t>,
    /// A mask is a thread's.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Dispositions {
    pub(crate) fn now() -> Self {
        let mask = block();
        let actions = SIGNALS.filter_map(|signal| Some((signal, current(signal)?))).collect();
        Self { actions, mask, _thread: std::marker::PhantomData }
    }
}

/// Blocks all signals in this thread; gives the mask from before.
fn block() -> Option<libc::sigset_t> {
    let mut all = MaybeUninit::uninit();
    // SAFETY: there is room for the set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    let mut before = MaybeUninit::uninit();
    // SAFETY: the set was filled above, and there is room for the other one.
    let code = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: the call wrote it, as it says by 0.
    (code == 0).then(|| unsafe { before.assume_init() })
}

fn current(signal: libc::c_int) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::uninit();
    // SAFETY: asks only; there is room for the answer.
    let code = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call wrote it, as it says by 0.
    (code == 0).then(|| unsafe { action.assume_init() })
}

impl Drop for Dispositions {
    fn drop(&mut self) {
        for (signal, action) in &self.actions {
            // SAFETY: this disposition was in force before. SIGKILL and SIGSTOP are refused, and nobody changed them.
            unsafe { libc::sigaction(*signal, action, ptr::null_mut()) };
        }
        if let Some(mask) = &self.mask {
            // SAFETY: the mask was this thread's.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    static OWN: AtomicUsize = AtomicUsize::new(0);
    static FOREIGN: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn own(_signal: libc::c_int) {
        OWN.fetch_add(1, Ordering::Relaxed);
    }

    extern "C" fn foreign(_signal: libc::c_int) {
        FOREIGN.fetch_add(1, Ordering::Relaxed);
    }

    /// Those that libinfinipath takes over and that a program is sent.
    const SENT: [libc::c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGSEGV, libc::SIGABRT];

    fn handle(handler: extern "C" fn(libc::c_int)) {
        for signal in SENT {
            // SAFETY: the handler only counts.
            let before = unsafe { libc::signal(signal, handler as *const () as libc::sighandler_t) };
            assert_ne!(before, libc::SIG_ERR);
        }
    }

    #[test]
    fn signals_that_come_meanwhile_meet_the_programs_own_handlers() {
        let _turn = crate::tests::turn();
        let mask = || {
            let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
            // SAFETY: asks only; there is room for the answer.
            assert_eq!(unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr()) }, 0);
            // SAFETY: zeros, over which the call has written.
            let mask = unsafe { mask.assume_init() };
            // SAFETY: the set is there.
            (1..64).map(move |signal| unsafe { libc::sigismember(&raw const mask, signal) }).collect::<Vec<_>>()
        };
        let before = SENT.map(|signal| (signal, current(signal)));
        handle(own);
        let masked = mask();
        let kept = Dispositions::now();
        handle(foreign);
        for signal in SENT {
            // SAFETY: it is handled, or blocked: to this thread.
            assert_eq!(unsafe { libc::raise(signal) }, 0);
        }
        let counts = || [&OWN, &FOREIGN].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts(), [0, 0], "a signal was delivered while the library was loaded");
        drop(kept);
        assert_eq!(counts(), [SENT.len(), 0]);
        assert_eq!(mask(), masked);
        for (signal, action) in before {
            let action = action.expect("it was asked for");
            // SAFETY: this disposition was in force before.
            unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
        }
    }
}

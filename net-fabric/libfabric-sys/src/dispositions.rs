//! What the program does on signals, kept as it is while a library is loaded.
//!
//! The psm3 provider takes over SIGINT, SIGTERM and those of crashes as soon as libfabric is loaded, for every
//! program, to write a file with a backtrace beside it.

use std::mem::MaybeUninit;
use std::ptr;

/// The signals before those of real time.
const SIGNALS: std::ops::Range<libc::c_int> = 1..32;

/// The dispositions that were in force when it was made; they are again when it is dropped.
pub(crate) struct Dispositions(Vec<(libc::c_int, libc::sigaction)>);

impl Dispositions {
    pub(crate) fn now() -> Self {
        Self(SIGNALS.filter_map(|signal| Some((signal, current(signal)?))).collect())
    }
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
        for (signal, action) in &self.0 {
            // SAFETY: this disposition was in force before. SIGKILL and SIGSTOP are refused, and nobody changed them.
            unsafe { libc::sigaction(*signal, action, ptr::null_mut()) };
        }
    }
}

//! Standard error.
#![allow(unsafe_code)] // signal masks have no safe interface in std

use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

use libc::{c_int, sigset_t};

/// Says `text` and a line's end on standard error, in one piece. If that cannot be written, because the disk is full or nobody
/// reads the pipe any more, the job goes on all the same: `eprintln!` would panic, and a signal would end programs in C.
pub fn say(text: &str) {
    let line = format!("{text}\n");
    let signals = Signals::hold();
    if io::stderr().write_all(line.as_bytes()).is_err() {
        signals.take();
    }
}

/// The signals by which this thread learns that a write has failed: nobody reads the pipe, the file has its greatest length.
/// While this lives they are not delivered to it.
struct Signals {
    /// The thread's mask from before.
    mask: sigset_t,
    /// Those that come from writing alone: none of them waited for this thread before.
    own: sigset_t,
    /// A mask is a thread's.
    _thread: PhantomData<*const ()>,
}

impl Signals {
    const OF_WRITING: [c_int; 2] = [libc::SIGPIPE, libc::SIGXFSZ];

    fn hold() -> Self {
        let (mut mask, mut held, mut own, mut waiting) = (none(), none(), none(), none());
        // SAFETY: there is room for the set.
        unsafe { libc::sigpending(&raw mut waiting) };
        for signal in Self::OF_WRITING {
            // SAFETY: a set and a signal, as the next two.
            unsafe { libc::sigaddset(&raw mut held, signal) };
            // SAFETY: as above.
            if unsafe { libc::sigismember(&raw const waiting, signal) } == 0 {
                // SAFETY: as above.
                unsafe { libc::sigaddset(&raw mut own, signal) };
            }
        }
        // SAFETY: `held` is a set, and there is room for the mask. Signals that are late harm nobody's memory.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const held, &raw mut mask) };
        Self { mask, own, _thread: PhantomData }
    }

    /// Takes away what a write that has failed has sent.
    fn take(&self) {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: both live, and nobody asks for what came with the signal.
        unsafe { libc::sigtimedwait(&raw const self.own, ptr::null_mut(), &raw const at_once) };
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the mask was this thread's.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut()) };
    }
}

/// The set without signals.
fn none() -> sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: there is room for the set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the call has filled it; it cannot fail.
    unsafe { set.assume_init() }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::fs::File;
    use std::process::{Command, Stdio};

    use super::*;

    /// Whether a signal of the program's own is waiting meanwhile.
    const WAITS: &str = "HAN_TEST_WAITS";
    /// Set if no file may grow.
    const LIMIT: &str = "HAN_TEST_LIMIT";

    fn program(stderr: impl Into<Stdio>) -> Command {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["say::tests::speak", "--exact", "--ignored", "--nocapture"]).stderr(stderr);
        command
    }

    #[test]
    fn a_message_that_nobody_reads_ends_no_program() {
        for waits in ["0", "1"] {
            let (reader, writer) = io::pipe().expect("a pipe");
            drop(reader);
            let output = program(writer).env(WAITS, waits).output().expect("it starts");
            assert!(output.status.success(), "{output:?}");
        }
    }

    #[test]
    fn a_message_that_is_too_long_for_its_file_ends_no_program() {
        let path = env::temp_dir().join(format!("han-say-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        let output = program(file).env(WAITS, "0").env(LIMIT, "1").output().expect("it starts");
        let length = std::fs::metadata(&path).expect("the file").len();
        std::fs::remove_file(&path).expect("it goes");
        assert!(output.status.success() && length == 0, "{length} bytes, {output:?}");
    }

    fn waits(signal: c_int) -> bool {
        let mut waiting = none();
        // SAFETY: there is room for the set.
        unsafe { libc::sigpending(&raw mut waiting) };
        // SAFETY: a set and a signal.
        unsafe { libc::sigismember(&raw const waiting, signal) == 1 }
    }

    fn mask_with(how: c_int, signals: &sigset_t) -> [bool; 2] {
        let mut before = none();
        // SAFETY: a set, and room for another.
        unsafe { libc::pthread_sigmask(how, signals, &raw mut before) };
        // SAFETY: a set and a signal.
        Signals::OF_WRITING.map(|signal| unsafe { libc::sigismember(&raw const before, signal) == 1 })
    }

    #[test]
    #[ignore = "a program of the tests above"]
    fn speak() {
        let Ok(waited) = env::var(WAITS).map(|waits| waits == "1") else { return };
        // SAFETY: the default action runs no code here.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        if env::var(LIMIT).is_ok() {
            let limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: the limit lives.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
        }
        let mut pipe = none();
        // SAFETY: a set and a signal.
        unsafe { libc::sigaddset(&raw mut pipe, libc::SIGPIPE) };
        if waited {
            mask_with(libc::SIG_BLOCK, &pipe);
            // SAFETY: it is blocked.
            unsafe { libc::raise(libc::SIGPIPE) };
        }
        say("to nobody");
        say("once more");
        assert_eq!(waits(libc::SIGPIPE), waited, "the program's own signal, and no other");
        assert_eq!(mask_with(libc::SIG_BLOCK, &none()), [waited, false], "the mask is as it was");
    }
}

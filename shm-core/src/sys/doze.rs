//! Puts a thread to sleep from outside, wherever it is, as an operating system does that has something else to run.
//!
//! For measurements of how delays of one rank spread: nothing else in han uses it.
#![allow(unsafe_code)] // installs a handler, and signals one thread

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;

use crate::error::{Error, Result};

/// How long the next sleep is: a handler is told nothing but its signal.
static LENGTH_NS: AtomicU64 = AtomicU64::new(0);

/// Of the signals that programs have for themselves, one that C libraries and debuggers do not take.
fn signal() -> libc::c_int {
    libc::SIGRTMIN() + 9
}

/// Puts the thread that made it to sleep.
#[derive(Debug, Clone, Copy)]
pub struct Sleeper {
    process: libc::pid_t,
    thread: libc::pid_t,
}

impl Sleeper {
    /// For the calling thread.
    ///
    /// # Errors
    /// The handler cannot be installed.
    pub fn of_this_thread() -> Result<Self> {
        let mut action: libc::sigaction = {
            let zeroed = MaybeUninit::zeroed();
            // SAFETY: a description of zeros is one: the default action, no flags, nothing blocked.
            unsafe { zeroed.assume_init() }
        };
        action.sa_sigaction = doze as extern "C" fn(libc::c_int) as usize;
        // Calls that the kernel can take up again are.
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: the description is valid; the handler makes system calls alone, which handlers may make.
        let code = unsafe { libc::sigaction(signal(), &raw const action, ptr::null_mut()) };
        Errno::result(code).map_err(|errno| Error::system("sigaction", errno))?;
        Ok(Self { process: nix::unistd::getpid().as_raw(), thread: nix::unistd::gettid().as_raw() })
    }

    /// Puts the thread to sleep for `length`, from now on; of several at once, one begins after the other.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn sleep(&self, length: Duration) -> Result<()> {
        LENGTH_NS.store(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        // SAFETY: numbers only; a thread that has ended is not found.
        let code = unsafe { libc::syscall(libc::SYS_tgkill, self.process, self.thread, signal()) };
        Errno::result(code).map(drop).map_err(|errno| Error::system("tgkill", errno))
    }
}

extern "C" fn doze(_signal: libc::c_int) {
    const SECOND: u64 = 1_000_000_000;
    let (saved, length_ns) = (Errno::last_raw(), LENGTH_NS.load(Ordering::Relaxed));
    let part = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let mut left = libc::timespec { tv_sec: part(length_ns / SECOND), tv_nsec: part(length_ns % SECOND) };
    loop {
        let room = &raw mut left;
        // SAFETY: both are valid, and may be the same.
        let code = unsafe { libc::nanosleep(room, room) };
        // Another handler was called meanwhile.
        if code == 0 || Errno::last_raw() != libc::EINTR {
            break;
        }
    }
    // What the thread was doing may be about to look at it.
    Errno::set_raw(saved);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_sleeps_wherever_it_is() {
        let length = Duration::from_millis(30);
        let ((send, receive), (tell, told)) = (channel(), channel());
        let noisy = std::thread::spawn(move || {
            // The longest time in which this does not get to look at the clock, from before it can be put to sleep.
            let (started, mut last, mut longest) = (Instant::now(), Instant::now(), Duration::ZERO);
            send.send(Sleeper::of_this_thread().unwrap()).unwrap();
            let mut is_told = false;
            while (longest < length || !is_told) && started.elapsed() < Duration::from_secs(60) {
                is_told |= told.try_recv().is_ok();
                let now = Instant::now();
                longest = longest.max(now - last);
                last = now;
            }
            longest
        });
        let sleeper = receive.recv().unwrap();
        sleeper.sleep(length).unwrap();
        tell.send(()).unwrap();
        assert!(noisy.join().unwrap() >= length);
        // Nothing is left to put to sleep, a moment after the thread can be joined.
        let joined = Instant::now();
        while sleeper.sleep(length).is_ok() {
            assert!(joined.elapsed() < Duration::from_secs(60));
        }
    }
}

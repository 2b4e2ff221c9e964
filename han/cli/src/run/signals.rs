//! Signals as events of a poll loop, and their names.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::libc::SI_KERNEL;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::failed;

/// What a launcher passes on to its ranks: all that end a process, or have a meaning for users, and are not its own faults.
const FORWARDED: [Signal; 13] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGVTALRM,
    Signal::SIGPROF,
    Signal::SIGXCPU,
    Signal::SIGPWR,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// Who has sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// Because a key was pressed, for instance.
    Kernel,
    Process,
}

/// A user's wish that the job ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) signal: Signal,
    pub(super) at: Instant,
}

impl Request {
    /// True if `signal`, which comes now, is this wish again: what is sent to all processes of a job reaches the supervisor
    /// directly and by way of the front, and timeout(1) signals its command first alone and then with its group.
    pub(super) fn is_repeated_by(self, signal: Signal, now: Instant) -> bool {
        /// How far apart the two may be.
        const ONE_WISH: Duration = Duration::from_secs(1);
        signal == self.signal && now < self.at + ONE_WISH
    }
}

/// Receives `SIGCHLD` and the forwarded signals instead of being interrupted by them.
#[derive(Debug)]
pub(super) struct Signals {
    queue: SignalFd,
    /// Whether the caller ignores `SIGTERM`, which arrives all the same: it also tells that a parent has died.
    pub(super) ignore_terminate: bool,
}

impl Signals {
    /// Blocks the signals for this thread and all that it starts, children included.
    ///
    /// A signal that the caller ignores (`nohup`, a background job's `SIGINT`) stays ignored; of `SIGTERM` the owner of the
    /// queue has to see to it.
    pub(super) fn block() -> io::Result<Self> {
        let ignored = ignored_signals()?;
        let mut mask = SigSet::empty();
        for signal in FORWARDED.into_iter().filter(|signal| ignored & bit(*signal) == 0) {
            mask.add(signal);
        }
        mask.add(Signal::SIGCHLD);
        mask.add(Signal::SIGTERM); // also tells that a parent has died
        mask.thread_block().map_err(failed("sigprocmask"))?;
        // Blocked, these let a background process group write to its terminal, and give errors in the place of a stop
        // when it reads, and of a kill where a file becomes too large.
        let errors = [Signal::SIGTTIN, Signal::SIGTTOU, Signal::SIGXFSZ];
        errors.into_iter().collect::<SigSet>().thread_block().map_err(failed("sigprocmask"))?;
        let queue = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK);
        let ignore_terminate = ignored & bit(Signal::SIGTERM) != 0;
        Ok(Self { queue: queue.map_err(failed("signalfd"))?, ignore_terminate })
    }

    /// The next signal that has arrived; does not wait.
    pub(super) fn next(&mut self) -> io::Result<Option<Signal>> {
        Ok(self.next_and_sender()?.map(|(signal, _)| signal))
    }

    /// The same, and who has sent it.
    pub(super) fn next_and_sender(&mut self) -> io::Result<Option<(Signal, Sender)>> {
        let Some(info) = self.queue.read_signal()? else { return Ok(None) };
        let number = i32::try_from(info.ssi_signo).map_err(io::Error::other)?;
        let sender = if info.ssi_code == SI_KERNEL { Sender::Kernel } else { Sender::Process };
        Ok(Some((Signal::try_from(number)?, sender)))
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}

fn bit(signal: Signal) -> u64 {
    1 << (signal as u32 - 1)
}

/// The set of ignored signals, bit `n - 1` for signal `n`.
fn ignored_signals() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status").map_err(|e| {
        let why = format!("cannot read /proc/self/status: {e}; /proc must be mounted");
        io::Error::other(why)
    })?;
    let set = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .ok_or_else(|| io::Error::other("/proc/self/status has no SigIgn line"))
}

/// `9 (SIGKILL)`, or only the number of a real-time signal.
pub(super) fn describe(signal: i32) -> String {
    match Signal::try_from(signal) {
        Ok(known) => format!("{signal} ({known})"),
        Err(_) => signal.to_string(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rust_programs_ignore_sigpipe_and_nothing_fatal() {
        let ignored = ignored_signals().unwrap();
        assert_ne!(ignored & bit(Signal::SIGPIPE), 0);
        assert_eq!(ignored & bit(Signal::SIGCHLD), 0);
    }

    #[test]
    fn a_wish_is_repeated_by_the_same_signal_soon() {
        let request = Request { signal: Signal::SIGTERM, at: Instant::now() };
        let soon = request.at + Duration::from_millis(100);
        assert!(request.is_repeated_by(Signal::SIGTERM, soon));
        assert!(!request.is_repeated_by(Signal::SIGINT, soon));
        assert!(!request.is_repeated_by(Signal::SIGTERM, soon + Duration::from_secs(1)));
    }

    #[test]
    fn names_follow_numbers() {
        assert_eq!(describe(9), "9 (SIGKILL)");
        assert_eq!(describe(64), "64");
    }
}

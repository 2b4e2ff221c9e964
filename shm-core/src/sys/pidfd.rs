//! The lives of other processes, without the races of process ids.
#![allow(unsafe_code)] // pidfd_open has no safe wrapper in nix

use std::cell::{Cell, RefCell};
use std::mem;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::sys::clock;

/// How often processes of which there is no news are asked.
const ASK_EVERY_NS: u64 = 1_000_000_000;

/// A handle on a process that stays true when its id is used again.
#[derive(Debug)]
pub struct PidFd {
    fd: OwnedFd,
    pid: u32,
}

/// What a descriptor says that was to watch a process.
enum Seen {
    Lives,
    Ended,
    /// Somebody has closed it, and its number may be of something else by now.
    Lost,
}

impl PidFd {
    /// Opens the process `pid`.
    ///
    /// # Errors
    /// The process has already ended and was reaped, or this kernel has no `pidfd_open`.
    pub fn open(pid: u32) -> Result<Self> {
        Self::opened(pid).map_err(not_opened)
    }

    fn opened(pid: u32) -> nix::Result<Self> {
        let id = libc::pid_t::try_from(pid).map_err(|_| Errno::EINVAL)?;
        // SAFETY: pidfd_open takes no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0u32) };
        let fd = RawFd::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY: the kernel has just given this descriptor to us alone.
        Ok(Self { fd: unsafe { OwnedFd::from_raw_fd(fd) }, pid })
    }

    /// What the process does, as `polled` says, which was asked for `POLLIN`.
    fn seen(&self, polled: PollFlags) -> Seen {
        match (self.is_there(), polled.is_empty()) {
            (false, _) => Seen::Lost,
            (true, true) => Seen::Lives,
            (true, false) => Seen::Ended,
        }
    }

    /// Whether the descriptor is one of a process.
    fn is_there(&self) -> bool {
        // Signal 0 only asks, and only of what is a process.
        // SAFETY: pidfd_send_signal takes no signal information here, so no pointer.
        let asked = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.fd.as_raw_fd(), 0, ptr::null::<libc::siginfo_t>(), 0u32)
        };
        asked >= 0 || Errno::last() != Errno::EBADF
    }
}

/// Why a process cannot be watched: each takes a descriptor, and there may be many ranks.
fn not_opened(errno: Errno) -> Error {
    if errno != Errno::EMFILE {
        return Error::system("pidfd_open", errno);
    }
    let most = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    let reason = format!("all {most} files that this process may have are open: raise the limit (ulimit -n)");
    Error::System { api: "pidfd_open", reason }
}

/// The lives of a job's ranks, by rank: `None` for those that nobody watches.
///
/// A program may close descriptors that are not its own, all from 3 on for instance. A rank whose descriptor is lost is
/// watched by a new one.
#[derive(Debug)]
pub struct Lives {
    watched: RefCell<Vec<Option<PidFd>>>,
    /// The tick of the clock at which a rank was last seen to live.
    seen_ns: Vec<Cell<u64>>,
    /// The tick at which all were last asked whether they are processes.
    asked_ns: Cell<u64>,
}

impl Lives {
    /// Watches these.
    #[must_use]
    pub fn new(ranks: Vec<Option<PidFd>>) -> Self {
        Self { seen_ns: vec![Cell::new(0); ranks.len()], asked_ns: Cell::new(0), watched: RefCell::new(ranks) }
    }

    /// True if `rank` is watched and has ended. As long as this is false its process id is nobody else's.
    #[must_use]
    pub fn has_ended(&self, rank: usize) -> bool {
        !self.ended_of(rank..rank + 1, true).is_empty()
    }

    /// True if the process id of `rank` may be another process's by now. The kernel is asked once a tick of its clock: it
    /// gives an id out again only when it has given out all others, which takes tens of thousands of new processes.
    #[must_use]
    pub fn may_be_another(&self, rank: usize) -> bool {
        let now_ns = clock::coarse_ns();
        if self.seen_ns[rank].get() == now_ns {
            return false;
        }
        let has_ended = self.has_ended(rank);
        if !has_ended {
            self.seen_ns[rank].set(now_ns);
        }
        has_ended
    }

    /// Those that are watched and have ended.
    #[must_use]
    pub fn ended(&self) -> Vec<usize> {
        let size = self.watched.borrow().len();
        self.ended_of(0..size, self.is_time_to_ask())
    }

    /// `asks`: those of whom there is no news, too, as their descriptors may be something else by now.
    fn ended_of(&self, asked: Range<usize>, asks: bool) -> Vec<usize> {
        let mut ranks = self.watched.borrow_mut();
        let mut ended = Vec::new();
        for (rank, polled) in polled(&ranks, asked) {
            if (asks || !polled.is_empty()) && has_ended(&mut ranks[rank], polled) {
                ended.push(rank);
            }
        }
        ended
    }

    fn is_time_to_ask(&self) -> bool {
        let now_ns = clock::coarse_ns();
        let is_time = now_ns.saturating_sub(self.asked_ns.get()) >= ASK_EVERY_NS;
        if is_time {
            self.asked_ns.set(now_ns);
        }
        is_time
    }

    /// Watches `rank` no longer.
    pub fn forget(&self, rank: usize) {
        self.watched.borrow_mut()[rank].take().into_iter().for_each(let_go);
    }
}

impl Drop for Lives {
    fn drop(&mut self) {
        self.watched.get_mut().drain(..).flatten().for_each(let_go);
    }
}

/// What poll says of those that are watched.
fn polled(ranks: &[Option<PidFd>], asked: Range<usize>) -> Vec<(usize, PollFlags)> {
    let watched = asked.filter_map(|rank| Some((rank, ranks[rank].as_ref()?)));
    let (index, mut fds): (Vec<usize>, Vec<PollFd<'_>>) =
        watched.map(|(rank, process)| (rank, PollFd::new(process.fd.as_fd(), PollFlags::POLLIN))).unzip();
    if poll(&mut fds, PollTimeout::ZERO).is_err() {
        // More than a program lets itself have, which has lowered its limit of open files.
        for fd in &mut fds {
            let _ = poll(std::slice::from_mut(fd), PollTimeout::ZERO);
        }
    }
    index.into_iter().zip(fds.iter().map(|fd| fd.revents().unwrap_or(PollFlags::empty()))).collect()
}

/// Whether a process has ended. It is watched by a new descriptor if the old one is lost.
fn has_ended(watched: &mut Option<PidFd>, polled: PollFlags) -> bool {
    let Some(process) = watched else { return false };
    match process.seen(polled) {
        Seen::Lives => false,
        Seen::Ended => true,
        Seen::Lost => match PidFd::opened(process.pid) {
            Ok(anew) => {
                // Not closed: the new one may have its number.
                watched.replace(anew).into_iter().for_each(mem::forget);
                false
            }
            Err(Errno::ESRCH) => true,
            // Without a descriptor to be had, there is the number.
            Err(_) => {
                libc::pid_t::try_from(process.pid).is_ok_and(|id| kill(Pid::from_raw(id), None) == Err(Errno::ESRCH))
            }
        },
    }
}

/// Closes the descriptor, unless its number is not ours any more.
fn let_go(process: PidFd) {
    if !process.is_there() {
        mem::forget(process);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn child() -> Child {
        Command::new("cat").stdin(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn who_has_ended_is_told() {
        let (mut first, mut second) = (child(), child());
        let watch = |child: &Child| Some(PidFd::open(child.id()).unwrap());
        let lives = Lives::new(vec![watch(&first), None, watch(&second)]);
        assert!(lives.ended().is_empty());
        second.kill().unwrap();
        second.wait().unwrap();
        assert_eq!(lives.ended(), [2]);
        assert!(lives.has_ended(2) && !lives.has_ended(0) && !lives.has_ended(1));
        lives.forget(2);
        assert!(lives.ended().is_empty());
        assert!(!lives.may_be_another(0) && lives.seen_ns[0].get() > 0);
        first.kill().unwrap();
        first.wait().unwrap();
        assert!(lives.has_ended(0));
        // In the tick in which it was seen to live it is taken to have kept its id.
        while !lives.may_be_another(0) {
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_limit_of_open_files_is_named_with_its_remedy() {
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let said = not_opened(Errno::EMFILE).to_string();
        assert!(said.contains(&soft.to_string()) && said.contains("ulimit -n"), "{said}");
        assert!(not_opened(Errno::ESRCH).to_string().contains("No such process"));
    }

    /// Puts a pipe's end in the place of a process's descriptor, as a program does that closes all and opens something else.
    fn lose(pidfd: &PidFd, pipe: &impl AsRawFd) -> RawFd {
        let number = pidfd.fd.as_raw_fd();
        // SAFETY: both numbers are open; the process's is now one of the pipe.
        assert_eq!(unsafe { libc::dup2(pipe.as_raw_fd(), number) }, number);
        number
    }

    #[test]
    fn a_descriptor_that_the_program_has_closed_is_no_death() {
        for is_quiet in [false, true] {
            let mut child = child();
            let (reader, writer) = std::io::pipe().unwrap();
            let pidfd = PidFd::open(child.id()).unwrap();
            let number = lose(&pidfd, &reader);
            // Its other end is always ready, or never is.
            let writer = is_quiet.then_some(writer);
            let lives = Lives::new(vec![Some(pidfd)]);
            assert!(!lives.has_ended(0), "a pipe's end is no process's end");
            assert!(!lives.has_ended(0));
            drop(writer);
            // SAFETY: the pipe's end that was put there; nobody has closed it.
            assert_eq!(unsafe { libc::close(number) }, 0, "what the program opened is left alone");
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(lives.ended(), [0]);
        }
    }

    #[test]
    fn new_descriptors_with_the_numbers_of_lost_ones_are_kept_apart() {
        let mut children = [child(), child()];
        let watched = children.each_ref().map(|child| Some(PidFd::open(child.id()).unwrap()));
        let numbers = watched.each_ref().map(|watched| watched.as_ref().map_or(-1, |pidfd| pidfd.fd.as_raw_fd()));
        let lives = Lives::new(watched.into());
        // Another test may take a number meanwhile, which is then no process's.
        // SAFETY: as a program does that closes all descriptors; nobody closes them again.
        numbers.iter().for_each(|number| assert_eq!(unsafe { libc::close(*number) }, 0));
        for rank in 0..2 {
            assert!(!lives.has_ended(rank));
        }
        children[0].kill().unwrap();
        children[0].wait().unwrap();
        while lives.ended() != [0] {
            std::thread::yield_now();
        }
        children[1].kill().unwrap();
        children[1].wait().unwrap();
        assert!(lives.has_ended(1));
    }

    #[test]
    fn a_process_that_ended_behind_a_lost_descriptor_is_found() {
        let mut child = child();
        let (reader, _writer) = std::io::pipe().unwrap();
        let lives = Lives::new(vec![Some(PidFd::open(child.id()).unwrap())]);
        assert!(lives.ended().is_empty());
        let number = lose(lives.watched.borrow()[0].as_ref().unwrap(), &reader);
        child.kill().unwrap();
        child.wait().unwrap();
        while lives.ended().is_empty() {
            std::thread::yield_now();
        }
        drop(lives);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::close(number) }, 0, "what the program opened is left alone");
    }
}

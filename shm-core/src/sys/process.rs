//! What a launcher and its ranks need from the kernel beyond `std::process`: children that die with
//! their parent, adoption of orphans, and descriptors handed down by number.
//!
//! Everything is a safe function; each `unsafe` block below carries its proof.

#![allow(unsafe_code)] // pre_exec, prctl, sigaction, waitpid and raw descriptors have no safe interface in std or nix

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal};
use nix::unistd::Pid;

/// Sends `signal` to the child when the thread that spawns it ends, even by `kill -9` of its process.
///
/// The tie holds through `exec`, but not for the child's own children, and the kernel drops it when a
/// set-user-id program is executed. A child that finds its parent gone already ends at once.
pub fn die_with_parent(command: &mut Command, signal: Signal) {
    let parent = nix::unistd::getpid();
    let tie = move || {
        nix::sys::prctl::set_pdeathsig(signal)?;
        // A parent that died before prctl sends no signal: then this process has been adopted.
        if nix::unistd::getppid() == parent { Ok(()) } else { Err(io::Error::from(io::ErrorKind::BrokenPipe)) }
    };
    // SAFETY: `tie` runs between fork and exec and makes only the system calls prctl and getppid,
    // which are async-signal-safe; it captures two integers, takes no lock and allocates nothing
    // (an `io::Error` of a kind or of an errno is a plain value).
    unsafe { command.pre_exec(tie) };
}

/// Starts the child with no signal blocked, whatever the parent blocks.
pub fn unblock_signals(command: &mut Command) {
    let unblock = || Ok(nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?);
    // SAFETY: `unblock` runs between fork and exec and makes only the async-signal-safe call
    // sigprocmask on a set on its own stack; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(unblock) };
}

/// Gives `signal` its default action in this process; an ignored signal stays ignored through `exec`.
///
/// # Errors
/// The kernel's error, for a signal whose action cannot be set (`SIGKILL`, `SIGSTOP`).
pub fn restore_default_action(signal: Signal) -> io::Result<()> {
    // SAFETY: SIG_DFL installs no handler, so no code of this process can run in signal context.
    unsafe { nix::sys::signal::signal(signal, SigHandler::SigDfl) }?;
    Ok(())
}

/// Ends this process without what [`std::process::exit`] does before: handlers of `atexit`, and writing what is buffered.
pub fn end_now(code: i32) -> ! {
    // SAFETY: nothing of this process runs any more.
    unsafe { libc::_exit(code) }
}

/// The state of process `pid` as in `ps`: `R`, `S`, `T`, ...; `None` if there is none.
#[must_use]
pub fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// Makes this process the parent of every descendant that loses its own.
///
/// From then on `waitpid(-1)` failing with `ECHILD` proves that no descendant is left.
///
/// # Errors
/// The kernel's error.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(nix::sys::prctl::set_child_subreaper(true)?)
}

/// The next child that has ended, if any; does not wait.
///
/// nix's `waitpid` reaps a child that a real-time signal has killed and then gives `EINVAL` in the place of its status.
///
/// # Errors
/// `ECHILD` when there are no children at all.
pub fn reap_child() -> nix::Result<Option<(Pid, ExitStatus)>> {
    let mut status = 0;
    // SAFETY: `status` lives on this stack and is all that the call writes to.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
    let pid = nix::errno::Errno::result(pid)?;
    Ok((pid > 0).then(|| (Pid::from_raw(pid), ExitStatus::from_raw(status))))
}

/// Whether no loader has brought this program up: one that came now would bring a second C library.
#[must_use]
pub fn is_static() -> bool {
    // SAFETY: getauxval takes no pointers. It gives 0 for what the kernel did not tell: it has loaded one file only.
    let alone = unsafe { libc::getauxval(libc::AT_BASE) } == 0;
    // That file may be the loader itself, if somebody has called it with the program's name.
    let is_loader = |line: &str| line.rsplit('/').next().is_some_and(|file| file.starts_with("ld-"));
    alone && !std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.lines().any(is_loader))
}

/// Random bytes of the kernel's, fit for secrets.
///
/// # Errors
/// The kernel's error: there is no `/dev/urandom`, say.
pub fn random_bytes<const BYTES: usize>() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Takes the numbers of standard streams that are closed. A descriptor of ours would get them else: shared memory, into
/// which the program's next line of output would go, or a connection to a peer.
///
/// The streams stay as closed as they were: nothing can be read or written there, and programs that are started have none.
pub fn occupy_standard_streams() {
    // The kernel gives out the lowest number that is free.
    while let Ok(place) = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open("/") {
        if place.as_raw_fd() > libc::STDERR_FILENO {
            break;
        }
        let _ = place.into_raw_fd();
    }
}

/// Duplicates a descriptor that was inherited by number, and keeps the original from being inherited on.
///
/// The duplicate is closed on `exec`; the original stays open and belongs to nobody.
///
/// # Errors
/// `InvalidInput` for the standard streams and negative numbers, `EBADF` where nothing is open there.
pub fn duplicate_inherited(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= libc::STDERR_FILENO {
        let why = format!("descriptor {fd} is not above the standard streams");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    // SAFETY: F_DUPFD_CLOEXEC reads no memory of this process; a number that is not open gives EBADF.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, libc::STDERR_FILENO + 1) };
    nix::errno::Errno::result(copy)?;
    // SAFETY: F_SETFD reads no memory of this process; it changes one flag of an open descriptor, and
    // only what a later exec does with it.
    let flagged = unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    nix::errno::Errno::result(flagged)?;
    // SAFETY: `copy` was opened by the call above and nothing else knows its number, so this is its
    // only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Lets the original of [`duplicate_inherited`] be inherited on again.
///
/// # Errors
/// `EBADF`: it has been closed meanwhile.
pub fn pass_on_inherited(fd: RawFd) -> io::Result<()> {
    // SAFETY: F_SETFD reads no memory of this process; it changes one flag of a descriptor, and only what a later exec
    // does with it.
    let flagged = unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    nix::errno::Errno::result(flagged)?;
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn duplicate_refers_to_the_same_file() {
        let mut original = tempfile::tempfile().unwrap();
        let mut copy = File::from(duplicate_inherited(original.as_raw_fd()).unwrap());
        copy.write_all(b"through the copy").unwrap();
        original.seek(SeekFrom::Start(0)).unwrap();
        let mut text = String::new();
        original.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through the copy");
        assert_ne!(copy.as_raw_fd(), original.as_raw_fd());
    }

    #[test]
    fn standard_streams_and_closed_numbers_are_refused() {
        for fd in [-1, 0, 1, 2] {
            assert_eq!(duplicate_inherited(fd).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(duplicate_inherited(1 << 20).unwrap_err().raw_os_error(), Some(libc::EBADF));
    }

    #[test]
    fn child_dies_with_the_thread_that_spawned_it() {
        let spawn = || {
            let mut command = Command::new("/bin/sleep");
            command.arg("600");
            die_with_parent(&mut command, Signal::SIGKILL);
            command.spawn().unwrap()
        };
        let mut child = std::thread::spawn(spawn).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn child_starts_with_no_signal_blocked() {
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGUSR1);
        blocked.thread_block().unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "kill -USR1 $$; exit 3"]);
        unblock_signals(&mut command);
        let status = command.status();
        blocked.thread_unblock().unwrap();
        assert_eq!(status.unwrap().signal(), Some(libc::SIGUSR1));
    }
}

//! The process that the user started: it stands between the terminal and the supervisor.
//!
//! The supervisor has a process group of its own, so the terminal's signals, and a `kill` of the
//! user's process group, reach only this process.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::unistd::{Pid, getpid, getppid, read};
use shm_core::sys::process;

use super::job::Exit;
use super::signals::{self, Sender, Signals};
use super::{Args, descendants, failed, leave_input, say, start_thread};

/// Starts the supervisor and lives as long as it does.
pub(super) fn main(args: &Args) -> io::Result<ExitCode> {
    process::adopt_orphans().map_err(failed("prctl(PR_SET_CHILD_SUBREAPER)"))?;
    process::restore_default_action(Signal::SIGCHLD).map_err(failed("sigaction"))?;
    let mut signals = Signals::block()?;
    // A shell that ran us by `exec` may have left us processes of its own.
    let strangers = descendants::all()?;
    let mut supervisor = spawn_supervisor(args)?;
    let (status, interrupted) = watch(&mut supervisor, &mut signals, args.with_parent)?;
    // One that ended by itself has left nothing: what else has come to us since then is the strangers'.
    if let Some(signal) = status.signal() {
        descendants::end_all(&strangers)?.tell();
        let (pid, signal_name) = (supervisor.id(), signals::describe(signal));
        say(&format!("the supervisor (pid {pid}) was killed by signal {signal_name}; the job has been ended"));
    }
    let code = code(status);
    if interrupted && code == Exit::Signal(Signal::SIGINT as i32).code() {
        end_by_key()?;
    }
    Ok(ExitCode::from(code))
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

fn spawn_supervisor(args: &Args) -> io::Result<Child> {
    // The link of this very program: it stays right when the file is replaced meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(super::SUPERVISOR).args(args.for_supervisor(getpid())).process_group(0);
    // Rank 0 inherits standard input, except from a terminal: only the foreground may read that.
    let relayed = io::stdin().is_terminal();
    command.stdin(if relayed { Stdio::piped() } else { Stdio::inherit() });
    process::die_with_parent(&mut command, Signal::SIGTERM);
    let mut supervisor = command.spawn().map_err(|e| {
        let why = format!("cannot start the process that is to supervise the job (see ulimit -u): {e}");
        io::Error::other(why)
    })?;
    match supervisor.stdin.take() {
        Some(pipe) => start_thread(move || relay_terminal(pipe))?,
        None => leave_input(),
    }
    Ok(supervisor)
}

/// Waits for the supervisor and forwards signals to it. Tells how it ended, and whether Ctrl-C was pressed.
fn watch(supervisor: &mut Child, signals: &mut Signals, with_parent: Option<i32>) -> io::Result<(ExitStatus, bool)> {
    let mut interrupted = false;
    let pid = Pid::from_raw(i32::try_from(supervisor.id()).map_err(io::Error::other)?);
    loop {
        while let Some((signal, sender)) = signals.next_and_sender()? {
            let mut passed_on = signal;
            if signal == Signal::SIGTERM && signals.ignore_terminate {
                if with_parent.is_none_or(|parent| getppid().as_raw() == parent) {
                    continue;
                }
                // The supervisor would ignore it.
                passed_on = Signal::SIGKILL;
            }
            if signal == Signal::SIGCHLD {
                continue;
            }
            match kill(pid, passed_on) {
                // It has ended and is about to be reaped.
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(e) => return Err(e.into()),
            }
            match (signal, sender) {
                (Signal::SIGTSTP, Sender::Process) => raise(Signal::SIGSTOP)?,
                (Signal::SIGTSTP, Sender::Kernel) => stop_by_key(pid)?,
                (Signal::SIGINT, Sender::Kernel) => interrupted = true,
                _ => {}
            }
        }
        if let Some(status) = supervisor.try_wait()? {
            return Ok((status, interrupted));
        }
        match poll(&mut [PollFd::new(signals.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(failed("poll")(e)),
        }
    }
}

/// Ends as every program does at Ctrl-C: by it a shell knows that its loop is to end, too.
fn end_by_key() -> io::Result<()> {
    process::restore_default_action(Signal::SIGINT)?;
    SigSet::from(Signal::SIGINT).thread_unblock()?;
    // The first process of a container lives on.
    Ok(raise(Signal::SIGINT)?)
}

/// Stops as every program does at Ctrl-Z: only where there is a shell to continue it, so not right under `ssh -t` or
/// `docker run -it`.
fn stop_by_key(supervisor: Pid) -> io::Result<()> {
    let key = SigSet::from(Signal::SIGTSTP);
    key.thread_unblock()?;
    raise(Signal::SIGTSTP)?;
    key.thread_block()?;
    // Without a shell nothing has stopped here, but the ranks have.
    match kill(supervisor, Signal::SIGCONT) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Copies what is typed to rank 0, until the end of input or until rank 0 reads no more. What is typed then is for the
/// program that comes after the job.
fn relay_terminal(mut rank0: ChildStdin) {
    /// How often a job in the background looks whether it is in the foreground again.
    const RETRY: Duration = Duration::from_millis(500);
    let (input, mut chunk) = (io::stdin(), [0; 4096]);
    loop {
        // The pipe is asked for nothing: the kernel tells all the same that it has no reader.
        let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN), PollFd::new(rank0.as_fd(), PollFlags::empty())];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) if fds[1].any().unwrap_or(true) => return,
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(_) => return,
        }
        // Without a buffer, of which poll would not know.
        match read(&input, &mut chunk) {
            Ok(0) => return,
            Ok(bytes) if rank0.write_all(&chunk[..bytes]).is_err() => return,
            Ok(_) | Err(Errno::EINTR) => {}
            // The terminal belongs to another process group (SIGTTIN is blocked).
            Err(Errno::EIO) => thread::sleep(RETRY),
            Err(_) => return,
        }
    }
}

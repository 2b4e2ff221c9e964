//! The process that starts the ranks, serves them, and ends with none of them left.
//!
//! One loop over signals and PMI connections; output has its own threads ([`super::output`]), and what
//! is decided when is in [`super::job`].

use std::collections::HashSet;
use std::ffi::CString;
use std::io::{self, PipeReader};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpid, getppid};
use shm_core::sys::process;

use super::job::{self, Exit, Job, Step};
use super::output::Forwarders;
use super::pmi::{Links, Phase, Report};
use super::signals::{Request, Signals};
use super::spawn::{Spawned, spawn_all};
use super::{Args, descendants, failed, leave_input, placement, say};
use crate::output::READER_LEFT_CODE;

/// How long a rank that closed its connection may take to end before that counts as a failure.
const HANG_UP_GRACE: Duration = Duration::from_secs(1);

/// Runs the job to its end, or to that of the process `front`, which has started this one.
pub(super) fn main(args: &Args, front: Pid) -> io::Result<ExitCode> {
    let ended = run(args, front);
    // Also after an error.
    end_descendants()?;
    ended
}

fn run(args: &Args, front: Pid) -> io::Result<ExitCode> {
    nix::sys::prctl::set_name(&CString::new(super::SUPERVISOR)?).map_err(failed("prctl(PR_SET_NAME)"))?;
    process::adopt_orphans().map_err(failed("prctl(PR_SET_CHILD_SUBREAPER)"))?;
    let signals = Signals::block()?;
    if getppid() != front {
        return Ok(ExitCode::FAILURE); // it died before it could be missed
    }
    let time_out_at = args.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let blocks = placement::blocks(args.ranks, args.nodes);
    let mut spawned = Spawned::default();
    if let Err(e) = spawn_all(args, &blocks, &mut spawned) {
        say(&e.to_string());
        return Ok(ExitCode::from(e.code()));
    }
    leave_input();
    let Spawned { pids, pmi, stdout, stderr } = spawned;
    let output = Forwarders::start(stdout, stderr, args.label)?;
    let job = Job::new(pids, time_out_at);
    let (survivor_grace, abort_grace) = match args.nodes {
        0 | 1 => (job::SURVIVOR_GRACE, job::ABORT_GRACE),
        _ => (job::SURVIVOR_GRACE_OVER_NODES, job::ABORT_GRACE_OVER_NODES),
    };
    let mut supervisor = Supervisor {
        front,
        signals,
        output,
        job,
        links: Links::new(&job_name()?, &blocks, pmi)?,
        hung_up: Vec::new(),
        unreachable: Vec::new(),
        asked_to_end: None,
        timeout: args.timeout.unwrap_or_default(),
        survivor_grace: args.grace.unwrap_or(survivor_grace),
        abort_grace: args.grace.unwrap_or(abort_grace),
        user_grace: job::USER_TERMINATE_GRACE.max(args.grace.unwrap_or_default()),
    };
    while supervisor.job.running().next().is_some() {
        if supervisor.step()? == Flow::EndNow {
            break;
        }
    }
    let Supervisor { mut signals, output, job, mut asked_to_end, survivor_grace, .. } = supervisor;
    let is_done = job.running().next().is_none() && asked_to_end.is_none() && !job.has_failed();
    if is_done {
        asked_to_end = wait_for_helpers(front, &output, &mut signals, time_out_at)?;
    }
    let killed = end_descendants()?;
    // A rank that hands its work to another process, as setsid does, would otherwise seem to have done it.
    if is_done && killed > 0 {
        let noun = if killed == 1 { "process" } else { "processes" };
        output.say(&format!("all ranks have ended and left {killed} {noun} running: killed"));
    }
    // A rank that was killed while it shared memory by name has left the name.
    shm_core::sys::map::sweep();
    let (done, lost) = output.drain();
    // A user who has set a limit, or has asked the job to end, does not wait for a reader who takes nothing.
    let grace_ends = Instant::now() + survivor_grace;
    let limit = match asked_to_end {
        Some(request) => Some((grace_ends, Exit::Signal(request.signal as i32).code())),
        None => time_out_at.map(|at| (at.max(grace_ends), job::TIMEOUT_CODE)),
    };
    let given_up = wait_for_output(&done, &mut signals, front, limit, asked_to_end)?;
    if given_up.is_some() {
        say("nobody takes the output: the rest of what the ranks have printed is lost");
    }
    Ok(match (job.exit_code(), given_up) {
        (0, Some(code)) => ExitCode::from(code),
        (0, None) if lost.try_recv().is_ok() => ExitCode::FAILURE,
        (code, _) => ExitCode::from(code),
    })
}

struct Supervisor {
    front: Pid,
    signals: Signals,
    output: Forwarders,
    job: Job,
    links: Links,
    /// Ranks that closed their connection, and when they have had the time to end.
    hung_up: Vec<(usize, Instant)>,
    /// Ranks that closed it and live on.
    unreachable: Vec<usize>,
    /// The first SIGINT or SIGTERM that came.
    asked_to_end: Option<Request>,
    timeout: Duration,
    /// How long survivors of a failure may take to report it themselves.
    survivor_grace: Duration,
    abort_grace: Duration,
    /// How long ranks may take to end when a user wants it.
    user_grace: Duration,
}

#[derive(PartialEq, Eq)]
enum Flow {
    Continue,
    EndNow,
}

impl Supervisor {
    /// Waits for the next events and deals with them.
    fn step(&mut self) -> io::Result<Flow> {
        for rank in self.wait()? {
            if let Some(report) = self.links.serve(rank) {
                self.take_report(rank, report);
            }
        }
        let mut children_changed = false;
        while let Some(signal) = self.signals.next()? {
            match signal {
                Signal::SIGCHLD => children_changed = true,
                _ if getppid() != self.front => return Ok(Flow::EndNow),
                Signal::SIGTERM if self.signals.ignore_terminate => {}
                _ => self.forward(signal),
            }
        }
        if children_changed {
            self.tell_of_stopped();
            self.reap()?;
        }
        let now = Instant::now();
        self.check_hung_up(now);
        self.check_barrier();
        Ok(self.keep_time(now))
    }

    /// Returns the ranks whose connections are ready, after a signal or a deadline maybe none.
    fn wait(&self) -> io::Result<Vec<usize>> {
        let (ranks, mut fds) = self.links.poll_fds();
        fds.push(PollFd::new(self.signals.as_fd(), PollFlags::POLLIN));
        let hang_up = self.hung_up.iter().map(|(_, deadline)| *deadline).min();
        let deadline = [self.job.next_deadline(), hang_up].into_iter().flatten().min();
        match poll(&mut fds, until(deadline)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(failed("poll")(e)),
        }
        Ok(ranks.into_iter().zip(&fds).filter(|(_, fd)| fd.any().unwrap_or(true)).map(|(rank, _)| rank).collect())
    }

    fn fail(&mut self, code: u8, grace: Duration, why: &str) {
        if self.job.fail(code, grace, Instant::now()) {
            self.output.say(why);
        }
    }

    /// The others need a rank that has left: only they can say whether that is a failure.
    fn strand(&mut self, why: &str) {
        if self.job.strand(self.survivor_grace, Instant::now()) {
            self.output.say(why);
        }
    }

    fn take_report(&mut self, rank: usize, report: Report) {
        let name = self.job.name(rank);
        match report {
            Report::Violation(why) => {
                self.links.close(rank);
                self.fail(1, self.survivor_grace, &format!("{name} broke the PMI-1 protocol: {why}"));
            }
            Report::HungUp => self.hung_up.push((rank, Instant::now() + HANG_UP_GRACE)),
            Report::Abort(code) => {
                self.links.close(rank);
                // An abort is never a success.
                let code = u8::try_from(code & 0xff).ok().filter(|code| *code != 0).unwrap_or(1);
                self.fail(code, self.abort_grace, &format!("{name} aborted the job with code {code}"));
            }
        }
    }

    fn forward(&mut self, signal: Signal) {
        let now = Instant::now();
        if self.asked_to_end.is_some_and(|request| request.is_repeated_by(signal, now)) {
            return;
        }
        let to_end = matches!(signal, Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT);
        for (_, pid) in self.job.running() {
            // A rank that has just ended is noticed by its SIGCHLD.
            let _ = killpg(pid, signal);
            if to_end {
                // A stopped process would not act on it.
                let _ = killpg(pid, Signal::SIGCONT);
            }
        }
        match signal {
            Signal::SIGINT | Signal::SIGTERM if self.asked_to_end.is_some() => {
                self.output.say(&format!("a second signal ({signal}) came: killing what is left"));
                self.job.kill_by(now);
            }
            Signal::SIGINT => self.asked_to_end = Some(Request { signal, at: now }),
            Signal::SIGTERM => {
                self.asked_to_end = Some(Request { signal, at: now });
                self.job.end_by(now + self.user_grace);
            }
            _ => {}
        }
    }

    /// Takes note of all processes that have ended.
    fn reap(&mut self) -> io::Result<()> {
        let mut ended = Vec::new();
        loop {
            match process::reap_child() {
                Ok(Some((pid, status))) => ended.push((pid, Exit::of(status))),
                Ok(None) | Err(Errno::ECHILD) => break,
                Err(e) => return Err(e.into()),
            }
        }
        // Their order is lost; a rank that was killed is the likelier cause than one that gave up.
        ended.sort_by_key(|(_, exit)| !matches!(exit, Exit::Signal(_)));
        for (pid, exit) in ended {
            if let Some(rank) = self.job.ended(pid) {
                self.rank_ended(rank, exit);
            }
        }
        Ok(())
    }

    /// Says of ranks that the kernel has stopped why it did, as they go on when somebody continues them only.
    fn tell_of_stopped(&mut self) {
        while let Ok(WaitStatus::Stopped(pid, signal)) = waitid(Id::All, WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            let stopped = self.job.running().find(|(_, running)| *running == pid);
            if let (Some((rank, _)), Signal::SIGTTIN | Signal::SIGTTOU) = (stopped, signal) {
                let name = self.job.name(rank);
                self.output.say(&format!(
                    "{name} was stopped by {signal}: it uses the terminal itself (/dev/tty), which no rank may; what is typed \
                     is standard input of rank 0"
                ));
            }
        }
    }

    fn rank_ended(&mut self, rank: usize, exit: Exit) {
        // It may have spoken its last words after we last listened.
        while let Some(report) = self.links.serve(rank) {
            self.take_report(rank, report);
        }
        let name = self.job.name(rank);
        let unfinished = matches!(self.links.phase(rank), Phase::Active | Phase::InBarrier);
        if exit == Exit::Code(READER_LEFT_CODE.into()) && self.output.reader_has_left() {
            // It ended in order, and says by its code that it is because of that.
            self.job.fail(exit.code(), self.survivor_grace, Instant::now());
        } else if exit != Exit::Code(0) {
            self.fail(exit.code(), self.survivor_grace, &format!("{name} {}", exit.describe()));
        } else if unfinished {
            let why = format!("{name} exited with code 0 between PMI init and finalize; the others cannot go on");
            self.strand(&why);
        }
        self.links.close(rank);
    }

    fn check_hung_up(&mut self, now: Instant) {
        let overdue: Vec<usize> = self.hung_up.iter().filter(|(_, at)| *at <= now).map(|(rank, _)| *rank).collect();
        self.hung_up.retain(|(_, at)| *at > now);
        for rank in overdue.into_iter().filter(|rank| self.job.is_running(*rank)).collect::<Vec<_>>() {
            self.unreachable.push(rank);
            if matches!(self.links.phase(rank), Phase::Active | Phase::InBarrier) {
                self.strand(&format!("{} closed its PMI connection before finalize", self.job.name(rank)));
            }
        }
    }

    /// Ends waits in the PMI barrier that can no longer succeed.
    fn check_barrier(&mut self) {
        let missing = (0..self.job.size()).find(|rank| !self.job.is_running(*rank) || self.unreachable.contains(rank));
        if missing.is_none() && !self.job.has_failed() {
            return;
        }
        let in_barrier = |rank: &usize| self.job.is_running(*rank) && self.links.phase(*rank) == Phase::InBarrier;
        let waiting: Vec<usize> = (0..self.job.size()).filter(in_barrier).collect();
        if let (Some(missing), false) = (missing, waiting.is_empty()) {
            let (missing, waiting) = (self.job.name(missing), job::list(&waiting));
            let why = format!(
                "{missing} has ended or closed its PMI connection, but the PMI barrier needs it: {waiting} would wait for ever"
            );
            self.strand(&why);
        }
        waiting.into_iter().for_each(|rank| self.links.close(rank));
    }

    fn keep_time(&mut self, now: Instant) -> Flow {
        let ranks: Vec<usize> = self.job.running().map(|(rank, _)| rank).collect();
        match self.job.due(now) {
            None => {}
            Some(_) if ranks.is_empty() => {}
            Some(Step::TimeOut) => {
                let seconds = self.timeout.as_secs_f64();
                let (running, verb) = (job::list(&ranks), if ranks.len() == 1 { "was" } else { "were" });
                let why = format!("the job ran into its --timeout of {seconds} s; {running} {verb} still running");
                self.fail(job::TIMEOUT_CODE, Duration::ZERO, &why);
                // Also if a user has asked them to end.
                self.job.kill_by(now + job::TERMINATE_GRACE);
            }
            Some(Step::Terminate) => {
                self.output.say(&format!("ending {} by SIGTERM", job::list(&ranks)));
                for (_, pid) in self.job.running() {
                    let _ = killpg(pid, Signal::SIGTERM);
                    // A stopped process would not act on it.
                    let _ = killpg(pid, Signal::SIGCONT);
                }
            }
            Some(Step::Kill) => {
                self.output.say(&format!("killing {}", job::list(&ranks)));
                // Without a failure before, it was a user who wanted this.
                if let Some(Request { signal, .. }) = self.asked_to_end {
                    self.job.fail(Exit::Signal(signal as i32).code(), Duration::ZERO, now);
                }
                return Flow::EndNow;
            }
        }
        Flow::Continue
    }
}

/// Lets processes that ranks have left end by themselves for a moment: one may still pass on what its rank has printed, as
/// `exec > >(tee FILE)` in a script makes it do. Time in which a reader of the output lets it wait does not count. The
/// `limit` or a signal ends this; then that signal.
fn wait_for_helpers(
    front: Pid,
    output: &Forwarders,
    signals: &mut Signals,
    limit: Option<Instant>,
) -> io::Result<Option<Request>> {
    /// Enough for what pipes hold.
    const PATIENCE: Duration = Duration::from_secs(1);
    let mut give_up = Instant::now() + PATIENCE;
    let mut pause = Duration::ZERO;
    let mut now = Instant::now();
    while now < give_up && limit.is_none_or(|limit| now < limit) && getppid() == front {
        while let Some(signal) = signals.next()? {
            if ends_waiting(signal, signals) {
                return Ok(Some(Request { signal, at: now }));
            }
        }
        match process::reap_child() {
            Ok(Some(_)) => {}
            Ok(None) => {
                thread::sleep(pause);
                pause = Duration::from_millis(1);
            }
            // There are none, or it is told when they are killed.
            Err(_) => break,
        }
        let before = std::mem::replace(&mut now, Instant::now());
        if output.waits_for_a_reader() {
            give_up += now - before;
        }
    }
    Ok(None)
}

/// Whether this signal ends what is left to wait for when all ranks have ended, as it ends a process. Those of users are for
/// ranks.
fn ends_waiting(signal: Signal, signals: &Signals) -> bool {
    match signal {
        Signal::SIGTERM => !signals.ignore_terminate,
        Signal::SIGCHLD | Signal::SIGTSTP | Signal::SIGCONT | Signal::SIGUSR1 | Signal::SIGUSR2 => false,
        _ => true,
    }
}

/// How many processes had to be killed.
fn end_descendants() -> io::Result<usize> {
    let ended = descendants::end_all(&HashSet::new())?;
    ended.tell();
    Ok(ended.killed)
}

/// Waits until all output has been taken, or the front has died. If a signal or the `limit`, a time and its code, has
/// ended that before: the exit code that tells it.
fn wait_for_output(
    done: &PipeReader,
    signals: &mut Signals,
    front: Pid,
    limit: Option<(Instant, u8)>,
    asked_to_end: Option<Request>,
) -> io::Result<Option<u8>> {
    while getppid() == front {
        let mut fds = [PollFd::new(done.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, until(limit.map(|(at, _)| at))) {
            Ok(_) if fds[0].any().unwrap_or(true) => return Ok(None),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(failed("poll")(e)),
        }
        while let Some(signal) = signals.next()? {
            let is_repeated = asked_to_end.is_some_and(|request| request.is_repeated_by(signal, Instant::now()));
            if ends_waiting(signal, signals) && !is_repeated {
                return Ok(Some(Exit::Signal(signal as i32).code()));
            }
        }
        if let Some((_, code)) = limit.filter(|(at, _)| *at <= Instant::now()) {
            return Ok(Some(code));
        }
    }
    Ok(None)
}

/// How long to poll for a deadline: rounded up, so that it has passed when poll returns.
fn until(deadline: Option<Instant>) -> PollTimeout {
    let left = deadline.map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
    left.map_or(PollTimeout::NONE, |left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX))
}

/// A name that no other job on this machine has, now or soon.
fn job_name() -> io::Result<String> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
    Ok(format!("han_{}_{}", getpid(), since_epoch.as_micros()))
}

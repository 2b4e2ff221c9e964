//! What a launcher decides, apart from how: whose failure counts, who is still running, and when the
//! survivors are asked, then made, to end. Pure, so that it can be tested without processes.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::signals;

/// How long survivors of a failure may take to report it themselves.
pub(super) const SURVIVOR_GRACE: Duration = Duration::from_secs(3);
/// The same where there are several nodes: that another one is gone shows in silence, which takes longer to hear.
pub(super) const SURVIVOR_GRACE_OVER_NODES: Duration = Duration::from_secs(12);
/// The same after a rank has asked to end the job.
pub(super) const ABORT_GRACE: Duration = Duration::from_millis(500);
/// Over several nodes, where its last words travel, and are passed on.
pub(super) const ABORT_GRACE_OVER_NODES: Duration = Duration::from_secs(3);
/// From `SIGTERM` to `SIGKILL`.
pub(super) const TERMINATE_GRACE: Duration = Duration::from_secs(2);
/// From a `SIGTERM` that a user sent to `SIGKILL`: ranks may be writing a checkpoint.
pub(super) const USER_TERMINATE_GRACE: Duration = Duration::from_secs(10);

/// The exit code of a job that ran into `--timeout`, as of timeout(1).
pub(super) const TIMEOUT_CODE: u8 = 124;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    pub(super) fn of(status: ExitStatus) -> Self {
        status.signal().map_or_else(|| Self::Code(status.code().unwrap_or(1)), Self::Signal)
    }

    /// The code by which a shell would tell it.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Code(code) => u8::try_from(code).unwrap_or(1),
            Self::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        }
    }

    /// `was killed by signal 9 (SIGKILL)` or `exited with code 3`.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Code(code) => format!("exited with code {code}"),
            Self::Signal(signal) => format!("was killed by signal {}", signals::describe(signal)),
        }
    }
}

/// What is due now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The job has run for too long.
    TimeOut,
    /// Ask the ranks that are left to end.
    Terminate,
    /// End everything.
    Kill,
}

/// The ranks' processes and the job's fate.
#[derive(Debug)]
pub(super) struct Job {
    running: Vec<Option<Pid>>,
    pids: Vec<Pid>,
    /// The first failure's code; `None` while all is well.
    code: Option<u8>,
    time_out_at: Option<Instant>,
    terminate_at: Option<Instant>,
    kill_at: Option<Instant>,
    /// A user has asked the ranks to end.
    is_ending: bool,
    /// Some wait in vain for one that has left.
    is_stranded: bool,
}

impl Job {
    pub(super) fn new(pids: Vec<Pid>, time_out_at: Option<Instant>) -> Self {
        let running = pids.iter().copied().map(Some).collect();
        Self {
            running,
            pids,
            code: None,
            time_out_at,
            terminate_at: None,
            kill_at: None,
            is_ending: false,
            is_stranded: false,
        }
    }

    /// `rank 2 (pid 4711)`.
    pub(super) fn name(&self, rank: usize) -> String {
        format!("rank {rank} (pid {})", self.pids[rank])
    }

    /// Number of ranks, running or not.
    pub(super) fn size(&self) -> usize {
        self.running.len()
    }

    /// The ranks that run, with their processes.
    pub(super) fn running(&self) -> impl Iterator<Item = (usize, Pid)> {
        self.running.iter().enumerate().filter_map(|(rank, pid)| Some((rank, (*pid)?)))
    }

    pub(super) fn is_running(&self, rank: usize) -> bool {
        self.running[rank].is_some()
    }

    /// Takes note that a process has ended; its rank, if it was one's.
    pub(super) fn ended(&mut self, pid: Pid) -> Option<usize> {
        let rank = self.running.iter().position(|running| *running == Some(pid))?;
        self.running[rank] = None;
        Some(rank)
    }

    /// Fails the job unless it has failed before: survivors get `grace`, but not beyond the job's limit, then `SIGTERM`, then
    /// `SIGKILL`. Where a user has asked them to end, they keep the time that they were given, up to that limit.
    /// Tells whether this was the first failure.
    pub(super) fn fail(&mut self, code: u8, grace: Duration, now: Instant) -> bool {
        if self.code.is_some() {
            return false;
        }
        self.code = Some(code);
        let limit = self.time_out_at.take();
        if let Some(limit) = limit {
            self.kill_by(limit + TERMINATE_GRACE);
        }
        self.terminate_by(limit.map_or(now + grace, |limit| limit.min(now + grace)));
        true
    }

    /// Takes note that a rank has left which the others need: they get the same time, but only what becomes of them is a
    /// failure: another code than 0, or that they had to be asked to end.
    /// Tells whether this was the first bad news.
    pub(super) fn strand(&mut self, grace: Duration, now: Instant) -> bool {
        let is_news = !self.has_failed() && !self.is_stranded;
        if is_news {
            self.is_stranded = true;
            self.terminate_by(now + grace);
        }
        is_news
    }

    /// Asks survivors to end at `deadline` at the latest, unless a user has asked them.
    fn terminate_by(&mut self, deadline: Instant) {
        if !self.is_ending {
            self.terminate_at = Some(self.terminate_at.map_or(deadline, |known| known.min(deadline)));
            self.kill_by(deadline + TERMINATE_GRACE);
        }
    }

    /// Takes note that a user has sent `SIGTERM` to all ranks, which have until `deadline`.
    pub(super) fn end_by(&mut self, deadline: Instant) {
        self.is_ending = true;
        self.kill_by(deadline);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.code.is_some()
    }

    /// Ends everything at `deadline` at the latest.
    pub(super) fn kill_by(&mut self, deadline: Instant) {
        self.kill_at = Some(self.kill_at.map_or(deadline, |known| known.min(deadline)));
    }

    /// The next step whose time has come; each comes once.
    pub(super) fn due(&mut self, now: Instant) -> Option<Step> {
        let take = |at: &mut Option<Instant>| at.take_if(|at| *at <= now).is_some();
        // Ranks are asked first, also if both are overdue.
        if take(&mut self.terminate_at) {
            // Those that have just ended by themselves were not asked to.
            if self.running().next().is_some() {
                self.code.get_or_insert(1);
            }
            Some(Step::Terminate)
        } else if take(&mut self.kill_at) {
            Some(Step::Kill)
        } else if take(&mut self.time_out_at) {
            Some(Step::TimeOut)
        } else {
            None
        }
    }

    /// When something will be due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        [self.time_out_at, self.terminate_at, self.kill_at].into_iter().flatten().min()
    }

    pub(super) fn exit_code(&self) -> u8 {
        self.code.unwrap_or(0)
    }
}

/// `rank 3` or `ranks 0, 2-7`; the numbers ascend.
pub(super) fn list(ranks: &[usize]) -> String {
    let runs: Vec<String> = ranks
        .chunk_by(|a, b| a + 1 == *b)
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", runs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(ranks: i32, time_out_at: Option<Instant>) -> Job {
        Job::new((0..ranks).map(|rank| Pid::from_raw(100 + rank)).collect(), time_out_at)
    }

    #[test]
    fn the_first_failure_decides_the_code() {
        let now = Instant::now();
        let mut job = job(3, None);
        assert_eq!(job.ended(Pid::from_raw(102)), Some(2));
        assert_eq!(job.ended(Pid::from_raw(102)), None);
        assert!(job.fail(Exit::Signal(9).code(), SURVIVOR_GRACE, now));
        assert!(!job.fail(1, SURVIVOR_GRACE, now));
        assert_eq!(job.exit_code(), 137);
        assert_eq!(job.running().map(|(rank, _)| rank).collect::<Vec<_>>(), [0, 1]);
    }

    #[test]
    fn survivors_are_asked_then_made_to_end() {
        let now = Instant::now();
        let mut job = job(2, None);
        assert_eq!(job.next_deadline(), None);
        job.fail(1, SURVIVOR_GRACE, now);
        assert_eq!(job.due(now), None);
        let asked = now + SURVIVOR_GRACE;
        assert_eq!(job.next_deadline(), Some(asked));
        assert_eq!(job.due(asked), Some(Step::Terminate));
        assert_eq!(job.due(asked), None);
        assert_eq!(job.due(asked + TERMINATE_GRACE), Some(Step::Kill));
    }

    #[test]
    fn a_failed_job_no_longer_times_out() {
        let now = Instant::now();
        let mut job = job(1, Some(now));
        assert_eq!(job.due(now), Some(Step::TimeOut));
        let mut job = self::job(1, Some(now + TERMINATE_GRACE));
        job.fail(3, Duration::ZERO, now);
        assert_eq!(job.due(now), Some(Step::Terminate));
        assert_eq!(job.due(now + TERMINATE_GRACE), Some(Step::Kill));
        assert_eq!(job.exit_code(), 3);
    }

    #[test]
    fn the_grace_after_a_failure_ends_with_the_limit_of_the_job() {
        let now = Instant::now();
        let limit = now + Duration::from_secs(2);
        let mut job = job(2, Some(limit));
        job.fail(3, Duration::from_secs(60), now);
        assert_eq!((job.exit_code(), job.next_deadline()), (3, Some(limit)));
        assert_eq!(job.due(limit), Some(Step::Terminate));
        assert_eq!(job.due(limit), None);
        assert_eq!(job.due(limit + TERMINATE_GRACE), Some(Step::Kill));
        let mut job = self::job(2, Some(limit));
        job.end_by(now + USER_TERMINATE_GRACE);
        job.fail(143, SURVIVOR_GRACE, now);
        assert_eq!(job.next_deadline(), Some(limit + TERMINATE_GRACE));
    }

    #[test]
    fn those_whom_one_has_left_decide_the_code() {
        let now = Instant::now();
        let stranded = || {
            let mut job = job(3, Some(now + 2 * SURVIVOR_GRACE));
            assert!(job.strand(SURVIVOR_GRACE, now));
            assert!(!job.strand(SURVIVOR_GRACE, now));
            job
        };
        assert_eq!(stranded().exit_code(), 0);
        let mut job = stranded();
        assert!(job.fail(5, 9 * SURVIVOR_GRACE, now));
        assert_eq!((job.exit_code(), job.next_deadline()), (5, Some(now + SURVIVOR_GRACE)));
        let mut job = stranded();
        for rank in 0..job.size() {
            job.ended(job.pids[rank]);
        }
        job.due(now + SURVIVOR_GRACE);
        assert_eq!(job.exit_code(), 0, "nobody had to be asked");
        let mut job = stranded();
        assert_eq!(job.due(now + SURVIVOR_GRACE), Some(Step::Terminate));
        assert!(!job.fail(143, SURVIVOR_GRACE, now));
        assert_eq!(job.exit_code(), 1);
    }

    #[test]
    fn ranks_that_a_user_ends_keep_their_time_when_the_first_has_ended() {
        let now = Instant::now();
        let mut job = job(2, None);
        job.end_by(now + USER_TERMINATE_GRACE);
        assert!(job.fail(Exit::Signal(15).code(), SURVIVOR_GRACE, now));
        assert_eq!((job.exit_code(), job.next_deadline()), (143, Some(now + USER_TERMINATE_GRACE)));
        assert_eq!(job.due(now + USER_TERMINATE_GRACE), Some(Step::Kill));
    }

    #[test]
    fn an_earlier_kill_stays() {
        let now = Instant::now();
        let mut job = job(1, None);
        job.kill_by(now);
        job.kill_by(now + USER_TERMINATE_GRACE);
        assert_eq!(job.due(now), Some(Step::Kill));
    }

    #[test]
    fn lists_are_short() {
        assert_eq!(list(&[3]), "rank 3");
        assert_eq!(list(&[0, 2, 3, 4, 6]), "ranks 0, 2-4, 6");
        assert_eq!(Exit::Code(256).code(), 1);
        assert_eq!(Exit::Signal(9).describe(), "was killed by signal 9 (SIGKILL)");
    }
}

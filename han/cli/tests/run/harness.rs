//! Starting `han run` in a test, and finding what it may have left.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shm_core::sys::process;

/// After this a test has hung, however loaded the machine is.
const PATIENCE: Duration = Duration::from_secs(300);
/// What a job that fails a test is given to end by itself.
const LAST_WORDS: Duration = Duration::from_secs(20);

/// The variable by which a job's processes are found again; they inherit it however they fork.
const MARK: &str = "HAN_TEST_MARK";

/// Says that there is to be no test with namespaces of its own, where they cannot be made.
const NO_UNSHARE: &str = "HAN_TEST_NO_UNSHARE";

/// `unshare OPTIONS sh -c SCRIPT han`, to which arguments can be added. `None`, and a line that says so, if the tests are
/// to do without.
pub(crate) fn unshared(options: &[&str], script: &str) -> Option<Command> {
    if env::var_os(NO_UNSHARE).is_some_and(|value| value == "1") {
        eprintln!("SKIPPED: {NO_UNSHARE}=1, so nothing is tested behind unshare {options:?}");
        return None;
    }
    let possible = Command::new("unshare").args(options).arg("true").output().unwrap();
    let why = String::from_utf8_lossy(&possible.stderr);
    assert!(
        possible.status.success(),
        "unshare {options:?}, which needs root or CAP_SYS_ADMIN: {why}({NO_UNSHARE}=1 leaves these tests out)"
    );
    let mut command = Command::new("unshare");
    command.args(options).args(["sh", "-c", script, env!("CARGO_BIN_EXE_han")]);
    Some(command)
}

/// One `han run` and what belongs to it.
pub(crate) struct Job {
    command: Command,
    mark: Mark,
}

/// A job's value of [`MARK`]; a test that fails takes the job's processes with it.
struct Mark(String);

impl Drop for Mark {
    fn drop(&mut self) {
        if thread::panicking() {
            for pid in processes(&self.0) {
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
    }
}

impl Job {
    /// `han run WORDS`.
    pub(crate) fn new(words: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_han"));
        command.arg("run").args(words);
        Self::of(command)
    }

    /// `han run OPTIONS -- sh -c SCRIPT`.
    pub(crate) fn script(options: &[&str], script: &str) -> Self {
        Self::new(&[options, &["--", "/bin/sh", "-c", script]].concat())
    }

    /// Any command, under the same watch.
    pub(crate) fn of(mut command: Command) -> Self {
        static JOBS: AtomicUsize = AtomicUsize::new(0);
        let mark = Mark(format!("{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed)));
        command.env(MARK, &mark.0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { command, mark }
    }

    /// Sets a variable for the launcher and its ranks.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Changes the command further.
    pub(crate) fn with(mut self, change: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        change(&mut self.command);
        self
    }

    pub(crate) fn start(mut self) -> Running {
        Running { child: self.command.spawn().unwrap(), mark: self.mark, lines: None }
    }

    /// Runs to the end and checks that nothing is left at that moment.
    pub(crate) fn finish(self) -> Finished {
        self.start().finish()
    }
}

/// A job that is under way.
pub(crate) struct Running {
    pub(crate) child: Child,
    mark: Mark,
    /// What it says on standard output, once lines of it have been waited for.
    lines: Option<Receiver<String>>,
}

impl Running {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Waits for `count` lines on standard output that are `text`, and forgets the others. If they do not come, all that
    /// the job has said is told.
    #[track_caller]
    pub(crate) fn wait_for_lines(&mut self, text: &'static str, count: usize) {
        let receiver = self.lines.take().unwrap_or_else(|| {
            let stdout = BufReader::new(self.child.stdout.take().unwrap());
            let (sender, receiver) = mpsc::channel();
            thread::spawn(move || {
                // To the end of the job, also if nobody listens any more.
                stdout.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
            });
            receiver
        });
        let (mut missing, mut others, give_up) = (count, Vec::new(), Instant::now() + PATIENCE);
        while missing > 0 {
            match receiver.recv_timeout(give_up.saturating_duration_since(Instant::now())) {
                Ok(line) if line == text => missing -= 1,
                Ok(line) => others.push(line),
                Err(why) => panic!(
                    "{missing} of {count} lines {text:?} are missing ({why}); standard output: {others:#?}; standard error:\n{}",
                    self.last_words()
                ),
            }
        }
        self.lines = Some(receiver);
    }

    /// Forgets the lines that have come since the last ones that were waited for.
    pub(crate) fn forget_lines(&self) {
        self.lines.iter().flat_map(Receiver::try_iter).for_each(drop);
    }

    /// Ends the job if it still goes on; what it had said on standard error.
    pub(crate) fn last_words(&mut self) -> String {
        let Some(mut stderr) = self.child.stderr.take() else { return "(read elsewhere)".to_owned() };
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            sender.send(String::from_utf8_lossy(&text).into_owned())
        });
        // A job whose output has ended is about to end, and may be explaining why.
        receiver
            .recv_timeout(LAST_WORDS)
            .or_else(|_| {
                for pid in self.processes() {
                    let _ = kill(pid, Signal::SIGKILL);
                }
                receiver.recv()
            })
            .unwrap_or_default()
    }

    /// Waits for the launcher and checks that nothing is left at that moment.
    pub(crate) fn finish(self) -> Finished {
        let (finished, mark) = self.wait_with_mark();
        assert_eq!(processes(&mark.0), [], "left behind; stderr: {}", finished.stderr);
        finished
    }

    /// Waits for the launcher.
    pub(crate) fn wait(self) -> Finished {
        self.wait_with_mark().0
    }

    fn wait_with_mark(self) -> (Finished, Mark) {
        let pid = self.pid();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || sender.send(self.child.wait_with_output().unwrap()));
        let output = receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            let _ = kill(pid, Signal::SIGKILL);
            panic!(
                "the job hangs; stderr: {:?}",
                receiver.recv().map(|o| String::from_utf8_lossy(&o.stderr).into_owned())
            )
        });
        (Finished::of(output), self.mark)
    }

    /// The job's processes, the launcher's own included.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        processes(&self.mark.0)
    }

    /// Waits until no process of the job is left.
    pub(crate) fn wait_until_gone(mut self) {
        let mut stderr = self.child.stderr.take().unwrap();
        self.child.wait().unwrap();
        eventually("the job's processes are gone", || processes(&self.mark.0).is_empty());
        let _ = stderr.read_to_end(&mut Vec::new());
    }
}

/// How a job ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Exit code, or minus the signal.
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Finished {
    fn of(output: Output) -> Self {
        let code = output.status.code().or_else(|| output.status.signal().map(|signal| -signal)).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Checks the exit code and that standard error says all of `parts`.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, code, "{self:#?}");
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is missing in {self:#?}");
        }
    }

    /// The lines of standard output in order of their text.
    pub(crate) fn sorted_lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// Waits for a condition that must come true.
#[track_caller]
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < give_up, "in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// All processes with this mark; one that has ended and only waits to be reaped no longer has it.
fn processes(mark: &str) -> Vec<Pid> {
    let wanted = format!("{MARK}={mark}");
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    })
    .map(Pid::from_raw)
    .collect()
}

/// The name of a process's program.
pub(crate) fn name(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// The children of a process.
pub(crate) fn children(parent: Pid) -> Vec<Pid> {
    let list = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    list.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap())).collect()
}

/// A process's state as in `ps`: `R`, `S`, `T`, ...
pub(crate) fn state(pid: Pid) -> Option<char> {
    process::state(pid.as_raw().unsigned_abs())
}

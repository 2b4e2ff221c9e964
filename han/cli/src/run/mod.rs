//! `han run`: starts N processes as one job, serves PMI-1 to them, and leaves none behind.
//!
//! Two processes watch each other. The one that the user started ([`front`]) only starts the
//! [`supervisor`], forwards signals to it and takes over its exit code; the supervisor starts the
//! ranks and does all the work. Both adopt orphans, so between them:
//!
//! - Invariant: when `han run` returns, no process of the job is left: the supervisor kills and reaps
//!   until it has no children ([`descendants`]), however they forked.
//! - `kill -9` of the front: the kernel signals the supervisor, which ends the job in the same way.
//! - `kill -9` of the supervisor: the kernel kills the ranks; what they had started becomes the
//!   front's, which ends it.
//! - `kill -9` of both at the same moment: the kernel kills the ranks. Only processes that ranks had
//!   started themselves can outlive this. The supervisor bears another name than `han`, so that
//!   `killall han` does not do it.

mod descendants;
mod front;
mod job;
mod keys;
mod output;
mod placement;
mod pmi;
mod signals;
mod sink;
mod spawn;
mod supervisor;

pub(crate) use keys::KeysHeld;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, dup2_stdin, getppid};
use placement::Bind;

use crate::whole::{MOST_RANKS, within};

/// Arguments of `han run`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Number of ranks
    #[arg(short = 'n', alias = "np", value_name = "N", value_parser = ranks)]
    ranks: usize,
    /// Number of virtual nodes; each takes a block of ranks
    #[arg(long, value_name = "K", value_parser = within(1..=MOST_RANKS as usize), default_value_t = 1)]
    nodes: usize,
    /// Command prefix for the ranks of a node, with {node} replaced by its number; must pass on open files
    #[arg(long, value_name = "PREFIX {node}", value_parser = prefix)]
    node_exec: Option<String>,
    /// Bind each rank to a usable processor, or leave it to the scheduler
    #[arg(long, value_enum, default_value_t = Bind::Core)]
    bind: Bind,
    /// End the job after S seconds, with exit code 124
    #[arg(long, value_name = "S", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Wait S seconds after a failure for the other ranks to end by themselves (3, over several nodes 12; after an
    /// abort 0.5 and 3), and as long after a SIGTERM if that is more than 10
    #[arg(long, value_name = "S", value_parser = seconds)]
    grace: Option<Duration>,
    /// Begin every line of output with the rank that wrote it
    #[arg(long)]
    label: bool,
    /// This process is the supervisor of the `han run` with this process id
    #[arg(long, value_name = "PID", hide = true)]
    supervised: Option<i32>,
    /// End the job when the process with this id, which has started this one, does
    #[arg(long, value_name = "PID", hide = true)]
    with_parent: Option<i32>,
    /// Program and its arguments
    #[arg(value_name = "PROG", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl Args {
    /// The command line of the supervisor that the process `front` starts for this job.
    fn for_supervisor(&self, front: Pid) -> Vec<OsString> {
        let mut words = vec!["run".to_owned(), format!("--supervised={front}")];
        words.push(format!("-n{}", self.ranks));
        words.push(format!("--nodes={}", self.nodes));
        words.push(format!("--bind={}", self.bind));
        words.extend(self.node_exec.iter().map(|prefix| format!("--node-exec={prefix}")));
        words.extend(self.timeout.iter().map(|timeout| format!("--timeout={}", timeout.as_secs_f64())));
        words.extend(self.grace.iter().map(|grace| format!("--grace={}", grace.as_secs_f64())));
        words.extend(self.label.then(|| "--label".to_owned()));
        words.push("--".to_owned());
        words.into_iter().map(OsString::from).chain(self.command.iter().cloned()).collect()
    }
}

/// The supervisor's name in the list of processes.
const SUPERVISOR: &str = "run-supervisor";

/// Runs the job to its end.
pub(crate) fn main(args: &Args) -> ExitCode {
    if args.nodes > args.ranks {
        say(&format!("{} nodes need at least as many ranks, but -n is {}", args.nodes, args.ranks));
        return ExitCode::from(2);
    }
    run(args).unwrap_or_else(|e| {
        say(&e.to_string());
        ExitCode::FAILURE
    })
}

fn run(args: &Args) -> io::Result<ExitCode> {
    if let Some(parent) = args.with_parent {
        set_pdeathsig(Signal::SIGTERM).map_err(failed("prctl(PR_SET_PDEATHSIG)"))?;
        if getppid().as_raw() != parent {
            return Ok(ExitCode::FAILURE); // it died before it could be missed
        }
    }
    match args.supervised {
        Some(front) => supervisor::main(args, Pid::from_raw(front)),
        None => front::main(args),
    }
}

/// One whole line on standard error; nobody may be left to read it, and a reader who takes nothing is not waited for.
fn say(text: &str) {
    /// How long a reader may take to make room.
    const PATIENCE_MS: u16 = 1000;
    let ready = poll(&mut [PollFd::new(io::stderr().as_fd(), PollFlags::POLLOUT)], PATIENCE_MS);
    if ready != Ok(0) {
        let _ = io::stderr().write_all(line(text).as_bytes());
    }
}

/// `text` as the launcher says it.
fn line(text: &str) -> String {
    format!("han run: {text}\n")
}

/// The error of a system call, with its name.
fn failed<E: Into<io::Error>>(call: &'static str) -> impl Fn(E) -> io::Error {
    move |error| io::Error::other(format!("{call} failed: {}", error.into()))
}

/// Leaves standard input to the processes that have it by now: whoever writes there learns it from the kernel when none of
/// them reads any more.
fn leave_input() {
    // At worst that is learnt at the job's end.
    if let Ok(nothing) = File::open("/dev/null") {
        let _ = dup2_stdin(nothing);
    }
}

fn start_thread(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let started = thread::Builder::new().spawn(work);
    started.map(drop).map_err(|e| io::Error::other(format!("cannot start a thread (see ulimit -u): {e}")))
}

fn ranks(text: &str) -> Result<usize, String> {
    if text == "p" {
        return Err("-np is taken as -n only right behind `han run`".to_owned());
    }
    within(1..=MOST_RANKS as usize)(text)
}

/// The words of a command line, in which `-np` right behind `run` is what it is to `mpirun`.
pub(crate) fn with_np(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.collect();
    if let [_, run, np, ..] = &mut words[..]
        && (&**run, &**np) == (OsStr::new("run"), OsStr::new("-np"))
    {
        *np = "-n".into();
    }
    words
}

fn seconds(text: &str) -> Result<Duration, String> {
    /// 30 years: longer than any job, and added to a time it is still one.
    const MOST: Duration = Duration::from_secs(1_000_000_000);
    let duration = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration
        .filter(|duration| (Duration::from_nanos(1)..=MOST).contains(duration))
        .ok_or_else(|| "it must be a positive number of seconds up to 1e9, like 30 or 0.5".to_owned())
}

/// What a node's number takes the place of.
const NODE: &str = "{node}";

/// Reads a prefix: words, in which other names in braces than [`NODE`] are mistakes.
pub(crate) fn prefix(text: &str) -> Result<String, String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_- ".contains(letter);
    for (start, _) in text.match_indices('{') {
        let Some(length) = text[start..].find('}') else { continue };
        let place = &text[start..=start + length];
        // A shell's variables are that shell's business: `${name}`, and `{name}>` for a descriptor.
        let of_shell = text[..start].ends_with('$') || text[start + length + 1..].starts_with(['<', '>']);
        if place != NODE && !of_shell && place[1..length].chars().all(is_name) {
            return Err(format!("{place} in it stands for nothing: only {NODE} is replaced, by the node's number"));
        }
    }
    match shlex::split(text) {
        Some(words) if !words.is_empty() => Ok(text.to_owned()),
        Some(_) => Err("it is empty".to_owned()),
        None => Err("a quotation mark in it is not closed".to_owned()),
    }
}

/// The words of a prefix for a node.
pub(crate) fn prefix_words(prefix: &str, node: usize) -> impl Iterator<Item = String> {
    // They were found to be well-formed when the arguments were parsed.
    let words = shlex::split(prefix).unwrap_or_default();
    words.into_iter().map(move |word| word.replace(NODE, &node.to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Result<Args, String> {
        let line = std::iter::once("run").chain(words.iter().copied());
        Cli::try_parse_from(line).map(|cli| cli.args).map_err(|e| e.to_string())
    }

    #[test]
    fn the_supervisor_gets_the_same_arguments() {
        let line = [
            "-n",
            "5",
            "--nodes",
            "2",
            "--bind",
            "none",
            "--timeout",
            "1.5",
            "--grace",
            "2.5",
            "--label",
            "--node-exec",
            "env 'A={node} x'",
        ];
        let line = [&line[..], &["prog", "-x", "--label", "--", "a b"]].concat();
        let args = parse(&line).unwrap();
        let supervisor = Cli::try_parse_from(args.for_supervisor(Pid::from_raw(77))).unwrap().args;
        assert_eq!(supervisor.supervised, Some(77));
        assert_eq!(format!("{:?}", Args { supervised: None, ..supervisor }), format!("{args:?}"));
    }

    #[test]
    fn the_number_of_ranks_may_be_given_as_to_mpirun() {
        let typed = |line: &str| with_np(line.split(' ').map(OsString::from));
        let parsed = |line: &str| Cli::try_parse_from(&typed(line)[1..]).map(|cli| cli.args.ranks);
        for line in ["han run -n 4 prog", "han run -np 4 prog", "han run --np 4 prog", "han run --np=4 prog -np 5"] {
            assert_eq!(parsed(line).ok(), Some(4), "{line}");
        }
        let late = parsed("han run --label -np 4 prog").unwrap_err().to_string();
        assert!(late.contains("-np is taken as -n only right behind `han run`"), "{late}");
        assert_eq!(typed("han bench -np 4"), ["han", "bench", "-np", "4"]);
    }

    #[test]
    fn options_after_the_program_are_its_own() {
        let args = parse(&["-n", "1", "prog", "--label", "-n", "7"]).unwrap();
        assert_eq!((args.ranks, args.label, args.command.len()), (1, false, 4));
    }

    #[test]
    fn bad_values_are_explained() {
        assert!(parse(&["-n", "0", "prog"]).unwrap_err().contains("at least 1"));
        assert!(parse(&["-n", "two", "prog"]).unwrap_err().contains("whole number"));
        assert!(parse(&["-n", "1", "--timeout", "-3", "prog"]).is_err());
        for absurd in ["1048577", "1000000000000000", "18446744073709551615"] {
            assert!(parse(&["-n", absurd, "prog"]).unwrap_err().contains("at most 1048576"));
            assert!(parse(&["-n", "1", "--nodes", absurd, "prog"]).unwrap_err().contains("at most 1048576"));
        }
        for absurd in ["nan", "inf", "1e19", "1.1e9", "1e-10", "0"] {
            let why = "positive number of seconds up to 1e9";
            assert!(parse(&["-n", "1", &format!("--timeout={absurd}"), "prog"]).unwrap_err().contains(why));
            assert!(parse(&["-n", "1", &format!("--grace={absurd}"), "prog"]).unwrap_err().contains(why));
        }
        assert!(parse(&["-n", "1", "--node-exec", "'a", "prog"]).unwrap_err().contains("quotation mark"));
        for wrong in ["{nod}", "{ node }", "{rank}", "{NODE}", "{}"] {
            let why = format!("{wrong} in it stands for nothing: only {{node}} is replaced");
            assert!(
                parse(&["-n", "1", "--node-exec", &format!("a {{node}}{wrong}"), "prog"]).unwrap_err().contains(&why)
            );
        }
        for right in
            ["bash -c 'exec {fd}>&-; exec \"$@\" ${HOME}{node}'", "sh -c '{ cd /; exec \"$@\"; }' {node}", "a {node}{"]
        {
            parse(&["-n", "1", "--node-exec", right, "prog"]).unwrap();
        }
        assert!(parse(&["-n", "1", "--lable", "prog"]).unwrap_err().contains("--lable"));
        assert!(parse(&["-n", "1"]).unwrap_err().contains("PROG"));
    }
}

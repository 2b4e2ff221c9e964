//! Nothing is left behind: not by ranks that fork, and not when the launcher itself is killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::harness::{Job, Running, children, eventually, name, state, unshared};

/// Ways in which a rank can start processes that try to outlive it: in the background, with signals
/// ignored, in their own session, and orphaned by a parent that exits at once.
const FORKS: &str = "sleep 300 & (trap '' TERM HUP INT; sleep 301) & setsid sleep 302 & \
                     (setsid sh -c 'sleep 303 & sleep 304' &) ; (sleep 305 &)";

/// A job of two ranks, each with several processes of its own, that waits.
fn forked(options: &[&str], with: impl FnOnce(&mut Command) -> &mut Command) -> Running {
    let mut job =
        Job::script(&[&["-n", "2"], options].concat(), &format!("{FORKS}; echo ready; wait")).with(with).start();
    job.wait_for_lines("ready", 2);
    eventually("both ranks have six sleeping descendants", || {
        job.processes().into_iter().filter(|pid| name(*pid) == "sleep").count() == 2 * 6
    });
    job
}

fn supervisor(job: &Running) -> Pid {
    match children(job.pid())[..] {
        [one] => one,
        ref others => panic!("one child expected: {others:?}"),
    }
}

#[test]
fn descendants_end_with_the_job() {
    let done = Job::script(&["-n", "2"], &format!("{FORKS}; echo ready")).finish();
    done.expect(0, &[]);
    assert_eq!(done.stdout, "ready\nready\n");
}

#[test]
fn it_is_told_that_ranks_have_left_their_work_to_others() {
    const TOLD: &str = "han run: all ranks have ended and left ";
    let done = Job::new(&["-n", "2", "setsid", "sleep", "300"]).finish();
    done.expect(0, &[TOLD, " 2 processes running: killed\n"]);
    let done = Job::script(&["-n", "2"], "[ $PMI_RANK = 0 ] || exec setsid --wait true; sleep 300 & :").finish();
    done.expect(0, &[TOLD, " 1 process running: killed\n"]);
    let done = Job::script(&["-n", "2", "--grace", "1"], "sleep 300 & exit $PMI_RANK").finish();
    assert!(done.code == 1 && !done.stderr.contains(TOLD), "{done:?}");
}

#[test]
fn what_passes_on_output_may_finish_it() {
    // Until the rank has gone, nothing is passed on.
    let script = "exec > >(until ! kill -0 $$; do sleep 0.01; done 2> /dev/null; cat); echo first; echo last";
    let done = Job::new(&["-n", "2", "--", "bash", "-c", script]).finish();
    done.expect(0, &[]);
    assert_eq!((done.sorted_lines(), &*done.stderr), (vec!["first", "first", "last", "last"], ""));
}

#[test]
fn what_passes_on_output_may_wait_for_a_slow_reader() {
    // More than the pipes behind `cat` hold, and less than those on the whole way.
    let script = "exec > >(cat; echo last); for i in {1..30000}; do echo $i; done; echo done >&2";
    let mut job = Job::new(&["-n", "1", "--", "bash", "-c", script]).start();
    let stdout = job.child.stdout.take().unwrap();
    let mut errors = BufReader::new(job.child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(errors.next().as_deref(), Some("done"));
    // Longer than helpers that could go on are given.
    thread::sleep(Duration::from_secs(2));
    let lines: Vec<String> = BufReader::new(stdout).lines().map(Result::unwrap).collect();
    assert_eq!((lines.len(), lines.last().map(String::as_str)), (30_001, Some("last")));
    assert_eq!(errors.next(), None);
    job.finish().expect(0, &[]);
}

#[test]
fn descendants_of_a_failed_rank_end() {
    Job::script(&["-n", "2"], &format!("{FORKS}; [ $PMI_RANK = 0 ] && kill -9 $$; wait")).finish().expect(137, &[]);
}

#[test]
fn killing_the_launcher_ends_everything() {
    let job = forked(&[], |command| command);
    job.signal(Signal::SIGKILL);
    job.wait_until_gone();
}

#[test]
fn killing_the_launchers_process_group_ends_everything() {
    let job = forked(&[], |command| command.process_group(0));
    killpg(job.pid(), Signal::SIGKILL).unwrap();
    job.wait_until_gone();
}

#[test]
fn killing_the_supervisor_ends_everything_and_is_told() {
    let job = forked(&[], |command| command);
    kill(supervisor(&job), Signal::SIGKILL).unwrap();
    job.finish().expect(137, &["the supervisor (pid ", ") was killed by signal 9 (SIGKILL); the job has been ended"]);
}

#[test]
fn killing_both_at_once_ends_the_ranks() {
    let mut job = Job::script(&["-n", "3"], "echo ready; exec sleep 300").start();
    job.wait_for_lines("ready", 3);
    let supervisor = supervisor(&job);
    // Stopped first, neither can see the other die.
    for pid in [job.pid(), supervisor] {
        kill(pid, Signal::SIGSTOP).unwrap();
    }
    eventually("both are stopped", || [job.pid(), supervisor].iter().all(|pid| state(*pid) == Some('T')));
    for pid in [job.pid(), supervisor] {
        kill(pid, Signal::SIGKILL).unwrap();
    }
    job.wait_until_gone();
}

#[test]
fn stopped_processes_end_too() {
    let mut job = Job::script(&["-n", "2"], "sleep 300 & kill -STOP $!; echo ready; kill -STOP $$").start();
    job.wait_for_lines("ready", 2);
    job.signal(Signal::SIGKILL);
    job.wait_until_gone();
}

#[test]
fn ranks_behind_a_prefix_that_forks_end_too() {
    let job = forked(&["--node-exec", "sh -c '\"$@\"; exit $?' node{node}"], |command| command);
    job.signal(Signal::SIGKILL);
    job.wait_until_gone();
}

/// `unshare --pid` leaves the `/proc` of the namespace around, where the same processes have other numbers.
#[test]
fn descendants_end_also_where_proc_has_other_numbers() {
    let rank = "echo $(setsid sh -c 'echo $$; exec sleep 300 >/dev/null' &)";
    let script =
        "\"$0\" run -n 2 -- sh -c \"$1\" > $2; for pid in $(cat $2); do kill -0 $pid && echo $pid is left; done";
    let started = tempfile::NamedTempFile::new().unwrap();
    let Some(mut command) = unshared(&["--pid", "--fork"], script) else { return };
    command.arg(rank).arg(started.path());
    let done = Job::of(command).finish();
    assert_eq!(fs::read_to_string(started.path()).unwrap().lines().count(), 2, "{done:?}");
    assert_eq!(done.stdout, "", "{done:?}");
}

#[test]
fn children_from_before_the_launcher_are_not_its_business() {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "sleep 300 & exec \"$0\" run -n 2 -- true", env!("CARGO_BIN_EXE_han")]);
    let mut job = Job::of(command).start();
    let mut stdout = job.child.stdout.take();
    assert!(job.child.wait().unwrap().success());
    let left = job.processes();
    assert_eq!(left.len(), 1, "only the stranger should be left: {left:?}");
    kill(left[0], Signal::SIGKILL).unwrap();
    stdout.take();
}

#[test]
fn orphans_of_such_children_are_not_its_business_either() {
    // They lose their parent, and become the launcher's, while the job runs.
    let ranks =
        r#": > "$D/go"; until grep -q "^PPid:[[:space:]]*$FRONT\$" /proc/$(cat "$D/pid")/status; do sleep 0.05; done"#;
    let wait = r#"until [ -e "$D/go" ]; do sleep 0.05; done"#;
    let start = r#"sleep 300 & echo $! > "$D/pid""#;
    for stranger in [format!("{start}; {wait}"), format!("{wait}; {start}")] {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("/bin/sh");
        let line = format!("export FRONT=$$; ({stranger}) & exec \"$0\" run -n 2 -- sh -c '{ranks}'");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_han")]).env("D", directory.path());
        let mut job = Job::of(command).start();
        let output = (job.child.stdout.take(), job.child.stderr.take());
        assert!(job.child.wait().unwrap().success());
        let left = job.processes();
        assert_eq!(left.len(), 1, "only the stranger should be left: {left:?}");
        kill(left[0], Signal::SIGKILL).unwrap();
        drop(output);
    }
}

#[test]
fn a_launcher_killed_at_any_moment_leaves_nothing() {
    for run in 0..40_u64 {
        let job = Job::script(&["-n", "3"], "setsid sleep 300 & sleep 300").start();
        thread::sleep(Duration::from_micros(run * run * 20));
        job.signal(Signal::SIGKILL);
        job.wait_until_gone();
    }
}

//! Ranks that stand still, and ranks that give up.

use std::fs;
use std::io::{BufRead, BufReader};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::Job;
use crate::{assert_no_file_is_left, finish, reports, roles};

/// Between `before` and `after` in `text`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    Some(text.split_once(before)?.1.split_once(after)?.0)
}

/// What the watchdog says of a rank that stands still, and its process.
fn told_of_a_stopped_rank(stderr: &mut impl BufRead) -> (String, Pid) {
    let mut line = String::new();
    // Before rank 1 stands still, others may be slow.
    while !(line.contains("han: watchdog: ") && line.contains(", stopped)")) {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the job ended without a word of the watchdog");
    }
    let pid = between(&line, " rank 1 (pid ", ", stopped)").and_then(|pid| pid.parse().ok()).expect(&line);
    (line, Pid::from_raw(pid))
}

#[test]
fn time_in_which_all_ranks_stand_still_is_no_waiting() {
    let job = roles::job(3, "stop").env("HAN_WATCHDOG", "1").env("HAN_SET", "timeout_s=8");
    let mut job = job.start();
    let mut stderr = BufReader::new(job.child.stderr.take().unwrap());
    let (_, late) = told_of_a_stopped_rank(&mut stderr);
    let is_rank = |pid: &Pid| {
        let variables = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"PMI_RANK="))
    };
    let others: Vec<Pid> = job.processes().into_iter().filter(|pid| *pid != late && is_rank(pid)).collect();
    assert_eq!(others.len(), 2);
    let signal = |signal| others.iter().for_each(|pid| kill(*pid, signal).unwrap());
    signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_secs(9));
    signal(Signal::SIGCONT);
    // They look at the time before the last one comes.
    thread::sleep(Duration::from_secs(1));
    kill(late, Signal::SIGCONT).unwrap();
    let rest = thread::spawn(move || stderr.lines().map_while(Result::ok).collect::<Vec<_>>());
    let done = job.finish();
    assert_eq!(done.code, 0, "{:?}", rest.join().unwrap());
}

#[test]
fn the_watchdog_names_a_stopped_rank_and_what_waits_for_it() {
    let mut job = roles::job(3, "stop").env("HAN_WATCHDOG", "1").start();
    let mut stderr = BufReader::new(job.child.stderr.take().unwrap());
    let (line, pid) = told_of_a_stopped_rank(&mut stderr);
    let operation = "s in allreduce(count 2, i64, sum) #11 on communicator 0 for ";
    assert!(line.contains(operation) && line.contains(" has waited "), "{line}");
    kill(pid, Signal::SIGCONT).unwrap();
    let rest = thread::spawn(move || stderr.lines().map_while(Result::ok).collect::<Vec<_>>());
    let done = job.finish();
    let rest = rest.join().unwrap();
    assert_eq!(done.code, 0, "{rest:?}");
    assert!(rest.iter().all(|line| line.contains("han: watchdog: ")), "{rest:?}");
}

#[test]
fn a_root_that_lacks_room_names_the_rank_that_makes_none() {
    let job = roles::job_with_grace(4, "stop-within", "1").env("HAN_WATCHDOG", "1");
    let done = finish(job.env("HAN_SET", "timeout_s=4,single_copy=never,form=direct"));
    let words = |line: &&str| line.contains("han: watchdog: rank 0 ") && line.contains(" in bcast(");
    let told: Vec<&str> = done.stderr.lines().filter(words).collect();
    assert!(!told.is_empty(), "{done:#?}");
    // Before that, others may have had no core for a while.
    let last = told[told.len() - 1];
    let names = last.contains(" for rank 1 (pid ") && last.contains(", stopped)") && !last.contains("rank 2");
    assert!(names, "{done:#?}");
}

/// The operation takes several seconds, and each of its steps less than half of one.
#[test]
fn time_in_which_all_ranks_work_is_no_waiting() {
    let done = finish(roles::job(2, "work-long").env("HAN_SET", "timeout_s=2,single_copy=never,form=direct"));
    done.expect(0, &[]);
}

#[test]
fn a_wait_that_exceeds_the_timeout_ends_the_job_on_all_ranks() {
    let done = finish(roles::job(3, "deadlock").env("HAN_SET", "timeout_s=20"));
    done.expect(3, &[]);
    let reports = reports(&done);
    assert_eq!(reports.len(), 3, "{done:#?}");
    for (.., text) in &reports {
        assert_eq!(*text, reports[0].2, "the same on all ranks: {done:#?}");
        assert!(text.starts_with("timeout: rank ") && text.contains(" s in barrier() #"), "{done:#?}");
        // Who waits for whom goes round.
        let round = [" on communicator 0 ", " on communicator 1 ", " waits in barrier() #"];
        assert!(round.iter().all(|part| text.contains(part)), "{done:#?}");
    }
}

/// With the grace that users have.
#[test]
fn an_abort_is_told_to_the_ranks_of_other_nodes() {
    let program = roles::program();
    let words = ["-n", "4", "--nodes", "2", "--"].into_iter().chain(program.iter().map(String::as_str));
    let done = finish(Job::new(&words.collect::<Vec<_>>()).env("HAN_TEST_ROLE", "abort"));
    done.expect(7, &[]);
    let reports = reports(&done);
    assert_eq!(reports.iter().map(|(rank, ..)| *rank).collect::<Vec<_>>(), [0, 2, 3], "{done:#?}");
    assert!(reports.iter().all(|(.., text)| text.ends_with("aborted the job: the matrix is singular")), "{done:#?}");
}

#[test]
fn an_abort_ends_all_ranks_with_its_reason() {
    let done = finish(roles::job(4, "abort"));
    done.expect(7, &[]);
    let reports = reports(&done);
    assert_eq!(reports.iter().map(|(rank, ..)| *rank).collect::<Vec<_>>(), [0, 2, 3], "{done:#?}");
    for (.., text) in &reports {
        assert_eq!(*text, reports[0].2, "the same on all ranks: {done:#?}");
        assert!(text.starts_with("rank 1 (pid ") && text.ends_with(") aborted the job: the matrix is singular"));
    }
    assert_no_file_is_left();
}

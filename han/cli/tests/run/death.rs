//! Ranks of the engine that are killed while they work: the survivors say who it was, and end.

use std::fs;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Running, children, eventually};
use crate::ranks;

const RANKS: usize = 3;
/// However slow they are, survivors say what they saw.
const OPTIONS: [&str; 4] = ["-n", "3", "--grace", "120"];

/// The ranks' processes, by rank.
fn rank_pids(job: &Running) -> Vec<Pid> {
    let pids = || children(job.pid()).first().map(|supervisor| children(*supervisor)).unwrap_or_default();
    eventually("all ranks are started", || pids().len() == RANKS);
    pids()
}

fn files_in_dev_shm() -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("han")).collect()
}

#[test]
fn a_rank_killed_at_any_moment_ends_the_job() {
    for run in 0..20 {
        let job = ranks::job(&OPTIONS, "allreduce").start();
        let (victim, pids) = (run % RANKS, rank_pids(&job));
        thread::sleep(Duration::from_micros(500 * (run * run) as u64));
        kill(pids[victim], Signal::SIGKILL).unwrap();
        let done = job.finish();
        done.expect(137, &[&format!("han run: rank {victim} (pid {}) was killed by signal 9", pids[victim])]);
        assert_eq!(done.stderr.matches("survivor: ").count(), RANKS - 1, "{done:#?}");
    }
    // Those of jobs that others run at the same time go away by themselves.
    for file in files_in_dev_shm() {
        eventually(&format!("/dev/shm/{file} is gone"), || !files_in_dev_shm().contains(&file));
    }
}

#[test]
fn survivors_name_the_rank_that_was_killed() {
    let mut job = ranks::job(&OPTIONS, "allreduce").start();
    job.wait_for_lines("working", RANKS);
    let pids = rank_pids(&job);
    kill(pids[1], Signal::SIGKILL).unwrap();
    let done = job.finish();
    let sentence = format!("survivor: rank 1 (pid {}) died", pids[1]);
    assert_eq!(done.stderr.matches(&sentence).count(), RANKS - 1, "{done:#?}");
}

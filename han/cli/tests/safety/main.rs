//! Deaths, misuse and bad surroundings, with real processes under `han run`: every rank gets an error
//! that says who and what, nobody hangs, nothing is left behind.
//!
//! No test depends on how fast something happens; limits are there so that a hang becomes a failure.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

mod copies;
mod death;
mod every;
#[path = "../run/forbid.rs"]
mod forbid;
mod forks;
#[allow(dead_code)] // shared with the tests of `han run`, which use all of it
#[path = "../run/harness.rs"]
mod harness;
mod large;
mod mismatch;
mod operators;
#[allow(dead_code)] // shared with the long series of random operations, which uses all of it
#[path = "../run/random.rs"]
mod random;
mod roles;
mod startup;
mod stop;

use std::fs;

use harness::{Finished, Job, eventually};

/// Objects of the engine in `/dev/shm`, of any job.
fn files_in_dev_shm() -> Vec<String> {
    let entries = fs::read_dir("/dev/shm").unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with("han-")).collect()
}

/// Runs `job` to its end; no process of it is left, and no file.
fn finish(job: Job) -> Finished {
    let done = job.finish();
    assert_no_file_is_left();
    done
}

/// Files of jobs that other tests run at the same time go away by themselves.
fn assert_no_file_is_left() {
    for file in files_in_dev_shm() {
        eventually(&format!("/dev/shm/{file} is gone"), || !files_in_dev_shm().contains(&file));
    }
}

/// What ranks have reported with [`roles::report`], in order of ranks: `(rank, pid, text)`.
fn reports(done: &Finished) -> Vec<(usize, u32, String)> {
    let parse = |line: &str| {
        let (rank, rest) = line.strip_prefix("report of rank ")?.split_once(" (pid ")?;
        let (pid, text) = rest.split_once("): ")?;
        Some((rank.parse().ok()?, pid.parse().ok()?, text.to_owned()))
    };
    let mut reports: Vec<_> = done.stderr.lines().filter_map(parse).collect();
    reports.sort_by_key(|(rank, ..)| *rank);
    reports
}

//! Ranks that end without finalizing.

use std::env;
use std::fs;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{Signal, kill};

use crate::harness::{children, eventually};
use crate::random::Random;
use crate::{assert_no_file_is_left, finish, reports, roles};

const WAYS: [&str; 4] = ["kill", "panic", "exit", "abort"];

/// All survivors name the dead rank, in the pending operation, which is named too, and in the next one.
fn survivors_are_told(when: &str, sequence: u32) {
    for size in [2, 4] {
        for how in WAYS {
            let done = finish(roles::job(size, &format!("die {how} {when}")));
            // The dead rank's own code, or 3 if a survivor ends first.
            assert_ne!(done.code, 0, "{done:#?}");
            let reports = reports(&done);
            let victim = size - 1;
            let pid = reports.iter().find(|(rank, ..)| *rank == victim).unwrap().1;
            let died = format!("rank {victim} (pid {pid}) died without finalizing; ");
            let pending = format!(
                "{died}pending here was allreduce(count 300000, i64, user operator) #{sequence} on communicator 0"
            );
            let later = format!("{died}its job has ended, no further operation is possible");
            let (mut were_pending, context) = (0, format!("{size} ranks, {how} {when}: {done:#?}"));
            for survivor in 0..victim {
                let told: Vec<&str> =
                    reports.iter().filter(|(rank, ..)| *rank == survivor).map(|(.., text)| text.as_str()).collect();
                were_pending += usize::from(told.first() == Some(&pending.as_str()));
                // A survivor that comes late finds the job ended before it has begun.
                assert!(told == [&pending, &later] || told == [&later, &later], "rank {survivor} of {context}");
            }
            // Within, the victim has combined what a survivor gave.
            assert!(when != "within" || were_pending > 0, "{context}");
        }
    }
}

/// A root never waits for its readers until its ring is full.
#[test]
fn who_only_sends_is_told_within_few_operations() {
    for size in [2, 3] {
        let done = finish(roles::job(size, "late"));
        let reports = reports(&done);
        let (.., text) = reports.iter().find(|(rank, _, text)| *rank == 0 && text.starts_with("after ")).unwrap();
        let operations: u32 = text["after ".len()..].split(':').next().unwrap().parse().unwrap();
        assert!(operations <= 8 && text.contains(" died without finalizing"), "{done:#?}");
    }
}

#[test]
fn before_the_first_collective() {
    survivors_are_told("before", 1);
}

#[test]
fn between_collectives() {
    survivors_are_told("between", 101);
}

#[test]
fn within_a_collective() {
    survivors_are_told("within", 1);
}

#[test]
fn a_rank_that_leaves_without_its_process_ending() {
    let done = finish(roles::job_with_grace(2, "leave", "3").env("HAN_SET", "timeout_s=200"));
    assert_eq!(done.code, 3, "{done:#?}");
    let reports = reports(&done);
    assert!(reports[0].2.starts_with("rank 1 (pid "), "{done:#?}");
    assert!(reports[0].2.contains(") died without finalizing; "), "{done:#?}");
}

#[test]
fn who_leaves_after_a_death_names_the_dead() {
    let done = finish(roles::job_with_grace(3, "leave-after-a-death", "10"));
    let reports = reports(&done);
    assert_eq!(reports.len(), 1, "{done:#?}");
    assert!(reports[0].2.starts_with("rank 1 (pid "), "{done:#?}");
}

/// Kills a random rank, of two more than `fewest` at most, at a random time, from before start-up to far into the collectives.
fn killed_at_random(role: &str, fewest: usize, settings: &str) {
    let number = |name: &str| env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    let runs = number("HAN_TEST_KILL_RUNS").unwrap_or(25);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let seed = number("HAN_TEST_SEED").unwrap_or(now);
    println!("HAN_TEST_SEED={seed}");
    let mut random = Random(seed);
    for run in 0..runs {
        let size = fewest + random.below(3);
        let job = roles::job(size, role).env("HAN_SET", settings).start();
        let pids = || children(job.pid()).first().map(|supervisor| children(*supervisor)).unwrap_or_default();
        eventually("all ranks are started", || pids().len() == size);
        let (pids, victim) = (pids(), random.below(size));
        // Squared, so that start-up gets its share.
        let root = random.below(300);
        thread::sleep(Duration::from_micros((root * root) as u64));
        kill(pids[victim], Signal::SIGKILL).unwrap();
        let done = job.finish();
        let reports = reports(&done);
        // What matters last: logs of long failures are cut in the middle.
        let why = format!("run {run} of seed {seed}: {done:#?}\n{size} ranks, {victim} killed, reports {reports:#?}");
        assert!(done.code == 137, "{why}\ncode {}", done.code);
        let killed = format!("han run: rank {victim} (pid {}) was killed by signal 9", pids[victim]);
        assert!(done.stderr.contains(&killed), "{why}");
        assert_eq!(reports.len(), size - 1, "{why}");
        let told = format!("making: rank {victim} (pid {}) died without finalizing", pids[victim]);
        assert!(reports.iter().all(|(.., text)| !text.starts_with("making") || text.starts_with(&told)), "{why}");
        assert!(!pids.iter().any(|pid| fs::exists(format!("/proc/{pid}")).unwrap()), "{why}");
        assert_no_file_is_left();
    }
}

#[test]
fn at_random_with_memfd() {
    killed_at_random("allreduce", 2, "backing=memfd");
}

#[test]
fn at_random_while_communicators_are_made() {
    killed_at_random("dup", 2, "backing=memfd");
}

#[test]
fn at_random_with_dev_shm() {
    killed_at_random("allreduce", 2, "backing=dev_shm");
}

#[test]
fn at_random_while_a_bcast_is_handed_on() {
    killed_at_random("bcast", 4, "form=joint,methods=cma");
}

#[test]
fn at_random_while_results_are_handed_on() {
    killed_at_random("allreduce-long", 4, "form=joint,methods=cma,last_cache_bytes=1");
}

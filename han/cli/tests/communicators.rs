//! Communicators that are made and freed again leave nothing behind: no descriptor, no mapping, no memory.
//!
//! `HAN_TEST_COMMUNICATORS=100000 cargo test --release -p han-cli --test communicators -- --nocapture` makes so many
//! and prints what the process held before and after.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

use std::env;
use std::fs;
use std::process::{Command, exit};
use std::time::Instant;

use han::{Communicator, Context, Operator, Result};

const ROLE: &str = "HAN_TEST_COMMUNICATORS_RANK";
const NUMBER: &str = "HAN_TEST_COMMUNICATORS";
const DEFAULT: usize = 2_000;
const RANKS: usize = 3;
/// Made before the first look, so that what is made once is there.
const FIRST: usize = 200;
/// The allocator keeps what was freed, a few pages of it more at one time than at another.
const SLACK_KIB: u64 = 512;
/// Shared memory of the world, whose cells fill as they are used: the job's segment, and slots, signatures, annexes and cells of
/// three ranks, as ARCHITECTURE.md has it.
const WORLD_KIB: u64 = 8 + 3 * (28 + 128 + 2048);

#[test]
fn communicators_that_are_freed_leave_nothing() {
    let number = env::var(NUMBER).unwrap_or_else(|_| DEFAULT.to_string());
    let output = Command::new(env!("CARGO_BIN_EXE_han"))
        .args(["run", "-n", &RANKS.to_string(), "--timeout", "3000", "--"])
        .arg(env::current_exe().unwrap())
        .args(["play_a_rank", "--exact", "--ignored", "--nocapture", "--quiet"])
        .envs([(ROLE, "1"), (NUMBER, &number)])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stderr}", output.status);
    assert_eq!(stderr.matches(&format!("made and freed {number} communicators")).count(), RANKS, "{stderr}");
    println!("{stderr}");
}

/// They live until their operations have completed, which they do as others are made.
#[test]
fn communicators_that_are_freed_with_operations_under_way_leave_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_han"))
        .args(["run", "-n", "2", "--timeout", "3000", "--"])
        .arg(env::current_exe().unwrap())
        .args(["play_a_rank", "--exact", "--ignored", "--nocapture", "--quiet"])
        .env(ROLE, "under way")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{stderr}", output.status);
    assert_eq!(stderr.matches("freed all under way").count(), 2, "{stderr}");
}

#[test]
#[ignore = "a rank of the other tests, which start it under the launcher"]
fn play_a_rank() {
    let Some(role) = env::var_os(ROLE) else { return };
    if role == "under way" {
        let context = Context::init().unwrap();
        let world = context.world().clone();
        let before = Held::now();
        (0..1000).for_each(|_| drop(world.dup().unwrap().ibarrier().unwrap()));
        let after = Held::now();
        // The last few may still be under way.
        assert!(after.mappings < before.mappings + 30, "{before:?} {after:?}");
        context.finalize().unwrap();
        eprintln!("freed all under way");
        exit(0);
    }
    let number: usize = env::var(NUMBER).unwrap().parse().unwrap();
    let context = Context::init().unwrap();
    let world = context.world().clone();
    (0..FIRST).for_each(|index| make_and_free(&world, index).unwrap());
    let (before, began) = (Held::now(), Instant::now());
    (0..number).for_each(|index| make_and_free(&world, index).unwrap());
    let (after, took) = (Held::now(), began.elapsed());
    eprintln!("made and freed {number} communicators in {took:.1?}: before {before:?}, after {after:?}");
    assert_eq!((after.descriptors, after.mappings), (before.descriptors, before.mappings));
    assert!(after.resident_kib <= before.resident_kib + SLACK_KIB, "{before:?} {after:?}");
    assert!(after.shared_kib <= WORLD_KIB, "{after:?}");
    context.finalize().unwrap();
    exit(0);
}

/// A copy of the world, or what is left of it without one rank; each is used.
fn make_and_free(world: &Communicator, index: usize) -> Result<()> {
    let left_out = index % (RANKS + 1);
    let made = if left_out == RANKS {
        Some(world.dup()?)
    } else {
        let color = (left_out != world.rank()).then_some(0);
        world.split(color, 0)?
    };
    if let Some(made) = made {
        let mut sum = [1_u64; 20];
        made.allreduce_in_place(&mut sum, Operator::Sum)?;
        assert_eq!(sum, [made.size() as u64; 20]);
    }
    Ok(())
}

/// What the process holds.
#[derive(Debug)]
struct Held {
    descriptors: usize,
    mappings: usize,
    /// Of its own; and shared.
    resident_kib: u64,
    shared_kib: u64,
}

impl Held {
    fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let kib = |key: &str| {
            let line = status.lines().find(|line| line.starts_with(key)).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        };
        Self {
            descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            mappings: fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
            resident_kib: kib("RssAnon:"),
            shared_kib: kib("RssShmem:"),
        }
    }
}

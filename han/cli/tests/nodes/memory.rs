//! Memory that is registered while the network works on it, and memory that the network takes.
#![allow(unsafe_code)] // registers by hand

use std::time::Duration;
use std::{fs, thread};

use han::{Context, Operator, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, raise};

use crate::faults::reports;
use crate::ranks;

/// What a rank's memory grows by, at most, when it runs ahead of another one, or the other one ahead of it.
const MOST_BYTES: usize = 64 << 20;

#[test]
fn a_root_that_runs_ahead_of_a_rank_that_stands_still_takes_no_memory() {
    for provider in ["tcp", "tcp;ofi_rxm"] {
        let job = ranks::job(&["-n", "2", "--nodes", "2"], "runs-ahead");
        let done = job.env("HAN_PROVIDER", provider).finish();
        assert!(reports(&done, 2, Some(1))[0].ends_with("bytes of memory more"), "{done:#?}");
    }
}

/// The role: rank 0 broadcasts, and rank 1 looks at nothing until it dies.
pub(crate) fn runs_ahead() -> Result<()> {
    let context = Context::init()?;
    let (world, mut short) = (context.world(), [1_i64; 3]);
    world.barrier()?;
    if world.rank() == 1 {
        thread::sleep(Duration::from_secs(3));
        raise(Signal::SIGKILL).unwrap();
    }
    let before = resident_bytes();
    let mut outcome = Ok(());
    for _ in 0..1 << 20 {
        outcome = world.bcast(&mut short, 0);
        if outcome.is_err() {
            break;
        }
    }
    let more = resident_bytes().saturating_sub(before);
    assert!(more < MOST_BYTES, "{more} bytes of memory more");
    ranks::report(&format!("{more} bytes of memory more"));
    outcome.and_then(|()| context.finalize())
}

#[test]
fn a_root_has_connections_to_more_ranks_than_files_were_allowed() {
    let job = ranks::job(&["-n", "40", "--nodes", "40", "--timeout", "120"], "few-files");
    job.env("HAN_PROVIDER", "tcp").env("HAN_REPRODUCIBLE", "1").finish().expect(0, &[]);
}

/// The role: all send to one rank at once, which may open no more files than the ranks are.
pub(crate) fn few_files() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 40, most).unwrap();
    let context = Context::init()?;
    let world = context.world();
    let mut sum = [1.0];
    world.allreduce_in_place(&mut sum, Operator::Sum)?;
    assert_eq!(sum, [40.0]);
    context.finalize()
}

#[test]
fn a_slow_rank_keeps_little_of_what_a_quick_one_sends() {
    for provider in ["tcp", "tcp;ofi_rxm"] {
        ranks::job(&["-n", "2", "--nodes", "2"], "lags").env("HAN_PROVIDER", provider).finish().expect(0, &[]);
    }
}

/// The role: rank 0 broadcasts as fast as it can, and rank 1 does something else now and then.
pub(crate) fn lags() -> Result<()> {
    let context = Context::init()?;
    let (world, before) = (context.world(), resident_bytes());
    for round in 0..30_000 {
        let mut short = [round * i64::from(world.rank() == 0); 3];
        world.bcast(&mut short, 0)?;
        assert_eq!(short, [round; 3]);
        if world.rank() == 1 && round % 100 == 0 {
            thread::sleep(Duration::from_millis(3));
        }
    }
    let more = resident_bytes().saturating_sub(before);
    assert!(more < MOST_BYTES, "{more} bytes of memory more");
    context.finalize()
}

fn resident_bytes() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").unwrap();
    4096 * pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
}

/// Moving its pages would lose what the network writes to them.
#[test]
fn a_vector_on_its_way_between_nodes_is_not_registered() {
    for set in ["", "nodes_form=flat"] {
        ranks::job(&["-n", "4", "--nodes", "2"], "register").env("HAN_SET", set).finish().expect(0, &[]);
    }
}

pub(crate) fn register() -> Result<()> {
    const PAGE: usize = 4096;
    let context = Context::init()?;
    let (world, job) = (context.world(), context.job());
    let other = world.dup()?;
    // Whole pages within it.
    let mut vector = vec![1_u8; 4 * PAGE];
    let pages = vector.as_mut_ptr().wrapping_add(vector.as_ptr().align_offset(PAGE));
    if world.rank() > 0 {
        world.barrier()?;
    }
    let request = other.iallreduce(vector, Operator::Sum)?;
    if world.rank() == 0 {
        // SAFETY: it is refused.
        let outcome = unsafe { job.register(pages, 2 * PAGE) };
        assert!(outcome.is_err_and(|error| error.to_string().contains("a collective that is under way")));
        world.barrier()?;
    }
    let vector = request.wait()?;
    assert!(vector.iter().all(|&sum| usize::from(sum) == world.size()));
    // SAFETY: no other thread writes to the vector, which is unregistered before it goes.
    unsafe { job.register(pages, 2 * PAGE) }?;
    // SAFETY: no operation uses it.
    unsafe { job.unregister(pages) }?;
    context.finalize()
}

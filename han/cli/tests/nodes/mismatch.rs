//! Ranks that do not call the same: every one of them gets an error that shows both sides.
#![allow(unsafe_code)] // looks at the bytes of truth values

use han::{Context, Operator, Result};

use crate::faults::{AT_ONCE, reports};
use crate::harness::Finished;
use crate::ranks;

/// The role: ranks that call different things.
pub(crate) fn mismatch() -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let operator = if world.rank() == 1 { Operator::Max } else { Operator::Sum };
    world.allreduce_in_place(&mut [1_i64; 3], operator)?;
    world.barrier()?;
    context.finalize()
}

/// The role: rank 0 broadcasts bytes where the others expect truth values, and each looks at what it has got.
pub(crate) fn no_truth(count: usize) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    if world.rank() == 0 {
        world.bcast(&mut vec![0xff_u8; count], 0)?;
    } else {
        let mut truths = vec![false; count];
        let outcome = world.bcast(&mut truths, 0);
        // SAFETY: as many bytes, which any value may have.
        let bytes = unsafe { std::slice::from_raw_parts(truths.as_ptr().cast::<u8>(), count) };
        assert!(std::hint::black_box(bytes).iter().all(|byte| *byte < 2), "no value of a bool");
        outcome?;
    }
    world.barrier()?;
    context.finalize()
}

/// The role: one rank calls `own` where all others call `others`, first short vectors, or long ones.
pub(crate) fn differ(rank: usize, count: usize, own: &str, others: &str) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let mut vector = vec![1_i64; count];
    world.barrier()?;
    match if world.rank() == rank { own } else { others } {
        "bcast" => world.bcast(&mut vector, 0)?,
        "reduce" => world.reduce_in_place(&mut vector, Operator::Sum, 3)?,
        "allreduce" => world.allreduce_in_place(&mut vector, Operator::Sum)?,
        _ => world.barrier()?,
    }
    world.barrier()?;
    context.finalize()
}

/// The role: rank 2 calls `own` where the others go on with bcasts of `count` elements.
pub(crate) fn ahead(count: usize, own: &str) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let mut vector = vec![1_i64; count];
    for call in 0..30_000 {
        match own {
            "barrier" if call == 5 && world.rank() == 2 => world.barrier()?,
            "allreduce" if call == 5 && world.rank() == 2 => {
                world.allreduce_in_place(&mut [1_i64; 3], Operator::Sum)?
            }
            _ => world.bcast(&mut vector, 1)?,
        }
    }
    context.finalize()
}

/// The role: rank `rank` finalizes while the others are in a collective.
pub(crate) fn leave_early(rank: usize) -> Result<()> {
    let context = Context::init()?;
    context.world().barrier()?;
    if context.world().rank() != rank {
        context.world().allreduce_in_place(&mut [1_i64; 3], Operator::Sum)?;
    }
    context.finalize()
}

/// The ranks do not call the same, and every one of them is told so.
#[track_caller]
pub(crate) fn expect_mismatch(done: &Finished, ranks: usize) {
    for text in reports(done, ranks, None) {
        assert!(text.starts_with("mismatched collective: ") && text.ends_with(" [mismatch]"), "{text:?}: {done:#?}");
    }
}

#[test]
fn mismatched_calls_show_both_sides() {
    // Over the network alone; then also in the memory of nodes.
    for ranks in [3, 6] {
        let done = ranks::job(&["-n", &ranks.to_string(), "--nodes", "3"], "mismatch").finish();
        expect_mismatch(&done, ranks);
        assert!(done.stderr.contains("allreduce(count 3, i64, max)"), "{done:#?}");
        assert!(done.stderr.contains("allreduce(count 3, i64, sum)"), "{done:#?}");
    }
}

#[test]
fn ranks_that_are_many_calls_ahead_show_their_side() {
    // Bcasts without data have no messages, and a provider may close the connection over those that are too long.
    for (count, own) in [(0, "allreduce"), (1, "allreduce"), (1000, "barrier")] {
        let role = format!("ahead {count} {own}");
        let done = ranks::job(&["-n", "3", "--nodes", "3", "--timeout", "100"], &role).finish();
        expect_mismatch(&done, 3);
        let sides = [format!("called bcast(count {count}, i64, root 1)"), format!("called {own}(")];
        assert!(sides.iter().all(|side| done.stderr.contains(side)), "{done:#?}");
    }
}

/// What has come over the network before the mismatch was seen must not lie in a `&mut [bool]`.
#[test]
fn bytes_of_a_mismatch_do_not_stay_in_truth_values() {
    // Over the network alone, and in tasks.
    for (ranks, count) in [("2", "100"), ("2", "1000000"), ("4", "100"), ("4", "1000000")] {
        let done = ranks::job(&["-n", ranks, "--nodes", "2"], &format!("no-truth {count}")).finish();
        expect_mismatch(&done, ranks.parse().unwrap());
    }
}

#[test]
fn ranks_of_a_node_that_call_different_collectives_are_named() {
    // They wait for each other in different groups of their node, or for messages of different leaders.
    let calls = ["bcast", "reduce", "allreduce", "barrier"];
    let pairs = calls.iter().flat_map(|own| calls.iter().map(move |others| (*own, *others)));
    let pairs: Vec<_> = pairs.filter(|(own, others)| own != others).enumerate().collect();
    for some in pairs.chunks(AT_ONCE) {
        let start = |(number, (own, others)): &(usize, (&'static str, &'static str))| {
            let role = format!("differ {} {} {own} {others}", number % 4, [3, 30_000][number / 4 % 2]);
            let job = ranks::job(&["-n", "4", "--nodes", "2", "--timeout", "250"], &role);
            ([*own, *others], job.env("HAN_SET", "segment_bytes=16384").start())
        };
        let jobs: Vec<_> = some.iter().map(start).collect();
        for (names, job) in jobs {
            let done = job.finish();
            expect_mismatch(&done, 4);
            assert!(names.iter().all(|name| done.stderr.contains(&format!("called {name}("))), "{names:?}: {done:#?}");
        }
    }
}

#[test]
fn finalize_while_others_are_in_a_collective_is_named_on_every_node() {
    for rank in 0..4 {
        let done = ranks::job(&["-n", "4", "--nodes", "2"], &format!("leave-early {rank}")).finish();
        expect_mismatch(&done, 4);
        let names = ["called finalize()", "called allreduce(count 3, i64, sum)"];
        assert!(names.iter().all(|name| done.stderr.contains(name)), "{done:#?}");
    }
}

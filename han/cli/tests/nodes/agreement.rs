//! Ranks of several nodes agree on every call, wherever its messages go: those who differ are told, and nobody else is.

use std::time::Duration;

use han::{Communicator, Context, Operator, Result};

use crate::mismatch::expect_mismatch;
use crate::ranks;

/// The role of a rank of four on two nodes.
pub(crate) fn rank(what: &str) -> Result<()> {
    let context = Context::init()?;
    let world = context.world();
    let (own, mut words) = (world.rank(), [1_u64; 8]);
    match what {
        // The ranks of a node forget a bcast, after which all their calls match for a while.
        "forgotten" => {
            if own < 2 {
                world.bcast(&mut words, 1)?;
            }
            world.allreduce_in_place(&mut words, Operator::Sum)?;
            world.bcast(&mut words, 1)?;
            assert_eq!(own / 2, 0, "data of another call");
        }
        // On one node the call has no data, and so no messages.
        "empty" => world.bcast(&mut words[..own / 2], 1)?,
        // Each root's leaders are on a rail of their own.
        "roots" => world.bcast(&mut words, usize::from(own == 2))?,
        "rails" => rails(world)?,
        "halves" => halves(world)?,
        "tests" => tests(world)?,
        _ => panic!("no such role: {what}"),
    }
    world.barrier()?;
    if own == 0 {
        println!("well");
    }
    context.finalize()
}

/// Calls that match, on rails without a common rank, where one rank is late.
fn rails(world: &Communicator) -> Result<()> {
    let mut words = [1_u64; 8];
    let row = world.split(u32::try_from(world.rank() % 2).ok(), 0)?.unwrap();
    world.bcast(&mut words, 0)?;
    if world.rank() == 1 {
        std::thread::sleep(Duration::from_millis(500));
    }
    world.reduce_in_place(&mut words[..5], Operator::Sum, 2)?;
    row.allreduce_in_place(&mut words[..1], Operator::Max)
}

/// Calls that match, on communicators of disjoint ranks, which were made at the same time, where one rank is late.
fn halves(world: &Communicator) -> Result<()> {
    let mut words = [1_u64; 8];
    let of = |color: usize| Ok::<_, han::Error>(world.split(u32::try_from(color).ok(), 0)?.unwrap());
    let (half, rank) = (of(world.rank() / 2)?.dup()?, world.rank());
    let pair = of(rank % 2)?;
    if rank == 3 {
        std::thread::sleep(Duration::from_millis(500));
    }
    if rank < 2 {
        half.allreduce_in_place(&mut words[..3], Operator::Sum)?;
    } else {
        half.allreduce_in_place(&mut words, Operator::Max)?;
    }
    pair.allreduce_in_place(&mut words[..1], Operator::Sum)
}

/// What a rank has sent goes on while it tests an operation of its node, which waits for that in the end.
fn tests(world: &Communicator) -> Result<()> {
    let of = |color: usize| Ok::<_, han::Error>(world.split(u32::try_from(color).ok(), 0)?.unwrap());
    let rank = world.rank();
    let (node, pair) = (of(rank / 2)?, of(rank % 2)?);
    let mut words = [1_u64; 64];
    for _ in 0..50 {
        match rank {
            0 => {
                pair.bcast(&mut words, 0)?;
                let mut barrier = node.ibarrier()?;
                while !barrier.test()? {}
            }
            2 => {
                pair.bcast(&mut words, 0)?;
                node.barrier()?;
            }
            3 => {
                node.barrier()?;
                pair.bcast(&mut words, 1)?;
            }
            _ => {
                pair.bcast(&mut words, 1)?;
                node.barrier()?;
            }
        }
    }
    Ok(())
}

#[test]
fn ranks_that_differ_on_other_rails_are_told() {
    for (what, one, other) in [
        ("forgotten", "bcast(count 8, u64, root 1)", "allreduce(count 8, u64, sum)"),
        ("empty", "bcast(count 0, u64, root 1)", "bcast(count 1, u64, root 1)"),
        ("roots", "bcast(count 8, u64, root 0)", "bcast(count 8, u64, root 1)"),
    ] {
        let done = ranks::job(&["-n", "4", "--nodes", "2", "--timeout", "100"], &format!("agree {what}")).finish();
        expect_mismatch(&done, 4);
        let named = [one, other].iter().all(|call| done.stderr.contains(&format!("called {call}")));
        assert!(named && done.stderr.contains(" on communicator 0: "), "{what}: {done:#?}");
    }
}

#[test]
fn messages_go_on_while_a_rank_tests_an_operation_of_its_node() {
    let job = ranks::job(&["-n", "4", "--nodes", "2", "--timeout", "100"], "agree tests");
    // Its sends move only while their sender looks at the network.
    let done = job.env("HAN_PROVIDER", "sockets").finish();
    assert!(done.code == 0 && done.stdout.contains("well"), "{done:#?}");
}

#[test]
fn ranks_that_agree_on_different_rails_are_not_taken_for_others() {
    for (what, nodes) in [("rails", "2"), ("halves", "4")] {
        let done = ranks::job(&["-n", "4", "--nodes", nodes], &format!("agree {what}")).finish();
        assert!(done.code == 0 && done.stdout.contains("well"), "{what}: {done:#?}");
    }
}

//! A child of a rank has a copy of all that the rank has, and must not act in its name.
#![allow(unsafe_code)] // forks

use std::time::Duration;

use han::{Context, Error, Operator, Result};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::{finish, roles};

/// The role: a child tries everything, and the ranks go on as if it were not there.
pub(crate) fn rank() -> Result<()> {
    let context = Context::init()?;
    let world = context.world().clone();
    let mut begun = world.iallreduce(vec![1_u64; 5], Operator::Sum)?;
    let mut vector = vec![1_u64; 5000];
    // SAFETY: this test has one thread that matters, and the child calls what a child may call.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let refused = |what: &str, outcome: Result<()>| match outcome {
                Err(Error::Forked) => {}
                other => {
                    eprintln!("the child's {what}: {other:?}");
                    std::process::abort();
                }
            };
            refused("barrier", world.barrier());
            refused("ibarrier", world.ibarrier().map(drop));
            refused("bcast", world.bcast(&mut vector, 0));
            refused("reduce", world.reduce_in_place(&mut vector, Operator::Sum, 0));
            refused("allreduce", world.allreduce_in_place(&mut vector, Operator::Sum));
            refused("dup", world.dup().map(drop));
            refused("split", world.split(Some(0), 0).map(drop));
            refused("alloc", world.alloc::<u8>(5000).map(drop));
            refused("registered", context.with_registered(&mut vector, |_| ()));
            refused("test", begun.test().map(drop));
            refused("wait", begun.wait().map(drop));
            context.announce_abort(1, "the child says so");
            context.give_up("the child says so");
            refused("finalize", context.finalize());
            std::process::exit(0);
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
    }
    assert_eq!(begun.wait()?, [world.size() as u64; 5]);
    world.barrier()?;
    context.finalize()
}

/// The role: a child drops all that it has inherited, and the ranks go on as if it were not there.
pub(crate) fn tidy_child() -> Result<()> {
    let context = Context::init()?;
    let other = context.world().dup()?;
    other.barrier()?;
    let is_first = other.rank() == 0;
    let begun = other.ibcast(vec![if is_first { 7 } else { 0_u8 }; 100], 0)?;
    if is_first {
        // SAFETY: this test has one thread that matters, and the child calls what a child may call.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                drop((begun, other));
                drop(context);
                std::process::exit(0);
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
                // The others wait for this rank meanwhile, and look around.
                std::thread::sleep(Duration::from_millis(500));
            }
        }
    }
    other.barrier()?;
    assert_eq!(begun.wait()?, [7; 100]);
    context.world().barrier()?;
    context.finalize()
}

#[test]
fn what_a_forked_child_drops_ends_nothing() {
    finish(roles::job(2, "tidy-child")).expect(0, &[]);
    finish(roles::job_over_nodes(3, "tidy-child")).expect(0, &[]);
}

#[test]
fn a_forked_child_is_no_rank() {
    finish(roles::job(2, "fork")).expect(0, &[]);
}

//! Ranks that are far ahead of others: how far they may be, and what becomes of them then.

use std::time::Duration;

use net_fabric::algorithm::Algorithm;
use net_fabric::engine::{Key, Watch};
use net_fabric::transport::loopback::Options;

use crate::rig::{Case, Part};
use crate::vigil::{ALLREDUCE, BCAST, patient, world};

#[test]
fn who_is_too_far_ahead_waits_and_says_for_whom() {
    const CALLS: u32 = 5000;
    let watch = Watch { speak_after: Some(Duration::from_millis(30)), ..patient() };
    let far_ahead = || {
        let mut world = world(2, watch, Options::default());
        world.still = vec![1];
        (0..CALLS).for_each(|sequence| world.start(0, BCAST, sequence));
        let begun = CALLS as usize - world.engines[0].outstanding();
        assert_eq!(begun, 1024, "the other rank keeps no more of its messages");
        world.until("watchdog", |world| {
            let what = " s in bcast(count 4, root 0) #1024 on communicator 0 for rank 1, which has";
            world.said().iter().any(|line| line.starts_with("rank 0 has waited ") && line.contains(what))
        });
        world
    };
    let mut world = far_ahead();
    world.still.clear();
    // Each operation of another communicator begins at once.
    for rank in 0..2 {
        world.start_on(rank, ALLREDUCE, Key { communicator: 1, sequence: 0 });
    }
    world.until("the allreduce", |world| world.engines[1].outstanding() == 0);
    assert_eq!(world.engines[0].outstanding(), CALLS as usize - 1024);
    for sequence in 0..CALLS {
        world.start(1, BCAST, sequence);
        world.step();
    }
    world.finish();
    assert!(world.errors.iter().all(Option::is_none), "{:?}", world.errors);
    world.parts.iter().for_each(Part::check);

    let mut world = far_ahead();
    world.engines.truncate(1);
    let error = world.common_error(&[0]).to_string();
    let expected = "rank 1 cannot be reached: its end of the loopback was dropped; found by rank 0 in bcast(count 4, \
                    root 0) #1024 on communicator 0";
    assert_eq!(error, expected);
}

/// A rank may have received messages of an operation, and say so, before their sender has completed it.
#[test]
fn ranks_that_send_each_other_many_messages_hear_of_all() {
    let mut world = world(2, patient(), Options::default());
    let case = Case { algorithm: Algorithm::Rabenseifner, count: 300, chunk_bytes: 4, ..ALLREDUCE };
    for sequence in 0..60 {
        (0..2).for_each(|rank| world.start(rank, case, sequence));
        // Rank 1 has done its part long before rank 0 has.
        let mut steps = 0;
        while world.engines[1].outstanding() > 0 {
            steps += 1;
            assert!(steps < 100_000, "call {sequence} hangs");
            world.still = vec![0];
            (0..10).for_each(|_| world.step());
            world.still.clear();
            world.step();
        }
        world.still.clear();
        world.finish();
    }
    assert!(world.errors.iter().all(Option::is_none), "{:?}", world.errors);
    world.parts.iter().for_each(Part::check);
}

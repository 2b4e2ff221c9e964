//! The same engine over libfabric, on this machine's loopback interface.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use net_fabric::Error;
use net_fabric::algorithm::{Algorithm, Collective, Tree};
use net_fabric::engine::{Engine, Key, Watch};
use net_fabric::transport::Transport;
use net_fabric::transport::ofi::{Config, OfiTransport, world_here};

use crate::exact::everything;
use crate::rig::{Case, DEADLINE, Part};
use crate::vigil::{ALLREDUCE, BCAST, Notebook, SECRET, World, patient};

fn ranks(size: usize) -> Vec<OfiTransport> {
    ranks_over("tcp", size)
}

fn ranks_over(provider: &str, size: usize) -> Vec<OfiTransport> {
    world_here(&Config { providers: vec![provider.to_owned()], ..Config::default() }, size).unwrap()
}

/// The errors of ranks that each do `case`, in threads of their own: while one listens or says its last words, the
/// others go on.
fn failures_apart(ranks: Vec<OfiTransport>, case: impl Fn(usize) -> Case + Sync) -> Vec<Error> {
    let (size, case, failed) = (ranks.len(), &case, &AtomicUsize::new(0));
    let rank = move |rank: usize, transport: OfiTransport| {
        let mut engine = Engine::watched(
            transport,
            SECRET,
            // The other rank may be without a core for a while.
            Watch { listen: Duration::from_secs(3), ..Watch::default() },
            Box::<Notebook>::default(),
        );
        let mut part = case(rank).part(rank, size, 0);
        let started = Instant::now();
        let mut error = part.try_start(&mut engine, Key { communicator: 0, sequence: 0 }).err();
        while error.is_none() {
            assert!(started.elapsed() < DEADLINE, "rank {rank} must fail");
            error = engine.progress().and_then(|_| engine.look()).err();
            error = error.or_else(|| engine.transport_mut().sleep(Duration::from_millis(1)).err());
        }
        // The others hear of it, however slow they are.
        failed.fetch_add(1, Ordering::Relaxed);
        while failed.load(Ordering::Relaxed) < size && started.elapsed() < DEADLINE {
            let _ = engine.progress();
        }
        error.unwrap()
    };
    std::thread::scope(|scope| {
        let threads =
            ranks.into_iter().enumerate().map(|(number, transport)| scope.spawn(move || rank(number, transport)));
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn other_lengths_are_a_mismatch_on_both_sides() {
    let native = [("tcp", [4, 5]), ("tcp", [400, 4]), ("tcp", [4, 100_000])];
    let others = ["tcp;ofi_rxm", "sockets", "udp;ofi_rxd"].map(|provider| (provider, [400, 4]));
    // All at once: most of the time they wait.
    std::thread::scope(|scope| {
        for (provider, counts) in native.into_iter().chain(others) {
            scope.spawn(move || {
                let case = |rank| Case { count: counts[rank], chunk_bytes: 1 << 20, ..ALLREDUCE };
                for error in failures_apart(ranks_over(provider, 2), case) {
                    let text = error.to_string();
                    assert!(matches!(error, Error::Mismatch(_)), "{provider}, {counts:?}: {text}");
                    let shown = |rank: usize| {
                        text.contains(&format!("rank {rank} called allreduce(count {}, root 0)", counts[rank]))
                    };
                    // `ofi_rxm` may not find back to the other side: then a rank knows its own call alone.
                    let is_enough = if provider == "tcp;ofi_rxm" { shown(0) || shown(1) } else { shown(0) && shown(1) };
                    assert!(is_enough, "{provider}, {counts:?}: {text}");
                }
            });
        }
    });
}

#[test]
fn algorithms_are_exact_and_may_all_be_under_way() {
    let mut world = World::new(ranks(4), Watch::default());
    let cases = everything(4, Case { count: 3000, chunk_bytes: 2000, root: 2, ..ALLREDUCE });
    for (sequence, case) in (0..).zip(cases) {
        for rank in 0..4 {
            world.start(rank, case, sequence);
        }
        if sequence % 5 == 4 {
            world.finish();
        }
    }
    world.finish();
    assert!(world.errors.iter().all(Option::is_none), "{:?}", world.errors);
    world.parts.iter().for_each(Part::check);
}

#[test]
fn notes_leave_room_for_messages_however_many_the_ranks() {
    // Fewer places for messages than there are ranks that a note could come from.
    let config = Config { providers: vec!["tcp".to_owned()], outstanding: 16, ..Config::default() };
    let mut world = World::new(world_here(&config, 20).unwrap(), Watch::default());
    for sequence in 0..2 {
        for rank in 0..20 {
            world.start(rank, ALLREDUCE, sequence);
        }
        world.finish();
    }
    assert!(world.errors.iter().all(Option::is_none), "{:?}", world.errors);
    world.parts.iter().for_each(Part::check);
}

#[test]
fn notes_are_heard_however_many_messages_are_awaited() {
    let config = Config { providers: vec!["tcp;ofi_rxm".to_owned()], outstanding: 16, ..Config::default() };
    let watch = Watch { ask_after: Duration::from_millis(1), ..patient() };
    let mut world = World::new(world_here(&config, 2).unwrap(), watch);
    // Rank 0 would have more receives posted than there is room for, and one takes the place of any other that ends.
    for communicator in 1..41 {
        world.start_on(0, Case { root: 1, ..BCAST }, Key { communicator, sequence: 0 });
    }
    // Rank 1 asks it for something else, more often than there are receives for notes.
    world.start(1, ALLREDUCE, 0);
    let begun = Instant::now();
    world.until("ten questions", |_| begun.elapsed() > Duration::from_millis(1500));
    world.errors[1] = Some(world.engines[1].abort("enough"));
    assert_eq!(world.common_error(&[0, 1]).to_string(), "rank 1 aborted the job: enough");
}

#[test]
fn younger_operations_leave_room_for_the_oldest_of_another_communicator() {
    // Its sends wait for their receives, of which those of the first three communicators would take all.
    let config = Config { providers: vec!["tcp;ofi_rxm".to_owned()], outstanding: 64, ..Config::default() };
    let mut world = World::new(world_here(&config, 2).unwrap(), Watch::default());
    let case = Case { count: 30_000, chunk_bytes: 40_000, ..BCAST };
    let many: Vec<_> =
        (0..3).flat_map(|communicator| (0..30).map(move |sequence| Key { communicator, sequence })).collect();
    let last = Key { communicator: 3, sequence: 0 };
    many.iter().chain([&last]).for_each(|&key| world.start_on(1, case, key));
    // The root waits for the last one before it begins the others.
    world.start_on(0, case, last);
    world.until("the last one", |world| world.engines[0].outstanding() == 0);
    many.into_iter().for_each(|key| world.start_on(0, case, key));
    world.finish();
    assert!(world.errors.iter().all(Option::is_none), "{:?}", world.errors);
    world.parts.iter().for_each(Part::check);
}

#[test]
fn one_operation_with_many_peers_leaves_room_for_another_communicators() {
    // Some of the places are for receives of notes.
    let config = Config { providers: vec!["tcp;ofi_rxm".to_owned()], outstanding: 16, ..Config::default() };
    // Short messages, and such as are sent only when they are awaited.
    for (collective, count) in
        [(Collective::Allreduce, 2), (Collective::Allreduce, 30_000), (Collective::Bcast, 30_000)]
    {
        let mut world = World::new(world_here(&config, 12).unwrap(), Watch::default());
        let case = Case { collective, algorithm: Algorithm::Tree(Tree::Linear), count, chunk_bytes: 40_000, ..BCAST };
        let of = |communicator| Key { communicator, sequence: 0 };
        world.start_on(0, case, of(0));
        world.start_on(0, case, of(1));
        (1..12).for_each(|rank| world.start_on(rank, case, of(1)));
        world.until("the second one", |world| world.engines[1..].iter().all(|engine| engine.outstanding() == 0));
        (1..12).for_each(|rank| world.start_on(rank, case, of(0)));
        world.finish();
        assert!(world.errors.iter().all(Option::is_none), "{:?}", world.errors);
        world.parts.iter().for_each(Part::check);
    }
}

#[test]
fn a_rank_that_is_gone_is_named_by_all() {
    let mut world = World::new(ranks(4), Watch::default());
    for rank in 0..4 {
        world.start(rank, ALLREDUCE, 0);
    }
    world.finish();
    // Nobody has anything to do with rank 3 but the one that waits for it.
    world.engines.truncate(3);
    for rank in 0..3 {
        world.start(rank, ALLREDUCE, 1);
    }
    for error in world.failures(&[0, 1, 2]) {
        assert!(matches!(error, Error::Unreachable { rank: 3, .. }), "{error}");
    }
}

#[test]
fn other_calls_are_a_mismatch() {
    let mut world = World::new(ranks(2), Watch::default());
    for (rank, root) in [(0, 0), (1, 1)] {
        world.start(rank, Case { root, ..ALLREDUCE }, 0);
    }
    let error = world.common_error(&[0, 1]).to_string();
    let expected = "mismatched collective: operation #0 on communicator 0: rank 0 called allreduce(count 4, root 0), \
                    but rank 1 called allreduce(count 4, root 1)";
    assert_eq!(error, expected);
}

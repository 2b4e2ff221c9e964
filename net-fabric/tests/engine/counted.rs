//! Messages are counted where they are sent: NAP has no more between nodes than it promises.

use std::sync::Arc;
use std::time::Instant;

use net_fabric::algorithm::{Algorithm, Collective, Shape, Topology};
use net_fabric::engine::{Engine, Fingerprint, Handle, Key, Operands, Policy, Settings, Work};
use net_fabric::schedule::{Action, Schedule};
use net_fabric::transport::loopback::Options;
use net_fabric::transport::{Loopback, Transport};
use reduce_kernels::{Datatype, Operator};

use crate::rig::DEADLINE;

const POLICIES: [Policy; 3] = [Policy::Blocking, Policy::WaitAll, Policy::EventDriven { sends: 1, recvs: 2 }];

/// Sums three numbers of each rank in place, and returns what each rank has sent to each.
fn sums(algorithm: Algorithm, places: &[usize], policy: Policy) -> Vec<Vec<u64>> {
    let size = places.len();
    let topology = Topology::new(&[places]);
    let shape =
        Shape { size, bytes: 24, element_bytes: 8, in_place: true, topology: Some(&topology), ..Shape::default() };
    let build = |rank| algorithm.build(Collective::Allreduce, &Shape { rank, ..shape }).unwrap();
    let schedules: Vec<Arc<Schedule>> = (0..size).map(|rank| Arc::new(build(rank))).collect();
    let mut vectors: Vec<[u64; 3]> = (0..size as u64).map(|rank| [rank, rank * rank, 1]).collect();
    let world = Loopback::world(size, Options { synchronous: true, ..Options::default() });
    let mut engines: Vec<_> = world.into_iter().map(|rank| Engine::new(rank, Settings::default()).counting()).collect();
    let start = |((engine, schedule), vector): ((&mut Engine<Loopback>, &Arc<Schedule>), &mut [u64; 3])| {
        let operands = Operands::new(std::ptr::null(), 0, vector.as_mut_ptr().cast(), 24);
        let work = Work {
            schedule: Arc::clone(schedule),
            operands: operands.reduced_by(Operator::Sum, Datatype::Uint64),
            policy,
            key: Key { communicator: 0, sequence: 0 },
            fingerprint: Fingerprint::default(),
            part_of: None,
            group: None,
        };
        // SAFETY: the vectors are used again when all operations have completed.
        unsafe { engine.start(work) }.unwrap()
    };
    let handles: Vec<Handle> = engines.iter_mut().zip(&schedules).zip(&mut vectors).map(start).collect();
    let started = Instant::now();
    while !engines.iter().zip(&handles).all(|(engine, handle)| engine.test(*handle).unwrap()) {
        for engine in &mut engines {
            engine.progress().unwrap();
        }
        assert!(started.elapsed() < DEADLINE, "{algorithm} under {policy:?} on {places:?}");
    }
    let sum = |of: fn(u64) -> u64| (0..size as u64).map(of).sum::<u64>();
    let expected = [sum(|rank| rank), sum(|rank| rank * rank), sum(|_| 1)];
    assert!(vectors.iter().all(|vector| *vector == expected), "{algorithm} on {places:?}: {vectors:?}");
    // All that the schedules say, and nothing else.
    for (engine, schedule) in engines.iter().zip(&schedules) {
        let mut sends = vec![0; size];
        for step in schedule.steps() {
            if let Action::Send { peer, .. } = step.action {
                sends[peer as usize] += 1;
            }
        }
        assert_eq!(engine.sent(), sends, "{algorithm}: rank {}", engine.transport().rank());
    }
    engines.iter().map(|engine| engine.sent().to_vec()).collect()
}

/// The most messages that a rank has sent to other nodes.
fn most_to_other_nodes(sent: &[Vec<u64>], places: &[usize]) -> u64 {
    let far = |rank: usize| (0..places.len()).filter(|&to| places[to] != places[rank]).map(|to| sent[rank][to]).sum();
    (0..places.len()).map(far).max().unwrap()
}

#[test]
fn nap_sends_no_more_between_nodes_than_it_promises() {
    // As many nodes as a power of their ranks, as divide by these (figure 8), as do not (figure 9), and very few.
    for (nodes, ppn, logarithm) in [
        (4, 2, 2),
        (9, 3, 2),
        (16, 4, 2),
        (6, 2, 3),
        (12, 4, 2),
        (3, 2, 2),
        (5, 2, 3),
        (10, 4, 2),
        (2, 4, 1),
        (1, 5, 0),
    ] {
        let places: Vec<usize> = (0..nodes * ppn).map(|rank| rank / ppn).collect();
        for policy in POLICIES {
            let sent = sums(Algorithm::Nap, &places, policy);
            assert_eq!(most_to_other_nodes(&sent, &places), logarithm, "{nodes} nodes of {ppn}");
        }
        // Recursive doubling sends as many as there are doublings of the nodes.
        if nodes.is_power_of_two() && ppn.is_power_of_two() {
            let sent = sums(Algorithm::RecursiveDoubling, &places, Policy::WaitAll);
            assert_eq!(most_to_other_nodes(&sent, &places), u64::from(nodes.ilog2()), "{nodes} nodes of {ppn}");
        }
    }
    // The smallest of unequal nodes says how many ranks exchange: two, so two steps join four nodes.
    let places = [0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 3, 3];
    assert_eq!(most_to_other_nodes(&sums(Algorithm::Nap, &places, Policy::WaitAll), &places), 2);
}

#[test]
fn who_does_not_count_knows_nothing() {
    let engine = Engine::new(Loopback::world(1, Options::default()).pop().unwrap(), Settings::default());
    assert!(engine.sent().is_empty());
}

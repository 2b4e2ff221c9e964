//! Times of a few messages, worked out by hand. What all transports have in common is tested with the others.
#![allow(clippy::unwrap_used)]

use super::*;

const SMALL: usize = 100;
const LARGE: usize = 20_000;

/// One socket a node, so that all ranks of a node are equally far.
fn machine(model: Model) -> Machine {
    let machine = Machine { sockets_per_node: 1, ..Machine::shipped("generic").unwrap() };
    machine.under(model).unwrap()
}

fn world(model: Model, nodes: usize, ppn: usize, noise: Noise) -> (Simulation, Vec<Simulated>) {
    let (mut simulation, ranks) = Simulation::new(machine(model), Layout::new(nodes, ppn).unwrap(), noise).unwrap();
    if noise == Noise::None {
        for rank in 0..nodes * ppn {
            assert_eq!(simulation.next_rank(), Some(rank));
        }
    }
    (simulation, ranks)
}

fn send(rank: &mut Simulated, peer: usize, tag: u64, bytes: usize) {
    // SAFETY: null is taken.
    let posted = unsafe { rank.send(peer, Tag(tag), 7, std::ptr::null(), bytes, Token(tag)) };
    assert_eq!(posted.unwrap(), Posted::Pending);
}

fn receive(rank: &mut Simulated, peer: usize, tag: u64, bytes: usize) {
    // SAFETY: null is taken.
    let posted = unsafe { rank.receive(peer, Tag(tag), std::ptr::null_mut(), bytes, Token(100 + tag)) };
    assert_eq!(posted.unwrap(), Posted::Pending);
}

/// Lets everything happen; when which token of which rank completed.
fn run(simulation: &mut Simulation, ranks: &mut [Simulated]) -> Vec<(usize, u64, Seconds)> {
    let mut seen = Vec::new();
    while let Some(rank) = simulation.next_rank() {
        let mut completed = Vec::new();
        ranks[rank].progress(&mut completed).unwrap();
        for completion in completed {
            completion.outcome.unwrap();
            seen.push((rank, completion.token.0, simulation.now(rank)));
        }
    }
    seen.sort_by_key(|&(rank, token, _)| (rank, token));
    seen
}

fn assert_times(seen: &[(usize, u64, Seconds)], expected: &[(usize, u64, Seconds)]) {
    assert_eq!(seen.len(), expected.len(), "{seen:?}");
    for (seen, expected) in seen.iter().zip(expected) {
        assert_eq!((seen.0, seen.1), (expected.0, expected.1));
        assert!((seen.2 / expected.2 - 1.0).abs() < 1e-9, "{seen:?} is not {expected:?}");
    }
}

#[test]
fn postal_messages_of_one_rank_follow_each_other() {
    let (mut simulation, mut ranks) = world(Model::Postal, 3, 1, Noise::None);
    for (peer, tag) in [(1, 1), (2, 2)] {
        receive(&mut ranks[peer], 0, tag, SMALL);
        send(&mut ranks[0], peer, tag, SMALL);
    }
    let one = 1.2e-6 + 100.0 * 4e-10;
    let expected = [(0, 1, one), (0, 2, 2.0 * one), (1, 101, one), (2, 102, 2.0 * one)];
    assert_times(&run(&mut simulation, &mut ranks), &expected);
}

#[test]
fn a_receiver_takes_bytes_one_message_after_the_other() {
    let (mut simulation, mut ranks) = world(Model::Postal, 3, 1, Noise::None);
    for sender in [1, 2] {
        receive(&mut ranks[0], sender, 0, LARGE);
        send(&mut ranks[sender], 0, 0, LARGE);
    }
    let bytes = 20_000.0 * 1e-10;
    let seen = run(&mut simulation, &mut ranks);
    let expected = [4e-6 + bytes, 4e-6 + 2.0 * bytes];
    assert_times(&seen[..2], &[(0, 100, expected[0]), (0, 100, expected[1])]);
}

#[test]
fn loggp_counts_both_processors_and_the_gap() {
    let (mut simulation, mut ranks) = world(Model::Loggp, 2, 1, Noise::None);
    for tag in [1, 2] {
        receive(&mut ranks[1], 0, tag, SMALL);
        send(&mut ranks[0], 1, tag, SMALL);
    }
    let (l, o, g, byte) = (8e-7, 2e-7, 2e-7, 1e-10);
    let first = o + 99.0 * byte;
    // The second message's overhead is over before the gap behind the first.
    let second = first + g + 99.0 * byte;
    let expected = [(0, 1, 2.0 * o), (0, 2, second), (1, 101, first + l + o), (1, 102, second + l + o)];
    assert_times(&run(&mut simulation, &mut ranks), &expected);
}

#[test]
fn ranks_of_a_node_share_what_it_can_inject() {
    for ppn in [1, 2, 8] {
        let (mut simulation, mut ranks) = world(Model::MaxRate, 2, ppn, Noise::None);
        for rank in 0..ppn {
            receive(&mut ranks[ppn + rank], rank, 0, LARGE);
            send(&mut ranks[rank], ppn + rank, 0, LARGE);
        }
        let total = 20_000.0 * length(ppn);
        let time = 4e-6 + total / f64::min(12.5e9, length(ppn) * 1e10);
        let expected: Vec<_> = (0..2 * ppn).map(|rank| (rank, if rank < ppn { 0 } else { 100 }, time)).collect();
        assert_times(&run(&mut simulation, &mut ranks), &expected);
    }
}

#[test]
fn an_unexpected_message_is_copied_and_a_large_one_waits() {
    let (mut simulation, mut ranks) = world(Model::Postal, 2, 1, Noise::None);
    send(&mut ranks[0], 1, 1, SMALL);
    send(&mut ranks[0], 1, 2, LARGE);
    assert_times(&run(&mut simulation, &mut ranks), &[(0, 1, 1.24e-6)]);
    ranks[1].work(0, 1_000_000);
    let late = 1.24e-6 + 1e-4;
    receive(&mut ranks[1], 0, 1, SMALL);
    receive(&mut ranks[1], 0, 2, LARGE);
    let (copied, large) = (late + 100.0 * 1e-10, late + 1e-8 + 4e-6 + 2e-6);
    assert_times(&run(&mut simulation, &mut ranks), &[(0, 2, large), (1, 101, copied), (1, 102, large)]);
}

#[test]
fn a_delayed_rank_notices_late_what_moves_without_it() {
    let noise = Noise::Once { rank: 1, start_s: 0.0, length_s: 1e-3 };
    let (mut simulation, mut ranks) = world(Model::Postal, 2, 1, noise);
    assert_eq!(simulation.next_rank(), Some(0));
    send(&mut ranks[0], 1, 1, SMALL);
    receive(&mut ranks[1], 0, 1, SMALL);
    assert_times(&run(&mut simulation, &mut ranks), &[(0, 1, 1.24e-6), (1, 101, 1e-3)]);
}

#[test]
fn a_rendezvous_begins_when_both_run() {
    let mut fallen_asleep = 0;
    for seed in 0..100 {
        let noise = Noise::Periodic { rank: None, low_s: 0.0, high_s: 8e-3, period_s: 1e-2, seed };
        let (mut simulation, mut ranks) = world(Model::Postal, 2, 1, noise);
        send(&mut ranks[0], 1, 1, LARGE);
        receive(&mut ranks[1], 0, 1, LARGE);
        let mut begin = 0.0;
        while let Some(rank) = [0, 1].into_iter().find(|&rank| noise.awake(rank, begin) > begin) {
            begin = noise.awake(rank, begin);
        }
        let ends = [0, 1].map(|rank| noise.awake(rank, begin + 4e-6 + 2e-6));
        assert_times(&run(&mut simulation, &mut ranks), &[(0, 1, ends[0]), (1, 101, ends[1])]);
        fallen_asleep += usize::from(begin > noise.awake(0, 0.0).max(noise.awake(1, 0.0)));
    }
    assert!(fallen_asleep > 0, "no rank falls asleep while it waits for the other");
}

#[test]
fn data_go_where_they_are_received() {
    let mut ranks = Simulated::world(machine(Model::MaxRate), Layout::new(2, 1).unwrap()).unwrap();
    let sent: Vec<u8> = (0..200).collect();
    let mut received = vec![0; 200];
    // SAFETY: the vector outlives the world and is not written.
    unsafe { ranks[0].send(1, Tag(5), 9, sent.as_ptr(), 200, Token(1)) }.unwrap();
    // SAFETY: the vector is looked at after the completion only.
    unsafe { ranks[1].receive(0, Tag(5), received.as_mut_ptr(), 200, Token(2)) }.unwrap();
    let mut completed = Vec::new();
    while completed.is_empty() {
        ranks[1].progress(&mut completed).unwrap();
    }
    assert_eq!((completed[0].token, completed[0].word), (Token(2), 9));
    assert_eq!(received, sent);
}

#[allow(clippy::cast_precision_loss)]
fn length(ppn: usize) -> f64 {
    ppn as f64
}

//! The allreduces that know nodes: proved for all small shapes, what they send between nodes counted.

use net_fabric::algorithm::{Algorithm, Collective, Shape, Topology};
use net_fabric::schedule::{Action, Schedule};
use net_fabric::verify::verify;

/// Everybody's schedule, proved.
fn proved(algorithm: Algorithm, shape: &Shape<'_>, nodes: &[usize]) -> Vec<Schedule> {
    let build = |rank| algorithm.build(Collective::Allreduce, &Shape { rank, ..*shape }).expect("it applies");
    let schedules: Vec<Schedule> = (0..shape.size).map(build).collect();
    if let Err(fault) = verify(Collective::Allreduce, shape, &schedules) {
        panic!("{algorithm} of {} bytes, {nodes:?}: {fault}", shape.bytes);
    }
    schedules
}

/// Proves the allreduce where rank r is on node `nodes[r]`, in rank order if it can be, and returns the most messages
/// that a rank sends to other nodes for one chunk.
fn prove(nodes: &[usize], chunks: usize) -> usize {
    let topology = Topology::new(&[nodes]);
    let shape = Shape {
        size: nodes.len(),
        bytes: 8 * (2 * chunks - 1),
        element_bytes: 8,
        chunk_bytes: 16,
        slots: 1 + chunks % 3,
        in_place: chunks.is_multiple_of(2),
        topology: Some(&topology),
        ..Shape::default()
    };
    let ordered = Shape { commutative: false, ..shape };
    let in_order = Algorithm::Nap.applies(Collective::Allreduce, &ordered).is_ok();
    assert_eq!(in_order, nodes.is_sorted_by_key(|node| nodes.iter().position(|other| other == node)), "{nodes:?}");
    let shape = if in_order { ordered } else { shape };
    let schedules = proved(Algorithm::Nap, &shape, nodes);
    let far = |(rank, schedule): (usize, &Schedule)| {
        let is_far = |action| matches!(action, Action::Send { peer, .. } if nodes[peer as usize] != nodes[rank]);
        schedule.steps().filter(|step| is_far(step.action)).count()
    };
    let most = schedules.iter().enumerate().map(far).max().unwrap_or(0);
    assert_eq!(most % chunks, 0, "{nodes:?}: each chunk goes the same way");
    most / chunks
}

/// The logarithm to `base`, rounded up.
fn log(base: usize, number: usize) -> usize {
    (0..).find(|&power| base.pow(power) >= number).expect("base 2 or more") as usize
}

fn blocks(nodes: usize, ppn: usize) -> Vec<usize> {
    (0..nodes * ppn).map(|rank| rank / ppn).collect()
}

#[test]
fn every_number_of_nodes_and_ranks_has_the_fewest_messages() {
    for ppn in 2..=8 {
        for nodes in 1..=40 {
            let most = prove(&blocks(nodes, ppn), 1 + nodes % 3);
            assert_eq!(most, log(ppn, nodes), "{nodes} nodes of {ppn}");
        }
    }
    for (nodes, ppn) in [(64, 4), (81, 3), (65, 8), (100, 10), (256, 16), (257, 16)] {
        assert_eq!(prove(&blocks(nodes, ppn), 1), log(ppn, nodes), "{nodes} nodes of {ppn}");
    }
}

#[test]
fn with_one_rank_a_node_it_is_recursive_doubling() {
    for size in 1..=20 {
        let nodes: Vec<usize> = (0..size).collect();
        let topology = Topology::new(&[&nodes]);
        let shape = Shape { size, bytes: 40, element_bytes: 8, topology: Some(&topology), ..Shape::default() };
        for rank in 0..size {
            let build = |algorithm: Algorithm| {
                let schedule = algorithm.build(Collective::Allreduce, &Shape { rank, ..shape }).expect("it applies");
                schedule.steps().map(|step| step.action).collect::<Vec<_>>()
            };
            assert_eq!(build(Algorithm::Nap), build(Algorithm::RecursiveDoubling));
        }
        prove(&nodes, 2);
    }
}

#[test]
fn nodes_may_be_unequal_and_ranks_anywhere() {
    // The smallest node says how many ranks of each exchange.
    assert_eq!(prove(&[0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 3, 3], 2), 2);
    assert_eq!(prove(&[0, 0, 1, 0, 1, 1, 2, 2, 3, 2, 3, 3], 2), 2);
    // A node of one rank: only leaders talk, as many times as they double.
    assert_eq!(prove(&[0, 0, 0, 1, 2, 2, 3, 3], 1), 2);
    let mut state = 1_u64;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("31 bits") % limit
    };
    for _ in 0..40 {
        let (count, least) = (1 + below(60), 2 + below(6));
        let mut nodes: Vec<usize> = (0..count).flat_map(|node| std::iter::repeat_n(node, least + below(4))).collect();
        let smallest = (0..count).map(|node| nodes.iter().filter(|&&other| other == node).count()).min();
        if below(2) == 0 {
            for rank in (1..nodes.len()).rev() {
                nodes.swap(rank, below(rank + 1));
            }
        }
        assert_eq!(prove(&nodes, 1 + below(3)), log(smallest.expect("a node"), count), "{nodes:?}");
    }
}

#[test]
fn leaders_share_what_goes_between_nodes() {
    for (nodes, ppn) in [(1, 5), (2, 1), (2, 4), (3, 3), (5, 2), (4, 6), (8, 3), (7, 7)] {
        let places = blocks(nodes, ppn);
        let topology = Topology::new(&[&places]);
        for leaders in 1..=ppn {
            let algorithm = Algorithm::Leaders(u32::try_from(leaders).expect("few"));
            for elements in [0, 1, leaders, 7 * leaders * nodes + 3] {
                let shape = Shape {
                    size: nodes * ppn,
                    bytes: 8 * elements,
                    element_bytes: 8,
                    chunk_bytes: 24,
                    slots: 1 + elements % 3,
                    in_place: leaders.is_multiple_of(2),
                    commutative: false,
                    topology: Some(&topology),
                    ..Shape::default()
                };
                let sent = |(rank, schedule): (usize, &Schedule)| {
                    let far = |action| match action {
                        Action::Send { peer, from, .. } if places[peer as usize] != places[rank] => from.bytes,
                        _ => 0,
                    };
                    schedule.steps().map(|step| far(step.action)).sum::<usize>()
                };
                let schedules = proved(algorithm, &shape, &places);
                let sent: Vec<usize> = schedules.iter().enumerate().map(sent).collect();
                assert!((0..sent.len()).all(|rank| rank % ppn < leaders || sent[rank] == 0), "only leaders: {sent:?}");
                // Of its slice each sends less than twice the bytes, and where the nodes are no power of two once more;
                // halves of it may be an element longer.
                let slice = 8 * (elements.div_ceil(leaders) + 2 * log(2, nodes));
                let whole = if nodes.is_power_of_two() { 2 } else { 3 };
                assert!(sent.iter().all(|&bytes| bytes <= whole * slice), "{leaders} leaders: {sent:?} of {slice}");
            }
        }
    }
    // Unequal nodes, ranks anywhere.
    let places = [0, 1, 0, 1, 2, 2, 2, 0, 1, 2, 1, 1];
    let topology = Topology::new(&[&places]);
    let shape = Shape { size: 12, bytes: 800, element_bytes: 8, topology: Some(&topology), ..Shape::default() };
    for leaders in 1..=5 {
        proved(Algorithm::Leaders(leaders), &shape, &places);
    }
}

#[test]
fn what_cannot_keep_rank_order_is_refused() {
    let topology = Topology::new(&[&[0, 1, 0, 1]]);
    let shape = Shape { size: 4, bytes: 8, element_bytes: 8, topology: Some(&topology), ..Shape::default() };
    assert_eq!(Algorithm::Nap.applies(Collective::Allreduce, &shape), Ok(()));
    let refused = |shape: Shape<'_>| Algorithm::Nap.applies(Collective::Allreduce, &shape).expect_err("refused");
    assert!(refused(Shape { commutative: false, ..shape }).contains("not placed in order"));
    assert!(refused(Shape { topology: None, ..shape }).contains("where the ranks are"));
    let none = Algorithm::Leaders(0).applies(Collective::Allreduce, &shape);
    assert!(none.expect_err("refused").contains("at least one leader"));
}

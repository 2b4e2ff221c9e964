//! All algorithms proved: for every small world, for random large ones, for awkward lengths.

use net_fabric::algorithm::{Algorithm, Collective, Shape, Topology};
use net_fabric::schedule::{Action, Schedule};
use net_fabric::verify::{Row, Survey, pairs, verify};

#[test]
fn every_algorithm_is_proved_for_every_small_world() {
    let survey = Survey::FULL;
    let report = survey.run(|_| ());
    assert!(report.is_proof(), "{report}");
    for row in &report.rows {
        // Each number of ranks with each number of chunks, and each root where there is one.
        let rooted = row.collective.has_root();
        let worlds = if rooted { survey.ranks * (survey.ranks + 1) / 2 } else { survey.ranks };
        let least = worlds * survey.chunks;
        assert!(row.cases >= least, "{} {}: {} cases", row.collective, row.algorithm, row.cases);
        let keeps_order = row.collective != Collective::Bcast && row.algorithm != Algorithm::Ring;
        assert_eq!(row.ordered > 0, keeps_order, "{} {}", row.collective, row.algorithm);
    }
    println!("{report}");
}

/// Numbers that look random and are the same every time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % limit
    }
}

/// Ranks scattered over nodes and sockets without any order, or with one node after the other.
fn scattered(size: usize, random: &mut Random) -> Topology {
    let nodes = 1 + random.below(size.div_ceil(4));
    let mut node: Vec<usize> = (0..size).map(|_| random.below(nodes)).collect();
    if random.below(2) == 0 {
        node.sort_unstable();
    }
    let socket: Vec<usize> = (0..size).map(|_| random.below(2)).collect();
    Topology::new(&[&node, &socket])
}

/// Another seed than 1 for the random worlds.
const SEED: &str = "HAN_TEST_SEED";

/// So many random worlds of each algorithm: with this least and this greatest number of ranks.
const WORLDS: [(usize, usize, usize); 3] = [(20, 65, 1024), (3, 1025, 4096), (1, 4096, 4096)];

#[test]
fn random_worlds_up_to_4096_ranks() {
    let seed = std::env::var(SEED).map_or(1, |seed| seed.parse::<u64>().expect("a number"));
    let sizes = WORLDS.iter().flat_map(|&(count, least, most)| std::iter::repeat_n((least, most), count));
    for (index, (collective, algorithm)) in pairs().enumerate() {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(index as u64));
        let mut row = Row::new(collective, algorithm);
        for (least, most) in sizes.clone() {
            let size = least + random.below(most - least + 1);
            let topology = scattered(size, &mut random);
            row.look_at(&random_shape((collective, algorithm), size, &topology, &mut random));
            assert_eq!(row.fault, None, "{collective} {algorithm}, {SEED}={seed}");
        }
        assert_eq!(row.cases, sizes.clone().count());
    }
}

/// Any root, length, chunks; in rank order where the algorithm can.
fn random_shape<'a>(
    (collective, algorithm): (Collective, Algorithm),
    size: usize,
    topology: &'a Topology,
    random: &mut Random,
) -> Shape<'a> {
    // With an element for each rank, each rank of these has as many steps as there are ranks: too many above 512.
    let long = matches!(algorithm, Algorithm::Ring | Algorithm::ScatterRing);
    let elements = match collective {
        Collective::Barrier => 0,
        _ if long && size <= 512 => random.below(3 * size),
        _ => random.below(40),
    };
    let rooted = collective.has_root();
    let shape = Shape {
        size,
        root: if rooted { random.below(size) } else { 0 },
        bytes: 12 * elements,
        element_bytes: 12,
        chunk_bytes: 12 * (1 + random.below(16)),
        slots: 1 + random.below(4),
        in_place: random.below(2) == 0,
        topology: Some(topology),
        ..Shape::default()
    };
    let ordered = Shape { commutative: false, ..shape };
    if algorithm.applies(collective, &ordered).is_ok() { ordered } else { shape }
}

#[test]
fn every_length_of_small_vectors() {
    for (collective, algorithm) in pairs().filter(|(collective, _)| *collective != Collective::Barrier) {
        let mut row = Row::new(collective, algorithm);
        for size in 1..=9 {
            let topology = Topology::new(&[&vec![0; size]]);
            for elements in 0..=2 * size + 1 {
                for chunk_bytes in [1, 7, 100] {
                    let shape = Shape {
                        size,
                        bytes: 3 * elements,
                        element_bytes: 3,
                        chunk_bytes,
                        topology: Some(&topology),
                        ..Shape::default()
                    };
                    row.look_at(&shape);
                }
            }
        }
        assert_eq!(row.fault, None, "{collective} {algorithm}");
    }
}

#[test]
fn no_record_is_cut_apart() {
    for (collective, algorithm) in pairs().filter(|(collective, _)| *collective != Collective::Barrier) {
        let mut row = Row::new(collective, algorithm);
        for (element_bytes, elements) in [(13, 100), (24, 1000), (40, 7), (1000, 50), (1023, 11)] {
            for (size, chunk_bytes) in [(2, 4096), (3, 64), (5, 1000), (8, 65_536)] {
                let topology = Topology::new(&[&vec![0; size]]);
                let topology = Some(&topology);
                let bytes = elements * element_bytes;
                let shape = Shape { size, bytes, element_bytes, chunk_bytes, topology, ..Shape::default() };
                row.look_at(&shape);
            }
        }
        assert_eq!(row.fault, None, "{collective} {algorithm}");
    }
}

#[test]
fn vectors_beyond_32_bits_have_bounded_schedules() {
    for (collective, algorithm) in pairs().filter(|(collective, _)| *collective != Collective::Barrier) {
        for size in [2, 3, 7] {
            let topology = Topology::new(&[&vec![0; size]]);
            let bytes = (33 << 30) + 8;
            let topology = Some(&topology);
            let shape = Shape { size, bytes, element_bytes: 8, chunk_bytes: 4096, topology, ..Shape::default() };
            let build = |rank| algorithm.build(collective, &Shape { rank, ..shape }).expect("it applies");
            let schedules: Vec<Schedule> = (0..size).map(build).collect();
            assert!(schedules.iter().all(|schedule| schedule.len() < 60_000), "{collective} {algorithm}");
            let sent = |schedule: &Schedule| {
                schedule.steps().fold(0, |sent, step| match step.action {
                    Action::Send { from, .. } => sent + from.bytes,
                    _ => sent,
                })
            };
            let all: usize = schedules.iter().map(sent).sum();
            assert!(all >= (size - 1) * bytes, "{collective} {algorithm}: {all} bytes sent");
            let outcome = verify(collective, &shape, &schedules);
            assert!(outcome.is_ok(), "{collective} {algorithm}: {outcome:?}");
        }
    }
}

#[test]
fn long_vectors_cost_no_more_than_they_must() {
    // Each rank of a ring sends 2 (n - 1) / n of the vector; of Rabenseifner's algorithm too, for powers of two.
    for (algorithm, size) in [(Algorithm::Ring, 6), (Algorithm::Rabenseifner, 8)] {
        let bytes = size * 8 * 1000;
        for rank in 0..size {
            let shape = Shape { rank, size, bytes, element_bytes: 8, ..Shape::default() };
            let schedule = algorithm.build(Collective::Allreduce, &shape).expect("it applies");
            let sent = schedule.steps().fold(0, |sent, step| match step.action {
                Action::Send { from, .. } => sent + from.bytes,
                _ => sent,
            });
            assert_eq!(sent, 2 * (size - 1) * bytes / size, "{algorithm} rank {rank}");
        }
    }
}

#[test]
fn what_does_not_apply_says_why() {
    let mixed = Topology::new(&[&[0, 1, 0, 1]]);
    let shape = Shape { size: 4, bytes: 32, element_bytes: 8, ..Shape::default() };
    let ordered = Shape { commutative: false, topology: Some(&mixed), ..shape };
    let algorithm = |name: &str| name.parse::<Algorithm>().expect("a name");
    for (collective, name, shape, reason) in [
        (Collective::Allreduce, "ring", ordered, "rank order"),
        (Collective::Reduce, "topology-chain", ordered, "not placed in order"),
        (Collective::Bcast, "topology-chain", shape, "where the ranks are"),
        (Collective::Bcast, "topology-chain", Shape { size: 3, ..ordered }, "other ranks"),
        (Collective::Bcast, "ring", shape, "other collectives"),
        (Collective::Barrier, "ring", shape, "other collectives"),
        (Collective::Bcast, "chain", Shape { root: 4, ..shape }, "less than"),
        (Collective::Bcast, "chain", Shape { bytes: 33, ..shape }, "whole elements"),
    ] {
        let refused = algorithm(name).build(collective, &shape).expect_err("refused");
        assert!(refused.contains(reason), "{collective} {name}: {refused}");
    }
    let in_place = Topology::new(&[&[0, 0, 1, 1]]);
    let shape = Shape { topology: Some(&in_place), ..ordered };
    assert_eq!(algorithm("topology-chain").applies(Collective::Reduce, &shape), Ok(()));
}

/// The tree of figure 4.5: 3 nodes of 2 sockets of 4 cores, root 14.
#[test]
fn another_root_takes_the_leaders_places() {
    let node: Vec<usize> = (0..24).map(|rank| rank / 8).collect();
    let socket: Vec<usize> = (0..24).map(|rank| rank / 4).collect();
    let topology = Topology::new(&[&node, &socket]);
    let parent = |rank| {
        let shape = Shape { rank, size: 24, root: 14, bytes: 8, topology: Some(&topology), ..Shape::default() };
        let schedule = "topology-chain".parse::<Algorithm>().expect("a name").build(Collective::Bcast, &shape);
        schedule.expect("it applies").steps().find_map(|step| match step.action {
            Action::Receive { peer, .. } => Some(peer),
            _ => None,
        })
    };
    assert_eq!(parent(14), None);
    // In its socket the root has changed places with rank 12: 14, 13, 12, 15.
    assert_eq!([13, 12, 15].map(parent), [14, 13, 12].map(Some));
    // Its socket comes before the other one of its node, its node before the others.
    assert_eq!([8, 9, 10, 11].map(parent), [14, 8, 9, 10].map(Some));
    assert_eq!([0, 16].map(parent), [14, 0].map(Some));
    assert_eq!([1, 4, 5, 17, 20].map(parent), [0, 0, 4, 16, 16].map(Some));
}

//! Hierarchies and trees on machines that are not there: exact ones, and what must hold on any.
#![cfg(not(any(loom, sanitized)))]
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;

use proptest::prelude::*;
use shm_core::topo::{Hierarchy, Level, Place, Shape, Topology, Tree};

const LARGE: &str = "pack:2 l3:4 core:8";

fn on(topology: &Topology, masks: &[Vec<usize>]) -> Hierarchy {
    Hierarchy::new(masks.iter().map(|mask| Place::of(topology, mask).unwrap()).collect())
}

/// Ranks bound to these cores.
fn bound(topology: &Topology, cores: impl IntoIterator<Item = usize>) -> Hierarchy {
    on(topology, &cores.into_iter().map(|core| vec![core]).collect::<Vec<_>>())
}

fn whole(description: &str) -> Hierarchy {
    let topology = Topology::synthetic(description).unwrap();
    bound(&topology, topology.one_per_core())
}

/// Tiers as `(level, groups)`.
fn tiers(hierarchy: &Hierarchy) -> Vec<(Level, Vec<Vec<usize>>)> {
    let groups = |tier: &shm_core::topo::Tier| tier.groups.iter().map(|group| group.members().to_vec()).collect();
    hierarchy.tiers().iter().map(|tier| (tier.level, groups(tier))).collect()
}

/// The ranks with children, and these, by breadth.
fn links(tree: &Tree) -> Vec<(usize, Vec<usize>)> {
    let mut order = vec![tree.root()];
    let mut next = 0;
    while let Some(&rank) = order.get(next) {
        order.extend(tree.children(rank));
        next += 1;
    }
    let parents = order.into_iter().filter(|&rank| !tree.children(rank).is_empty());
    parents.map(|rank| (rank, tree.children(rank).to_vec())).collect()
}

/// Links between ranks that share nothing nearer than `level`.
fn messages(hierarchy: &Hierarchy, tree: &Tree, level: Level) -> usize {
    let ups = (0..tree.size()).filter_map(|rank| Some((rank, tree.parent(rank)?)));
    ups.filter(|&(rank, parent)| hierarchy.distance(rank, parent) == level).count()
}

/// What holds for every tree: each rank hangs once on the root, near children come first, and each
/// object is entered by as few messages as there are groups in it that nothing nearer holds together.
fn check(hierarchy: &Hierarchy, root: usize, shape: Shape) -> Tree {
    let tree = hierarchy.tree(root, |_| shape);
    assert_eq!((tree.root(), tree.parent(root), tree.size()), (root, None, hierarchy.size()));
    let mut reached = vec![root];
    let mut next = 0;
    while let Some(&rank) = reached.get(next) {
        for &child in tree.children(rank) {
            assert_eq!(tree.parent(child), Some(rank));
            reached.push(child);
        }
        let near: Vec<Level> = tree.children(rank).iter().map(|&child| hierarchy.distance(rank, child)).collect();
        assert!(near.is_sorted(), "children of {rank} below {root}: {near:?}");
        next += 1;
    }
    reached.sort_unstable();
    assert_eq!(reached, (0..hierarchy.size()).collect::<Vec<_>>(), "below {root}, {shape:?}");
    for tier in hierarchy.tiers() {
        let needed: usize = tier.groups.iter().map(|group| group.members().len() - 1).sum();
        assert_eq!(messages(hierarchy, &tree, tier.level), needed, "{} below {root}, {shape:?}", tier.level);
    }
    tree
}

/// Ranks in exactly one group of each tier; leaders are the members of the next; one group at the end.
fn check_groups(hierarchy: &Hierarchy) {
    let mut members: Vec<usize> = (0..hierarchy.size()).collect();
    for tier in hierarchy.tiers() {
        let mut here: Vec<usize> = tier.groups.iter().flat_map(|group| group.members().to_vec()).collect();
        here.sort_unstable();
        assert_eq!(here, members, "{}", tier.level);
        members = tier.groups.iter().map(shm_core::topo::Group::leader).collect();
        assert!(members.is_sorted());
    }
    assert_eq!(members, [0]);
    assert!(hierarchy.tiers().is_sorted_by_key(|tier| tier.level));
}

#[test]
fn two_sockets_of_four_l3_of_eight_cores_have_three_levels() {
    let hierarchy = whole(LARGE);
    let eights = (0..8).map(|l3| (l3 * 8..l3 * 8 + 8).collect()).collect();
    let expected = vec![
        (Level::L3, eights),
        (Level::Socket, vec![vec![0, 8, 16, 24], vec![32, 40, 48, 56]]),
        (Level::Node, vec![vec![0, 32]]),
    ];
    assert_eq!(tiers(&hierarchy), expected);
    assert_eq!(hierarchy.to_string(), "l3 8 groups of 8; socket 2 groups of 4; node 1 group of 2");
}

#[test]
fn the_tree_from_rank_0_goes_from_leader_to_leader() {
    let tree = check(&whole(LARGE), 0, Shape::Flat);
    let of = |leader: usize, others: &[usize]| {
        (leader, (leader + 1..leader + 8).chain(others.iter().copied()).collect::<Vec<_>>())
    };
    let expected = vec![
        of(0, &[8, 16, 24, 32]),
        of(8, &[]),
        of(16, &[]),
        of(24, &[]),
        of(32, &[40, 48, 56]),
        of(40, &[]),
        of(48, &[]),
        of(56, &[]),
    ];
    assert_eq!(links(&tree), expected);
}

#[test]
fn another_root_takes_the_leaders_places() {
    let hierarchy = whole(LARGE);
    // 46 is in the second L3 of the second socket: it changes places with 40, then with 32, then with 0.
    let tree = check(&hierarchy, 46, Shape::Flat);
    assert_eq!(tree.children(46), [41, 42, 43, 44, 45, 40, 47, 32, 48, 56, 0]);
    assert_eq!(tree.children(32), [33, 34, 35, 36, 37, 38, 39]);
    assert_eq!(tree.children(0), [1, 2, 3, 4, 5, 6, 7, 8, 16, 24]);
    assert_eq!((tree.children(40), tree.depth()), (&[][..], 3));
    let tree = check(&hierarchy, 46, Shape::Chain);
    assert_eq!(tree.children(46), [41, 32, 0]);
    assert_eq!((tree.children(45), tree.children(40), tree.children(47)), (&[40][..], &[47][..], &[][..]));
    assert_eq!((tree.children(32), tree.children(48), tree.children(56)), (&[33, 48][..], &[49, 56][..], &[57][..]));
    let tree = check(&hierarchy, 46, Shape::Binomial);
    assert_eq!(tree.children(46), [41, 42, 44, 32, 48, 0]);
    assert_eq!((tree.children(42), tree.children(44), tree.children(40)), (&[43][..], &[45, 40][..], &[47][..]));
    assert_eq!((tree.children(48), tree.children(0)), (&[49, 50, 52, 56][..], &[1, 2, 4, 8, 16][..]));
}

#[test]
fn each_level_may_have_its_own_shape() {
    let shape = |level| if level == Level::L3 { Shape::Chain } else { Shape::Flat };
    let tree = whole(LARGE).tree(0, shape);
    assert_eq!(tree.children(0), [1, 8, 16, 24, 32]);
    assert_eq!((tree.children(33), tree.depth()), (&[34][..], 9));
}

/// The dissertation's figure 4.5: groups of four, root 14. NUMA nodes stand for its sockets, sockets for its nodes.
#[test]
fn the_root_of_figure_4_5_is_exchanged_at_each_level() {
    let hierarchy = whole("pack:3 numa:2 core:4");
    let tree = check(&hierarchy, 14, Shape::Chain);
    let chain = |mut rank: usize, level: Level| {
        let mut ranks = vec![rank];
        while let Some(&next) = tree.children(rank).iter().find(|&&child| hierarchy.distance(rank, child) == level) {
            ranks.push(next);
            rank = next;
        }
        ranks
    };
    assert_eq!(chain(14, Level::Numa), [14, 13, 12, 15]);
    assert_eq!(chain(14, Level::Socket), [14, 8]);
    assert_eq!(chain(14, Level::Node), [14, 0, 16]);
    assert_eq!((chain(8, Level::Numa), chain(0, Level::Socket)), (vec![8, 9, 10, 11], vec![0, 4]));
}

#[test]
fn every_root_enters_each_socket_and_each_l3_once() {
    let hierarchy = whole(LARGE);
    check_groups(&hierarchy);
    for root in 0..64 {
        for (shape, depth) in [(Shape::Flat, 3), (Shape::Chain, 7 + 3 + 1), (Shape::Binomial, 3 + 2 + 1)] {
            let tree = check(&hierarchy, root, shape);
            let count = |level| messages(&hierarchy, &tree, level);
            assert_eq!([Level::Node, Level::Socket, Level::L3].map(count), [1, 6, 56], "{root} {shape:?}");
            assert_eq!(tree.depth(), depth, "{root} {shape:?}");
        }
    }
}

#[test]
fn a_socket_without_smaller_parts_is_cut_into_eights() {
    let hierarchy = whole("pack:2 core:20");
    let tree = check(&hierarchy, 0, Shape::Radix8);
    assert_eq!(tree.children(0), [1, 2, 3, 4, 5, 6, 7, 8, 16, 20]);
    assert_eq!((tree.children(16), tree.children(20)), (&[17, 18, 19][..], &[21, 22, 23, 24, 25, 26, 27, 28, 36][..]));
    assert_eq!(tree.depth(), 3);
}

#[test]
fn ranks_that_follow_each_other_through_the_machine_are_added_up_in_order() {
    let contiguous = whole(LARGE);
    assert!(
        [Shape::Flat, Shape::Binomial, Shape::Radix8]
            .map(|shape| contiguous.tree(0, |_| shape))
            .iter()
            .all(Tree::keeps_order)
    );
    assert!(!contiguous.tree(8, |_| Shape::Flat).keeps_order(), "another root comes first");
    // Neighbours in rank on different sockets.
    let scattered = bound(&Topology::synthetic(LARGE).unwrap(), (0..64).map(|rank| rank % 2 * 32 + rank / 2));
    assert!(!scattered.tree(0, |_| Shape::Radix8).keeps_order());
}

#[test]
fn a_machine_with_holes_has_unequal_groups() {
    // One L3 with three cores, one whole, one with a single core; a socket with two cores of two L3.
    let topology = Topology::synthetic(LARGE).unwrap();
    let cores = [0, 1, 2, 8, 9, 10, 11, 12, 13, 14, 15, 24, 35, 60];
    let hierarchy = bound(&topology.restricted_to(&cores), cores);
    let expected = vec![
        (Level::L3, vec![vec![0, 1, 2], (3..11).collect(), vec![11], vec![12], vec![13]]),
        (Level::Socket, vec![vec![0, 3, 11], vec![12, 13]]),
        (Level::Node, vec![vec![0, 12]]),
    ];
    assert_eq!(tiers(&hierarchy), expected);
    assert_eq!(
        hierarchy.to_string(),
        "l3 1 group of 8, 1 group of 3, 3 alone; socket 1 group of 3, 1 group of 2; node 1 group of 2"
    );
    check_groups(&hierarchy);
    assert_eq!(
        links(&check(&hierarchy, 13, Shape::Flat)),
        [(13, vec![12, 0]), (0, vec![1, 2, 3, 11]), (3, (4..11).collect())]
    );
    assert_eq!(links(&check(&hierarchy, 2, Shape::Flat))[0], (2, vec![1, 0, 3, 11, 12]));
    let depths = |root| Shape::ALL.map(|shape| check(&hierarchy, root, shape).depth());
    for (root, [flat, chain, binomial]) in
        [(0, [2, 8, 4]), (2, [2, 8, 4]), (3, [2, 7, 3]), (11, [2, 8, 4]), (12, [3, 9, 5]), (13, [3, 9, 5])]
    {
        // No group has more than eight.
        assert_eq!(depths(root), [flat, chain, binomial, flat], "{root}");
    }
    for root in 0..hierarchy.size() {
        depths(root);
    }
}

#[test]
fn a_description_in_xml_may_be_irregular() {
    // A socket with an L3 of three cores and one of one; a socket without L3.
    let core = |n: usize, first: usize| {
        let set: String =
            format!("cpuset=\"0x{n:x}\" complete_cpuset=\"0x{n:x}\" nodeset=\"0x1\" complete_nodeset=\"0x1\"");
        format!(
            "<object type=\"Core\" {set} gp_index=\"{}\"><object type=\"PU\" os_index=\"{first}\" {set} gp_index=\"{}\"/></object>",
            100 + first,
            200 + first
        )
    };
    let cores = |range: std::ops::Range<usize>| range.map(|first| core(1 << first, first)).collect::<String>();
    let object = |kind: &str, set: usize, index: usize, inner: &str| {
        format!(
            "<object type=\"{kind}\" os_index=\"{index}\" cpuset=\"0x{set:x}\" complete_cpuset=\"0x{set:x}\" nodeset=\"0x1\" \
             complete_nodeset=\"0x1\" gp_index=\"{}\" cache_size=\"1\" depth=\"3\" cache_linesize=\"64\" \
             cache_associativity=\"0\" cache_type=\"0\">{inner}</object>",
            300 + 20 * kind.len() + index
        )
    };
    let l3s = object("L3Cache", 0b111, 0, &cores(0..3)) + &object("L3Cache", 0b1000, 1, &cores(3..4));
    let memory = "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x7f\" complete_cpuset=\"0x7f\" nodeset=\"0x1\" \
                  complete_nodeset=\"0x1\" gp_index=\"9\" local_memory=\"1024\"/>";
    let sockets = object("Package", 0b1111, 0, &l3s) + &object("Package", 0b111_0000, 1, &cores(4..7));
    let machine = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\
         <object type=\"Machine\" os_index=\"0\" cpuset=\"0x7f\" complete_cpuset=\"0x7f\" allowed_cpuset=\"0x7f\" \
         nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\" gp_index=\"1\">{memory}{sockets}</object></topology>"
    );
    let topology = Topology::from_xml(&machine).unwrap();
    let hierarchy = bound(&topology, 0..7);
    let expected = vec![
        (Level::L3, vec![vec![0, 1, 2], vec![3], vec![4], vec![5], vec![6]]),
        (Level::Socket, vec![vec![0, 3], vec![4, 5, 6]]),
        (Level::Node, vec![vec![0, 4]]),
    ];
    assert_eq!(tiers(&hierarchy), expected);
    assert_eq!(links(&check(&hierarchy, 6, Shape::Flat)), [(6, vec![5, 4, 0]), (0, vec![1, 2, 3])]);
}

#[test]
fn ranks_may_sit_in_any_order() {
    let topology = Topology::synthetic("pack:2 l3:2 core:2").unwrap();
    // Round robin over sockets, then over L3.
    let hierarchy = bound(&topology, [0, 4, 2, 6, 1, 5, 3, 7]);
    let expected = vec![
        (Level::L3, vec![vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7]]),
        (Level::Socket, vec![vec![0, 2], vec![1, 3]]),
        (Level::Node, vec![vec![0, 1]]),
    ];
    assert_eq!(tiers(&hierarchy), expected);
    let tree = check(&hierarchy, 7, Shape::Flat);
    assert_eq!(links(&tree), [(7, vec![3, 1, 0]), (1, vec![5]), (0, vec![4, 2]), (2, vec![6])]);
}

#[test]
fn unbound_ranks_join_where_their_mask_fits() {
    let topology = Topology::synthetic("pack:2 l3:2 core:2").unwrap();
    // Anywhere, a socket, its first L3, a core of its second L3, the other socket's first core twice.
    let masks = [(0..8).collect(), vec![0, 1, 2, 3], vec![0, 1], vec![2], vec![4], vec![4]];
    let hierarchy = on(&topology, &masks);
    let expected = vec![
        (Level::Core, vec![vec![0], vec![1], vec![2], vec![3], vec![4, 5]]),
        (Level::Socket, vec![vec![0], vec![1, 2, 3], vec![4]]),
        (Level::Node, vec![vec![0, 1, 4]]),
    ];
    assert_eq!(tiers(&hierarchy), expected);
    assert_eq!(links(&check(&hierarchy, 5, Shape::Flat)), [(5, vec![4, 1, 0]), (1, vec![2, 3])]);
    let all = on(&topology, &vec![(0..8).collect::<Vec<_>>(); 5]);
    assert_eq!(tiers(&all), [(Level::Node, vec![vec![0, 1, 2, 3, 4]])]);
}

#[test]
fn more_ranks_than_cores_meet_on_the_core_first() {
    let topology = Topology::synthetic("l3:2 core:2 pu:2").unwrap();
    let hierarchy = bound(&topology, (0..16).map(|rank| rank % 8));
    let cores = (0..4).map(|core| vec![2 * core, 2 * core + 1, 2 * core + 8, 2 * core + 9]).collect();
    let expected =
        vec![(Level::Core, cores), (Level::L3, vec![vec![0, 2], vec![4, 6]]), (Level::Numa, vec![vec![0, 4]])];
    assert_eq!(tiers(&hierarchy), expected);
    assert_eq!(check(&hierarchy, 15, Shape::Flat).children(15), [7, 14, 6, 4, 0]);
}

#[test]
fn one_rank_has_nobody() {
    let hierarchy = bound(&Topology::synthetic(LARGE).unwrap(), [17]);
    check_groups(&hierarchy);
    assert_eq!((hierarchy.tiers().len(), hierarchy.to_string().as_str()), (0, "a single rank"));
    for shape in Shape::ALL {
        let tree = check(&hierarchy, 0, shape);
        assert_eq!((tree.children(0), tree.depth()), (&[][..], 0));
    }
}

#[test]
fn as_many_ranks_as_are_supported() {
    let hierarchy = whole("pack:4 numa:4 l3:2 core:8");
    check_groups(&hierarchy);
    for root in 0..256 {
        for (shape, depth) in [(Shape::Flat, 4), (Shape::Chain, 7 + 1 + 3 + 3), (Shape::Binomial, 3 + 1 + 2 + 2)] {
            let tree = check(&hierarchy, root, shape);
            let count = |level| messages(&hierarchy, &tree, level);
            let expected = [3, 4 * 3, 16, 32 * 7];
            assert_eq!([Level::Node, Level::Socket, Level::Numa, Level::L3].map(count), expected);
            assert_eq!(tree.depth(), depth, "{root} {shape:?}");
        }
    }
}

#[test]
fn a_communicator_of_some_ranks_has_a_hierarchy_of_its_own() {
    let world = whole(LARGE);
    // The odd ranks of the first two L3, and one of the other socket, backwards.
    let some = world.of_ranks(&[33, 15, 13, 11, 9, 7, 5, 3, 1]);
    let expected = vec![
        (Level::L3, vec![vec![0], vec![1, 2, 3, 4], vec![5, 6, 7, 8]]),
        (Level::Socket, vec![vec![0], vec![1, 5]]),
        (Level::Node, vec![vec![0, 1]]),
    ];
    assert_eq!(tiers(&some), expected);
    assert_eq!(some.distance(1, 5), world.distance(15, 7));
}

#[test]
fn all_ranks_of_a_job_know_the_same_hierarchy() {
    let mut settings = support::heap();
    settings.set("topology", LARGE).unwrap();
    let told = support::ranks(10, &settings, |comm, _| {
        let distances: Vec<Level> = (0..comm.size()).map(|rank| comm.job().distance(rank)).collect();
        (comm.job().hierarchy().clone(), distances, comm.describe())
    });
    let topology = Topology::synthetic(LARGE).unwrap();
    for (rank, (hierarchy, distances, words)) in told.into_iter().enumerate() {
        assert_eq!(hierarchy, bound(&topology, 0..10));
        assert_eq!(distances, (0..10).map(|peer| hierarchy.distance(rank, peer)).collect::<Vec<_>>());
        let expected = "hierarchy: l3 1 group of 8, 1 group of 2; socket 1 group of 2 (as if on \"pack:2 l3:4 core:8\"";
        assert!(words.contains(expected), "{words}");
    }
    // Where nothing is set, the machine's own: at least one level, from hwloc, the same on all ranks.
    let told = support::ranks(3, &support::heap(), |comm, _| (comm.job().hierarchy().clone(), comm.describe()));
    assert!(told.iter().all(|one| one.0 == told[0].0 && one.1.contains(" (hwloc)\n")), "{told:?}");
    assert!(!told[0].0.tiers().is_empty());
}

/// A machine, the processors that are left of it, and the masks of ranks on these.
fn placements() -> impl Strategy<Value = (String, Vec<usize>, Vec<Vec<usize>>)> {
    let machine = (1_usize..4, 1_usize..3, 1_usize..4, 1_usize..5, 1_usize..3);
    machine.prop_flat_map(|(sockets, numa, l3, cores, threads)| {
        let description = format!("pack:{sockets} numa:{numa} l3:{l3} core:{cores} pu:{threads}");
        let all: Vec<usize> = (0..sockets * numa * l3 * cores * threads).collect();
        let most = all.len();
        proptest::sample::subsequence(all, 1..=most).prop_flat_map(move |left| {
            let mask = proptest::sample::subsequence(left.clone(), 1..=left.len().min(3));
            (Just(description.clone()), Just(left), proptest::collection::vec(mask, 1..40))
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_ranks_on_any_machine_have_right_trees((description, left, masks) in placements(), root in 0_usize..40) {
        let hierarchy = on(&Topology::synthetic(&description).unwrap().restricted_to(&left), &masks);
        check_groups(&hierarchy);
        for shape in Shape::ALL {
            check(&hierarchy, root % masks.len(), shape);
        }
    }

    #[test]
    fn bound_ranks_enter_each_socket_and_l3_once(
        cores in proptest::collection::vec(0_usize..64, 1..257),
        root in 0_usize..256,
    ) {
        let hierarchy = bound(&Topology::synthetic(LARGE).unwrap(), cores.iter().copied());
        let used = |cores_each: usize| cores.iter().map(|core| core / cores_each).collect::<BTreeSet<_>>().len();
        for shape in Shape::ALL {
            let tree = check(&hierarchy, root % cores.len(), shape);
            let count = |level| messages(&hierarchy, &tree, level);
            prop_assert_eq!(count(Level::Node), used(32) - 1);
            prop_assert_eq!(count(Level::Socket), used(8) - used(32));
            prop_assert_eq!(count(Level::L3), used(1) - used(8));
            prop_assert_eq!(count(Level::Core), cores.len() - used(1));
        }
    }
}

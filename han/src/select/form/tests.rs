use super::*;

/// An allreduce of 8 MiB by ranks with a core each.
fn over(layout: &Layout) -> OverNodes<'_> {
    OverNodes {
        collective: Collective::Allreduce,
        count: 1 << 20,
        element_bytes: 8,
        commutative: true,
        reproducible: false,
        root: 0,
        shares_cores: false,
        wire_mbit_s: None,
        layout,
        topology: None,
    }
}

#[test]
fn what_comes_down_takes_the_tree_of_what_goes_up() {
    let layout = Layout::new(&[0, 0, 1, 1, 2, 2, 3, 3]);
    for (bytes, shares_cores) in [(8 << 10, true), (64 << 10, true), (128 << 10, false), (1 << 20, true)] {
        let over = OverNodes { count: 4 << 20, element_bytes: 1, shares_cores, ..over(&layout) };
        let choice = choose(&over, &Inter { segment_bytes: Some(bytes), splits: true, ..Inter::default() });
        assert_eq!(choice.inter.algorithm, choice.back.algorithm, "chunks of {bytes}");
        let set =
            Inter { splits: true, algorithms: [Some(Algorithm::Tree(Tree::Chain)), None, None], ..Inter::default() };
        assert_eq!(choose(&over, &set).back.algorithm, Algorithm::Tree(Tree::Chain));
    }
}

#[test]
fn leaders_do_what_is_set_whatever_the_lengths_of_elements_and_slices() {
    let layout = Layout::new(&(0..32).map(|rank| rank / 8).collect::<Vec<_>>());
    for (element_bytes, leaders) in [4, 12, 24, 1000].into_iter().flat_map(|bytes| (1..=8).map(move |of| (bytes, of))) {
        let over = OverNodes { element_bytes, count: (1 << 20) / element_bytes, ..over(&layout) };
        for segment_bytes in [None, Some(64), Some(777), Some(65_537), Some(100_001)] {
            let inter = Inter { leaders: Some(leaders), segment_bytes, ..Inter::default() };
            let set = choose(&over, &Inter { algorithm: Some(Algorithm::Ring), ..inter });
            assert_eq!(set.inter.algorithm, Algorithm::Ring, "{:?}", set.points);
            let split = Inter { splits: true, algorithm: Some(Algorithm::Tree(Tree::Chain)), ..inter };
            assert_eq!(choose(&over, &split).back.algorithm, Algorithm::Tree(Tree::Chain));
            let chosen = choose(&over, &inter);
            let is_wrong = |because: &str| because.contains("whole elements") || because.contains("does not commute");
            assert!(!chosen.points.iter().any(|point| is_wrong(&point.because)), "{:?}", chosen.points);
        }
    }
}

#[test]
fn leaders_are_as_many_as_there_are_ranks_and_lines() {
    let layout = Layout::new(&[0, 0, 0, 1, 1]);
    let over = over(&layout);
    let of = |collective, count, set| {
        let over = OverNodes { collective, count, ..over };
        let choice = choose(&over, &Inter { leaders: set, ..Inter::default() });
        let point = choice.points.iter().find(|point| point.what == "leaders");
        (choice.shape.leaders, point.map_or(String::new(), |point| point.because.clone()), choice.to_string())
    };
    let allreduce = |count, set| of(Collective::Allreduce, count, set);
    assert_eq!(allreduce(1 << 20, None).0, 1);
    let chunk_bytes = |leaders, segment_bytes| {
        let set = Inter { leaders, segment_bytes, ..Inter::default() };
        choose(&OverNodes { count: 1 << 20, ..over }, &set).shape.chunk_bytes >> 10
    };
    assert_eq!([chunk_bytes(None, None), chunk_bytes(Some(2), None), chunk_bytes(Some(9), None)], [256, 512, 768]);
    assert_eq!(chunk_bytes(Some(2), Some(64 << 10)), 64, "what is set is the whole chunk");
    // 8 MiB, and 64 GiB.
    let longer = |count| choose(&OverNodes { count, ..over }, &Inter { segment_bytes: Some(64), ..Inter::default() });
    let longer = [1 << 20, 1 << 33].map(|count| longer(count).shape.chunk_bytes);
    assert_eq!(longer, [512, 4 << 20], "a plan has so many chunks at most");
    assert_eq!(allreduce(1 << 20, Some(2)), (2, "the setting says so".into(), "nodes-2/recursive-doubling".into()));
    assert_eq!(allreduce(1 << 20, Some(3)).1, "the setting says so");
    assert_eq!(allreduce(1 << 20, Some(4)), (3, "no node has more ranks".into(), "nodes-3/recursive-doubling".into()));
    let (leaders, because, name) = allreduce(1, Some(2));
    assert_eq!((leaders, name.as_str()), (1, "nodes/recursive-doubling"));
    assert!(because.contains("whole lines"), "{because}");
    assert_eq!((allreduce(32, Some(3)).0, allreduce(33, Some(3)).0), (2, 3));
    for collective in [Collective::Bcast, Collective::Reduce] {
        assert_eq!(of(collective, 1 << 20, Some(2)), (2, "the setting says so".into(), "nodes-2/chain".into()));
        assert_eq!(of(collective, 1 << 20, None).0, 1);
    }
    assert_eq!(of(Collective::Barrier, 0, Some(2)), (1, String::new(), "nodes/dissemination".into()));
    let in_order = OverNodes { collective: Collective::Reduce, commutative: false, ..over };
    let choice = choose(&in_order, &Inter { leaders: Some(2), ..Inter::default() });
    let why = choice.points.iter().find(|point| point.what == "leaders").map(|point| point.because.clone());
    assert_eq!(choice.shape.leaders, 1);
    assert!(why.is_some_and(|why| why.contains("does not commute")));
}

#[test]
fn long_vectors_have_several_leaders_where_ranks_have_cores() {
    let even = Layout::new(&[0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
    let over = over(&even);
    let of = |over: &OverNodes<'_>| {
        let TaskShape { leaders, chunk_bytes, .. } = choose(over, &Inter::default()).shape;
        (leaders, chunk_bytes >> 10)
    };
    let of_kib = |kib: usize| of(&OverNodes { count: kib * 128, ..over });
    assert_eq!(
        [256, 511, 512, 900, 1024, 9000].map(of_kib),
        [(1, 256), (1, 256), (2, 512), (3, 768), (4, 1024), (4, 1024)]
    );
    let reduced = |kib: usize| of(&OverNodes { collective: Collective::Reduce, count: kib * 128, ..over });
    assert_eq!([1023, 1024, 1536, 9000].map(reduced), [(1, 512), (2, 1024), (3, 1536), (4, 2048)]);
    let uneven = Layout::new(&[0, 0, 0, 1, 1]);
    for one in [
        OverNodes { wire_mbit_s: Some(5000), ..over },
        OverNodes { layout: &uneven, ..over },
        OverNodes { collective: Collective::Bcast, ..over },
        OverNodes { collective: Collective::Reduce, commutative: false, ..over },
    ] {
        assert_eq!(of(&one).0, 1, "{one:?}");
    }
}

#[test]
fn ranks_that_share_cores_lead_in_pairs_where_that_shares_the_work() {
    // From how many KiB on.
    let from = |nodes: usize, ranks: usize, collective| {
        let layout = Layout::new(&(0..nodes * ranks).map(|rank| rank / ranks).collect::<Vec<_>>());
        let leaders = |kib: usize| {
            let over = OverNodes { collective, count: kib * 128, shares_cores: true, ..over(&layout) };
            choose(&over, &Inter::default()).shape.leaders
        };
        assert!([1, 2].contains(&leaders(1 << 20)));
        (0..14).map(|shift| 1 << shift).find(|&kib| leaders(kib) == 2)
    };
    for (nodes, ranks, reduce, allreduce) in [
        (2, 2, Some(1024), Some(8192)),
        (4, 2, Some(1024), None),
        (2, 4, None, None),
        (2, 3, Some(1024), Some(1024)),
        (3, 2, Some(1024), Some(1024)),
        (3, 4, None, Some(1024)),
    ] {
        let found = [Collective::Reduce, Collective::Allreduce].map(|collective| from(nodes, ranks, collective));
        assert_eq!(found, [reduce, allreduce], "{nodes} nodes of {ranks}");
        assert_eq!(from(nodes, ranks, Collective::Bcast), None);
    }
}

#[test]
fn chunks_follow_the_wire_and_the_cores() {
    let two = Layout::new(&[0, 0, 1, 1]);
    let three = Layout::new(&[0, 1, 2]);
    let segment_of = |layout, collective, shares_cores, wire_mbit_s, set| {
        let over = OverNodes { collective, element_bytes: 1, shares_cores, wire_mbit_s, ..over(layout) };
        choose(&over, &Inter { wire_mbit_s: set, ..Inter::default() }).shape.chunk_bytes
    };
    let segment_bytes = |collective, wire_mbit_s, set| segment_of(&two, collective, false, wire_mbit_s, set);
    let chosen =
        Collective::ALL.map(|collective| [None, Some(1000)].map(|wire| segment_bytes(collective, wire, None) >> 10));
    // By two leaders twice as long.
    assert_eq!(chosen, [[256, 256], [256, 256], [1024, 512], [512, 64]]);
    let of_allreduce = [2500, 5000].map(|wire| segment_bytes(Collective::Allreduce, Some(wire), None) >> 10);
    assert_eq!(of_allreduce, [64, 256]);
    assert_eq!(segment_bytes(Collective::Allreduce, Some(1000), Some(10_000)), 512 << 10, "what is set decides");
    let by_shared_cores = Collective::ALL
        .map(|collective| [&two, &three].map(|layout| segment_of(layout, collective, true, None, None) >> 10));
    assert_eq!(by_shared_cores, [[256, 256], [512, 512], [512, 256], [512, 512]]);
}

use super::*;

fn question(collective: Collective, ranks: usize, bytes: usize, commutative: bool) -> NetworkQuestion<'static> {
    NetworkQuestion {
        collective,
        ranks,
        bytes,
        element_bytes: 8,
        commutative,
        root: ranks / 2,
        shares_cores: false,
        wire_mbit_s: None,
        topology: None,
    }
}

#[test]
fn what_is_chosen_can_be_done() {
    let forced = Algorithm::all().map(Some).chain([None]);
    for algorithm in forced {
        let inter = Inter { algorithm, ..Inter::default() };
        for collective in Collective::ALL {
            for ranks in [1, 2, 3, 4, 7, 16, 31, 33, 100] {
                for bytes in [0, 8, 4096, 8200, 64 << 10, 1 << 20] {
                    for commutative in [true, false] {
                        let nodes: Vec<usize> = (0..ranks).map(|rank| rank / 3).collect();
                        let topology = Topology::new(&[&nodes]);
                        let question = question(collective, ranks, bytes, commutative);
                        for shares_cores in [true, false] {
                            let question = NetworkQuestion { topology: Some(&topology), shares_cores, ..question };
                            let plan = choose(&question, &inter).plan;
                            let can = plan.algorithm.applies(collective, &shape(&question));
                            assert_eq!(can, Ok(()), "{question:?}: {plan}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn what_was_measured_to_be_best_is_chosen() {
    let chosen = |collective, ranks, bytes| {
        let plan = choose(&question(collective, ranks, bytes, true), &Inter::default()).plan;
        format!("{} {}", plan.algorithm, plan.chunk_bytes >> 10)
    };
    let allreduce = |ranks, bytes| chosen(Collective::Allreduce, ranks, bytes);
    assert_eq!([allreduce(2, 8), allreduce(2, 4 << 20)], ["recursive-doubling 512"; 2]);
    assert_eq!(allreduce(2, 16 << 20), "rabenseifner 256");
    let of_two_that_share = |bytes| {
        let question = NetworkQuestion { shares_cores: true, ..question(Collective::Allreduce, 2, bytes, true) };
        choose(&question, &Inter::default()).plan.algorithm
    };
    let of_both_lengths = [256 << 10, 512 << 10].map(of_two_that_share);
    assert_eq!(of_both_lengths, [Algorithm::RecursiveDoubling, Algorithm::Rabenseifner]);
    assert_eq!(allreduce(4, 32 << 10), "recursive-doubling 256");
    assert_eq!([40 << 10, 256 << 10, 16 << 20].map(|bytes| allreduce(4, bytes)), ["rabenseifner 256"; 3]);
    assert_eq!([allreduce(6, 128 << 10), allreduce(6, 256 << 10)], ["rabenseifner 256", "ring 256"]);
    let bcast = |ranks, bytes| chosen(Collective::Bcast, ranks, bytes);
    assert_eq!([bcast(2, 64 << 10), bcast(2, 16 << 20)], ["chain 4096"; 2]);
    assert_eq!([bcast(4, 32 << 10), bcast(16, 128 << 10), bcast(100, 64 << 10)], ["binomial 64"; 3]);
    assert_eq!(
        [bcast(4, 64 << 10), bcast(16, 256 << 10), bcast(100, 128 << 10)],
        ["chain 64", "chain 64", "binary 64"]
    );
    let of_four = [bcast(4, 256 << 10), bcast(4, 2 << 20), bcast(4, 16 << 20)];
    assert_eq!(of_four, ["chain 64", "chain 128", "chain 256"]);
    let not_commutative = choose(&question(Collective::Allreduce, 2, 16 << 20, false), &Inter::default());
    assert_eq!(not_commutative.plan.algorithm, Algorithm::RecursiveDoubling);
}

#[test]
fn on_a_slow_wire_lengths_count_for_more() {
    let chosen = |collective, bytes, shares_cores, wire_mbit_s| {
        let question = NetworkQuestion { shares_cores, wire_mbit_s, ..question(collective, 4, bytes, true) };
        let plan = choose(&question, &Inter::default()).plan;
        format!("{} {}", plan.algorithm, plan.chunk_bytes >> 10)
    };
    let gigabit = Some(1000);
    assert_eq!(chosen(Collective::Bcast, 8 << 10, false, Some(10_000)), "binomial 64");
    assert_eq!(chosen(Collective::Bcast, 8 << 10, false, gigabit), "chain 4");
    assert_eq!(chosen(Collective::Reduce, 32 << 10, true, Some(100_000)), "linear 64");
    assert_eq!(chosen(Collective::Reduce, 32 << 10, true, gigabit), "chain 4");
    assert_eq!(chosen(Collective::Reduce, 2 << 10, true, gigabit), "linear 4");
    assert_eq!(chosen(Collective::Allreduce, 32 << 10, true, gigabit), "rabenseifner 256");
    assert_eq!(chosen(Collective::Allreduce, 4 << 10, true, gigabit), "recursive-doubling 256");
    let crawling = choose(
        &NetworkQuestion { wire_mbit_s: Some(0), ..question(Collective::Bcast, 4, 1 << 20, true) },
        &Inter::default(),
    );
    assert_eq!(crawling.plan.chunk_bytes, 64 << 10);
    let told = Inter { wire_mbit_s: Some(1000), ..Inter::default() };
    let told = choose(&question(Collective::Bcast, 4, 8 << 10, true), &told);
    assert_eq!(told.points.last().map(|point| (point.what, &*point.change)), Some(("wire", "wire_mbit_s")));
}

#[test]
fn every_decision_has_a_reason_and_a_setting() {
    let question = question(Collective::Allreduce, 4, 1 << 20, true);
    let chosen = choose(&question, &Inter::default());
    let whats: Vec<&str> = chosen.points.iter().map(|point| point.what).collect();
    assert_eq!(whats, ["algorithm", "chunk_bytes", "policy"]);
    assert!(chosen.points.iter().all(|point| point.change.starts_with("inter_") && !point.because.is_empty()));
    let mut inter = Inter::default();
    inter.set("inter_algorithm", "rabenseifner").unwrap();
    assert_eq!(choose(&question, &inter).points[0].because, "the setting says so");
    inter.set("inter_algorithm", "dissemination").unwrap();
    let other = choose(&question, &inter);
    assert_eq!(other.plan, chosen.plan);
    assert!(other.points[0].because.contains("dissemination is set, but"), "{other:?}");
    inter.set("inter_allreduce_algorithm", "ring").unwrap();
    inter.set("inter_reduce_chunk_bytes", "64").unwrap();
    let changed: Vec<String> = choose(&question, &inter).points.into_iter().map(|point| point.change).collect();
    assert_eq!(changed, ["inter_allreduce_algorithm", "inter_chunk_bytes", "inter_policy"], "those in force");
}

#[test]
fn every_key_takes_what_it_shows() {
    let mut inter = Inter::default();
    for (key, _) in KEYS {
        let shown = inter.get(key).unwrap();
        inter.set(key, &shown).unwrap();
    }
    assert_eq!(inter, Inter::default());
    for (key, value) in [("inter_algorithm", "knomial-4"), ("inter_chunk_bytes", "4096"), ("inter_policy", "wait_all")]
    {
        inter.set(key, value).unwrap();
        assert_eq!(inter.get(key).unwrap(), value);
    }
    assert!(inter.set("inter_chunk_bytes", "63").unwrap_err().contains("at least 64"));
    assert!(inter.set("inter", "1").unwrap_err().contains("inter_policy"));
}

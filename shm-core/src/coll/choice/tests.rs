//! What is chosen for calls, placements and settings.

use super::*;
use crate::settings::Settings;
use crate::topo::{Hierarchy, Place, Topology};
use Collective::{Allreduce, Barrier, Bcast, Reduce};

/// The terms of ranks that can map each other's memory, and are at these places.
fn at(places: Vec<Place>, own_cores: bool, everywhere: bool, set: impl FnOnce(&mut Settings)) -> Terms {
    let (hierarchy, mut settings) = (Hierarchy::new(places), Settings::default());
    set(&mut settings);
    let (shared, cma, last_cache_bytes) = (true, everywhere, 32 << 20);
    Terms::new(&Circumstances { hierarchy, own_cores, shared, cma, everywhere, last_cache_bytes, settings })
}

fn terms(ranks: usize, own_cores: bool, set: impl FnOnce(&mut Settings)) -> Terms {
    at(vec![Place::anywhere(); ranks], own_cores, false, set)
}

/// A rank on each core of two sockets with eight cores.
fn two_sockets(set: impl FnOnce(&mut Settings)) -> Terms {
    let topology = Topology::synthetic("pack:2 core:8").expect("a machine");
    let places = topology.one_per_core().into_iter().map(|core| Place::of(&topology, &[core]).expect("a core"));
    at(places.collect(), true, false, set)
}

#[test]
fn levels_of_the_machine_are_followed_by_many_ranks() {
    let terms = two_sockets(|_| {});
    assert_eq!(terms.decide(Barrier, 0, || Folding::Free), Decision::ManyRanks);
    assert_eq!(terms.decide(Allreduce, 120, || Folding::Free), Decision::ManyRanks);
    assert_eq!(terms.decide(Bcast, 1 << 20, || Folding::Free), Decision::ManyLevels);
    assert_eq!(terms.decide(Allreduce, 1 << 20, || Folding::Free), Decision::LongEnough);
    let fewer = two_sockets(|s| s.tree_min_ranks = Some(17));
    assert_eq!(fewer.decide(Barrier, 0, || Folding::Free), Decision::FewRanks);
    assert_eq!(fewer.decide(Bcast, 1 << 20, || Folding::Free), Decision::Bcast);
    let forced = two_sockets(|s| s.form = Some(Form::Tree));
    assert_eq!(forced.decide(Bcast, 121, || Folding::Free).form(), Form::Tree);
    assert_eq!(forced.decide(Allreduce, 121, || Folding::Free).form(), Form::Flat);
}

#[test]
fn sums_in_sixteen_bits_are_never_partial() {
    let terms = terms(32, true, |_| {});
    let decide = |folding| terms.decide(Allreduce, 8, || folding);
    assert_eq!(decide(Folding::AtOnce), Decision::NoRoundedSums);
    assert_eq!((decide(Folding::InOrder), decide(Folding::Free)), (Decision::ManyRanks, Decision::ManyRanks));
    assert_eq!(Decision::NoRoundedSums.form(), Form::Flat);
}

#[test]
fn forms_follow_ranks_sizes_and_cores() {
    let own = |ranks| terms(ranks, true, |_| {});
    for (terms, collective, bytes, decision) in [
        (own(1), Allreduce, 1 << 20, Decision::OneRank),
        (own(2), Barrier, 0, Decision::FewRanks),
        (own(2), Bcast, 4096, Decision::FewRanks),
        (own(2), Bcast, 4097, Decision::Bcast),
        (own(32), Allreduce, 120, Decision::ManyRanks),
        (own(32), Allreduce, 121, Decision::TooLongForTrees),
        (terms(32, false, |_| {}), Allreduce, 8, Decision::SharedCores),
        (terms(32, true, |s| s.reproducible = true), Reduce, 8, Decision::NoPartialSums),
        (terms(32, true, |s| s.reproducible = true), Bcast, 8, Decision::ManyRanks),
        (own(2), Allreduce, 64 * 1024 - 1, Decision::TooShortToShare),
        (own(2), Allreduce, 64 * 1024, Decision::LongEnough),
        (own(3), Allreduce, 8191, Decision::TooShortToShare),
        (own(3), Allreduce, 8192, Decision::LongEnough),
        (own(3), Reduce, 32 * 1024 - 1, Decision::TooShortToShare),
        (own(3), Reduce, 32 * 1024, Decision::LongEnough),
        (terms(3, true, |s| s.single_copy = crate::Single::Never), Reduce, 1 << 20, Decision::RootKeepsUp),
        (terms(3, true, |s| s.slice_min_bytes = Some(9000)), Allreduce, 8999, Decision::TooShortToShare),
        (terms(3, true, |s| s.slice_min_bytes = Some(9000)), Reduce, 9000, Decision::LongEnough),
        (own(4), Reduce, 8192, Decision::LongEnough),
        (own(4), Allreduce, 4096, Decision::FewRanks),
        (own(8), Allreduce, 2047, Decision::FewRanks),
        (own(8), Allreduce, 2048, Decision::ShortSlices),
        (own(8), Allreduce, 4097, Decision::ShortSlices),
        (own(8), Allreduce, 8191, Decision::ShortSlices),
        (own(8), Allreduce, 8192, Decision::LongEnough),
        (own(40), Allreduce, 2559, Decision::TooShortToShare),
        (own(40), Allreduce, 2560, Decision::ShortSlices),
        (own(8), Reduce, 2048, Decision::FewRanks),
        (own(8), Reduce, 4097, Decision::TooShortToShare),
        (own(16), Reduce, 4607, Decision::TooShortToShare),
        (own(16), Reduce, 4608, Decision::ShortSlices),
        (own(24), Reduce, 3072, Decision::ShortSlices),
        (own(30), Allreduce, 1919, Decision::FewRanks),
        (own(30), Allreduce, 1920, Decision::ShortSlices),
        (terms(8, false, |_| {}), Allreduce, 4096, Decision::FewRanks),
        (terms(8, true, |s| s.slice_min_bytes = Some(4096)), Allreduce, 4095, Decision::FewRanks),
        (terms(8, true, |s| s.reproducible = true), Allreduce, 4096, Decision::ShortSlices),
        (terms(4, false, |_| {}), Reduce, 8192, Decision::TooShortToShare),
        (terms(8, false, |_| {}), Allreduce, 1 << 20, Decision::LongEnough),
    ] {
        assert_eq!(terms.decide(collective, bytes, || Folding::Free), decision, "{terms:?} {collective} {bytes}");
    }
}

#[test]
fn a_form_that_is_set_is_taken_or_the_next_that_can_carry_the_call() {
    for (asked, collective, bytes, form) in [
        (Form::Flat, Barrier, 0, Form::Flat),
        (Form::Flat, Allreduce, 4096, Form::Flat),
        (Form::Flat, Allreduce, 4097, Form::Direct),
        (Form::Tree, Barrier, 0, Form::Tree),
        (Form::Tree, Bcast, 120, Form::Tree),
        (Form::Tree, Bcast, 121, Form::Flat),
        (Form::Tree, Bcast, 5000, Form::Direct),
        (Form::Direct, Barrier, 0, Form::Flat),
        (Form::Direct, Reduce, 0, Form::Flat),
        (Form::Direct, Reduce, 1, Form::Direct),
        (Form::Slice, Barrier, 0, Form::Flat),
        (Form::Slice, Bcast, 1 << 20, Form::Direct),
        (Form::Slice, Allreduce, 1, Form::Slice),
        (Form::Ring, Barrier, 0, Form::Flat),
        (Form::Ring, Bcast, 1, Form::Direct),
        (Form::Ring, Reduce, 1, Form::Ring),
        (Form::Chain, Barrier, 0, Form::Flat),
        (Form::Chain, Reduce, 1, Form::Slice),
        (Form::Joint, Barrier, 0, Form::Flat),
        (Form::Joint, Bcast, 1, Form::Direct),
        (Form::Joint, Reduce, 1, Form::Slice),
    ] {
        let terms = terms(3, false, |s| s.form = Some(asked));
        assert_eq!(
            terms.decide(collective, bytes, || Folding::Free),
            Decision::Forced { asked, form },
            "{asked} {collective} {bytes}"
        );
    }
    let alone = terms(1, true, |s| s.form = Some(Form::Slice));
    assert_eq!(alone.decide(Allreduce, 8, || Folding::Free).form(), Form::Alone);
    let reproducible = terms(40, true, |s| (s.form, s.reproducible) = (Some(Form::Tree), true));
    assert_eq!(reproducible.decide(Reduce, 8, || Folding::Free).form(), Form::Flat);
    assert_eq!(reproducible.decide(Bcast, 8, || Folding::Free).form(), Form::Tree);
}

#[test]
fn ranks_who_reach_all_of_each_other_may_work_jointly() {
    let reaching = |ranks: usize, set: fn(&mut Settings)| at(vec![Place::anywhere(); ranks], true, true, set);
    for collective in [Bcast, Reduce, Allreduce] {
        let decide = |terms: Terms, bytes| terms.decide(collective, bytes, || Folding::InOrder);
        assert_eq!(decide(reaching(2, |_| {}), 4096), Decision::FewRanks);
        assert_ne!(decide(reaching(2, |_| {}), 8191), Decision::Together);
        assert_eq!(decide(reaching(2, |_| {}), 8192), Decision::Together);
        assert_eq!(decide(reaching(9, |_| {}), 9 * 4096), Decision::Together);
        assert_eq!(decide(reaching(2, |s| s.reproducible = true), 8192), Decision::Together);
        assert_ne!(decide(reaching(2, |s| s.slice_min_bytes = Some(1)), 8192), Decision::Together);
        assert_ne!(decide(reaching(2, |s| s.single_copy_min_bytes = Some(10_000)), 9999), Decision::Together);
        assert_eq!(decide(reaching(2, |s| s.single_copy_min_bytes = Some(10_000)), 10_000), Decision::Together);
        for single_copy in [crate::Single::Never, crate::Single::IfShared] {
            let terms = at(vec![Place::anywhere(); 2], true, true, |settings| settings.single_copy = single_copy);
            assert_ne!(decide(terms, 1 << 20), Decision::Together);
        }
        let shared_cores = Terms { own_cores: false, ..reaching(2, |_| {}) };
        assert_ne!(decide(shared_cores, 1 << 20), Decision::Together);
        assert_eq!(decide(reaching(3, |s| s.form = Some(Form::Joint)), 1).form(), Form::Joint);
    }
}

#[test]
fn long_vectors_probably_go_jointly() {
    let from = |ranks, collective| {
        let terms = terms(ranks, true, |_| {});
        (12..30).map(|power| 1 << power).find(|&bytes| terms.likely_joint(collective, bytes))
    };
    for collective in [Bcast, Reduce, Allreduce] {
        assert_eq!(from(2, collective), Some(32 << 10));
    }
    assert_eq!((from(3, Bcast), from(3, Reduce), from(4, Allreduce)), (None, Some(128 << 10), Some(128 << 10)));
    assert_eq!(
        (from(5, Bcast), from(16, Reduce), from(16, Allreduce)),
        (Some(32 << 20), Some(512 << 10), Some(4 << 20))
    );
}

#[test]
fn long_reductions_hand_sums_on() {
    let on = |description: &str, ranks: usize, set: fn(&mut Settings)| {
        let topology = Topology::synthetic(description).expect("a machine");
        let cores = topology.one_per_core();
        let places = cores.iter().cycle().take(ranks).map(|&core| Place::of(&topology, &[core]).expect("a core"));
        at(places.collect(), false, true, set)
    };
    let decide = |terms: Terms, collective, bytes| terms.decide(collective, bytes, || Folding::Free);
    let eight = on("core:2", 8, |_| {});
    assert_eq!(decide(eight, Reduce, (256 << 10) - 1), Decision::LongEnough);
    assert_eq!(decide(eight, Reduce, 256 << 10), Decision::HandedOn);
    assert_eq!(decide(eight, Allreduce, 1 << 20), Decision::HandedOn);
    assert_eq!(decide(eight, Bcast, 1 << 20), Decision::Bcast);
    assert_eq!(eight.decide(Reduce, 1 << 20, || Folding::InOrder), Decision::LongEnough);
    let otherwise: [fn(&mut Settings); 3] =
        [|s| s.reproducible = true, |s| s.slice_min_bytes = Some(1), |s| s.single_copy = Single::ByKernel];
    for set in otherwise {
        assert_eq!(decide(on("core:2", 8, set), Reduce, 1 << 20), Decision::LongEnough);
    }
    assert_eq!(decide(on("core:5", 10, |_| {}), Reduce, 8 << 20), Decision::LongEnough);
    let crowd = on("core:2", 33, |_| {});
    assert_eq!(decide(crowd, Reduce, 1 << 20), Decision::Crowd);
    assert_eq!(crowd.decide(Reduce, 128 << 10, || Folding::InOrder), Decision::Crowd);
    assert_eq!(decide(crowd, Allreduce, 1 << 20), Decision::HandedOn);
    assert_eq!(decide(on("core:2", 33, |s| s.slice_min_bytes = Some(1)), Reduce, 1 << 20), Decision::LongEnough);
    assert_eq!(decide(on("core:5", 33, |_| {}), Reduce, 1 << 20), Decision::LongEnough);
    let own = terms(5, true, |s| s.form = Some(Form::Chain));
    assert_eq!(decide(own, Reduce, 1).form(), Form::Chain);
    let forced = on("core:2", 4, |s| s.form = Some(Form::Chain));
    assert_eq!(decide(forced, Reduce, 1).form(), Form::Chain);
    assert_eq!(forced.decide(Reduce, 1, || Folding::InOrder).form(), Form::Slice);
    assert_eq!(decide(forced, Bcast, 1).form(), Form::Direct);
}

#[test]
fn the_ring_is_for_operators_that_commute_and_results_that_may_differ() {
    let ring = terms(3, true, |s| s.form = Some(Form::Ring));
    assert_eq!(ring.decide(Allreduce, 8, || Folding::InOrder).form(), Form::Slice);
    assert_eq!(ring.decide(Allreduce, 8, || Folding::Free).form(), Form::Ring);
    let reproducible = terms(3, true, |s| (s.form, s.reproducible) = (Some(Form::Ring), true));
    assert_eq!(reproducible.decide(Reduce, 1 << 20, || Folding::Free).form(), Form::Slice);
}

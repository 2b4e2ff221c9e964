//! What the page says of calls, settings and machines.

use super::*;
use crate::topo::{Place, Topology};

fn circumstances(ranks: usize, own_cores: bool) -> Circumstances {
    let settings = Settings::default();
    let hierarchy = Hierarchy::new(vec![Place::anywhere(); ranks]);
    Circumstances {
        hierarchy,
        own_cores,
        shared: true,
        cma: true,
        everywhere: true,
        last_cache_bytes: 32 << 20,
        settings,
    }
}

fn question(collective: Collective, bytes: usize, mapped: bool) -> Question {
    Question { collective, bytes, root: 0, mapped, in_place: false, folding: Folding::Free }
}

fn point<'e>(explanation: &'e Explanation, what: &str) -> &'e Point {
    let found = explanation.points.iter().find(|point| point.what == what);
    found.unwrap_or_else(|| panic!("no {what} in {explanation}"))
}

#[test]
fn reasons_name_what_has_decided() {
    let few = circumstances(2, true).explain(question(Collective::Allreduce, 8, false));
    assert_eq!(few.choice, "sm/flat");
    assert!(point(&few, "form").because.contains("trees are for 32 ranks"), "{few}");
    assert_eq!(point(&few, "payload").value, "beside the flag");

    let eight = Circumstances { everywhere: false, ..circumstances(8, true) };
    let short = eight.explain(question(Collective::Allreduce, 4096, false));
    assert_eq!(short.choice, "sm/slice");
    assert!(point(&short, "form").because.contains("8 vectors of 4096 bytes have 16384 or more together"), "{short}");

    let large = circumstances(8, false).explain(question(Collective::Bcast, 1 << 20, false));
    assert_eq!(large.choice, "sm/direct");
    assert_eq!(point(&large, "chunks").value, "16 of 65536 bytes");
    assert!(point(&large, "vectors").change.contains("han_malloc"), "{large}");
    assert!(point(&large, "stores of results").because.contains("fewer than 4194304"), "{large}");

    let shared = eight.explain(question(Collective::Allreduce, 4 << 20, true));
    assert_eq!(shared.choice, "solo/slice");
    assert!(
        point(&shared, "vectors")
            .because
            .contains("pays from 8192 bytes on in allreduce of 5 ranks or more with a core each"),
        "{shared}"
    );
    assert!(point(&shared, "reduced by").value.contains("which it writes to all"), "{shared}");
    assert!(point(&shared, "stores of results").value.contains("past the last cache"), "{shared}");
    let in_place = Question { in_place: true, ..question(Collective::Allreduce, 4 << 20, true) };
    let in_place = eight.explain(in_place);
    assert_eq!(point(&in_place, "stores of results").value, "ordinary", "{in_place}");
    let longer = circumstances(8, false).explain(question(Collective::Bcast, 4 << 20, false));
    assert!(point(&longer, "stores of results").value.contains("past the last cache"), "{longer}");
    assert!(shared.to_string().contains("with a core each: solo/slice"), "{shared}");
}

#[test]
fn work_that_is_joint_says_who_does_what_and_what_it_is_tried_against() {
    let ordinary = circumstances(2, true).explain(question(Collective::Reduce, 1 << 20, false));
    assert_eq!(ordinary.choice, "solo/joint");
    assert!(point(&ordinary, "form").because.contains("trials decide between that and slice"), "{ordinary}");
    assert!(point(&ordinary, "parts").value.contains("the root a longer one"), "{ordinary}");
    assert_eq!(point(&ordinary, "vectors").value, "where they are, copied by the kernel");
    let mapped = circumstances(2, true).explain(question(Collective::Bcast, 1 << 20, true));
    assert_eq!(point(&mapped, "vectors").value, "where they are, mapped");
    let mut alone = circumstances(2, true);
    alone.everywhere = false;
    assert_eq!(alone.explain(question(Collective::Bcast, 1 << 20, false)).choice, "sm/direct");
}

#[test]
fn trees_say_what_they_follow() {
    let counted = circumstances(40, true).explain(question(Collective::Allreduce, 8, false));
    assert!(point(&counted, "tree").value.contains("in eights"), "{counted}");
    let topology = Topology::synthetic("pack:2 l3:2 core:8").expect("a machine");
    let places = topology.one_per_core().into_iter().map(|core| Place::of(&topology, &[core]).expect("a core"));
    let mut large = circumstances(1, true);
    large.hierarchy = Hierarchy::new(places.collect());
    for (collective, bytes, mapped, choice) in [
        (Collective::Barrier, 0, false, "sm/tree"),
        (Collective::Reduce, 8, false, "sm/tree"),
        (Collective::Bcast, 1 << 20, false, "sm/tree"),
        (Collective::Bcast, 1 << 20, true, "solo/tree"),
    ] {
        let answer = large.explain(question(collective, bytes, mapped));
        assert_eq!(answer.choice, choice);
        let along = "from rank 0 along l3 4 groups of 8; socket 2 groups of 2; node 1 group of 2";
        assert_eq!(point(&answer, "tree").value, along, "{answer}");
    }
}

#[test]
fn a_barrier_has_no_bytes() {
    let barrier = circumstances(40, true).explain(question(Collective::Barrier, 4096, false));
    assert_eq!((barrier.choice, barrier.question.bytes), ("sm/tree", 0));
    assert!(barrier.to_string().starts_with("barrier, 40 ranks"), "{barrier}");
    let alone = circumstances(1, true).explain(question(Collective::Barrier, 0, false));
    assert!(alone.to_string().starts_with("barrier, 1 rank with"), "{alone}");
}

#[test]
fn what_is_off_is_named() {
    let mut off = circumstances(2, true);
    (off.shared, off.cma, off.everywhere) = (false, false, false);
    let answer = off.explain(question(Collective::Reduce, 1 << 20, true));
    assert_eq!(answer.choice, "sm/direct");
    assert!(point(&answer, "vectors").because.contains("needs the method shared"), "{answer}");
    off.settings.set("form", "slice").expect("a form");
    let forced = off.explain(question(Collective::Bcast, 1 << 20, true));
    assert!(point(&forced, "form").because.contains("form=slice was set, but"), "{forced}");
    off.settings.set("form", "ring").expect("a form");
    let mut question = question(Collective::Allreduce, 1 << 20, true);
    assert_eq!(off.explain(question).choice, "sm/ring");
    question.folding = Folding::InOrder;
    assert_eq!(off.explain(question).choice, "sm/slice");
}

#[test]
fn a_form_that_cannot_carry_the_call_says_why() {
    let told = |form: &str, change: &dyn Fn(&mut Circumstances), question: Question| {
        let mut here = circumstances(3, true);
        here.settings.set("form", form).expect("a form");
        change(&mut here);
        let answer = here.explain(question);
        point(&answer, "form").clone()
    };
    let reproducible = |here: &mut Circumstances| here.settings.reproducible = true;
    let unreached = |here: &mut Circumstances| here.everywhere = false;
    let never = |here: &mut Circumstances| here.settings.set("single_copy", "never").expect("a way");
    let by_kernel = |here: &mut Circumstances| here.settings.set("single_copy", "by_kernel").expect("a way");
    let as_it_is = |_: &mut Circumstances| {};
    let of = |collective, bytes| question(collective, bytes, false);
    let ordered = Question { folding: Folding::InOrder, ..of(Collective::Allreduce, 8) };
    for (form, change, question, taken, why) in [
        (
            "flat",
            &as_it_is as &dyn Fn(&mut Circumstances),
            of(Collective::Bcast, 4097),
            "direct",
            "a cell of 4096 bytes",
        ),
        (
            "tree",
            &as_it_is,
            Question { folding: Folding::AtOnce, ..of(Collective::Allreduce, 8) },
            "flat",
            "would be rounded to 16 bits",
        ),
        ("tree", &as_it_is, of(Collective::Bcast, 121), "flat", "longer bcasts only where the machine has several"),
        ("tree", &as_it_is, of(Collective::Reduce, 121), "flat", "trees of reductions carry what fits beside a flag"),
        (
            "tree",
            &reproducible,
            of(Collective::Reduce, 8),
            "flat",
            "HAN_REPRODUCIBLE=1 forbids the partial sums of a tree",
        ),
        ("direct", &as_it_is, of(Collective::Barrier, 0), "flat", "no data"),
        ("joint", &as_it_is, of(Collective::Bcast, 0), "flat", "no data"),
        ("slice", &as_it_is, of(Collective::Bcast, 1 << 20), "direct", "only reductions have slices"),
        ("ring", &as_it_is, of(Collective::Bcast, 1 << 20), "direct", "only reductions go round a ring"),
        ("ring", &reproducible, of(Collective::Reduce, 8), "slice", "partial sums of a ring"),
        ("ring", &as_it_is, ordered, "slice", "operators that commute"),
        ("chain", &as_it_is, of(Collective::Bcast, 1 << 20), "direct", "only reductions have sums to hand on"),
        ("chain", &reproducible, of(Collective::Reduce, 8), "slice", "partial sums of a chain"),
        ("chain", &by_kernel, of(Collective::Reduce, 8), "slice", "few cores with several ranks"),
        ("joint", &unreached, of(Collective::Allreduce, 1 << 20), "slice", "can or may reach"),
        ("joint", &never, of(Collective::Bcast, 1 << 20), "direct", "can or may reach"),
    ] {
        let point = told(form, change, question);
        let expected = format!("; {taken} is the next that can carry this");
        assert_eq!(point.value, taken, "{form}: {point:?}");
        assert!(point.because.starts_with(&format!("form={form} was set, but ")), "{point:?}");
        assert!(point.because.contains(why) && point.because.ends_with(&expected), "{why}: {point:?}");
    }
    // A form that is set carries less than it is chosen for.
    for (form, collective) in
        [("slice", Collective::Reduce), ("ring", Collective::Allreduce), ("joint", Collective::Bcast)]
    {
        assert_eq!(told(form, &as_it_is, of(collective, 8)).because, format!("form={form} was set"));
    }
}

#[test]
fn a_vector_of_one_chunk_is_not_said_to_be_longer() {
    let mut here = circumstances(3, true);
    here.settings.set("form", "slice").expect("a form");
    let answer = here.explain(question(Collective::Reduce, 8, false));
    assert_eq!(point(&answer, "chunks").value, "one", "{answer}");
}

#[test]
fn every_point_of_every_call_has_a_reason() {
    for ranks in [1, 2, 3, 8, 40] {
        for own_cores in [false, true] {
            for collective in Collective::ALL {
                for bytes in [0, 8, 121, 4096, 5000, 1 << 16, 1 << 20, 64 << 20] {
                    for (mapped, in_place) in [(false, false), (true, false), (true, true)] {
                        let question =
                            Question { collective, bytes, root: 0, mapped, in_place, folding: Folding::Free };
                        let answer = circumstances(ranks, own_cores).explain(question);
                        assert!(answer.points.iter().all(|p| !p.value.is_empty() && !p.because.is_empty()));
                    }
                }
            }
        }
    }
}

#[test]
fn long_reductions_of_ranks_that_share_cores_go_core_by_core_unless_they_are_mapped() {
    let topology = Topology::synthetic("core:2").expect("a machine");
    let cores = topology.one_per_core();
    let places = cores.iter().cycle().take(8).map(|&core| Place::of(&topology, &[core]).expect("a core"));
    let here = Circumstances { hierarchy: Hierarchy::new(places.collect()), ..circumstances(8, false) };
    let private = here.explain(question(Collective::Allreduce, 1 << 20, false));
    assert_eq!(private.choice, "sm/chain");
    assert_eq!(point(&private, "reduced by").value, "all ranks, core by core");
    let mapped = here.explain(question(Collective::Allreduce, 1 << 20, true));
    assert_eq!((mapped.choice, point(&mapped, "form").value.as_str()), ("solo/slice", "slice"));
    assert!(point(&mapped, "form").because.contains("else chain"));
}

#[test]
fn bcasts_that_the_kernel_copies_to_many_are_handed_on() {
    let handed_on = |ranks, shared, mapped| {
        let mut here = Circumstances { shared, ..circumstances(ranks, true) };
        here.settings.form = Some(Form::Joint);
        let explanation = here.explain(question(Collective::Bcast, 64 << 20, mapped));
        assert_eq!(explanation.choice, "solo/joint");
        let is_handed_on = point(&explanation, "parts").value.contains("hands it on");
        let is_by_han = point(&explanation, "stores of results").value.contains("non-temporal");
        assert!(is_by_han || !is_handed_on && !mapped, "{explanation}");
        is_handed_on
    };
    assert!(handed_on(4, true, false) && handed_on(8, false, true));
    assert!(!handed_on(3, true, false) && !handed_on(8, true, true));
}

#[test]
fn results_for_all_that_no_cache_holds_are_handed_on() {
    let mut here = circumstances(8, true);
    here.settings.form = Some(Form::Joint);
    let held = here.last_cache_bytes / 3 / 8;
    for (bytes, mapped, is_handed_on) in [(held - 8, false, false), (held + 8, false, true), (held + 8, true, false)] {
        let explanation = here.explain(question(Collective::Allreduce, bytes, mapped));
        assert_eq!(point(&explanation, "parts").value.contains("hands it on"), is_handed_on, "{explanation}");
    }
    let reduce = here.explain(question(Collective::Reduce, 64 << 20, false));
    assert!(!point(&reduce, "parts").value.contains("hands it on"), "the kernel brings it to the root");
}

//! Choices by what was measured: a tuning file says what the settings leave open.

use std::path::Path;

use reduce_kernels::Collective;

use super::form::{self, Choice, OverNodes};
use super::{Inter, Point};
use crate::task::Across;
use crate::tune::{Found, Source, Wanted, under};

/// Chooses for `over` under the settings, and where these leave something open by the tuning file, with the reasons.
/// `provider` is that of the network, if it is known.
#[must_use]
pub fn choose(over: &OverNodes<'_>, inter: &Inter, source: Option<&Source>, provider: Option<&str>) -> Choice {
    let Some(source) = source else { return form::choose(over, inter) };
    match find(over, inter, source, provider) {
        Ok((wanted, found, tuned)) => with(over, inter, &wanted, &found, &tuned, &source.path),
        Err(why) => {
            let mut choice = form::choose(over, inter);
            choice.points.push(point("not used", why));
            choice
        }
    }
}

/// What is wanted, the point that decides and what it says, or why none does.
fn find<'a>(
    over: &OverNodes<'_>,
    inter: &Inter,
    source: &'a Source,
    provider: Option<&'a str>,
) -> Result<(Wanted<'a>, Found<'a>, Inter), String> {
    let reduces = over.collective.reduces();
    if reduces && !over.commutative {
        return Err("operators that commute were measured, and this one does not".to_owned());
    }
    if reduces && over.reproducible {
        return Err("the result may not depend on what was measured".to_owned());
    }
    let wanted = Wanted {
        collective: over.collective,
        nodes: over.layout.nodes(),
        ranks_per_node: over.layout.rails(),
        bytes: over.count * over.element_bytes,
        provider,
        set: &source.set,
    };
    let nothing = || format!("{} has nothing for {}", source.path.display(), over.collective.name());
    let found = source.tuning.look_up(&wanted).ok_or_else(nothing)?;
    let far = || {
        let bytes = found.point.bytes;
        format!("nothing nearer to {} bytes than {bytes} was measured, and that is too far to tell", wanted.bytes)
    };
    let tuned = found.settings_for(&wanted).ok_or_else(far)?;
    match inter.contradicts(&tuned, over.collective) {
        Some((key, value)) => Err(format!("{key}={value} is set, and something else was measured to be best")),
        None => Ok((wanted, found, tuned)),
    }
}

fn with(
    over: &OverNodes<'_>,
    inter: &Inter,
    wanted: &Wanted<'_>,
    found: &Found<'_>,
    tuned: &Inter,
    path: &Path,
) -> Choice {
    let mut choice = form::choose(over, &inter.with(tuned));
    let how = if found.point.estimated { "estimated" } else { "measured" };
    // Leaders of an allreduce that is split reduce first: that is what is said of them.
    let said_of = if choice.shape.across == Across::Split { Collective::Reduce } else { over.collective };
    for point in &mut choice.points {
        let set = |settings: &Inter| settings.set_for(&point.change, said_of);
        // What was measured may not be possible here.
        if set(inter).is_none() && set(tuned).is_some_and(|measured| measured == point.value) {
            let one = point.change == "segment_bytes" && found.point.is_one_chunk();
            let chunk = if one { "one chunk was " } else { "" };
            point.because = format!("tuned: {chunk}{how} to be best");
        }
    }
    let Found { shape, point: measured } = found;
    let what = format!(
        "{how} {:.1} us for {} bytes by {} x {} ranks over {} on {}{}: {}",
        measured.us,
        measured.bytes,
        shape.nodes,
        shape.ranks_per_node,
        shape.way(),
        shape.date,
        nearest(wanted, found),
        path.display()
    );
    choice.points.push(point("used", what));
    choice
}

/// What was asked for, where something else had to be taken.
fn nearest(wanted: &Wanted<'_>, found: &Found<'_>) -> String {
    let (shape, provider) = (found.shape, wanted.provider.filter(|provider| *provider != found.shape.provider));
    let differs = [
        (wanted.bytes != found.point.bytes).then(|| format!("{} bytes", wanted.bytes)),
        ((wanted.nodes, wanted.ranks_per_node) != (shape.nodes, shape.ranks_per_node))
            .then(|| format!("{} x {} ranks", wanted.nodes, wanted.ranks_per_node)),
        provider.map(|provider| format!("the provider {provider}")),
        (wanted.set != shape.set).then(|| format!("a job under {}", under(wanted.set))),
    ];
    let differs: Vec<String> = differs.into_iter().flatten().collect();
    if differs.is_empty() { String::new() } else { format!(", the nearest to {}", differs.join(", ")) }
}

fn point(value: &str, because: String) -> Point {
    Point::new("tuning", value, because, "HAN_TUNING")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::select::form::NodesForm;
    use crate::task::Layout;
    use crate::tune::Tuning;

    const FILE: &str = r#"version = 1
machine = "m"
[[shape]]
nodes = 2
ranks_per_node = 2
provider = "tcp"
date = "2026-01-31"
method = "task"
bcast = [
    { bytes = 1024, us = 9.5, settings = { nodes_form = "flat", inter_algorithm = "binary" } },
]
allreduce = [
    { bytes = 1024, us = 9.5, settings = { nodes_form = "hierarchical", inter_algorithm = "ring", segment_bytes = 512 } },
]
"#;

    fn source() -> Source {
        Source { path: "tuned.toml".into(), tuning: Tuning::parse(FILE).unwrap(), set: String::new(), hash: 1 }
    }

    fn over(layout: &Layout, collective: Collective) -> OverNodes<'_> {
        OverNodes {
            collective,
            count: 1000,
            element_bytes: 1,
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
    fn what_was_measured_is_chosen_and_said() {
        let (layout, source) = (Layout::new(&[0, 0, 1, 1]), source());
        let over = over(&layout, Collective::Allreduce);
        let choice = choose(&over, &Inter::default(), Some(&source), Some("tcp"));
        assert_eq!((choice.form, choice.shape.chunk_bytes), (NodesForm::Hierarchical, 512));
        assert_eq!(choice.inter.algorithm.to_string(), "ring");
        let because = |what: &str| &choice.points.iter().find(|point| point.what == what).unwrap().because;
        assert_eq!(because("algorithm"), "tuned: measured to be best");
        assert_eq!(because("segment_bytes"), "tuned: measured to be best");
        assert!(!because("policy").contains("tuned"));
        assert!(because("tuning").contains("9.5 us for 1024 bytes by 2 x 2 ranks over tcp"), "{}", because("tuning"));
        assert!(because("tuning").ends_with("2026-01-31, the nearest to 1000 bytes: tuned.toml"));
    }

    #[test]
    fn another_shape_and_provider_are_said() {
        let (layout, source) = (Layout::new(&[0, 0, 0, 1, 1, 2]), source());
        let over = OverNodes { count: 1024, ..over(&layout, Collective::Allreduce) };
        let choice = choose(&over, &Inter::default(), Some(&source), Some("verbs"));
        let tuning = choice.points.last().unwrap();
        let nearest = "the nearest to 3 x 3 ranks, the provider verbs: tuned.toml";
        assert!(tuning.because.ends_with(nearest), "{tuning:?}");
        let solo = FILE.replace("date", "set = \"intra_module=solo\"\ndate");
        let source = Source { tuning: Tuning::parse(&solo).unwrap(), ..source };
        let choice = choose(&over, &Inter::default(), Some(&source), Some("tcp"));
        let tuning = choice.points.last().unwrap();
        let nearest =
            "over tcp under intra_module=solo on 2026-01-31, the nearest to 3 x 3 ranks, a job under no settings: ";
        assert!(tuning.because.contains(nearest), "{tuning:?}");
    }

    #[test]
    fn nodes_with_several_ranks_keep_their_levels_where_nodes_of_one_were_measured() {
        let mut source = source();
        source.tuning = Tuning::parse(&FILE.replace("ranks_per_node = 2", "ranks_per_node = 1")).unwrap();
        let chosen = |nodes: &[usize]| {
            let layout = Layout::new(nodes);
            let over = OverNodes { count: 1024, ..over(&layout, Collective::Bcast) };
            choose(&over, &Inter::default(), Some(&source), None).to_string()
        };
        assert_eq!([chosen(&[0, 1]), chosen(&[0, 0, 0, 1, 1, 1])], ["net/binary", "nodes/binary"]);
    }

    #[test]
    fn far_from_what_was_measured_the_rules_decide() {
        let (layout, mut source) = (Layout::new(&[0, 0, 1, 1]), source());
        let choose = |source: &Source, count: usize| {
            let over = OverNodes { count, ..over(&layout, Collective::Bcast) };
            (choose(&over, &Inter::default(), Some(source), None), form::choose(&over, &Inter::default()))
        };
        let (long, built_in) = choose(&source, 64 << 20);
        assert_eq!((long.form, &long.shape, &long.inter), (built_in.form, &built_in.shape, &built_in.inter));
        let tuning = long.points.last().unwrap();
        assert_eq!(tuning.value, "not used");
        assert!(tuning.because.starts_with("nothing nearer to 67108864 bytes than 1024 was measured"), "{tuning:?}");
        // As older builds have written it: one chunk, and somewhat longer than the vector.
        let one = "{ nodes_form = \"hierarchical\", segment_bytes = 4096 }";
        source.tuning =
            Tuning::parse(&FILE.replace("{ nodes_form = \"flat\", inter_algorithm = \"binary\" }", one)).unwrap();
        let (near, _) = choose(&source, 2048);
        assert_eq!(near.shape.chunk_bytes, 4096);
        assert_eq!(near.points[1].because, "tuned: one chunk was measured to be best");
        let (long, built_in) = choose(&source, 64 << 20);
        assert_eq!(long.shape, built_in.shape);
    }

    #[test]
    fn settings_go_before_measurements() {
        let (layout, source) = (Layout::new(&[0, 0, 1, 1]), source());
        let question = over(&layout, Collective::Bcast);
        let choose = |over: &OverNodes<'_>, set: &[(&str, &str)]| {
            let mut inter = Inter::default();
            set.iter().for_each(|(key, value)| inter.set(key, value).unwrap());
            choose(over, &inter, Some(&source), None)
        };
        let tuning = |choice: &Choice| choice.points.iter().find(|point| point.what == "tuning").unwrap().clone();
        assert_eq!(choose(&question, &[("inter_chunk_bytes", "64")]).form, NodesForm::Flat);
        let other = choose(&question, &[("inter_algorithm", "chain")]);
        assert_eq!((other.form, tuning(&other).value.as_str()), (NodesForm::Hierarchical, "not used"));
        assert!(tuning(&other).because.contains("inter_algorithm=chain is set"));
        for (over, why) in [
            (over(&layout, Collective::Reduce), "nothing for reduce"),
            (OverNodes { commutative: false, ..over(&layout, Collective::Allreduce) }, "does not"),
            (OverNodes { reproducible: true, ..over(&layout, Collective::Allreduce) }, "may not depend"),
        ] {
            let choice = choose(&over, &[]);
            assert!(tuning(&choice).because.contains(why), "{:?}", choice.points);
        }
    }

    #[test]
    fn a_setting_contradicts_by_whichever_key() {
        use Collective::{Allreduce, Bcast};
        let layout = Layout::new(&[0, 0, 1, 1]);
        let said = |collective: Collective, measured: &str, set: &[(&str, &str)]| {
            let name = collective.name();
            let head = FILE.split_once("bcast = [").unwrap().0;
            let text = format!("{head}{name} = [\n{{ bytes = 1024, us = 9.5, settings = {{ {measured} }} }},\n]\n");
            let source = Source { tuning: Tuning::parse(&text).unwrap(), ..source() };
            let mut inter = Inter::default();
            set.iter().for_each(|(key, value)| inter.set(key, value).unwrap());
            let choice = choose(&over(&layout, collective), &inter, Some(&source), None);
            let tuning = choice.points.last().unwrap();
            assert_eq!(tuning.what, "tuning");
            let not_used = tuning.because.split_once(" is set, ").filter(|_| tuning.value == "not used");
            let algorithm = choice.points.iter().find(|point| point.what == "algorithm").unwrap();
            let algorithm = format!("{}: {} by {}", algorithm.value, algorithm.because, algorithm.change);
            (not_used.map(|(set, _)| set.to_owned()), algorithm)
        };
        let (of_all, own) = ("inter_algorithm = \"linear\"", "inter_bcast_algorithm = \"linear\"");
        for measured in [of_all, own] {
            for key in ["inter_algorithm", "inter_bcast_algorithm"] {
                let (not_used, algorithm) = said(Bcast, measured, &[(key, "chain")]);
                assert_eq!(not_used, Some(format!("{key}=chain")), "{measured}");
                assert_eq!(algorithm, format!("chain: the setting says so by {key}"), "{measured}");
                let (not_used, algorithm) = said(Bcast, measured, &[(key, "linear")]);
                assert!(not_used.is_none() && algorithm.contains("linear: the setting says so"), "{algorithm}");
            }
            // Of other collectives nothing is said.
            let (not_used, algorithm) = said(Bcast, measured, &[("inter_reduce_algorithm", "chain")]);
            assert!(not_used.is_none() && algorithm.starts_with("linear: tuned"), "{algorithm}");
            // What is in force counts.
            let both = [("inter_algorithm", "chain"), ("inter_bcast_algorithm", "linear")];
            assert_eq!(said(Bcast, measured, &both).0, None);
        }
        let chunks = said(Bcast, "inter_chunk_bytes = 128", &[("inter_bcast_chunk_bytes", "64")]);
        assert_eq!(chunks.0.unwrap(), "inter_bcast_chunk_bytes=64");
        let split = "inter_allreduce_algorithm = \"ir+ib\", inter_algorithm = \"chain\"";
        for (measured, set, contradicts) in [
            (split, ("inter_bcast_algorithm", "chain"), false),
            (split, ("inter_bcast_algorithm", "binary"), true),
            (split, ("inter_reduce_algorithm", "binary"), true),
            (split, ("inter_allreduce_algorithm", "ring"), true),
            ("inter_algorithm = \"ring\"", ("inter_allreduce_algorithm", "ir+ib"), true),
            ("inter_algorithm = \"ring\"", ("inter_reduce_algorithm", "chain"), false),
        ] {
            let (not_used, _) = said(Allreduce, measured, &[set]);
            assert_eq!(not_used.is_some(), contradicts, "{measured}, {set:?}: {not_used:?}");
        }
        assert!(said(Allreduce, split, &[]).1.starts_with("chain: tuned: "));
    }

    #[test]
    fn what_was_not_measured_is_not_said_to_be() {
        let source = source();
        let because = |nodes: &[usize], measured: &str, count: usize, what: &str| {
            let layout = Layout::new(nodes);
            let text = FILE.replace("segment_bytes = 512", measured).replace("1024", &count.to_string());
            let source = Source { tuning: Tuning::parse(&text).unwrap(), ..source.clone() };
            let over = OverNodes { count, ..over(&layout, Collective::Allreduce) };
            let choice = choose(&over, &Inter::default(), Some(&source), None);
            choice.points.iter().find(|point| point.what == what).unwrap().because.clone()
        };
        let (pairs, alone) = (&[0, 0, 1, 1][..], &[0, 1, 2, 3][..]);
        assert_eq!(because(pairs, "leaders = 2", 1024, "form"), "tuned: measured to be best");
        assert_eq!(because(alone, "leaders = 2", 1024, "form"), "no node has two ranks");
        assert_eq!(because(pairs, "leaders = 2", 1024, "leaders"), "tuned: measured to be best");
        assert_eq!(because(pairs, "leaders = 3", 1024, "leaders"), "no node has more ranks");
        let chunks = because(pairs, "segment_bytes = 64", 16 << 20, "segment_bytes");
        assert!(chunks.contains("at most 16384 chunks"), "{chunks}");
    }

    #[test]
    fn without_a_file_nothing_changes() {
        let layout = Layout::new(&[0, 0, 1, 1]);
        let over = over(&layout, Collective::Bcast);
        let (plain, without) = (form::choose(&over, &Inter::default()), choose(&over, &Inter::default(), None, None));
        assert_eq!((plain.points, plain.shape), (without.points, without.shape));
    }
}

//! Choices by what was measured: a tuning file says what the settings leave open.

use std::path::Path;

use super::form::{self, Choice, OverNodes};
use super::{Inter, Point};
use crate::tune::{Found, Source, Wanted, under};

/// Chooses for `over` under the settings, and where these leave something open by the tuning file, with the reasons.
/// `provider` is that of the network, if it is known.
#[must_use]
pub fn explain(over: &OverNodes<'_>, inter: &Inter, source: Option<&Source>, provider: Option<&str>) -> Choice {
    let Some(source) = source else { return form::explain(over, inter) };
    match find(over, inter, source, provider) {
        Ok((wanted, found, tuned)) => with(over, inter, &wanted, &found, &tuned, &source.path),
        Err(why) => {
            let mut choice = form::explain(over, inter);
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
    match set(inter).find(|(key, value)| tuned.get(key).is_some_and(|tuned| tuned != "auto" && tuned != *value)) {
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
    let mut choice = form::explain(over, &inter.with(tuned));
    let how = if found.point.estimated { "estimated" } else { "measured" };
    for point in &mut choice.points {
        let is_open = inter.get(&point.change).is_some_and(|value| value == "auto");
        let is_measured = tuned.get(&point.change).is_some_and(|value| value != "auto");
        if is_open && is_measured && !point.because.contains("is set, but") {
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

/// What is set of some settings.
fn set(settings: &Inter) -> impl Iterator<Item = (&'static str, String)> {
    crate::tune::assignments(settings)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::select::form::Form;
    use crate::task::Layout;
    use crate::tune::Tuning;
    use reduce_kernels::Collective;

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
        let choice = explain(&over, &Inter::default(), Some(&source), Some("tcp"));
        assert_eq!((choice.form, choice.shape.chunk_bytes), (Form::Hierarchical, 512));
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
        let choice = explain(&over, &Inter::default(), Some(&source), Some("verbs"));
        let tuning = choice.points.last().unwrap();
        let nearest = "the nearest to 3 x 3 ranks, the provider verbs: tuned.toml";
        assert!(tuning.because.ends_with(nearest), "{tuning:?}");
        let solo = FILE.replace("date", "set = \"intra_module=solo\"\ndate");
        let source = Source { tuning: Tuning::parse(&solo).unwrap(), ..source };
        let choice = explain(&over, &Inter::default(), Some(&source), Some("tcp"));
        let tuning = choice.points.last().unwrap();
        let nearest =
            "over tcp under intra_module=solo on 2026-01-31, the nearest to 3 x 3 ranks, a job under no settings: ";
        assert!(tuning.because.contains(nearest), "{tuning:?}");
    }

    #[test]
    fn far_from_what_was_measured_the_rules_decide() {
        let (layout, mut source) = (Layout::new(&[0, 0, 1, 1]), source());
        let explain = |source: &Source, count: usize| {
            let over = OverNodes { count, ..over(&layout, Collective::Bcast) };
            (explain(&over, &Inter::default(), Some(source), None), form::explain(&over, &Inter::default()))
        };
        let (long, built_in) = explain(&source, 64 << 20);
        assert_eq!((long.form, &long.shape, &long.inter), (built_in.form, &built_in.shape, &built_in.inter));
        let tuning = long.points.last().unwrap();
        assert_eq!(tuning.value, "not used");
        assert!(tuning.because.starts_with("nothing nearer to 67108864 bytes than 1024 was measured"), "{tuning:?}");
        // As older builds have written it: one chunk, and somewhat longer than the vector.
        let one = "{ nodes_form = \"hierarchical\", segment_bytes = 4096 }";
        source.tuning =
            Tuning::parse(&FILE.replace("{ nodes_form = \"flat\", inter_algorithm = \"binary\" }", one)).unwrap();
        let (near, _) = explain(&source, 2048);
        assert_eq!(near.shape.chunk_bytes, 4096);
        assert_eq!(near.points[1].because, "tuned: one chunk was measured to be best");
        let (long, built_in) = explain(&source, 64 << 20);
        assert_eq!(long.shape, built_in.shape);
    }

    #[test]
    fn settings_go_before_measurements() {
        let (layout, source) = (Layout::new(&[0, 0, 1, 1]), source());
        let question = over(&layout, Collective::Bcast);
        let explain = |over: &OverNodes<'_>, set: &[(&str, &str)]| {
            let mut inter = Inter::default();
            set.iter().for_each(|(key, value)| inter.set(key, value).unwrap());
            explain(over, &inter, Some(&source), None)
        };
        let tuning = |choice: &Choice| choice.points.iter().find(|point| point.what == "tuning").unwrap().clone();
        assert_eq!(explain(&question, &[("inter_chunk_bytes", "64")]).form, Form::Flat);
        let other = explain(&question, &[("inter_algorithm", "chain")]);
        assert_eq!((other.form, tuning(&other).value.as_str()), (Form::Hierarchical, "not used"));
        assert!(tuning(&other).because.contains("inter_algorithm=chain is set"));
        for (over, why) in [
            (over(&layout, Collective::Reduce), "nothing for reduce"),
            (OverNodes { commutative: false, ..over(&layout, Collective::Allreduce) }, "does not"),
            (OverNodes { reproducible: true, ..over(&layout, Collective::Allreduce) }, "may not depend"),
        ] {
            let choice = explain(&over, &[]);
            assert!(tuning(&choice).because.contains(why), "{:?}", choice.points);
        }
    }

    #[test]
    fn without_a_file_nothing_changes() {
        let layout = Layout::new(&[0, 0, 1, 1]);
        let over = over(&layout, Collective::Bcast);
        let (plain, without) = (form::explain(&over, &Inter::default()), explain(&over, &Inter::default(), None, None));
        assert_eq!((plain.points, plain.shape), (without.points, without.shape));
    }
}

//! Choices by what was measured: a tuning file says what the settings leave open.

use std::path::Path;

use reduce_kernels::Collective;

use super::form::{self, Choice, OverNodes};
use super::{Inter, Point};
use crate::tune::{Found, Source, Wanted};

/// Chooses for `over` under the settings, and where these leave something open by the tuning file, with the reasons.
/// `provider` is that of the network, if it is known.
#[must_use]
pub fn explain(over: &OverNodes<'_>, inter: &Inter, source: Option<&Source>, provider: Option<&str>) -> Choice {
    let Some(source) = source else { return form::explain(over, inter) };
    match find(over, inter, source, provider) {
        Ok(found) => with(over, inter, &found, &source.path),
        Err(why) => {
            let mut choice = form::explain(over, inter);
            choice.points.push(point("not used", why));
            choice
        }
    }
}

/// The point that decides, or why none does.
fn find<'a>(
    over: &OverNodes<'_>,
    inter: &Inter,
    source: &'a Source,
    provider: Option<&str>,
) -> Result<Found<'a>, String> {
    let reduces = matches!(over.collective, Collective::Reduce | Collective::Allreduce);
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
    };
    let nothing = || format!("{} has nothing for {}", source.path.display(), over.collective.name());
    let found = source.tuning.look_up(&wanted).ok_or_else(nothing)?;
    let tuned = &found.point.settings;
    match set(inter).find(|(key, value)| tuned.get(key).is_some_and(|tuned| tuned != "auto" && tuned != *value)) {
        Some((key, value)) => Err(format!("{key}={value} is set, and something else was measured to be best")),
        None => Ok(found),
    }
}

fn with(over: &OverNodes<'_>, inter: &Inter, found: &Found<'_>, path: &Path) -> Choice {
    let mut choice = form::explain(over, &inter.with(&found.point.settings));
    for point in &mut choice.points {
        let is_open = inter.get(point.change).is_some_and(|value| value == "auto");
        let is_measured = found.point.settings.get(point.change).is_some_and(|value| value != "auto");
        if is_open && is_measured && !point.because.contains("is set, but") {
            "tuned: measured to be best".clone_into(&mut point.because);
        }
    }
    let Found { shape, point: measured } = found;
    let what = format!(
        "measured {:.1} us for {} bytes by {} x {} ranks over {} on {}: {}",
        measured.us,
        measured.bytes,
        shape.nodes,
        shape.ranks_per_node,
        shape.provider,
        shape.date,
        path.display()
    );
    choice.points.push(point("used", what));
    choice
}

fn point(value: &str, because: String) -> Point {
    Point { what: "tuning", value: value.to_owned(), because, change: "HAN_TUNING" }
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
        Source { path: "tuned.toml".into(), tuning: Tuning::parse(FILE).unwrap(), hash: 1 }
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
        assert!(because("tuning").contains("tuned.toml"));
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

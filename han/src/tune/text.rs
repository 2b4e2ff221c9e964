//! Reads tuning files: TOML, whose mistakes are told with their line.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use shm_core::Collective;
use toml::{Spanned, Value};

use super::file::{Measured, Point, Tuning};
use crate::config::Config;
use crate::select::Inter;

/// Version of the format.
pub(super) const VERSION: i64 = 1;

/// What every version has.
#[derive(Deserialize)]
struct Head {
    version: Spanned<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(rename = "version")]
    _version: i64,
    machine: String,
    #[serde(default)]
    shape: Vec<Shape>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    nodes: Spanned<usize>,
    ranks_per_node: Spanned<usize>,
    provider: String,
    set: Option<Spanned<String>>,
    date: String,
    method: String,
    #[serde(default)]
    barrier: Vec<Row>,
    #[serde(default)]
    bcast: Vec<Row>,
    #[serde(default)]
    reduce: Vec<Row>,
    #[serde(default)]
    allreduce: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    bytes: Spanned<usize>,
    us: Spanned<f64>,
    #[serde(default)]
    estimated: bool,
    settings: BTreeMap<Spanned<String>, Spanned<Value>>,
}

pub(super) fn parse(text: &str) -> Result<Tuning, String> {
    let wrong = |error: toml::de::Error| {
        let why = error.message().trim_end().replace('\n', ": ");
        error.span().map_or_else(|| why.clone(), |span| at(text, &span, &why))
    };
    let Head { version } = toml::from_str(text).map_err(wrong)?;
    if *version.get_ref() != VERSION {
        let why = format!("version {} is not known: this build of han reads version {VERSION}", version.get_ref());
        return Err(at(text, &version.span(), &why));
    }
    let Body { machine, shape, .. } = toml::from_str(text).map_err(wrong)?;
    let spans: Vec<_> = shape.iter().map(|shape| shape.nodes.span()).collect();
    let shapes: Vec<_> = shape.into_iter().map(|shape| shape.check(text)).collect::<Result<_, _>>()?;
    for (place, shape) in shapes.iter().enumerate() {
        let before = || shapes[..place].iter().filter(|before| before.key() == shape.key());
        let twice = |of: &Collective| shape.has(*of) && before().any(|before| before.has(*of));
        if let Some(of) = Collective::ALL.into_iter().find(twice) {
            let Measured { nodes, ranks_per_node, .. } = shape;
            let why = format!("{} of {nodes} x {ranks_per_node} over {} stands here twice", of.name(), shape.way());
            return Err(at(text, &spans[place], &why));
        }
    }
    Ok(Tuning { machine, shapes })
}

/// A sentence with the line where it applies.
fn at(text: &str, span: &Range<usize>, why: &str) -> String {
    let before = text.get(..span.start).unwrap_or(text);
    format!("line {}: {why}", 1 + before.matches('\n').count())
}

impl Shape {
    fn check(self, text: &str) -> Result<Measured, String> {
        let Self { nodes, ranks_per_node, provider, set, date, method, barrier, bcast, reduce, allreduce } = self;
        let mut config = Config::default();
        if let Some(set) = set {
            config.set_all(set.get_ref()).map_err(|why| at(text, &set.span(), &why.to_string()))?;
        }
        for (key, number) in [("nodes", &nodes), ("ranks_per_node", &ranks_per_node)] {
            if *number.get_ref() == 0 {
                return Err(at(text, &number.span(), &format!("{key} = 0: expected a number of at least 1")));
            }
        }
        let mut points = Vec::new();
        let rows = [
            (Collective::Barrier, barrier),
            (Collective::Bcast, bcast),
            (Collective::Reduce, reduce),
            (Collective::Allreduce, allreduce),
        ];
        for (collective, rows) in rows {
            let mut last = None;
            for row in rows {
                if last.is_some_and(|last| last >= *row.bytes.get_ref()) {
                    let why = format!("{} of {} bytes: bytes must ascend", collective.name(), row.bytes.get_ref());
                    return Err(at(text, &row.bytes.span(), &why));
                }
                last = Some(*row.bytes.get_ref());
                points.push(row.check(collective, text)?);
            }
        }
        let (nodes, ranks_per_node) = (nodes.into_inner(), ranks_per_node.into_inner());
        Ok(Measured { nodes, ranks_per_node, provider, set: config.untuned(), date, method, points })
    }
}

impl Row {
    fn check(self, collective: Collective, text: &str) -> Result<Point, String> {
        let Self { bytes, us, estimated, settings: pairs } = self;
        if !(us.get_ref().is_finite() && *us.get_ref() > 0.0) {
            return Err(at(text, &us.span(), &format!("us = {}: expected microseconds, more than 0", us.get_ref())));
        }
        let mut settings = Inter::default();
        for (key, value) in &pairs {
            let set = match value.get_ref() {
                Value::String(value) => settings.set(key.get_ref(), value),
                Value::Integer(value) => settings.set(key.get_ref(), &value.to_string()),
                other => Err(format!("{} = {other}: expected a text or a whole number", key.get_ref())),
            };
            set.map_err(|why| at(text, &key.span(), &why))?;
        }
        for key in pairs.keys() {
            settings.check_for(collective, key.get_ref()).map_err(|why| at(text, &key.span(), &why))?;
        }
        Ok(Point { collective, bytes: bytes.into_inner(), us: us.into_inner(), estimated, settings })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = r#"version = 1
machine = "two of \"them\""

[[shape]]
nodes = 2
ranks_per_node = 4
provider = "tcp"
date = "2026-01-31"
method = "task"
bcast = [
    { bytes = 8, us = 11.25, estimated = true, settings = {} },
    { bytes = 4096, us = 20, settings = { inter_algorithm = "chain", inter_chunk_bytes = 1024 } },
]
allreduce = [
    { bytes = 8, us = 1.5, settings = { inter_policy = "wait_all" } },
]
"#;

    #[test]
    fn what_is_written_is_read() {
        let tuning = Tuning::parse(TEXT).unwrap();
        assert_eq!((tuning.machine.as_str(), tuning.shapes.len()), ("two of \"them\"", 1));
        let points = &tuning.shapes[0].points;
        assert_eq!([0, 1].map(|point| points[point].estimated), [true, false]);
        assert_eq!(points[1].settings.get("inter_chunk_bytes").unwrap(), "1024");
        assert_eq!(points[2].settings.get("inter_policy").unwrap(), "wait_all");
        assert_eq!(Tuning::parse(&tuning.to_text()).unwrap(), tuning);
        assert!(tuning.shapes[0].set.is_empty() && !tuning.to_text().contains("\nset"));
        // Settings are the same by whatever key and in whatever order, and what does not concern speed is none.
        let under = |set: &str| Tuning::parse(&TEXT.replace("date", &format!("set = \"{set}\"\ndate"))).unwrap();
        let tuning = under("single_copy=by_kernel, timeout_s=5,chunk_bytes=8K,trace_spans=9");
        assert_eq!(tuning.shapes[0].set, "chunk_bytes=8192,intra_module=solo");
        assert_eq!(Tuning::parse(&tuning.to_text()).unwrap(), tuning);
        assert_eq!(under("intra_module=solo,chunk_bytes=8192"), tuning);
        assert_eq!(
            under("single_copy=if_shared,wire_mbit_s=100").shapes[0].set,
            "single_copy=if_shared,wire_mbit_s=100"
        );
    }

    #[test]
    fn a_shape_is_measured_anew() {
        let mut tuning = Tuning::parse(TEXT).unwrap();
        let other = Measured { nodes: 1, ..tuning.shapes[0].clone() };
        let again = Measured { method: "exhaustive".to_owned(), ..tuning.shapes[0].clone() };
        tuning.put(other.clone());
        tuning.put(again.clone());
        assert_eq!(tuning.shapes, [other.clone(), again.clone()]);
        // Under other settings it is measured beside that.
        let solo = Measured { set: "intra_module=solo".to_owned(), ..again.clone() };
        let mut both = tuning.clone();
        both.put(solo.clone());
        assert_eq!(both.shapes, [other, again.clone(), solo]);
        // What was not searched stays.
        let last = again.points.last().unwrap();
        tuning.put(Measured { points: vec![last.clone()], ..again.clone() });
        let others = again.points.iter().filter(|point| point.collective != last.collective);
        assert!(others.clone().count() > 0);
        assert!(tuning.shapes[1].points.iter().eq([last].into_iter().chain(others)));
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let split =
            "inter_allreduce_algorithm = \"ir+ib\", inter_bcast_algorithm = \"chain\", inter_algorithm = \"binary\"";
        Tuning::parse(&TEXT.replace("inter_policy = \"wait_all\"", split)).unwrap();
        for (from, to, expected) in [
            ("version = 1", "version = 2", "line 1: version 2 is not known: this build of han reads version 1"),
            ("version = 1\n", "", "version"),
            ("nodes = 2", "nodes = 0", "line 5: nodes = 0: expected a number of at least 1"),
            ("nodes = 2", "nodes = -2", "line 5: "),
            ("provider = \"tcp\"\n", "", "provider"),
            (
                "date =",
                "set = \"chunk_bytes=1\"\ndate =",
                "line 8: configuration: HAN_SET: chunk_bytes=1: expected auto",
            ),
            ("date =", "day =", "line 8: unknown field `day`"),
            ("bytes = 4096", "bytes = 8", "line 12: bcast of 8 bytes: bytes must ascend"),
            ("us = 11.25", "us = -1", "line 11: us = -1: expected microseconds"),
            ("us = 11.25", "us = nan", "line 11: us = NaN: expected microseconds"),
            ("inter_algorithm", "inter_algorithms", "line 12: unknown key \"inter_algorithms\": valid keys are"),
            ("\"chain\"", "\"bubble\"", "line 12: inter_algorithm=bubble"),
            ("= \"chain\"", "= 1.5", "line 12: inter_algorithm = 1.5: expected a text"),
            ("\"chain\",", "\"chain\", inter_algorithm = \"ring\",", "line 12: duplicate key"),
            ("[[shape]]", "[[shapes]]", "line 4: unknown field `shapes`"),
            ("inter_policy", "spins", "line 15: unknown key \"spins\""),
            ("\"chain\"", "\"ring\"", "line 12: inter_algorithm=ring does no bcast: expected auto, linear, chain, "),
            ("inter_algorithm", "inter_reduce_algorithm", "line 12: inter_reduce_algorithm says nothing of bcast: "),
            ("inter_chunk", "inter_allreduce_chunk", "line 12: inter_allreduce_chunk_bytes says nothing of bcast: "),
            ("inter_policy = \"wait_all\"", "inter_bcast_algorithm = \"chain\"", "line 15: inter_bcast_algorithm says"),
            (
                "inter_algorithm = \"chain\"",
                "inter_bcast_algorithm = \"smp\"",
                "line 12: inter_bcast_algorithm=smp does no",
            ),
            ("nodes = 2", "nodes = ", "line 5: "),
        ] {
            assert!(TEXT.contains(from), "{from}");
            let error = Tuning::parse(&TEXT.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(expected), "{to}: {error}");
        }
    }

    #[test]
    fn what_is_there_twice_is_refused() {
        let (head, shape) = TEXT.split_at(TEXT.find("[[shape]]").unwrap());
        let twice = |other: &str| Tuning::parse(&format!("{head}{shape}{other}"));
        let error = twice(shape).unwrap_err();
        assert!(error.starts_with("line 18: bcast of 2 x ") && error.contains("stands here twice"), "{error}");
        // One by one the collectives of a shape may come, and other jobs' shapes.
        let other = shape.replace("allreduce =", "reduce =").replace("bcast =", "barrier =");
        let tuning = twice(&other).unwrap();
        assert_eq!(Tuning::parse(&tuning.to_text()).unwrap(), tuning);
        assert_eq!(twice(&shape.replace("nodes = 2", "nodes = 3")).unwrap().shapes.len(), 2);
    }

    proptest! {
        #[test]
        fn damaged_files_are_read_or_refused(at in 0_usize..600, with in any::<char>(), keep in 0_usize..700) {
            let mut text: Vec<char> = TEXT.chars().collect();
            let length = text.len();
            text[at % length] = with;
            text.truncate(keep);
            let text: String = text.into_iter().collect();
            if let Err(error) = Tuning::parse(&text) {
                prop_assert!(!error.is_empty());
            }
        }
    }
}

//! A trace as a test looks at it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// A file of `HAN_TRACE`.
#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) about: Value,
    pub(crate) events: Vec<Value>,
}

/// A span that a test looks at.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) category: String,
    pub(crate) lane: String,
    pub(crate) begin: f64,
    pub(crate) end: f64,
    pub(crate) args: Value,
}

impl Traced {
    pub(crate) fn read(path: &Path) -> Self {
        Self::parse(&fs::read_to_string(path).unwrap())
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut whole: Value = serde_json::from_str(text).unwrap();
        assert_eq!(whole["displayTimeUnit"], "ns");
        let Value::Array(events) = whole["traceEvents"].take() else { panic!("{text}") };
        Self { about: whole["otherData"].take(), events }
    }

    pub(crate) fn rank(&self, rank: usize) -> &Value {
        let ranks = self.about["ranks"].as_array().unwrap();
        ranks.iter().find(|about| about["rank"] == rank).unwrap()
    }

    /// The names of a rank's lanes, from the first row on.
    pub(crate) fn lanes(&self, rank: usize) -> Vec<&str> {
        let of_rank = |event: &&Value| event["name"] == "thread_name" && event["pid"] == rank;
        let names: Vec<(u64, &str)> = self
            .events
            .iter()
            .filter(of_rank)
            .map(|event| (event["tid"].as_u64().unwrap(), event["args"]["name"].as_str().unwrap()))
            .collect();
        assert!((0..).zip(&names).all(|(row, (tid, _))| row == *tid), "{names:?}");
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// A rank's spans as the file has them.
    pub(crate) fn spans(&self, rank: usize) -> Vec<Span> {
        let lanes = self.lanes(rank);
        let of_rank = |event: &&Value| event["ph"] == "X" && event["pid"] == rank;
        let span = |event: &Value| {
            let begin = event["ts"].as_f64().unwrap();
            Span {
                name: event["name"].as_str().unwrap().to_owned(),
                category: event["cat"].as_str().unwrap().to_owned(),
                lane: lanes[usize::try_from(event["tid"].as_u64().unwrap()).unwrap()].to_owned(),
                begin,
                end: begin + event["dur"].as_f64().unwrap(),
                args: event["args"].clone(),
            }
        };
        self.events.iter().filter(of_rank).map(span).collect()
    }

    /// A rank's spans of the program's calls: name, lane, communicator, number and bytes.
    pub(crate) fn calls(&self, rank: usize) -> Vec<(String, String, u64, u64, u64)> {
        let number = |span: &Span, key: &str| span.args[key].as_u64().unwrap();
        let calls = self.spans(rank).into_iter().filter(|span| span.category == "call");
        calls
            .map(|span| {
                let (communicator, count, bytes) =
                    (number(&span, "communicator"), number(&span, "number"), number(&span, "bytes"));
                (span.name, span.lane, communicator, count, bytes)
            })
            .collect()
    }

    /// Checks what holds for every file: events in order of time, and no overlap on a lane but within each other.
    pub(crate) fn check(&self, ranks: usize) {
        for rank in 0..ranks {
            let spans = self.spans(rank);
            assert!(spans.is_sorted_by(|a, b| a.begin <= b.begin), "rank {rank} in order of time");
            assert_eq!(self.rank(rank)["spans"].as_u64(), Some(spans.len() as u64), "rank {rank}");
            for lane in self.lanes(rank) {
                let mut ends: Vec<f64> = Vec::new();
                for span in spans.iter().filter(|span| span.lane == lane) {
                    // What is written has three digits.
                    while ends.last().is_some_and(|end| *end <= span.begin + 0.002) {
                        ends.pop();
                    }
                    let fits = ends.last().is_none_or(|end| lane == "calls" && span.end <= end + 0.002);
                    assert!(fits, "rank {rank}, lane {lane}: {span:?} within something until {ends:?}");
                    ends.push(span.end);
                }
            }
        }
    }
}

/// A place for files.
pub(crate) fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("trace.json");
    (folder, file)
}

/// The names of the files in a folder.
pub(crate) fn names(folder: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    // What a rank was about to write when it was killed.
    names.retain(|name| !name.ends_with(".new"));
    names.sort();
    names
}

/// `han trace WORDS`: standard output, or standard error if it has failed.
pub(crate) fn han_trace(words: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_han")).arg("trace").args(words).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

//! Files of `HAN_TRACE`: the whole, or the ranks' parts, whose clocks are then compared here.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use han::trace::{Alignment, Mark, Offset};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Result;
use super::event::{self, Event};
use crate::whole::MOST_RANKS;

/// A century in microseconds, which no clock of a machine shows. Of much greater times sums would be wrong.
const MOST_US: f64 = 3.2e15;

/// A trace, whichever files it came from.
pub(super) struct Traced {
    pub(super) job: String,
    /// Ranks of the job, of which some may have left no part.
    pub(super) size: usize,
    /// In order.
    pub(super) ranks: Vec<Rank>,
    pub(super) events: Vec<Event>,
    /// What a reader should know.
    pub(super) remarks: Vec<String>,
}

/// What a rank says of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Rank {
    pub(super) rank: usize,
    last: bool,
    pub(super) node: usize,
    pub(super) host: String,
    pid: u32,
    pub(super) spans: u64,
    pub(super) dropped: u64,
    clock: String,
    pub(super) clock_error_ns: u64,
    marks: Vec<(u64, u64)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    other_data: Head,
    #[serde(deserialize_with = "event::read_all")]
    trace_events: Vec<Event>,
}

#[derive(Deserialize)]
struct Head {
    job: String,
    size: usize,
    whole: bool,
    ranks: Vec<Rank>,
}

impl Traced {
    /// Reads the files of one job. A file that says that its job has not ended well stands for the parts beside it.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Self> {
        let mut contents = Vec::new();
        let (mut remarks, mut damaged) = (Vec::new(), Vec::new());
        for path in paths {
            let content = read(path)?;
            let head = &content.other_data;
            if !head.whole && head.ranks.is_empty() {
                let parts = parts_beside(path, head, &mut damaged);
                remarks.push(format!(
                    "{}: the job has not come to its end, or is under way: {} of {} ranks have left their part",
                    path.display(),
                    parts.len(),
                    head.size
                ));
                contents.extend(parts);
            } else {
                contents.push(content);
            }
        }
        let Some(first) = contents.first() else {
            let nothing = || format!("{}: no rank has left its part beside it", paths[0].display());
            return Err(damaged.pop().unwrap_or_else(nothing).into());
        };
        let (job, size) = (first.other_data.job.clone(), first.other_data.size);
        if let Some(other) = contents.iter().position(|content| content.other_data.job != job) {
            return Err(format!("files of several jobs: {job} and {}", contents[other].other_data.job).into());
        }
        let is_told = !remarks.is_empty();
        remarks.append(&mut damaged);
        contents.sort_by_key(|content| content.other_data.ranks.first().map(|rank| rank.rank));
        remarks.extend(align(&mut contents));
        let mut traced = Self { job, size, ranks: Vec::new(), events: Vec::new(), remarks };
        for Content { other_data, trace_events } in contents {
            traced.ranks.extend(other_data.ranks);
            traced.events.extend(trace_events);
        }
        if let Some(pair) = traced.ranks.windows(2).find(|pair| pair[0].rank >= pair[1].rank) {
            return Err(format!("rank {} comes twice in these files", pair[1].rank).into());
        }
        let there = traced.ranks.len();
        if there < size && !is_told {
            traced.remarks.push(format!("only {there} of {size} ranks are in what was read"));
        }
        Ok(traced)
    }

    /// The text of a file of all of it.
    pub(super) fn merged(&self) -> Result<String> {
        let Self { job, size, ranks, events, .. } = self;
        let version = env!("CARGO_PKG_VERSION");
        let other = json!({
            "producer": format!("han {version}"), "job": job, "size": size, "whole": ranks.len() == *size, "ranks": ranks
        });
        let whole = json!({ "displayTimeUnit": "ns", "otherData": other, "traceEvents": events });
        Ok(serde_json::to_string(&whole)?)
    }
}

fn read(path: &Path) -> Result<Content> {
    let file = File::open(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    let content = serde_json::from_reader(BufReader::new(file));
    let content: Content =
        content.map_err(|e| format!("{} is no file that HAN_TRACE has written: {e}", path.display()))?;
    let size = content.other_data.size;
    if size > MOST_RANKS as usize {
        return Err(format!("{}: a job of {size} ranks, where {MOST_RANKS} are the most", path.display()).into());
    }
    for Rank { rank, node, .. } in &content.other_data.ranks {
        if *rank >= size || *node >= size {
            return Err(format!("{} is damaged: rank {rank} on node {node} of {size} ranks", path.display()).into());
        }
    }
    let wrong = |event: &&Event| {
        let (begin, length) = (event.ts.unwrap_or(0.0), event.dur.unwrap_or(0.0));
        begin.abs() > MOST_US || !(0.0..=MOST_US).contains(&length)
    };
    if let Some(Event { name, ts, dur, .. }) = content.trace_events.iter().find(wrong) {
        let (begin, length) = (ts.unwrap_or(0.0), dur.unwrap_or(0.0));
        return Err(format!("{} is damaged: {name} of {length:e} us from {begin:e} us on", path.display()).into());
    }
    Ok(content)
}

/// The parts of the same job, which lie beside `path`; says which ones are there and cannot be read.
fn parts_beside(path: &Path, head: &Head, damaged: &mut Vec<String>) -> Vec<Content> {
    let mut parts = Vec::new();
    for rank in 0..head.size {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".rank-{rank}"));
        let name = PathBuf::from(name);
        match read(&name) {
            Ok(part) if part.other_data.job == head.job => parts.push(part),
            Err(e) if name.exists() => damaged.push(format!("rank {rank} is left out: {e}")),
            _ => {}
        }
    }
    parts
}

/// Turns all times into those of rank 0's clock, where they are not yet; says where that cannot be.
fn align(contents: &mut [Content]) -> Vec<String> {
    let own: BTreeMap<usize, Rank> =
        contents.iter().flat_map(|content| &content.other_data.ranks).map(|rank| (rank.rank, rank.clone())).collect();
    let marks = |rank: &Rank| -> Vec<Mark> {
        rank.marks.iter().map(|&(entered_ns, left_ns)| Mark { entered_ns, left_ns }).collect()
    };
    let mut remarks = Vec::new();
    for Content { other_data, trace_events } in contents {
        let [rank] = &mut other_data.ranks[..] else { continue };
        if rank.last || own.get(&0).is_some_and(|first| first.clock == rank.clock) {
            continue;
        }
        let offset = own.get(&0).and_then(|first| Offset::between(&marks(rank), &marks(first)));
        let Some(offset) = offset else {
            remarks.push(format!("rank {}: its clock cannot be compared without the part of rank 0", rank.rank));
            continue;
        };
        let alignment = Alignment::new(offset, None);
        rank.clock_error_ns = alignment.error_ns();
        for ts in trace_events.iter_mut().filter_map(|event| event.ts.as_mut()) {
            #[expect(clippy::cast_precision_loss, reason = "the difference of clocks, to the microsecond")]
            let ahead_us = offset.ahead_ns as f64 / 1000.0;
            *ts -= ahead_us;
        }
    }
    remarks
}

//! What a series looks like on the screen and in a file.

use std::io::Write;

use comfy_table::Table;
use serde::Serialize;

use super::series::{Plan, Point};
use super::{Memory, Result};
use crate::info;
use crate::limits::Distance;
use crate::numbers::{bytes_text, time_text};
use crate::output::stdout;
use crate::status::ranges_text;
use crate::tables;

/// A finished series.
pub(super) struct Report<'a> {
    pub(super) plan: &'a Plan,
    pub(super) ranks: usize,
    pub(super) nodes: usize,
    pub(super) cores: &'a [usize],
    /// Before and after the series; none where there is one core only, or measuring it has failed.
    pub(super) one_way_ns: (Option<f64>, Option<f64>),
    pub(super) points: &'a [Point],
}

/// One line of `--json`: the fields up to `verified` are a contract, in this order.
#[derive(Serialize)]
struct Line<'a> {
    coll: &'static str,
    bytes: usize,
    ranks: usize,
    nodes: usize,
    dtype: Option<&'static str>,
    op: Option<&'static str>,
    root: Option<usize>,
    cold: bool,
    choice: &'a str,
    iters: u32,
    repeats: u32,
    us_min: f64,
    us_median: f64,
    us_max: f64,
    verified: bool,
    style: &'static str,
    buffers: usize,
    alloc: &'static str,
    cores: usize,
    one_way_ns_before: Option<f64>,
    one_way_ns_after: Option<f64>,
    state: &'static str,
}

impl Report<'_> {
    /// One JSON object a line.
    pub(super) fn print_json(&self) -> Result<()> {
        let collective = self.plan.collective;
        let mut out = stdout();
        for point in self.points {
            let line = Line {
                coll: collective.name(),
                bytes: point.bytes,
                ranks: self.ranks,
                nodes: self.nodes,
                dtype: collective.has_data().then(|| self.plan.datatype.name()),
                op: collective.reduces().then(|| self.plan.operator.name()),
                root: collective.has_root().then_some(self.plan.root),
                cold: self.plan.cold,
                choice: &point.choice,
                iters: point.iterations,
                repeats: self.plan.repeats,
                us_min: nanosecond_digits(point.us_min),
                us_median: nanosecond_digits(point.us_median),
                us_max: nanosecond_digits(point.us_max),
                verified: point.verified,
                style: self.plan.style.name(),
                buffers: self.plan.buffers,
                alloc: self.plan.memory.name(),
                cores: self.cores.len(),
                one_way_ns_before: self.one_way_ns.0,
                one_way_ns_after: self.one_way_ns.1,
                state: self.state(),
            };
            writeln!(out, "{}", serde_json::to_string(&line)?)?;
        }
        Ok(out.flush()?)
    }

    /// A table between the state of the machine before and after.
    pub(super) fn print_table(&self) -> Result<()> {
        let mut out = stdout();
        writeln!(out, "# {} | {}", self.title(), info::machine())?;
        writeln!(out, "# one-way latency before: {}", self.latency_text(self.one_way_ns.0))?;
        writeln!(out, "{}", self.table())?;
        writeln!(out, "# one-way latency after: {}", self.latency_text(self.one_way_ns.1))?;
        if self.state() == "changed" {
            writeln!(out, "# The distance of the cores CHANGED during this series: do not compare it.")?;
        }
        Ok(writeln!(out)?)
    }

    fn title(&self) -> String {
        let plan = self.plan;
        let mut title = plan.collective.name().to_owned();
        if plan.collective.has_data() {
            title += &format!(" of {}", self.plan.datatype);
        }
        if plan.collective.reduces() {
            title += &format!(", {}", plan.operator);
        }
        if plan.collective.has_root() {
            title += &format!(", root {}", plan.root);
        }
        let temperature = if plan.cold { ", cold" } else { "" };
        let buffers = if plan.buffers > 1 { format!(", {} buffers", plan.buffers) } else { String::new() };
        let memory = if plan.memory == Memory::Shared { ", shared memory" } else { "" };
        let style = plan.style.name();
        let (ranks, cores) = (self.ranks, ranges_text(self.cores));
        format!("{title}, {style} style{temperature}{buffers}{memory} | ranks: {ranks}, cores: {cores}")
    }

    fn table(&self) -> Table {
        let heads = ["bytes", "choice", "min us", "median us", "max us", "GB/s", "iterations", "verified"];
        let mut table = tables::plain(heads);
        for point in self.points {
            #[allow(clippy::cast_precision_loss)] // sizes are far below 2^53
            let gigabytes_per_s = point.bytes as f64 / point.us_median / 1e3;
            table.add_row([
                bytes_text(point.bytes),
                point.choice.clone(),
                time_text(point.us_min),
                time_text(point.us_median),
                time_text(point.us_max),
                if point.bytes > 0 { format!("{gigabytes_per_s:.2}") } else { "-".to_owned() },
                point.iterations.to_string(),
                if point.verified { "yes" } else { "WRONG" }.to_owned(),
            ]);
        }
        tables::right(table, |column| column != 1)
    }

    /// The state in which all of the series was taken, or `changed`.
    fn state(&self) -> &'static str {
        match self.one_way_ns {
            (Some(before), Some(after)) if Distance::of(before) == Distance::of(after) => Distance::of(before).name(),
            (Some(_), Some(_)) => "changed",
            _ if self.cores.len() < 2 => "one core",
            _ => "unknown",
        }
    }

    fn latency_text(&self, one_way_ns: Option<f64>) -> String {
        match one_way_ns {
            Some(ns) => format!("{ns:.0} ns ({})", Distance::of(ns).name()),
            None if self.cores.len() < 2 => "not measured, one core only".to_owned(),
            None => "not measured".to_owned(),
        }
    }
}

/// Microseconds without the digits below a tenth of a nanosecond.
fn nanosecond_digits(us: f64) -> f64 {
    (us * 1e4).round() / 1e4
}

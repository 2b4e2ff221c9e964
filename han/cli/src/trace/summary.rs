//! A trace in tables: what was called, and how busy ranks were with which tasks, on both levels at once or not.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use comfy_table::Table;
use han::tune::model::overlap;

use super::Result;
use super::file::Traced;
use super::spans::{CallName, Span, Window, busy_us};
use crate::numbers::{bytes_text, median, time_text};
use crate::output::{counted, stdout};
use crate::tables;

/// Most rows of the table of calls.
const MOST_CALLS: usize = 30;
/// Most kinds of calls in the table of tasks.
const MOST_KINDS: usize = 4;
/// Tasks in the order of their columns.
const KINDS: [&str; 6] = ["sr", "ir", "ib", "ia", "sa", "sb"];

/// Prints the tables of `spans`, which are those of `whole` within `window`.
pub(super) fn print(
    traced: &Traced,
    whole: &[Span<'_>],
    spans: &[Span<'_>],
    window: &Window,
    all: Window,
) -> Result<()> {
    let mut out = stdout();
    let Traced { job, size, ranks, remarks, .. } = traced;
    let nodes = ranks.iter().map(|rank| rank.node).max().map_or(0, |last| last + 1);
    let (length, dropped) = (time_text(all.length_us()), ranks.iter().map(|rank| rank.dropped).sum::<u64>());
    let (all_ranks, nodes) = (counted(*size, "rank"), counted(nodes, "node"));
    writeln!(out, "job {job}: {all_ranks} on {nodes}, {length} us, {} spans", all_spans(traced))?;
    if dropped > 0 {
        writeln!(out, "{dropped} older spans were dropped: HAN_SET=trace_spans=N keeps more")?;
    }
    let error = ranks.iter().map(|rank| rank.clock_error_ns).max().unwrap_or(0);
    if error > 0 {
        writeln!(
            out,
            "clocks of several machines were compared: times agree to {}.{:03} us",
            error / 1000,
            error % 1000
        )?;
    }
    for remark in remarks {
        writeln!(out, "{remark}")?;
    }
    if *window != all {
        let at = |us: f64| (us - all.begin_us) / 1000.0;
        writeln!(out, "from {:.3} ms to {:.3} ms:", at(window.begin_us), at(window.end_us))?;
    }
    writeln!(out, "\n{}", of_ranks(traced, spans, window))?;
    if spans.iter().any(Span::is_call) {
        writeln!(out, "\n{}", of_calls(whole, spans))?;
    }
    if spans.iter().any(|span| span.word("kind").is_some()) {
        writeln!(out, "\n{}", of_tasks(traced, spans))?;
        writeln!(
            out,
            "us of a call, on average, in which at least one was under way, be it waiting for others; overlap is (memory + \
             network - either) / the lesser of the two (equation 5.3)"
        )?;
    }
    Ok(())
}

fn all_spans(traced: &Traced) -> u64 {
    traced.ranks.iter().map(|rank| rank.spans).sum()
}

/// How long each rank was in calls.
fn of_ranks(traced: &Traced, spans: &[Span<'_>], window: &Window) -> Table {
    let mut table = tables::plain(["rank", "node", "host", "spans", "dropped", "in calls us", "share"]);
    for rank in &traced.ranks {
        // They are in order of rank.
        let begin = spans.partition_point(|span| span.rank < rank.rank);
        let own = &spans[begin..spans.partition_point(|span| span.rank <= rank.rank)];
        let in_calls = busy_us(own.iter().filter(|span| span.is_call() || *span.event.name == "wait"));
        let share = if window.length_us() > 0.0 { 100.0 * in_calls / window.length_us() } else { 0.0 };
        table.add_row([
            rank.rank.to_string(),
            rank.node.to_string(),
            rank.host.clone(),
            own.len().to_string(),
            rank.dropped.to_string(),
            time_text(in_calls),
            format!("{share:.1} %"),
        ]);
    }
    tables::right(table, |column| column >= 3)
}

/// Calls of one kind: their times, and how late the last rank came.
#[derive(Default)]
struct Calls {
    times: Vec<f64>,
    late: Vec<f64>,
    failed: usize,
}

/// The calls of `spans` with all that `whole` has of them: ranks may have come long before a window begins.
fn of_calls(whole: &[Span<'_>], spans: &[Span<'_>]) -> Table {
    let shown: BTreeSet<CallName> = spans.iter().filter(|span| span.is_call()).filter_map(Span::call).collect();
    let mut calls = BTreeMap::<CallName, Vec<&Span<'_>>>::new();
    for span in whole.iter().filter(|span| span.is_call()) {
        if let Some(call) = span.call().filter(|call| shown.contains(call)) {
            calls.entry(call).or_default().push(span);
        }
    }
    let mut kinds = BTreeMap::<(&str, u64, &str), Calls>::new();
    for call in calls.values() {
        let first = &call[0];
        let kind = (first.event.name.as_str(), first.number("bytes").unwrap_or(0), first.word("choice").unwrap_or(""));
        let of_kind = kinds.entry(kind).or_default();
        let begins = || call.iter().map(|span| span.begin_us);
        let (first, last) = (begins().fold(f64::INFINITY, f64::min), begins().fold(f64::NEG_INFINITY, f64::max));
        of_kind.times.push(call.iter().map(|span| span.length_us()).fold(0.0, f64::max));
        of_kind.late.push(last - first);
        of_kind.failed += usize::from(call.iter().any(|span| span.word("error").is_some()));
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|(_, a), (_, b)| b.times.iter().sum::<f64>().total_cmp(&a.times.iter().sum()));
    let mut table =
        tables::plain(["call", "bytes", "choice", "calls", "failed", "median us", "max us", "last rank late by us"]);
    for ((name, bytes, choice), calls) in kinds.iter().take(MOST_CALLS) {
        table.add_row([
            (*name).to_owned(),
            bytes_of(*bytes),
            (*choice).to_owned(),
            calls.times.len().to_string(),
            calls.failed.to_string(),
            time_text(median(&calls.times)),
            time_text(calls.times.iter().copied().fold(0.0, f64::max)),
            time_text(median(&calls.late)),
        ]);
    }
    if kinds.len() > MOST_CALLS {
        table.add_row([format!("{} more", kinds.len() - MOST_CALLS)]);
    }
    tables::right(table, |column| column >= 3)
}

/// How busy each rank was with tasks in a call, on average, for the kinds of calls that took longest.
fn of_tasks(traced: &Traced, spans: &[Span<'_>]) -> Table {
    let mut tasks = BTreeMap::<(usize, CallName), Vec<&Span<'_>>>::new();
    for span in spans.iter().filter(|span| span.word("kind").is_some()) {
        if let Some(call) = span.call() {
            tasks.entry((span.rank, call)).or_default().push(span);
        }
    }
    let with_tasks: BTreeSet<CallName> = tasks.keys().map(|(_, call)| *call).collect();
    let mut kinds = BTreeMap::<(&str, u64), (f64, BTreeSet<CallName>)>::new();
    for span in spans.iter().filter(|span| span.is_call()) {
        if let Some(call) = span.call().filter(|call| with_tasks.contains(call)) {
            let (time_us, calls) = kinds.entry((&span.event.name, span.number("bytes").unwrap_or(0))).or_default();
            *time_us += span.length_us();
            calls.insert(call);
        }
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|(_, a), (_, b)| b.0.total_cmp(&a.0));
    let header = [&["call", "bytes", "rank"], &KINDS[..], &["memory", "network", "either", "overlap"]].concat();
    let mut table = tables::plain(header);
    for ((name, bytes), (_, calls)) in kinds.into_iter().take(MOST_KINDS) {
        for rank in &traced.ranks {
            let of_rank = || calls.iter().filter_map(|call| tasks.get(&(rank.rank, *call)));
            let sum = |is_it: &dyn Fn(&Span<'_>) -> bool| -> f64 {
                // A sum of nothing is -0.0.
                0.0 + of_rank().map(|tasks| busy_us(tasks.iter().copied().filter(|task| is_it(task)))).sum::<f64>()
            };
            let (memory, network) =
                (sum(&|task| task.word("level") == Some("memory")), sum(&|task| task.word("level") == Some("network")));
            let either = sum(&|_| true);
            #[expect(clippy::cast_precision_loss, reason = "a number of calls")]
            let mean = |us: f64| time_text(us / calls.len() as f64);
            let mut row = vec![name.to_owned(), bytes_of(bytes), rank.rank.to_string()];
            row.extend(KINDS.map(|kind| mean(sum(&|task| task.word("kind") == Some(kind)))));
            row.extend([memory, network, either].map(mean));
            let overlap = overlap(network, memory, either);
            row.push(overlap.map_or_else(|| "-".to_owned(), |overlap| format!("{overlap:.2}")));
            table.add_row(row);
        }
    }
    tables::right(table, |column| column > 0)
}

fn bytes_of(bytes: u64) -> String {
    usize::try_from(bytes).map_or_else(|_| bytes.to_string(), bytes_text)
}

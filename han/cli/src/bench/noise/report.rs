//! What was measured, on the screen, as JSON and as a plot.

use std::io::Write;

use han::select::POLICIES;
use net_fabric::transport::simulated::Seconds;
use serde::Serialize;

use super::super::{Args, Result, collectives};
use super::Measured;
use crate::model::noise::Spec;
use crate::model::{plot, study::Outcome};
use crate::numbers::{bytes_text, median, time_text};
use crate::output::stdout;
use crate::tables;

#[derive(Serialize)]
struct Line<'a> {
    coll: &'static str,
    bytes: usize,
    ranks: usize,
    policy: &'static str,
    choice: &'a str,
    operations: usize,
    left_out: usize,
    us_quiet_median: f64,
    us_quiet_mean: f64,
    us_noisy_min: f64,
    us_noisy_median: f64,
    us_noisy_mean: f64,
    us_noisy_max: f64,
    us_lost: f64,
    slowdown: f64,
    late_ranks: Option<usize>,
    us_ranks_quiet: Vec<f64>,
    us_ranks_noisy: Vec<f64>,
}

/// A pair whose quiet operation took so many times as long as they usually do is left out of everything.
const TOO_SLOW: f64 = 3.0;

fn mean(values: &[f64]) -> f64 {
    #[allow(clippy::cast_precision_loss)] // a number of operations
    let count = values.len() as f64;
    values.iter().sum::<f64>() / count
}

/// The time of an operation: that of its slowest rank.
fn slowest(ranks: &[f64]) -> f64 {
    ranks.iter().copied().fold(0.0, f64::max)
}

/// The middle time of each rank.
fn by_rank(operations: &[&[f64]]) -> Vec<Seconds> {
    let ranks = operations.first().map_or(0, |times| times.len());
    (0..ranks).map(|rank| median(&operations.iter().map(|times| times[rank]).collect::<Vec<_>>())).collect()
}

/// The pairs of a quiet and a noisy operation that count: one that is not even quick without delays was disturbed by
/// something else.
fn undisturbed(measured: &Measured) -> (Vec<&[f64]>, Vec<&[f64]>) {
    let bound = TOO_SLOW * median(&measured.quiet.iter().map(|ranks| slowest(ranks)).collect::<Vec<_>>());
    let pairs = measured.quiet.iter().map(Vec::as_slice).zip(measured.noisy.iter().map(Vec::as_slice));
    pairs.filter(|(quiet, _)| slowest(quiet) <= bound).unzip()
}

/// A policy's line, and what is drawn of it.
fn digest<'a>(args: &Args, spec: Spec, name: &'static str, measured: &'a Measured) -> (Line<'a>, Outcome) {
    let (quiet, noisy) = undisturbed(measured);
    let (ranks_quiet, ranks_noisy) = (by_rank(&quiet), by_rank(&noisy));
    let [quiet, mut noisy] = [quiet, noisy].map(|times| times.into_iter().map(slowest).collect::<Vec<_>>());
    let lost: Vec<_> = quiet.iter().zip(&noisy).map(|(quiet, noisy)| noisy - quiet).collect();
    noisy.sort_by(f64::total_cmp);
    // A delay that is the same in every operation shows in the middle one; drawn ones need the mean.
    let typical = |values: &[f64]| if spec.is_once() { median(values) } else { mean(values) };
    let (lost, usual) = (typical(&lost), typical(&quiet));
    let late = |length: Seconds| {
        let delays = ranks_quiet.iter().zip(&ranks_noisy).map(|(quiet, noisy)| noisy - quiet);
        delays.filter(|delay| *delay > length / 2.0).count()
    };
    let us = |seconds: &[Seconds]| seconds.iter().map(|seconds| seconds * 1e6).collect::<Vec<_>>();
    let line = Line {
        coll: collectives(&args.collectives)[0].name(),
        bytes: super::count(args) * args.dtype.size(),
        ranks: ranks_quiet.len(),
        policy: name,
        choice: &measured.choice,
        operations: measured.quiet.len(),
        left_out: measured.quiet.len() - noisy.len(),
        us_quiet_median: median(&quiet) * 1e6,
        us_quiet_mean: mean(&quiet) * 1e6,
        us_noisy_min: noisy.first().copied().unwrap_or(0.0) * 1e6,
        us_noisy_median: median(&noisy) * 1e6,
        us_noisy_mean: mean(&noisy) * 1e6,
        us_noisy_max: noisy.last().copied().unwrap_or(0.0) * 1e6,
        us_lost: lost * 1e6,
        slowdown: lost / usual,
        late_ranks: spec.once_s().map(late),
        us_ranks_quiet: us(&ranks_quiet),
        us_ranks_noisy: us(&ranks_noisy),
    };
    let outcome = Outcome {
        policy: measured.policy,
        ranks_quiet_s: ranks_quiet,
        ranks_noisy_s: ranks_noisy,
        quiet_s: usual,
        noisy_s: vec![usual + lost],
    };
    (line, outcome)
}

/// Prints and draws it.
pub(super) fn show(args: &Args, spec: Spec, all: &[Measured]) -> Result<()> {
    let digests = POLICIES.iter().zip(all).map(|((name, _), measured)| digest(args, spec, name, measured));
    let (lines, outcomes): (Vec<_>, Vec<_>) = digests.unzip();
    let title = format!("{} of {}, {} processes", lines[0].coll, bytes_text(lines[0].bytes), lines[0].ranks);
    let printed = print(args, &lines);
    // Drawn also where the reader of the table has left.
    args.svg.as_ref().map_or(Ok(()), |path| plot::noise(path, &title, spec, &outcomes))?;
    printed
}

fn print(args: &Args, lines: &[Line<'_>]) -> Result<()> {
    let mut out = stdout();
    if args.json {
        for line in lines {
            writeln!(out, "{}", serde_json::to_string(line)?)?;
        }
        return Ok(());
    }
    let Line { coll, bytes, ranks, choice, operations, .. } = &lines[0];
    writeln!(
        out,
        "{coll} of {} by {choice}, {ranks} ranks, {operations} operations: microseconds",
        bytes_text(*bytes)
    )?;
    let heads = ["policy", "quiet: median", "mean", "noisy: least", "median", "mean", "most", "lost", "late ranks"];
    let mut table = tables::plain(heads);
    for line in lines {
        table.add_row([
            line.policy.to_owned(),
            time_text(line.us_quiet_median),
            time_text(line.us_quiet_mean),
            time_text(line.us_noisy_min),
            time_text(line.us_noisy_median),
            time_text(line.us_noisy_mean),
            time_text(line.us_noisy_max),
            format!("{} ({:+.1} %)", time_text(line.us_lost), line.slowdown * 100.0),
            line.late_ranks.map_or("-".to_owned(), |ranks| ranks.to_string()),
        ]);
    }
    writeln!(out, "{}", tables::right(table, |column| column > 0))?;
    for line in lines.iter().filter(|line| line.left_out > 0) {
        writeln!(
            out,
            "- {}: pairs left out, as their operation without delays took more than {TOO_SLOW} times as long as usual: {}",
            line.policy, line.left_out
        )?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if *ranks > cores {
        writeln!(
            out,
            "- {ranks} ranks share {cores} cores: a rank that sleeps leaves its core to the others, and the operation \
             takes as long as all their work; only where the network is slower than that do delays show as on nodes \
             of their own"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_pair_is_left_out_of_everything() {
        // Two ranks; of the third pair the quiet operation was disturbed, of the fourth the noisy one.
        let measured = Measured {
            policy: net_fabric::engine::Policy::Blocking,
            choice: String::new(),
            quiet: vec![vec![1.0, 2.0], vec![2.0, 1.0], vec![1.0, 7.0], vec![2.0, 2.0]],
            noisy: vec![vec![4.0, 3.0], vec![4.0, 3.0], vec![90.0, 80.0], vec![60.0, 1.0]],
        };
        let (quiet, noisy) = undisturbed(&measured);
        assert_eq!(quiet, [[1.0, 2.0], [2.0, 1.0], [2.0, 2.0]]);
        assert_eq!(noisy, [[4.0, 3.0], [4.0, 3.0], [60.0, 1.0]]);
        assert_eq!((by_rank(&quiet), by_rank(&noisy)), (vec![2.0, 2.0], vec![4.0, 3.0]));
    }
}

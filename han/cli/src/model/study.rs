//! What noise does to an operation under each policy, as the dissertation's section 3.4 measures it.

use std::io::Write;

use net_fabric::algorithm::Algorithm;
use net_fabric::engine::Policy;
use net_fabric::model::{self, Case};
use net_fabric::transport::simulated::{Machine, Seconds};
use serde::Serialize;

use super::noise::Spec;
use super::report::Head;
use super::{Args, Result, case, choice, plot, sizes};
use crate::numbers::{bytes_text, time_text};
use crate::output::stdout;
use crate::tables;

/// One policy with and without noise.
pub(crate) struct Outcome {
    pub(crate) policy: Policy,
    /// When each rank is done, without noise and, of the last operation, with it.
    pub(crate) ranks_quiet_s: Vec<Seconds>,
    pub(crate) ranks_noisy_s: Vec<Seconds>,
    pub(crate) quiet_s: Seconds,
    /// Each operation with noise, in ascending order.
    pub(crate) noisy_s: Vec<Seconds>,
}

impl Outcome {
    pub(crate) fn mean_s(&self) -> Seconds {
        #[allow(clippy::cast_precision_loss)] // a number of repeats
        let count = self.noisy_s.len() as f64;
        self.noisy_s.iter().sum::<Seconds>() / count
    }

    /// By how much the mean is above the time without noise.
    pub(crate) fn slowdown(&self) -> f64 {
        self.mean_s() / self.quiet_s - 1.0
    }

    /// How much later a rank is than without noise, in the mean of all ranks of the last operation.
    fn mean_delay_s(&self) -> Seconds {
        #[allow(clippy::cast_precision_loss)] // a number of ranks
        let count = self.ranks_quiet_s.len() as f64;
        self.ranks_quiet_s.iter().zip(&self.ranks_noisy_s).map(|(quiet, noisy)| noisy - quiet).sum::<Seconds>() / count
    }

    /// Ranks that are later than without noise by more than a hundredth of the operation.
    fn late_ranks(&self) -> usize {
        let late = |(quiet, noisy): &(&Seconds, &Seconds)| **noisy > **quiet + self.quiet_s * 0.01;
        self.ranks_quiet_s.iter().zip(&self.ranks_noisy_s).filter(late).count()
    }
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    us_quiet: f64,
    us_noisy_min: f64,
    us_noisy_mean: f64,
    us_noisy_max: f64,
    slowdown: f64,
    us_mean_delay: f64,
    late_ranks: usize,
    repeats: usize,
}

/// Simulates and prints.
pub(super) fn compare(args: &Args, machine: &Machine, algorithms: &[Algorithm], spec: &Spec) -> Result<()> {
    let (&[nodes], &[ppn], &[bytes]) = (args.nodes.values(), args.ppn.values(), sizes(args)) else {
        return Err("--noise compares policies: give one number of nodes, one of ranks of each and one of bytes".into());
    };
    let [algorithm] = algorithms else { return Err("--noise compares policies: give one --algorithm".into()) };
    let (name, quiet) = (&algorithm.to_string(), case(args, *algorithm, (nodes, ppn), bytes)?);
    let Policy::EventDriven { .. } = args.policy else {
        return Err(
            "--noise compares the three policies: --policy says which of event:SENDS,RECEIVES is the third".into()
        );
    };
    let policies = [Policy::Blocking, Policy::WaitAll, args.policy];
    let outcomes = policies.into_iter().map(|policy| one(args, machine, &Case { policy, ..quiet }, *spec));
    let outcomes: Vec<Outcome> = outcomes.collect::<Result<_>>()?;
    let print = if args.json { print_json } else { print };
    let printed = print(args, machine, &quiet, name, &outcomes);
    // Drawn also where the reader of the table has left.
    if let Some(path) = &args.svg {
        plot::noise(path, &format!("{} by {name}", args.collective.name()), *spec, &outcomes)?;
    }
    printed
}

fn one(args: &Args, machine: &Machine, case: &Case, spec: Spec) -> Result<Outcome> {
    let quiet = model::simulate(machine, case)?;
    let quiet_s = quiet.seconds();
    let mut noisy_s = Vec::new();
    let mut ranks_noisy_s = Vec::new();
    for repeat in 0..spec.repeats(args.repeats.unwrap_or(20)) {
        let noise = spec.noise(quiet_s, u64::from(repeat));
        let noisy = model::simulate(machine, &Case { noise, ..*case })?;
        noisy_s.push(noisy.seconds());
        ranks_noisy_s = noisy.rank_s;
    }
    noisy_s.sort_by(f64::total_cmp);
    Ok(Outcome { policy: case.policy, ranks_quiet_s: quiet.rank_s, ranks_noisy_s, quiet_s, noisy_s })
}

fn print_json(args: &Args, machine: &Machine, case: &Case, name: &str, outcomes: &[Outcome]) -> Result<()> {
    let mut out = stdout();
    for outcome in outcomes {
        let line = Line {
            head: Head::new(
                args,
                machine,
                (case.layout.nodes, case.layout.ranks_per_node, case.bytes),
                name,
                outcome.policy,
            ),
            us_quiet: outcome.quiet_s * 1e6,
            us_noisy_min: outcome.noisy_s.first().copied().unwrap_or(f64::NAN) * 1e6,
            us_noisy_mean: outcome.mean_s() * 1e6,
            us_noisy_max: outcome.noisy_s.last().copied().unwrap_or(f64::NAN) * 1e6,
            slowdown: outcome.slowdown(),
            us_mean_delay: outcome.mean_delay_s() * 1e6,
            late_ranks: outcome.late_ranks(),
            repeats: outcome.noisy_s.len(),
        };
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
    }
    Ok(())
}

fn print(args: &Args, machine: &Machine, case: &Case, name: &str, outcomes: &[Outcome]) -> Result<()> {
    let mut out = stdout();
    writeln!(
        out,
        "{} of {} by {name}, {} nodes of {} ranks, {} ({}), chunks of {}: microseconds",
        args.collective.name(),
        bytes_text(case.bytes),
        case.layout.nodes,
        case.layout.ranks_per_node,
        machine.name,
        machine.model.name(),
        bytes_text(args.chunk()),
    )?;
    let heads = ["policy", "quiet", "noisy: least", "mean", "most", "slowdown", "a rank's delay", "late ranks"];
    let mut table = tables::plain(heads);
    for outcome in outcomes {
        let us = |seconds: Option<&Seconds>| seconds.map_or("-".to_owned(), |seconds| time_text(seconds * 1e6));
        table.add_row([
            choice::policy_text(outcome.policy),
            time_text(outcome.quiet_s * 1e6),
            us(outcome.noisy_s.first()),
            time_text(outcome.mean_s() * 1e6),
            us(outcome.noisy_s.last()),
            format!("{:.1} %", outcome.slowdown() * 100.0),
            time_text(outcome.mean_delay_s() * 1e6),
            outcome.late_ranks().to_string(),
        ]);
    }
    writeln!(out, "{}", tables::right(table, |column| column > 0))?;
    Ok(())
}

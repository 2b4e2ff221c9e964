//! `han model --verify`: what is proved of the schedules that are simulated, and run.

use std::io::Write;
use std::process::ExitCode;

use clap::ValueEnum;
use net_fabric::algorithm::{Algorithm, Collective};
use net_fabric::verify::{Report, Row, Survey, pairs};
use serde::Serialize;

use super::{Args, Result};
use crate::output::stdout;

/// How many cases are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Extent {
    /// Above 16 ranks, chunks in turns with roots
    Quick,
    /// All
    Full,
}

#[derive(Serialize)]
struct Line<'a> {
    coll: &'static str,
    algorithm: String,
    cases: usize,
    cases_in_rank_order: usize,
    steps: usize,
    messages: usize,
    proved: bool,
    fault: Option<&'a str>,
}

/// Proves, and prints the report.
pub(super) fn main(args: &Args, extent: Extent, algorithms: &[Algorithm]) -> Result<ExitCode> {
    let survey = match extent {
        Extent::Quick => Survey::QUICK,
        Extent::Full => Survey::FULL,
    };
    let wanted = |pair: &(Collective, Algorithm)| pair.0 == args.collective && algorithms.contains(&pair.1);
    let mut chosen: Vec<_> = pairs().filter(wanted).collect();
    // Trees of another degree than those that are always looked at.
    let others = algorithms.iter().filter(|algorithm| !chosen.iter().any(|(_, known)| known == *algorithm));
    chosen.extend(others.map(|algorithm| (args.collective, *algorithm)).collect::<Vec<_>>());
    let report = survey.run_on(&chosen, |_| ());
    print(args, survey, &report)?;
    Ok(if report.is_proof() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(args: &Args, survey: Survey, report: &Report) -> Result<()> {
    let mut out = stdout();
    if !args.json {
        let Survey { ranks, chunks, many_ranks } = survey;
        let rest = if many_ranks < ranks { format!(" (above {many_ranks} ranks in turns)") } else { String::new() };
        writeln!(out, "1 to {ranks} ranks, all roots, 1 to {chunks} chunks{rest}:\n{report}")?;
        return Ok(());
    }
    for Row { collective, algorithm, cases, ordered, proof, fault } in &report.rows {
        let line = Line {
            coll: collective.name(),
            algorithm: algorithm.to_string(),
            cases: *cases,
            cases_in_rank_order: *ordered,
            steps: proof.steps,
            messages: proof.messages,
            proved: fault.is_none(),
            fault: fault.as_deref(),
        };
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
    }
    Ok(())
}

//! One rank of a search.

use std::process::ExitCode;

use han::task::Layout;
use han::tune::compare::{Row, compare};
use han::tune::{Case, Measured, Method, Outcome, Point, Space, search};

use super::worker::Worker;
use super::{Args, Result, file, report};
use crate::bench::{configured, join, joined};

/// Turns of a comparison.
const TURNS: usize = 5;

/// Searches, and lets rank 0 write and print what was found.
pub(super) fn work(args: &Args, bounds: (usize, usize)) -> Result<ExitCode> {
    let set = &args.job.how.set;
    let context = join(set)?;
    let world = context.world();
    let shape = shape_of(&context.nodes())?;
    let (nodes, _) = shape;
    let space = Space::new(shape, &args.collectives, bounds, args.quick);
    let methods = if args.compare { Method::NAMES.map(|(_, method)| method).to_vec() } else { vec![args.method] };
    let provider = context.provider().unwrap_or_default();
    let mut bench = Worker::new(world, &args.job.how, space.sizes.last().copied().unwrap_or(0), &space.segments)?;
    let names: Vec<&str> = args.collectives.iter().map(|collective| collective.name()).collect();
    let title = format!(
        "{nodes} nodes, {} ranks on each, provider {provider}, --collectives {}, --min {}, --max {}, --quick {}, --alloc {}, --ms {}, --node-exec {}, HAN_SET={}, {}",
        space.ranks_per_node,
        names.join(","),
        bounds.0,
        bounds.1,
        args.quick,
        args.job.how.alloc.name(),
        args.job.how.ms,
        args.job.how.node_exec.as_deref().unwrap_or_default(),
        joined(set),
        han::machine::in_words()
    );
    if args.against_flat {
        let slower = against_flat(&mut bench, &space)?;
        drop(bench);
        context.finalize()?;
        return Ok(if slower { ExitCode::FAILURE } else { ExitCode::SUCCESS });
    }
    bench.keep(&title, file::journal(&args.out), args.resume)?;
    bench.expect(&space, &methods, if args.compare { TURNS } else { 0 });

    let mut outcomes: Vec<(Method, Outcome)> = Vec::new();
    for &method in &methods {
        outcomes.push((method, search(&mut bench, &space, method)?));
    }
    let cases: Vec<Case> = if args.compare { space.cases().collect() } else { Vec::new() };
    let loses = |row: &Row| row.loss.iter().any(|&loss| loss > report::WORSE);
    let rows = compared(&mut bench, &cases, &outcomes, loses)?;
    let printed = if world.rank() == 0 {
        let (method, outcome) = &outcomes[0];
        let point = |found: &han::tune::Best| Point {
            collective: found.case.collective,
            bytes: found.case.bytes,
            us: found.us,
            estimated: found.estimated,
            settings: found.settings,
        };
        let measured = Measured {
            nodes,
            ranks_per_node: space.ranks_per_node,
            provider: provider.to_owned(),
            set: configured(set)?.untuned(),
            date: file::date(),
            method: format!("{}, {} measurements in {:.1} s", method.name(), outcome.measured, outcome.spent_s),
            points: outcome.found.iter().map(point).collect(),
        };
        let written =
            file::write(&args.out, measured).and_then(|()| Ok(std::fs::remove_file(file::journal(&args.out))?));
        written
            .and_then(|()| report::found(&args.out, &outcomes[0]))
            .and_then(|()| if args.compare { report::compared(&outcomes, &rows) } else { Ok(()) })
    } else {
        Ok(())
    };
    bench.all_go_on(printed)?;
    drop(bench);
    context.finalize()?;
    Ok(ExitCode::SUCCESS)
}

/// Nodes and ranks of each, by the node of each rank: an error where these are not as many.
pub(super) fn shape_of(node_of: &[usize]) -> Result<(usize, usize)> {
    let layout = Layout::new(node_of);
    let (ranks, nodes) = (layout.size(), layout.nodes());
    if nodes < 2 || !layout.is_even() {
        return Err(format!("{ranks} ranks on {nodes} nodes: several nodes with as many ranks each are needed").into());
    }
    Ok((nodes, layout.rails()))
}

/// Measures what was chosen in turns, in three times as many once more where the outcome is `doubtful`: in a few turns the same
/// takes half as long again now and then.
fn compared(
    bench: &mut Worker<'_>,
    cases: &[Case],
    outcomes: &[(Method, Outcome)],
    doubtful: impl Fn(&Row) -> bool,
) -> Result<Vec<Row>> {
    let mut rows = compare(bench, cases, outcomes, 0..TURNS)?;
    let again: Vec<Case> = rows.iter().filter(|row| doubtful(row)).map(|row| row.case).collect();
    for again in compare(bench, &again, outcomes, TURNS..TURNS * 4)? {
        rows.iter_mut().filter(|row| row.case == again.case).for_each(|row| *row = again.clone());
    }
    Ok(rows)
}

/// Measures the built-in rules beside all ranks on the network, where they seem slower once more; true if they are.
fn against_flat(bench: &mut Worker<'_>, space: &Space) -> Result<bool> {
    let is_slower = |row: &Row| row.loss_to_flat > report::WORSE;
    let cases: Vec<Case> = space.cases().collect();
    let rows = compared(bench, &cases, &[], is_slower)?;
    let printed = if bench.world().rank() == 0 { report::against_flat(&rows) } else { Ok(()) };
    bench.all_go_on(printed)?;
    Ok(rows.iter().any(is_slower))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_to_have_as_many_ranks() {
        let shape = |node_of: &[usize]| shape_of(node_of).map_err(|error| error.to_string());
        assert_eq!([shape(&[0, 0, 1, 1]), shape(&[3, 0, 3, 0, 3, 0])], [Ok((2, 2)), Ok((2, 3))]);
        for uneven in [&[0, 0, 0, 1][..], &[0, 0, 0, 0]] {
            assert!(shape(uneven).is_err_and(|error| error.contains("as many ranks each are needed")));
        }
    }
}

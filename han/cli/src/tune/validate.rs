//! `han model --validate`: the cost models' estimates beside measurements, as figures 5.13 and 5.17 of the dissertation: of tasks
//! and of other lengths where both levels are used, else of messages.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use charts::{Curve, FONT, as_f64, whole};
use han::Collective;
use han::select::Inter;
use han::task::Layout;
use han::tune::{Check, Space, Validation, neighbours, validate};
use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;
use serde::Serialize;
use shm_core::job::MAX_RANKS;

use super::ranks::shape_of;
use super::worker::Worker;
use super::{HowArgs, Result, become_job, flat};
use crate::bench::{configured, join};
use crate::model::plot::picture;
use crate::numbers::{bytes_text, time_text};
use crate::output::{is_reader_left, stdout};
use crate::tables;

/// Width and height of one configuration's chart.
const CHART: (u32, u32) = (300, 240);
/// Charts beside each other.
const COLUMNS: usize = 3;

/// What is compared, by which job.
pub(crate) struct Question<'a> {
    pub(crate) collective: Collective,
    pub(crate) bytes: usize,
    pub(crate) nodes: u32,
    pub(crate) ranks_per_node: u32,
    /// All that `han tune` searches, not what it does with `--quick`.
    pub(crate) is_full: bool,
    pub(crate) how: &'a HowArgs,
    pub(crate) svg: Option<&'a PathBuf>,
    /// One JSON object a line.
    pub(crate) json: bool,
}

/// Starts the job, or is a rank of it.
pub(crate) fn main(question: &Question<'_>) -> Result<ExitCode> {
    let Question { nodes, ranks_per_node, how, collective, .. } = *question;
    if collective == Collective::Barrier {
        return Err("a barrier has no chunks: choose bcast, reduce or allreduce".into());
    }
    if nodes < 2 || ranks_per_node < 2 {
        return Err("there are two levels with several ranks on several nodes: give --nodes and --ppn from 2 on".into());
    }
    if ranks_per_node as usize > MAX_RANKS {
        return Err(format!("--ppn {ranks_per_node}: one node has at most {MAX_RANKS} ranks").into());
    }
    let (shape, bytes) = ((nodes as usize, ranks_per_node as usize), question.bytes);
    let space = Space::new(shape, &[collective], (bytes, bytes), !question.is_full);
    if space.sizes != [bytes] {
        let bytes = bytes_text(bytes);
        return Err(format!("--bytes {bytes}: vectors are of whole elements: give a multiple of 4 from 4 on").into());
    }
    if !how.worker {
        return become_job(shape.0 * shape.1, nodes, how, &[collective]);
    }
    let context = join(&how.set)?;
    check_job(&context.nodes(), shape)?;
    let longest = neighbours(bytes).into_iter().max().unwrap_or(bytes);
    let mut worker = Worker::new(context.world(), how, longest, &space.segments)?;
    let found = validate(&mut worker, &space, collective)?;
    let machine = flat::machine(&mut worker, shape, bytes)?;
    let job = flat::Job {
        shape,
        shares_cores: context.shares_cores(),
        wire_mbit_s: context.wire_mbit_s(),
        set: configured(&how.set)?.inter,
    };
    let flat = flat::estimates(&machine, &job, collective, bytes, &found.wholes)?;
    let shown = || {
        if question.json {
            return print_json(question, &found.checks, &flat);
        }
        show(question, &found)?;
        flat::show(&machine, &flat)
    };
    let plotted = || question.svg.map_or(Ok(()), |path| plot(question, path, &found.checks));
    let printed = if context.world().rank() == 0 {
        let shown = shown();
        // Drawn also where the reader of the tables has left.
        plotted().and(shown)
    } else {
        Ok(())
    };
    let outcome = worker.all_go_on(printed);
    drop(worker);
    if outcome.as_ref().map_or_else(|error| is_reader_left(&**error), |()| true) {
        context.finalize()?;
    }
    outcome.map(|()| ExitCode::SUCCESS)
}

/// An error for a job, which a launcher has started, of another shape than is asked about, or whose ranks are not numbered as
/// those of the simulation are.
fn check_job(node_of: &[usize], asked: (usize, usize)) -> Result<()> {
    let (nodes, ranks) = shape_of(node_of)?;
    if (nodes, ranks) != asked {
        let asked = format!("--nodes {} and --ppn {}", asked.0, asked.1);
        return Err(
            format!("this job is one of {nodes} nodes with {ranks} ranks each: {asked} ask about another").into()
        );
    }
    if !Layout::new(node_of).keeps_order() {
        return Err("ranks are not numbered node by node, as they are simulated: place them in blocks".into());
    }
    Ok(())
}

/// How far an estimate is from the measurement, as a part of it.
fn error(check: &Check) -> f64 {
    check.estimate / check.us - 1.0
}

fn what(question: &Question<'_>) -> String {
    let Question { collective, bytes, nodes, ranks_per_node, .. } = *question;
    format!("{} of {} by {nodes} x {ranks_per_node} ranks", collective.name(), bytes_text(bytes))
}

fn show(question: &Question<'_>, found: &Validation) -> Result<()> {
    let checks = &found.checks;
    let mut table = tables::plain(["settings", "segment", "estimate us", "measured us", "error"]);
    for check in checks {
        table.add_row([
            check.family.to_text(),
            check.segment.map_or("one chunk".to_owned(), bytes_text),
            time_text(check.estimate),
            time_text(check.us),
            format!("{:+.1} %", error(check) * 100.0),
        ]);
    }
    writeln!(stdout(), "{}\n{table}", what(question))?;
    let (several, single): (Vec<&Check>, Vec<&Check>) = checks.iter().partition(|check| check.segment.is_some());
    summarise("of several chunks, from the costs of tasks", &several)?;
    summarise("of one chunk, from shorter and longer vectors", &single)?;
    writeln!(stdout(), "not compared: {} that the built-in rules choose", found.built_in)?;
    Ok(())
}

/// How well `checks` were estimated, and what that would have decided.
fn summarise(what: &str, checks: &[&Check]) -> Result<()> {
    let mut errors: Vec<f64> = checks.iter().map(|check| error(check).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let best = |by: fn(&Check) -> f64| checks.iter().min_by(|one, other| by(one).total_cmp(&by(other)));
    let (Some(chosen), Some(quickest)) = (best(|check| check.estimate), best(|check| check.us)) else { return Ok(()) };
    let named = |check: &Check| {
        let segments = check.segment.map(|bytes| format!(" in segments of {}", bytes_text(bytes)));
        check.family.to_text() + &segments.unwrap_or_default()
    };
    writeln!(
        stdout(),
        "{} configurations {what}; error of the estimate: median {:.1} %, greatest {:.1} %\n\
         quickest by the estimate: {}, measured {} us; quickest measured: {}, {} us",
        checks.len(),
        errors[errors.len() / 2] * 100.0,
        errors[errors.len() - 1] * 100.0,
        named(chosen),
        time_text(chosen.us),
        named(quickest),
        time_text(quickest.us),
    )?;
    Ok(())
}

#[derive(Serialize)]
struct Line {
    coll: &'static str,
    bytes: usize,
    nodes: u32,
    ranks_per_node: u32,
    settings: String,
    segment_bytes: Option<usize>,
    estimate_us: f64,
    us: f64,
}

/// One JSON object a line: `checks`, then all ranks on the network.
fn print_json(question: &Question<'_>, checks: &[Check], flat: &[flat::Estimated<'_>]) -> Result<()> {
    let Question { collective, bytes, nodes, ranks_per_node, .. } = *question;
    let line = |family: &Inter, segment_bytes, estimate_us, us| {
        let (coll, settings) = (collective.name(), family.to_text());
        Line { coll, bytes, nodes, ranks_per_node, settings, segment_bytes, estimate_us, us }
    };
    let levels = checks.iter().map(|check| line(&check.family, check.segment, check.estimate, check.us));
    let network = flat.iter().map(|flat| line(&flat.whole.family, None, flat.us, flat.whole.us));
    for line in levels.chain(network) {
        writeln!(stdout(), "{}", serde_json::to_string(&line)?)?;
    }
    Ok(())
}

/// A chart for each configuration: time by length of chunks, as it was estimated (dashed) and measured. One chunk is as long as
/// the vector.
fn plot(question: &Question<'_>, path: &Path, checks: &[Check]) -> Result<()> {
    let length = |check: &Check| as_f64(check.segment.unwrap_or(question.bytes));
    let mut families = Vec::new();
    for check in checks {
        if !families.contains(&check.family) {
            families.push(check.family);
        }
    }
    let rows = families.len().div_ceil(COLUMNS);
    let (columns, lines) = (u32::try_from(COLUMNS)?, u32::try_from(rows)?);
    picture(path, (CHART.0 * columns, CHART.1 * lines + 40), |area| {
        let area =
            area.titled(&format!("{}: estimate (red, dashed) and measurement (blue)", what(question)), (FONT, 18))?;
        let times = || checks.iter().flat_map(|check| [check.estimate, check.us]);
        let (least, most) = (times().fold(f64::MAX, f64::min) / 1.2, times().fold(0.0, f64::max) * 1.2);
        let lengths = || checks.iter().map(length);
        let (first, last) = (lengths().fold(f64::MAX, f64::min), lengths().fold(0.0, f64::max));
        for (family, area) in families.iter().zip(area.split_evenly((rows, COLUMNS))) {
            let of: Vec<&Check> = checks.iter().filter(|check| check.family == *family).collect();
            let mut builder = ChartBuilder::on(&area);
            builder.margin(6).x_label_area_size(24).y_label_area_size(48).caption(title(family), (FONT, 10));
            let mut chart = builder.build_cartesian_2d(
                (first / 1.1..last * 1.1).log_scale().base(2.0),
                (least.max(0.1)..most).log_scale(),
            )?;
            let mut mesh = chart.configure_mesh();
            mesh.max_light_lines(1).light_line_style(WHITE).label_style((FONT, 10)).x_labels(5).y_labels(5);
            mesh.x_label_formatter(&|bytes| bytes_text(whole(*bytes)))
                .y_label_formatter(&|us| time_text(*us))
                .draw()?;
            let curve = |dashed, colour, time: fn(&Check) -> f64| {
                let points = of.iter().map(|check| (length(check), time(check))).collect();
                Curve { name: String::new(), colour, width: 2, dashed, points }
            };
            let (measured, estimated) =
                (curve(false, BLUE, |check| check.us), curve(true, RED, |check| check.estimate));
            for curve in [measured, estimated] {
                // A single one is no line.
                let points = curve.points.iter().map(|&point| Circle::new(point, 3, curve.colour.filled()));
                chart.draw_series(points)?;
                charts::draw(&mut chart, &[curve])?;
            }
        }
        Ok(())
    })
}

/// What tells a configuration from the others.
fn title(family: &Inter) -> String {
    let text = family.to_text();
    let values: Vec<&str> = text.split(',').filter_map(|pair| pair.split_once('=').map(|(_, value)| value)).collect();
    values.into_iter().filter(|value| *value != "hierarchical").collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_job_is_the_one_that_is_asked_about() {
        let check = |node_of: &[usize], asked| check_job(node_of, asked).map_err(|error| error.to_string());
        assert_eq!(check(&[0, 0, 1, 1], (2, 2)), Ok(()));
        assert!(check(&[0, 0, 1, 1, 2, 2], (2, 2)).is_err_and(|error| error.contains("3 nodes with 2 ranks each")));
        assert!(check(&[0, 1, 0, 1], (2, 2)).is_err_and(|error| error.contains("not numbered node by node")));
    }
}

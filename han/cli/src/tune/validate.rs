//! `han model --validate`: the cost models' estimates beside measurements, as figures 5.13 and 5.17 of the dissertation: of tasks
//! where both levels are used, else of messages.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use charts::{Curve, FONT, as_f64, whole};
use han::tune::{Check, Space, Validation, settings_text, validate};
use han::{Collective, Context};
use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

use super::ranks::Worker;
use super::{HowArgs, Result, become_job, flat};
use crate::bench::stats::{bytes_text, time_text};
use crate::info::plain_table;
use crate::model::plot::picture;
use crate::output::stdout;

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
    let (shape, bytes) = ((nodes as usize, ranks_per_node as usize), question.bytes);
    let space = Space::new(shape, &[collective], (bytes, bytes), !question.is_full);
    let has_chunks = |bytes: &usize| space.segments.iter().any(|segment| segment < bytes);
    if !space.sizes.last().is_some_and(has_chunks) {
        let (bytes, least) = (bytes_text(question.bytes), bytes_text(space.segments[0]));
        return Err(format!(
            "--bytes {bytes}: vectors of several chunks are compared: give a multiple of 4 above {least}"
        )
        .into());
    }
    if !how.worker {
        return become_job(nodes * ranks_per_node, nodes, how);
    }
    let context = Context::init()?;
    let mut worker = Worker::new(context.world(), how, question.bytes, &space.segments)?;
    let found = validate(&mut worker, &space, collective)?;
    let machine = flat::machine(&mut worker, shape, question.bytes)?;
    let shown = || show(question, &found).and_then(|()| flat::show(&machine, shape, collective, bytes, &found.wholes));
    let printed = if context.world().rank() == 0 { shown() } else { Ok(()) };
    worker.all_go_on(printed)?;
    drop(worker);
    context.finalize()?;
    Ok(ExitCode::SUCCESS)
}

/// How far an estimate is from the measurement, as a part of it.
fn error(check: &Check) -> f64 {
    check.estimate / check.us - 1.0
}

fn show(question: &Question<'_>, found: &Validation) -> Result<()> {
    let checks = &found.checks;
    let Question { collective, bytes, nodes, ranks_per_node, svg, .. } = *question;
    let what = format!("{} of {} by {nodes} x {ranks_per_node} ranks", collective.name(), bytes_text(bytes));
    let mut table = plain_table(&["settings", "segment", "estimate us", "measured us", "error"]);
    for check in checks {
        table.add_row([
            settings_text(&check.family),
            bytes_text(check.segment),
            time_text(check.estimate),
            time_text(check.us),
            format!("{:+.1} %", error(check) * 100.0),
        ]);
    }
    writeln!(stdout(), "{what}\n{table}")?;
    let mut errors: Vec<f64> = checks.iter().map(|check| error(check).abs()).collect();
    errors.sort_by(f64::total_cmp);
    let best = |by: fn(&Check) -> f64| checks.iter().min_by(|one, other| by(one).total_cmp(&by(other)));
    if let (Some(chosen), Some(quickest)) = (best(|check| check.estimate), best(|check| check.us)) {
        writeln!(
            stdout(),
            "{} configurations; error of the estimate: median {:.1} %, greatest {:.1} %\n\
             quickest by the estimate: {} in segments of {}, measured {} us; quickest measured: {} in segments of {}, {} us",
            checks.len(),
            errors[errors.len() / 2] * 100.0,
            errors[errors.len() - 1] * 100.0,
            settings_text(&chosen.family),
            bytes_text(chosen.segment),
            time_text(chosen.us),
            settings_text(&quickest.family),
            bytes_text(quickest.segment),
            time_text(quickest.us),
        )?;
    }
    let Validation { of_one_chunk, built_in, .. } = found;
    writeln!(
        stdout(),
        "not compared: {of_one_chunk} of one chunk, which are measured whole and not estimated, and {built_in} that the built-in \
         rules choose"
    )?;
    if let Some(path) = svg {
        plot(path, &what, checks)?;
    }
    Ok(())
}

/// A chart for each configuration: time by length of chunks, as it was estimated (dashed) and measured.
fn plot(path: &Path, what: &str, checks: &[Check]) -> Result<()> {
    let mut families = Vec::new();
    for check in checks {
        if !families.contains(&check.family) {
            families.push(check.family);
        }
    }
    let rows = families.len().div_ceil(COLUMNS);
    let (columns, lines) = (u32::try_from(COLUMNS)?, u32::try_from(rows)?);
    picture(path, (CHART.0 * columns, CHART.1 * lines + 40), |area| {
        let area = area.titled(&format!("{what}: estimate (dashed) and measurement"), (FONT, 18))?;
        let times = || checks.iter().flat_map(|check| [check.estimate, check.us]);
        let (least, most) = (times().fold(f64::MAX, f64::min) / 1.2, times().fold(0.0, f64::max) * 1.2);
        let segments = || checks.iter().map(|check| as_f64(check.segment));
        let (first, last) = (segments().fold(f64::MAX, f64::min), segments().fold(0.0, f64::max));
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
                let points = of.iter().map(|check| (as_f64(check.segment), time(check))).collect();
                Curve { name: String::new(), colour, width: 2, dashed, points }
            };
            let (measured, estimated) =
                (curve(false, BLUE, |check| check.us), curve(true, RED, |check| check.estimate));
            charts::draw(&mut chart, &[measured, estimated])?;
        }
        Ok(())
    })
}

/// What tells a configuration from the others.
fn title(family: &han::select::Inter) -> String {
    let text = settings_text(family);
    let values: Vec<&str> = text.split(',').filter_map(|pair| pair.split_once('=').map(|(_, value)| value)).collect();
    values.into_iter().filter(|value| *value != "hierarchical").collect::<Vec<_>>().join(" ")
}

//! Predictions as SVG.

use std::path::Path;

use charts::{Area, Axis, Curve, FONT, as_f64, list, whole};
use net_fabric::transport::simulated::{Machine, Seconds};
use plotters::prelude::*;

use super::noise::Spec;
use super::report::{self, Row};
use super::study::Outcome;
use super::{Args, Result, choice};
use crate::numbers::{bytes_text, time_text};
use crate::output::write_file;

/// Width and height of one chart.
const CHART: (u32, u32) = (640, 520);
/// Width of the list of names.
const NAMES_WIDTH: u32 = 200;

/// Lets `draw` make a picture, and writes it to `path`.
pub(crate) fn picture(path: &Path, size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<()>) -> Result<()> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
    area.fill(&WHITE)?;
    draw(&area)?;
    area.present()?;
    drop(area);
    Ok(write_file(path, &text)?)
}

/// Time against bytes at the most nodes, against ranks at the fewest bytes, against ranks of a node at both: whatever there are
/// several of, otherwise with the most ranks a node.
pub(super) fn lines(path: &Path, args: &Args, machine: &Machine, rows: &[Row]) -> Result<()> {
    let (nodes, bytes) = (rows.iter().map(|row| row.nodes).max(), rows.iter().map(|row| row.bytes).min());
    let ppn = rows.iter().map(|row| row.ppn).max();
    let (Some(nodes), Some(bytes), Some(ppn)) = (nodes, bytes, ppn) else { return Ok(()) };
    let full = || rows.iter().filter(|row| row.ppn == ppn);
    let mut charts = Vec::new();
    if rows.iter().any(|row| row.nodes != nodes) {
        let curves = curves(args, full().filter(|row| row.bytes == bytes), |row| as_f64(row.nodes * ppn));
        charts.push((format!("{} bytes", bytes_text(bytes)), "ranks", curves));
    }
    if rows.iter().any(|row| row.bytes != bytes) {
        let curves = curves(args, full().filter(|row| row.nodes == nodes), |row| as_f64(row.bytes));
        charts.push((format!("{} ranks", nodes * ppn), "bytes", curves));
    }
    if rows.iter().any(|row| row.ppn != ppn) {
        let same = rows.iter().filter(|row| row.nodes == nodes && row.bytes == bytes);
        let curves = curves(args, same, |row| as_f64(row.ppn));
        charts.push((format!("{nodes} nodes, {} bytes", bytes_text(bytes)), "ranks of each", curves));
    }
    let count = u32::try_from(charts.len())?;
    let collective = args.collective.name();
    let title = format!("{collective}, {} ({}), {ppn} ranks a node", machine.name, machine.model.name());
    picture(path, (CHART.0 * count + NAMES_WIDTH, CHART.1), |area| {
        let area = area.titled(&title, (FONT, 20))?;
        let (left, names) = area.split_horizontally(CHART.0 * count);
        for (area, (title, unit, curves)) in left.split_evenly((1, charts.len())).iter().zip(&charts) {
            let axes = [
                &Axis { unit, text: &|place| bytes_text(whole(place)) },
                &Axis { unit: &report::unit(args), text: &|value| time_text(value) },
            ];
            charts::logarithmic(&area.titled(title, (FONT, 16))?, curves, (2.0, 10), axes)?;
        }
        let most = charts.iter().max_by_key(|(_, _, curves)| curves.len());
        list(&names, most.into_iter().flat_map(|(_, _, curves)| curves))
    })
}

/// A solid line for each algorithm, a dashed one for its closed form.
fn curves<'a>(args: &Args, rows: impl Iterator<Item = &'a Row>, place: impl Fn(&Row) -> f64) -> Vec<Curve> {
    let mut curves: Vec<Curve> = Vec::new();
    let mut add = |name: String, dashed: bool, point: (f64, f64)| {
        if point.0 <= 0.0 {
            return;
        }
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => {
                let colour = colour(curves.len());
                curves.push(Curve { name, dashed, colour, width: 2, points: vec![point] });
            }
        }
    };
    for row in rows {
        for (name, value) in row.values(args) {
            let dashed = name != row.algorithm;
            if let Some(value) = value {
                add(name, dashed, (place(row), value));
            }
        }
    }
    curves
}

/// With noise on one rank: when each rank is done. Else: each policy's time without noise and with it.
pub(crate) fn noise(path: &Path, title: &str, spec: Spec, outcomes: &[Outcome]) -> Result<()> {
    picture(path, (CHART.0 + NAMES_WIDTH, CHART.1), |area| {
        let area = area.titled(title, (FONT, 20))?;
        let (left, names) = area.split_horizontally(CHART.0);
        if matches!(spec, Spec::Once { .. }) {
            let curves = rank_curves(outcomes);
            per_rank(&left, &curves)?;
            list(&names, &curves)?;
        } else {
            bars(&left, outcomes)?;
            list(&names, &["quiet", "with noise"].map(|name| named(name, bar_colour(name == "quiet"))))?;
        }
        Ok(())
    })
}

/// As figure 3.5 of the dissertation.
fn rank_curves(outcomes: &[Outcome]) -> Vec<Curve> {
    let mut curves = Vec::new();
    for (index, outcome) in outcomes.iter().enumerate() {
        let policy = choice::policy_text(outcome.policy);
        let points = |seconds: &[Seconds]| {
            seconds.iter().enumerate().map(|(rank, seconds)| (as_f64(rank), seconds * 1e6)).collect()
        };
        let (quiet, noisy) = (points(&outcome.ranks_quiet_s), points(&outcome.ranks_noisy_s));
        let colour = colour(index);
        curves.push(Curve { name: format!("{policy}, quiet"), dashed: true, colour, width: 2, points: quiet });
        curves.push(Curve { name: format!("{policy}, noisy"), dashed: false, colour, width: 2, points: noisy });
    }
    curves
}

fn per_rank(area: &Area, curves: &[Curve]) -> Result<()> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let last = points().map(|point| point.0).fold(1.0, f64::max);
    let most = points().map(|point| point.1).fold(0.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..last, 0.0..most * 1.1)?;
    let mut mesh = chart.configure_mesh();
    mesh.light_line_style(WHITE).label_style((FONT, 12)).x_label_formatter(&|rank| whole(*rank).to_string());
    mesh.y_label_formatter(&|us| time_text(*us)).x_desc("rank").y_desc("microseconds").draw()?;
    charts::draw(&mut chart, curves)
}

/// As figure 3.6 of the dissertation.
fn bars(area: &Area, outcomes: &[Outcome]) -> Result<()> {
    let most = outcomes.iter().flat_map(|outcome| [outcome.quiet_s, outcome.mean_s()]).fold(0.0, f64::max) * 1e6;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..as_f64(outcomes.len()), 0.0..most * 1.15)?;
    let mut mesh = chart.configure_mesh();
    mesh.disable_x_mesh().disable_x_axis().light_line_style(WHITE).label_style((FONT, 12));
    mesh.y_label_formatter(&|us| time_text(*us)).y_desc("microseconds").draw()?;
    for (index, outcome) in outcomes.iter().enumerate() {
        let start = as_f64(index) + 0.15;
        for (offset, seconds, is_quiet) in [(0.0, outcome.quiet_s, true), (0.35, outcome.mean_s(), false)] {
            let corners = [(start + offset, 0.0), (start + offset + 0.35, seconds * 1e6)];
            chart.draw_series([Rectangle::new(corners, bar_colour(is_quiet).filled())])?;
        }
        let above = (start + 0.35, outcome.mean_s() * 1e6 + most * 0.04);
        chart.draw_series([Text::new(format!("{:+.1} %", outcome.slowdown() * 100.0), above, (FONT, 13))])?;
        let name = choice::policy_text(outcome.policy);
        chart.draw_series([Text::new(name, (start, most * 1.12), (FONT, 14))])?;
    }
    Ok(())
}

fn named(name: &str, colour: RGBColor) -> Curve {
    Curve { name: name.to_owned(), dashed: false, colour, width: 2, points: Vec::new() }
}

fn bar_colour(is_quiet: bool) -> RGBColor {
    if is_quiet { RGBColor(70, 110, 180) } else { RGBColor(200, 60, 50) }
}

/// Hues far apart for neighbours.
fn colour(index: usize) -> RGBColor {
    charts::colour(as_f64(index) * 0.381_966 % 1.0, 0.75, 0.4)
}

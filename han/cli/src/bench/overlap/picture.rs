//! What overlaps on each leader as a picture, as figures 5.10 and 5.11 of the dissertation.

use std::path::Path;

use charts::{Area, Curve, FONT, as_f64, whole};
use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

use super::{Result, Row};
use crate::model::plot::picture;
use crate::numbers::bytes_text;

/// Width and height of one collective's chart.
const CHART: (u32, u32) = (480, 360);
/// Width of the list of names.
const NAMES_WIDTH: u32 = 220;

/// Draws a chart for each collective, with a line for each leader, into the file at `path`.
pub(crate) fn draw(path: &Path, rows: &[Row]) -> Result<()> {
    let mut charts: Vec<(&str, Vec<Curve>)> = Vec::new();
    for row in rows {
        if charts.last().is_none_or(|(collective, _)| *collective != row.coll) {
            charts.push((row.coll, Vec::new()));
        }
        let Some((_, curves)) = charts.last_mut() else { continue };
        let name = format!("rank {} on node {}, {}", row.leader, row.node, row.module);
        let point = (as_f64(row.bytes), row.overlap);
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => {
                let colour = charts::colour(as_f64(curves.len()) * 0.381_966 % 1.0, 0.75, 0.4);
                curves.push(Curve { name, colour, width: 2, dashed: false, points: vec![point] });
            }
        }
    }
    let count = u32::try_from(charts.len())?;
    picture(path, ((CHART.0 + NAMES_WIDTH) * count, CHART.1), |area| {
        for ((collective, curves), area) in charts.iter().zip(area.split_evenly((1, charts.len().max(1)))) {
            let area = area.titled(&format!("{collective}: overlap of both levels"), (FONT, 16))?;
            let (chart, names) = area.split_horizontally(CHART.0);
            chart_of(&chart, curves)?;
            charts::list(&names, curves)?;
        }
        Ok(())
    })
}

/// The overlap against the bytes; a length alone is a point.
fn chart_of(area: &Area<'_>, curves: &[Curve]) -> Result<()> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let Some(bytes) = charts::range(points().map(|point| point.0)) else { return Ok(()) };
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(48)
        .build_cartesian_2d((bytes.start / 1.2..bytes.end * 1.2).log_scale().base(2.0), 0.0..1.05)?;
    let mut mesh = chart.configure_mesh();
    mesh.max_light_lines(1).light_line_style(WHITE).label_style((FONT, 12)).x_labels(10);
    mesh.x_label_formatter(&|bytes| bytes_text(whole(*bytes))).x_desc("bytes").y_desc("hidden part").draw()?;
    charts::draw(&mut chart, curves)?;
    for curve in curves {
        chart.draw_series(curve.points.iter().map(|&point| Circle::new(point, 3, curve.colour.filled())))?;
    }
    Ok(())
}

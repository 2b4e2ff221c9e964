//! One SVG for each group: latency and bandwidth against size, a line for each contestant, and what
//! the machine can do.

use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::prelude::*;

use crate::Result;
use crate::contestants::Library;
use crate::ratios::{Group, Series};
use crate::table::{bytes_text, us_text};
use crate::targets::Bounds;

/// Width and height of everything.
const SIZE: (u32, u32) = (1500, 640);
/// Width of the list of names.
const NAMES_WIDTH: u32 = 200;
/// Height of a name in the list.
const NAME_HEIGHT: i32 = 17;
const FONT: &str = "sans-serif";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One line of both charts.
struct Curve {
    name: String,
    colour: RGBColor,
    width: u32,
    /// Microseconds at each number of bytes.
    points: Vec<(f64, f64)>,
}

/// Draws a group into `path`; false if there are no sizes to draw it against.
///
/// # Errors
/// The file cannot be written.
pub fn draw(path: &Path, group: &Group, series: &[Series], bounds: Option<&Bounds>) -> Result<bool> {
    let curves = curves(series, bounds);
    let sizes = range(curves.iter().flat_map(|curve| curve.points.iter().map(|&(bytes, _)| bytes)));
    let Some(sizes) = sizes.filter(|sizes| sizes.end > sizes.start) else { return Ok(false) };
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let area = area.titled(&group.name(), (FONT, 20))?;
    let (charts, names) = area.split_horizontally(SIZE.0 - NAMES_WIDTH);
    let (latency, bandwidth) = charts.split_horizontally((SIZE.0 - NAMES_WIDTH) / 2);
    chart(&latency, &curves, &sizes, "microseconds", |_, us| us)?;
    chart(&bandwidth, &curves, &sizes, "GB/s", |bytes, us| bytes / us * 1e-3)?;
    list(&names, &curves)?;
    area.present()?;
    Ok(true)
}

/// The rivals' lines first, so that han's lie above them.
fn curves(series: &[Series], bounds: Option<&Bounds>) -> Vec<Curve> {
    let with_data = || series.iter().filter(|series| series.us.keys().any(|&bytes| bytes > 0));
    let mut curves: Vec<Curve> = Vec::new();
    if let Some(bounds) = bounds {
        let mut sizes: Vec<usize> = with_data().flat_map(|series| series.us.keys().copied()).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let limit = |name: &str, us: &dyn Fn(usize) -> Option<f64>| {
            let points: Vec<_> = sizes.iter().filter_map(|&bytes| Some((as_f64(bytes), us(bytes)?))).collect();
            let name = format!("limit: {name}");
            (!points.is_empty()).then_some(Curve { name, colour: BLACK, width: 1, points })
        };
        // Small messages cannot beat a cache line's way, large ones a copy.
        curves.extend(limit("a memcpy", &|bytes| bounds.us("memcpy", bytes).filter(|_| bytes >= 1 << 10)));
        curves.extend(limit("a cache line", &|bytes| bounds.cache_line_us().filter(|_| bytes <= 1 << 10)));
    }
    let (own, rivals): (Vec<&Series>, Vec<&Series>) = with_data().partition(|series| series.is_han());
    for (index, series) in rivals.iter().chain(&own).enumerate() {
        let width = if series.is_han() { 3 } else { 1 + u32::from(series.installed) };
        let points = series.us.iter().map(|(&bytes, &us)| (as_f64(bytes), us)).collect();
        curves.push(Curve { name: series.contestant.clone(), colour: colour(series, index), width, points });
    }
    curves
}

/// A hue for each library; settings differ in lightness, and han in each kind of memory in hue as well.
fn colour(series: &Series, index: usize) -> RGBColor {
    match (series.is_han(), series.alloc.as_str()) {
        (true, "malloc") => return RGBColor(208, 0, 24),
        (true, "shared") => return RGBColor(160, 0, 160),
        (true, _) => return RGBColor(90, 30, 30),
        (false, _) => {}
    }
    let hues = [(Library::OpenMpi, 0.6), (Library::Mpich, 0.35), (Library::IntelMpi, 0.1)];
    let hue = hues.iter().find(|(library, _)| library.name() == series.library).map_or(0.8, |&(_, hue)| hue);
    let step = [0.0, 0.12, 0.24, 0.06, 0.18][index % 5];
    let lightness = if series.installed { 0.4 + step / 2.0 } else { 0.5 + step };
    let (red, green, blue) = HSLColor(hue, 0.8, lightness).to_backend_color().rgb;
    RGBColor(red, green, blue)
}

/// One of the two charts; `value` makes its value from bytes and microseconds.
fn chart(area: &Area, curves: &[Curve], sizes: &Range<f64>, unit: &str, value: impl Fn(f64, f64) -> f64) -> Result<()> {
    let of = |curve: &Curve| curve.points.iter().map(|&(bytes, us)| (bytes, value(bytes, us))).collect::<Vec<_>>();
    let values = range(curves.iter().flat_map(|curve| of(curve).into_iter().map(|(_, value)| value)));
    let Some(values) = values else { return Ok(()) };
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(sizes.clone().log_scale().base(4.0), (values.start / 1.2..values.end * 1.2).log_scale())?;
    chart
        .configure_mesh()
        .max_light_lines(1)
        .light_line_style(WHITE)
        .label_style((FONT, 13))
        .x_labels(16)
        .x_label_formatter(&|bytes| bytes_text(whole(*bytes)))
        .y_label_formatter(&|value| us_text(Some(*value)).trim_end_matches(".00").to_owned())
        .x_desc("bytes")
        .y_desc(unit)
        .draw()?;
    for curve in curves {
        let style = curve.colour.stroke_width(curve.width);
        if is_limit(curve) {
            chart.draw_series(DashedLineSeries::new(of(curve), 8, 5, style))?;
        } else {
            chart.draw_series(LineSeries::new(of(curve), style))?;
        }
    }
    Ok(())
}

/// The names beside their colours, han's first.
fn list(area: &Area, curves: &[Curve]) -> Result<()> {
    let mut y = 20;
    for curve in curves.iter().rev() {
        let style = curve.colour.stroke_width(curve.width);
        area.draw(&PathElement::new([(0, y), (24, y)], style))?;
        area.draw(&Text::new(curve.name.clone(), (30, y - 6), (FONT, 13)))?;
        y += NAME_HEIGHT;
    }
    Ok(())
}

fn is_limit(curve: &Curve) -> bool {
    curve.name.starts_with("limit")
}

/// From the least to the largest positive value.
fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    values.filter(|&value| value > 0.0).fold(None, |range: Option<Range<f64>>, value| {
        let range = range.unwrap_or(value..value);
        Some(range.start.min(value)..range.end.max(value))
    })
}

#[allow(clippy::cast_precision_loss)] // sizes are far below 2^53
fn as_f64(bytes: usize) -> f64 {
    bytes as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // labels are positive and below 2^53
fn whole(bytes: f64) -> usize {
    bytes.round() as usize
}

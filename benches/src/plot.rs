//! One SVG for each group: latency and bandwidth against size, a line for each contestant, and what
//! the machine can do.

use std::path::Path;

use charts::{Axis, Curve, FONT, as_f64, whole};
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

/// Draws a group into `path`; false if there are no sizes to draw it against.
///
/// # Errors
/// The file cannot be written.
pub fn draw(path: &Path, group: &Group, series: &[Series], bounds: Option<&Bounds>) -> Result<bool> {
    let curves = curves(series, bounds);
    let sizes = charts::range(curves.iter().flat_map(|curve| curve.points.iter().map(|&(bytes, _)| bytes)));
    if sizes.is_none_or(|sizes| sizes.end <= sizes.start) {
        return Ok(false);
    }
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let area = area.titled(&group.name(), (FONT, 20))?;
    let (left, names) = area.split_horizontally(SIZE.0 - NAMES_WIDTH);
    let (latency, bandwidth) = left.split_horizontally((SIZE.0 - NAMES_WIDTH) / 2);
    chart(&latency, &curves, "microseconds")?;
    let rate = |(bytes, us): (f64, f64)| (bytes, bytes / us * 1e-3);
    let rates = |curve: &Curve| Curve { points: curve.points.iter().copied().map(rate).collect(), ..curve.clone() };
    chart(&bandwidth, &curves.iter().map(rates).collect::<Vec<_>>(), "GB/s")?;
    // han's first.
    charts::list(&names, curves.iter().rev())?;
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
            (!points.is_empty()).then_some(Curve { name, colour: BLACK, width: 1, dashed: true, points })
        };
        // Small messages cannot beat a cache line's way, large ones a copy.
        curves.extend(limit("a memcpy", &|bytes| bounds.us("memcpy", bytes).filter(|_| bytes >= 1 << 10)));
        curves.extend(limit("a cache line", &|bytes| bounds.cache_line_us().filter(|_| bytes <= 1 << 10)));
    }
    let (own, rivals): (Vec<&Series>, Vec<&Series>) = with_data().partition(|series| series.is_han());
    for (index, series) in rivals.iter().chain(&own).enumerate() {
        let width = if series.is_han() { 3 } else { 1 + u32::from(series.installed) };
        let points = series.us.iter().map(|(&bytes, &us)| (as_f64(bytes), us)).collect();
        let (name, colour) = (series.contestant.clone(), colour(series, index));
        curves.push(Curve { name, colour, width, dashed: false, points });
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
    charts::colour(hue, 0.8, lightness)
}

/// One of the two charts.
fn chart(area: &charts::Area, curves: &[Curve], unit: &str) -> Result<()> {
    let value_text = |value| us_text(Some(value)).trim_end_matches(".00").to_owned();
    let axes = [&Axis { unit: "bytes", text: &|bytes| bytes_text(whole(bytes)) }, &Axis { unit, text: &value_text }];
    charts::logarithmic(area, curves, (4.0, 16), axes)
}

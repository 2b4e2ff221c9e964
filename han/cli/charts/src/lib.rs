//! Line charts as SVG: what the plots of `han model` and of the benches have in common.

use std::error::Error;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::combinators::IntoLogRange;
use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;

/// The font of everything.
pub const FONT: &str = "sans-serif";
/// Height of a name in a list.
const NAME_HEIGHT: i32 = 18;

/// Where something is drawn.
pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A result of drawing.
pub type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A line.
#[derive(Debug, Clone)]
pub struct Curve {
    /// What it is called in the list.
    pub name: String,
    /// Its colour.
    pub colour: RGBColor,
    /// Its width.
    pub width: u32,
    /// Whether it is broken.
    pub dashed: bool,
    /// Its points, by the first coordinate.
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    fn style(&self) -> ShapeStyle {
        self.colour.stroke_width(self.width)
    }
}

/// An axis with a logarithmic scale.
pub struct Axis<'a> {
    /// What is along it.
    pub unit: &'a str,
    /// How its values are written.
    pub text: &'a dyn Fn(f64) -> String,
}

/// A chart with two logarithmic axes; nothing without several positive values along the first. Labels of the first stand
/// at powers of `base`, about `labels` of them.
///
/// # Errors
/// The file cannot be written.
pub fn logarithmic(area: &Area, curves: &[Curve], (base, labels): (f64, usize), axes: [&Axis; 2]) -> Result<()> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let across = range(points().map(|point| point.0)).filter(|range| range.end > range.start);
    let (Some(across), Some(up)) = (across, range(points().map(|point| point.1))) else { return Ok(()) };
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .x_label_area_size(36)
        .y_label_area_size(60)
        .build_cartesian_2d(across.log_scale().base(base), (up.start / 1.2..up.end * 1.2).log_scale())?;
    chart
        .configure_mesh()
        .max_light_lines(1)
        .light_line_style(WHITE)
        .label_style((FONT, 12))
        .x_labels(labels)
        .x_label_formatter(&|value| (axes[0].text)(*value))
        .y_label_formatter(&|value| (axes[1].text)(*value))
        .x_desc(axes[0].unit)
        .y_desc(axes[1].unit)
        .draw()?;
    draw(&mut chart, curves)
}

/// Draws curves into a chart with axes of any kind.
///
/// # Errors
/// The file cannot be written.
pub fn draw<X, Y>(chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<X, Y>>, curves: &[Curve]) -> Result<()>
where
    X: Ranged<ValueType = f64>,
    Y: Ranged<ValueType = f64>,
{
    for curve in curves {
        let points = curve.points.iter().copied();
        if curve.dashed {
            chart.draw_series(DashedLineSeries::new(points, 8, 5, curve.style()))?;
        } else {
            chart.draw_series(LineSeries::new(points, curve.style()))?;
        }
    }
    Ok(())
}

/// The names of curves beside pieces of them, from the top down.
///
/// # Errors
/// The file cannot be written.
pub fn list<'a>(area: &Area, curves: impl IntoIterator<Item = &'a Curve>) -> Result<()> {
    let mut y = 20;
    for curve in curves {
        let pieces: &[(i32, i32)] = if curve.dashed { &[(0, 7), (14, 21)] } else { &[(0, 21)] };
        for &(start, end) in pieces {
            area.draw(&PathElement::new([(start, y), (end, y)], curve.style()))?;
        }
        area.draw(&Text::new(curve.name.clone(), (28, y - 6), (FONT, 13)))?;
        y += NAME_HEIGHT;
    }
    Ok(())
}

/// From the least to the largest positive value.
pub fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    values.filter(|&value| value > 0.0).fold(None, |range: Option<Range<f64>>, value| {
        let range = range.unwrap_or(value..value);
        Some(range.start.min(value)..range.end.max(value))
    })
}

/// The colour of a hue, a saturation and a lightness, each from 0 to 1.
#[must_use]
pub fn colour(hue: f64, saturation: f64, lightness: f64) -> RGBColor {
    let (red, green, blue) = HSLColor(hue, saturation, lightness).to_backend_color().rgb;
    RGBColor(red, green, blue)
}

/// A number of something, as a coordinate or to calculate with.
#[must_use]
#[allow(clippy::cast_precision_loss)] // far below 2^53
pub fn as_f64(number: usize) -> f64 {
    number as f64
}

/// A coordinate as a number of something.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // coordinates are positive and below 2^53
pub fn whole(value: f64) -> usize {
    value.round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_have_their_curves_names_and_labels() {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (400, 300)).into_drawing_area();
            let curve = |name: &str, dashed| Curve {
                name: name.to_owned(),
                colour: colour(0.3, 0.8, 0.4),
                width: 2,
                dashed,
                points: vec![(1.0, 3.0), (16.0, 50.0)],
            };
            let curves = [curve("one", false), curve("other", true)];
            let text = |value: f64| format!("{}!", whole(value));
            let axis = |unit| Axis { unit, text: &text };
            let (chart, names) = area.split_horizontally(300);
            logarithmic(&chart, &curves, (2.0, 5), [&axis("bytes"), &axis("us")]).expect("it is drawn");
            list(&names, &curves).expect("it is drawn");
            area.present().expect("it is written");
        }
        for text in ["one", "other", "bytes", "us", "16!"] {
            assert!(svg.contains(text), "{text} in {svg}");
        }
        assert_eq!(range([0.0, 4.0, -1.0, 2.0].into_iter()), Some(2.0..4.0));
        assert_eq!(range([0.0].into_iter()), None);
    }
}

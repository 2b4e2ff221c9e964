//! A trace as SVG: a row for each lane of each rank, a box for each span, time from left to right.

use std::collections::BTreeMap;
use std::fmt::Write;

use charts::as_f64;

use super::file::Traced;
use super::spans::{Span, Window};
use crate::numbers::{bytes_text, time_text};

const ROW: f64 = 20.0;
const BOX: f64 = 16.0;
const NAMES_WIDTH: f64 = 150.0;
const TIME_WIDTH: f64 = 1250.0;
const MARGIN: f64 = 16.0;
/// Room for the title and the legend.
const HEAD: f64 = 62.0;
/// Between the rows of two ranks.
const GAP: f64 = 8.0;
const AXIS: f64 = 34.0;
/// About so many numbers stand at the axis.
const TICKS: f64 = 10.0;
/// Width of a letter.
const LETTER: f64 = 6.2;

/// What there may be, its colour, and what the legend says. Memory is blue, the network is red or yellow.
const COLOURS: [(&str, &str, &str); 12] = [
    ("sr", "#2b6cb0", "sr: reduce in the node"),
    ("sa", "#2c5282", "sa: allreduce in the node"),
    ("sb", "#63b3ed", "sb: bcast in the node"),
    ("ir", "#c53030", "ir: reduce between nodes"),
    ("ib", "#f6ad55", "ib: bcast between nodes"),
    ("ia", "#d53f8c", "ia: allreduce between nodes"),
    ("allreduce", "#9ae6b4", "allreduce"),
    ("reduce", "#c6f6d5", "reduce"),
    ("bcast", "#68d391", "bcast"),
    ("barrier", "#b2b2d8", "barrier"),
    ("wait", "#e2e8f0", "wait"),
    ("writing the trace", "#718096", "writing the trace"),
];
const OTHER_COLOUR: &str = "#d6bcfa";

/// The rows of a rank: number of the row, and its name.
type Rows = BTreeMap<(usize, usize), String>;

/// Draws `spans`, which lie in `window`. Times count from `zero_us`.
pub(super) fn draw(traced: &Traced, spans: &[Span<'_>], window: &Window, zero_us: f64) -> String {
    let mut rows = rows(traced);
    rows.retain(|row, _| row.1 == 0 || spans.iter().any(|span| (span.rank, span.row) == *row));
    let mut places = BTreeMap::new();
    let mut y = HEAD;
    let mut before = None;
    for (rank, row) in rows.keys() {
        if before.is_some_and(|before| before != *rank) {
            y += GAP;
        }
        before = Some(*rank);
        places.insert((*rank, *row), y);
        y += ROW;
    }
    let (width, height) = (3.0 * MARGIN + NAMES_WIDTH + TIME_WIDTH, y + AXIS + MARGIN);
    let mut svg = Svg(String::new());
    svg.line(&format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">"
    ));
    svg.line("<rect width=\"100%\" height=\"100%\" fill=\"white\"/>");
    head(&mut svg, traced, spans, window, zero_us);
    let scale = Scale { window: *window, zero_us };
    axis(&mut svg, &scale, y);
    for ((rank, row), name) in &rows {
        let y = places[&(*rank, *row)];
        svg.line(&format!(
            "<g class=\"lane\" data-rank=\"{rank}\" data-row=\"{row}\" data-lane=\"{}\">",
            escaped(name)
        ));
        let label = format!("rank {rank}: {name}");
        svg.text(MARGIN, y + BOX - 4.0, "black", &label);
        let (left, right) = (scale.x(window.begin_us), scale.x(window.end_us));
        let line = y + BOX;
        svg.line(&format!("<path d=\"M{left:.1} {line:.1}H{right:.1}\" stroke=\"#e2e8f0\"/>"));
        for span in spans.iter().filter(|span| (span.rank, span.row) == (*rank, *row)) {
            boxed(&mut svg, &scale, span, y);
        }
        svg.line("</g>");
    }
    svg.line("</svg>");
    svg.0
}

/// The rows that the file names.
fn rows(traced: &Traced) -> Rows {
    let named = traced.events.iter().filter(|event| *event.ph == "M" && *event.name == "thread_name");
    named.filter_map(|event| Some(((event.pid, event.tid), event.arg("name")?.word()?.to_owned()))).collect()
}

fn head(svg: &mut Svg, traced: &Traced, spans: &[Span<'_>], window: &Window, zero_us: f64) {
    let title = format!(
        "{} ranks, {} us from {} us on",
        traced.size,
        time_text(window.length_us()),
        time_text(window.begin_us - zero_us)
    );
    svg.line(&format!("<text x=\"{MARGIN}\" y=\"22\" font-size=\"14\">{}</text>", escaped(&title)));
    let mut x = MARGIN;
    for (kind, colour, name) in COLOURS {
        if !spans.iter().any(|span| kind_of(span) == kind) {
            continue;
        }
        svg.line(&format!("<rect x=\"{x:.1}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{colour}\"/>"));
        svg.text(x + 16.0, 44.0, "black", name);
        x += 34.0 + LETTER * as_f64(name.len());
    }
}

/// Numbers below the rows, and lines through them.
fn axis(svg: &mut Svg, scale: &Scale, bottom: f64) {
    let step = step(scale.window.length_us() / TICKS);
    let mut tick = ((scale.window.begin_us - scale.zero_us) / step).ceil();
    svg.line("<g class=\"axis\">");
    while tick * step + scale.zero_us <= scale.window.end_us {
        let us = tick * step;
        let x = scale.x(us + scale.zero_us);
        svg.line(&format!("<path d=\"M{x:.1} {HEAD}V{bottom:.1}\" stroke=\"#edf2f7\"/>"));
        let digits = if step < 1.0 { 3 } else { 0 };
        let text = if step >= 1000.0 { format!("{:.0} ms", us / 1000.0) } else { format!("{us:.digits$} us") };
        svg.line(&format!("<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{text}</text>", bottom + 16.0));
        tick += 1.0;
    }
    svg.line("</g>");
}

/// The next of 1, 2, 5, 10, ... from `least` on.
fn step(least: f64) -> f64 {
    let least = least.max(1e-3);
    let ten = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * ten).into_iter().find(|step| *step >= least * 0.999).unwrap_or(ten)
}

fn boxed(svg: &mut Svg, scale: &Scale, span: &Span<'_>, y: f64) {
    let kind = kind_of(span);
    let colour = COLOURS.iter().find(|(known, ..)| *known == kind).map_or(OTHER_COLOUR, |(_, colour, _)| colour);
    let x = scale.x(span.begin_us);
    // A short span is still to be seen.
    let width = (scale.x(span.end_us) - x).max(0.5);
    let edge = match (span.word("error"), span.event.arg("open")) {
        (Some(_), _) => " stroke=\"red\" stroke-width=\"2\"",
        (None, Some(_)) => " stroke=\"red\" stroke-dasharray=\"3 2\"",
        (None, None) => " stroke=\"white\" stroke-width=\"0.4\"",
    };
    let class = if span.number("chunk").is_some() { "task" } else { "span" };
    svg.line(&format!(
        "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{BOX}\" fill=\"{colour}\"{edge}>\
         <title>{}</title></rect>",
        escaped(&title(span, scale))
    ));
    let text = match (span.number("chunk"), span.number("bytes")) {
        (Some(chunk), _) => chunk.to_string(),
        (None, Some(bytes)) => {
            let bytes = usize::try_from(bytes).map_or_else(|_| bytes.to_string(), bytes_text);
            format!("{} {bytes}", span.event.name)
        }
        (None, None) => span.event.name.to_string(),
    };
    if LETTER * as_f64(text.len()) + 2.0 <= width {
        let colour = if matches!(kind, "sr" | "sa" | "ir" | "ia" | "writing the trace") { "white" } else { "black" };
        svg.text(x + 2.0, y + BOX - 4.0, colour, &text);
    }
}

/// What is shown of a span where one points at it.
fn title(span: &Span<'_>, scale: &Scale) -> String {
    let begin = time_text(span.begin_us - scale.zero_us);
    let mut text = format!("{}: {} us from {begin} us on", span.event.name, time_text(span.length_us()));
    for (key, value) in &span.event.args {
        let _ = write!(text, ", {key} {value}");
    }
    text
}

/// The task or, where it is none, the name.
fn kind_of<'a>(span: &Span<'a>) -> &'a str {
    span.word("kind").unwrap_or(&span.event.name)
}

struct Scale {
    window: Window,
    zero_us: f64,
}

impl Scale {
    fn x(&self, us: f64) -> f64 {
        let share = (us - self.window.begin_us) / self.window.length_us().max(1e-3);
        MARGIN + NAMES_WIDTH + TIME_WIDTH * share
    }
}

struct Svg(String);

impl Svg {
    fn line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    fn text(&mut self, x: f64, y: f64, colour: &str, text: &str) {
        self.line(&format!("<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{colour}\">{}</text>", escaped(text)));
    }
}

/// Text as XML has it, in attributes too. What XML has no letter for becomes a question mark.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(' '),
            c if c.is_control() => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        for (least, round) in [(0.7, 1.0), (1.0, 1.0), (1.1, 2.0), (2.5, 5.0), (51.0, 100.0), (1000.0, 1000.0)] {
            assert!((step(least) - round).abs() < 1e-9 * round, "{least}");
        }
    }

    #[test]
    fn any_text_is_xml() {
        assert_eq!(escaped("a<b> & \"c\"\u{1}\n"), "a&lt;b&gt; &amp; &quot;c&quot;? ");
    }
}

//! A rank's part of a trace as text: Chrome's and Perfetto's JSON, one event a line.
//!
//! The text is cut into three by lines, so that parts become one file without being parsed: a head that is the same on
//! all ranks, a line on the rank, a middle, the events, an end. Each part is a valid file by itself.

use std::fmt::{self, Write};
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::clock::{Alignment, Mark};
use super::span::{Ending, Lane, Operation, Part, Span};
use super::store::Store;

/// Between the lines on ranks and the events.
pub(super) const MIDDLE: &str = "]},\"traceEvents\":[\n";
/// Behind the last event.
pub(super) const END: &str = "]}\n";

/// What is said of a rank.
#[derive(Debug, Clone)]
pub(super) struct Card {
    /// Names the job; the same on all ranks.
    pub(super) job: String,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) node: usize,
    pub(super) host: String,
    /// Ranks with the same one have one clock.
    pub(super) clock: String,
    /// Barriers at the start.
    pub(super) marks: Vec<Mark>,
}

/// The first line. `is_whole` if what follows is of all ranks, to the end of the job.
pub(super) fn head(job: &str, size: usize, is_whole: bool) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("{START}{version}\",\"job\":\"{job}\",\"size\":{size},\"whole\":{is_whole},\"ranks\":[\n")
}

/// What every file begins with.
const START: &str = "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"producer\":\"han ";

/// Whether there is something at `path` that no trace has written.
pub(super) fn is_foreign(path: &Path) -> bool {
    let begins_otherwise = || {
        let mut start = [0; START.len()];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut start));
        read.is_err() || start != START.as_bytes()
    };
    fs::metadata(path).is_ok_and(|seen| seen.is_file() && seen.len() > 0) && begins_otherwise()
}

/// The beginning of the line on `rank` once it has said its last, with times by rank 0's clock.
pub(super) fn last_word(rank: usize) -> String {
    format!("{{\"rank\":{rank},\"last\":true,")
}

/// The line on a rank, and the lines of its events. With an alignment this is its last word.
pub(super) fn lines(card: &Card, store: &Store, now_ns: u64, alignment: Option<&Alignment>) -> (String, String) {
    let spans = store.spans(now_ns);
    let (rows, lanes) = rows(&spans);
    let Card { rank, node, size, host, clock, marks, .. } = card;
    let mut about = match alignment {
        Some(_) => last_word(*rank),
        None => format!("{{\"rank\":{rank},\"last\":false,"),
    };
    let (kept, dropped) = (spans.len(), store.dropped());
    let error = alignment.map_or(0, Alignment::error_ns);
    put(
        &mut about,
        format_args!(
            "\"node\":{node},\"host\":{},\"pid\":{},\"spans\":{kept},\"dropped\":{dropped},\"clock\":{},\
             \"clock_error_ns\":{error},\"marks\":[",
            Text(host),
            std::process::id(),
            Text(clock),
        ),
    );
    for (place, mark) in marks.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        put(&mut about, format_args!("{comma}[{},{}]", mark.entered_ns, mark.left_ns));
    }
    about.push_str("]}");

    let mut events = String::with_capacity(spans.len() * 160 + 512);
    let of = if *size > 1 { format!("rank {rank} (node {node})") } else { format!("rank {rank}") };
    let name = Text(&of);
    let mut meta = |what: &str, row: usize, key: &str, value: &dyn fmt::Display| {
        let event = format_args!(
            "{{\"name\":\"{what}\",\"ph\":\"M\",\"pid\":{rank},\"tid\":{row},\"args\":{{\"{key}\":{value}}}}},\n"
        );
        put(&mut events, event);
    };
    meta("process_name", 0, "name", &name);
    meta("process_sort_index", 0, "sort_index", rank);
    for (row, name) in lanes.iter().enumerate() {
        meta("thread_name", row, "name", &Text(name));
        meta("thread_sort_index", row, "sort_index", &row);
    }
    let aligned = |ns| alignment.map_or(ns, |alignment| alignment.aligned(ns));
    for (span, row) in spans.iter().zip(rows) {
        event(&mut events, store, *rank, row, span, aligned);
    }
    // Without the comma behind the last one.
    events.truncate(events.len().saturating_sub(2));
    events.push('\n');
    (about, events)
}

/// A whole file of one part.
pub(super) fn file(card: &Card, (about, events): &(String, String)) -> String {
    [&head(&card.job, card.size, false), about, "\n", MIDDLE, events, END].concat()
}

fn event(out: &mut String, store: &Store, rank: usize, row: usize, span: &Span, aligned: impl Fn(u64) -> u64) {
    let (begin, end) = (aligned(span.begin_ns), aligned(span.end_ns));
    let name = span.what.name;
    let category = match span.what.of {
        Some(Operation { part: Part::Whole { .. }, .. }) => "call",
        Some(Operation { part: Part::Task { .. }, .. }) => "task",
        None => "other",
    };
    put(
        out,
        format_args!(
            "{{\"name\":\"{name}\",\"cat\":\"{category}\",\"ph\":\"X\",\"ts\":{},\"dur\":{},\"pid\":{rank},\
             \"tid\":{row},\"args\":{{",
            Micros(begin),
            Micros(end.saturating_sub(begin)),
        ),
    );
    let mut comma = "";
    let mut argument = |key: &str, value: &dyn fmt::Display| {
        put(out, format_args!("{comma}\"{key}\":{value}"));
        comma = ",";
    };
    if let Some(Operation { call, bytes, part }) = span.what.of {
        argument("communicator", &call.communicator);
        argument("group", &call.group);
        argument("number", &call.number);
        argument("bytes", &bytes);
        match part {
            Part::Whole { root, choice } => {
                if let Some(root) = root {
                    argument("root", &root);
                }
                argument("choice", &Text(store.word(choice)));
            }
            Part::Task { chunk, is_in_memory } => {
                argument("kind", &Text(name));
                argument("chunk", &chunk);
                argument("level", &Text(if is_in_memory { "memory" } else { "network" }));
            }
        }
    }
    match span.ending {
        Ending::Well => {}
        Ending::Failed(why) => argument("error", &Text(store.word(why))),
        Ending::Open => argument("open", &true),
    }
    out.push_str("}},\n");
}

/// The row of each span, of `spans` in order of their beginning, and the names of the rows. Spans of one row lie apart
/// or within each other on the lane of calls, and apart on all others.
fn rows(spans: &[Span]) -> (Vec<usize>, Vec<String>) {
    struct Row {
        lane: Lane,
        /// Ends of the spans that the next one may lie within.
        ends: Vec<u64>,
    }
    let mut rows: Vec<Row> = vec![Row { lane: Lane::Calls, ends: Vec::new() }];
    let mut places = Vec::with_capacity(spans.len());
    for span in spans {
        let fits = |row: &mut Row| {
            while row.ends.last().is_some_and(|end| *end <= span.begin_ns) {
                row.ends.pop();
            }
            match row.ends.last() {
                Some(end) => span.lane == Lane::Calls && span.end_ns <= *end,
                None => true,
            }
        };
        let place = rows.iter_mut().position(|row| row.lane == span.lane && fits(row)).unwrap_or_else(|| {
            rows.push(Row { lane: span.lane, ends: Vec::new() });
            rows.len() - 1
        });
        rows[place].ends.push(span.end_ns);
        places.push(place);
    }
    // In the order of lanes, not in that of their first spans.
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| rows[a].lane.compare(rows[b].lane).then(a.cmp(&b)));
    let mut names = Vec::with_capacity(order.len());
    let mut of_row = vec![0; rows.len()];
    for (place, &row) in order.iter().enumerate() {
        of_row[row] = place;
        let lane = rows[row].lane;
        let before = order[..place].iter().filter(|&&other| rows[other].lane == lane).count();
        names.push(if before == 0 { lane.name().into_owned() } else { format!("{} ({})", lane.name(), before + 1) });
    }
    (places.into_iter().map(|row| of_row[row]).collect(), names)
}

fn put(out: &mut String, text: fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = out.write_fmt(text);
}

/// Nanoseconds as microseconds, the unit of the format.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A string of JSON, with its quotes.
struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                c if c < ' ' => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

#[cfg(test)]
mod tests {
    use super::super::span::What;
    use super::*;

    fn span(lane: Lane, begin_ns: u64, end_ns: u64) -> Span {
        Span { lane, what: What::named("x"), begin_ns, end_ns, ending: Ending::Well }
    }

    #[test]
    fn what_overlaps_gets_rows_of_its_own() {
        use crate::task::Stream::{Back, Down, Rail, Up};
        use Lane::{Calls, Operations, Stream};
        let spans = [
            span(Operations, 0, 10),
            span(Calls, 1, 20),
            span(Calls, 2, 5),
            span(Operations, 4, 12),
            span(Calls, 5, 20),
            span(Operations, 10, 11),
            span(Calls, 20, 30),
            span(Stream(Down), 21, 30),
            span(Stream(Back(1)), 21, 30),
            span(Stream(Rail(1)), 21, 30),
            span(Stream(Up), 21, 30),
            span(Stream(Rail(1)), 22, 23),
            span(Stream(Rail(0)), 24, 31),
        ];
        let (rows, names) = rows(&spans);
        assert_eq!(rows, [1, 0, 0, 2, 0, 1, 0, 8, 7, 5, 3, 6, 4]);
        let memory = ["memory, up", "rail 0", "rail 1", "rail 1 (2)", "rail 1, back", "memory, down"];
        assert_eq!(names, [&["calls", "operations", "operations (2)"][..], &memory].concat());
    }

    #[test]
    fn strings_and_times_are_those_of_json() {
        assert_eq!(Text("a\"b\\c\n\u{e9}").to_string(), "\"a\\\"b\\\\c\\u000a\u{e9}\"");
        assert_eq!(Micros(1_234_005).to_string(), "1234.005");
    }
}

//! `han trace`: what a file of `HAN_TRACE` says, in tables and as a picture.

mod event;
mod file;
mod picture;
mod spans;
mod summary;

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use file::Traced;
use spans::Window;

use crate::Result;
use crate::output::{picture_path, stdout, trace_path, write_file};

/// Most spans of a picture that is not cut out by hand.
const MOST_DRAWN: usize = 4000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file that HAN_TRACE named, or what the ranks of a job that did not end well have left (FILE.rank-N)
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Draw what was under way on each rank, and when
    #[arg(long, value_name = "OUT", value_parser = picture_path)]
    svg: Option<PathBuf>,
    /// Put the files together as one
    #[arg(long, value_name = "OUT", value_parser = trace_path)]
    merge: Option<PathBuf>,
    /// Only this call, counted from 0 on its communicator
    #[arg(long, value_name = "[COMMUNICATOR:]NUMBER", value_parser = parse_call, conflicts_with_all = ["from", "to"])]
    call: Option<(u64, u64)>,
    /// Only what comes after so many milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    from: Option<f64>,
    /// Only what comes before so many milliseconds
    #[arg(long, value_name = "MS", value_parser = parse_ms)]
    to: Option<f64>,
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let traced = Traced::read(&args.files)?;
    if let (Some(svg), Some(merge)) = (&args.svg, &args.merge)
        && is_same_file(svg, merge)
    {
        return Err(format!("--svg {} would write over the trace: name another file", svg.display()).into());
    }
    if let Some(path) = &args.merge {
        write_file(path, &traced.merged()?)?;
    }
    let spans = spans::of(&traced);
    let all = Window::of(&spans);
    let window = match args.call {
        Some(call) => {
            let window = Window::of(spans.iter().filter(|span| span.is_of(call)));
            window.ok_or_else(|| format!("there is no call {} on communicator {} here", call.1, call.0))?
        }
        None => all.unwrap_or_default().cut(args.from, args.to)?,
    };
    let mut inside = window.cut_out(&spans);
    inside.retain(|span| args.call.is_none_or(|call| span.call().is_none() || span.is_of(call)));
    let longest = spans::longest_call(&inside).filter(|_| args.svg.is_some() && inside.len() > MOST_DRAWN);
    // Before the tables, whose reader may leave early.
    if let Some(path) = &args.svg {
        let drawn = longest.as_ref().map_or(window, |longest| longest.window);
        let picture = picture::draw(&traced, &drawn.cut_out(&inside), &drawn, all.unwrap_or_default().begin_us);
        write_file(path, &picture)?;
    }
    summary::print(&traced, &spans, &inside, &window, all.unwrap_or_default())?;
    if let Some(longest) = longest {
        writeln!(
            stdout(),
            "drawn: call {} on communicator {}, the longest one (--call, --from and --to choose otherwise)",
            longest.name.number,
            longest.name.communicator
        )?;
    }
    Ok(ExitCode::SUCCESS)
}

/// True if both names lead to one file, be it by links, or to one that is not there yet.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).ok().map(|about| (about.dev(), about.ino()));
    let folder = |path: &Path| Path::new(".").join(path).parent().and_then(id);
    match (id(one), id(other)) {
        (None, None) => one.file_name() == other.file_name() && folder(one) == folder(other),
        (one, other) => one == other,
    }
}

fn parse_ms(text: &str) -> std::result::Result<f64, String> {
    let found = text.parse().ok().filter(|ms: &f64| ms.is_finite());
    found.ok_or_else(|| format!("`{text}` is no number of milliseconds"))
}

fn parse_call(text: &str) -> std::result::Result<(u64, u64), String> {
    let (communicator, number) = text.split_once(':').unwrap_or(("0", text));
    let parse = |word: &str| word.parse().map_err(|_| format!("`{text}`: give the number of a call, as 17 or 3:17"));
    Ok((parse(communicator)?, parse(number)?))
}

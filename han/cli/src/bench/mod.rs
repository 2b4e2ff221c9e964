//! `han bench`: how long a collective takes, checked as it is timed.
//!
//! Started by hand it starts itself again as a job of `han run`; under any launcher it is one rank.
//! [`series`] measures, [`pattern`] knows what must come out, [`report`] prints. What the machine
//! itself charges is the business of [`crate::limits`].

mod noise;
mod overlap;
mod pattern;
mod report;
mod series;
pub(crate) mod stats;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::ValueEnum;
use han::{Communicator, Context};
use reduce_kernels::{Byte, Complex, Datatype, Operator, Pair, bf16, f16, is_defined};
use shm_core::sys::affinity::allowed_cores;

use crate::limits;
use crate::model::noise::Spec;
use crate::output::{ReaderLeft, is_reader_left};
use pattern::Cell;
use stats::parse_bytes;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Variables of which a launcher sets at least one.
pub(crate) const LAUNCHER_VARIABLES: [&str; 3] = ["PMI_FD", "PMI_PORT", "PMI_RANK"];
/// The configuration's own variable; `--set` adds to it.
const SET_VARIABLE: &str = "HAN_SET";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to measure: barrier, bcast, reduce, allreduce, several with commas, or `all`
    #[arg(value_name = "COLL", value_delimiter = ',', value_parser = parse_selection)]
    #[arg(required_unless_present_any = ["limits", "limits_peer", "one_way"])]
    collectives: Vec<Selection>,
    /// Number of ranks to start [default: one a usable core; with several nodes two a node]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// Number of (virtual) nodes to spread the ranks over
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: Option<u32>,
    /// Command prefix for the ranks of a node, as of `han run`
    #[arg(long, value_name = "PREFIX {node}")]
    node_exec: Option<String>,
    /// Smallest message, in bytes; K, M and G are powers of 1024
    #[arg(long, value_name = "B", default_value = "4", value_parser = parse_bytes)]
    min: usize,
    /// Largest message
    #[arg(long, value_name = "B", default_value = "4M", value_parser = parse_bytes)]
    max: usize,
    /// Sizes between them: powers of this number
    #[arg(long, value_name = "F", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..))]
    factor: u32,
    /// Datatype of the elements
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = parse_datatype)]
    dtype: Datatype,
    /// Operator of reduce and allreduce
    #[arg(long, value_name = "OP", default_value = "sum", value_parser = parse_operator)]
    op: Operator,
    /// Root of bcast and reduce
    #[arg(long, value_name = "R", default_value_t = 0)]
    root: usize,
    /// Rewrite the send buffer before every iteration, outside the timed part (implies --style osu)
    #[arg(long)]
    cold: bool,
    /// How iterations follow each other
    #[arg(long, value_enum, default_value_t = Style::Loop)]
    style: Style,
    /// Take turns on this many distinct buffers
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    buffers: u32,
    /// Where the buffers lie
    #[arg(long, value_enum, default_value_t = Memory::Private)]
    alloc: Memory,
    /// Repeats of each size; minimum, median and maximum are over these
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..))]
    repeats: u32,
    /// How long one repeat lasts, about; this decides the number of iterations
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    ms: u64,
    /// Configuration of the library, as in HAN_SET; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    set: Vec<String>,
    /// Over nodes: how much of its node's work each leader hides behind that of the network, and the reverse
    #[arg(long, requires = "nodes")]
    overlap: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Delays: rank=6,ms=1[,at=MS] or uniform=0..10ms,hz=10; compares the three policies of the network on operations
    /// of --max bytes, --repeats with delays and as many without, in each of three turns
    #[arg(long, value_name = "SPEC", value_parser = Spec::parse, conflicts_with_all = ["limits", "cold", "style"])]
    noise: Option<Spec>,
    /// A plot of it, as SVG
    #[arg(long, value_name = "FILE", requires = "noise")]
    svg: Option<PathBuf>,
    /// The number of the turn; set by the process that starts the jobs
    #[arg(long, value_name = "T", default_value_t = 0, hide = true)]
    turn: u32,
    /// Measure what the machine allows, instead of a collective
    #[arg(long, conflicts_with = "collectives")]
    limits: bool,
    /// This process is a rank; set by the process that starts the job
    #[arg(long, hide = true)]
    worker: bool,
    /// This process is the second one of --limits, with the arena at this path
    #[arg(long, hide = true)]
    limits_peer: Option<PathBuf>,
    /// Print the one-way latency between these two cores
    #[arg(long, hide = true, num_args = 2, value_names = ["FIRST", "SECOND"])]
    one_way: Option<Vec<usize>>,
}

/// A collective to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Collective {
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
}

impl Collective {
    const ALL: [Self; 4] = [Self::Barrier, Self::Bcast, Self::Reduce, Self::Allreduce];

    fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Bcast => "bcast",
            Self::Reduce => "reduce",
            Self::Allreduce => "allreduce",
        }
    }

    fn has_data(self) -> bool {
        self != Self::Barrier
    }

    fn has_root(self) -> bool {
        matches!(self, Self::Bcast | Self::Reduce)
    }

    fn has_operator(self) -> bool {
        matches!(self, Self::Reduce | Self::Allreduce)
    }
}

/// One word of the positional argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Selection {
    One(Collective),
    All,
}

/// How iterations follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Style {
    /// One after the other, nothing between them; the time of the loop is divided
    Loop,
    /// A barrier before each, and only the operation is timed
    Osu,
}

impl Style {
    fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Osu => "osu",
        }
    }
}

/// Where buffers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Memory {
    /// Memory of the process's own
    Private,
    /// From `Communicator::alloc`, where the other ranks can map it
    Shared,
}

impl Memory {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Shared => "shared",
        }
    }
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    if let Some(path) = &args.limits_peer {
        limits::serve(path)?;
    } else if let Some(&[first, second]) = args.one_way.as_deref() {
        limits::print_one_way(first, second)?;
    } else if args.limits {
        limits::main(args.json)?;
    } else {
        check(args)?;
        if args.worker {
            return work(args);
        }
        if let Some(spec) = args.noise {
            noise::compare(args, spec)?;
            return Ok(ExitCode::SUCCESS);
        }
        return Err(start(args));
    }
    Ok(ExitCode::SUCCESS)
}

/// Finds what is wrong with the arguments before any process is started.
fn check(args: &Args) -> Result<()> {
    if args.min > args.max {
        return Err(format!("--min {} is more than --max {}", args.min, args.max).into());
    }
    let reduces = collectives(&args.collectives).iter().any(|collective| collective.has_operator());
    if reduces && !is_defined(args.dtype, args.op) {
        let defined = Operator::ALL.into_iter().filter(|&operator| is_defined(args.dtype, operator));
        let names: Vec<_> = defined.map(Operator::name).collect();
        return Err(format!("{} is not defined on {}: choose {}", args.op, args.dtype, names.join(", ")).into());
    }
    if let Some(ranks) = args.ranks {
        check_root(args, ranks as usize)?;
    }
    args.noise.map_or(Ok(()), |spec| noise::check(args, spec))
}

fn check_root(args: &Args, ranks: usize) -> Result<()> {
    if args.root >= ranks {
        return Err(format!("--root {}: the ranks are 0 to {}", args.root, ranks - 1).into());
    }
    Ok(())
}

/// How many ranks are meant where nobody says: one a usable core of one node, two on each of several.
pub(crate) fn default_ranks(nodes: Option<u32>) -> usize {
    match nodes {
        Some(nodes @ 2..) => 2 * nodes as usize,
        _ => allowed_cores().map_or(1, |cores| cores.len()),
    }
}

/// Becomes the job (or, under a launcher, the rank) that measures; returns only with an error.
fn start(args: &Args) -> Box<dyn std::error::Error> {
    let own_arguments = std::env::args_os().skip(1).chain([OsString::from("--worker")]);
    let executable = match std::env::current_exe() {
        Ok(path) => path,
        Err(error) => return error.into(),
    };
    let mut command = Command::new(&executable);
    if LAUNCHER_VARIABLES.iter().all(|name| std::env::var_os(name).is_none()) {
        let ranks = args.ranks.map_or_else(|| default_ranks(args.nodes), |ranks| ranks as usize);
        command.args(["run", "-n", &ranks.to_string()]);
        if let Some(nodes) = args.nodes {
            command.args(["--nodes", &nodes.to_string()]);
        }
        if let Some(prefix) = &args.node_exec {
            command.args(["--node-exec", prefix]);
        }
        command.arg("--").arg(executable);
    }
    command.args(own_arguments);
    with_settings(&mut command, &args.set);
    command.exec().into()
}

/// Gives `command` the settings, behind those of this process.
pub(crate) fn with_settings(command: &mut Command, settings: &[String]) {
    if !settings.is_empty() {
        let inherited = std::env::var(SET_VARIABLE).ok().filter(|text| !text.is_empty());
        let settings: Vec<_> = inherited.iter().chain(settings).map(String::as_str).collect();
        command.env(SET_VARIABLE, settings.join(","));
    }
}

/// One rank of the benchmark.
fn work(args: &Args) -> Result<ExitCode> {
    let context = Context::init()?;
    let ranks = context.world().size();
    if let Some(wanted) = args.ranks.filter(|&wanted| wanted as usize != ranks) {
        return Err(format!("-n {wanted}, but the launcher started {ranks} ranks").into());
    }
    check_root(args, ranks)?;
    if args.overlap {
        let measured = measure_overlap(args, &context);
        context.finalize()?;
        return measured.map(|()| ExitCode::SUCCESS);
    }
    let measured = match args.dtype {
        Datatype::Int8 => measure::<i8>(args, &context),
        Datatype::Int16 => measure::<i16>(args, &context),
        Datatype::Int32 => measure::<i32>(args, &context),
        Datatype::Int64 => measure::<i64>(args, &context),
        Datatype::Uint8 => measure::<u8>(args, &context),
        Datatype::Uint16 => measure::<u16>(args, &context),
        Datatype::Uint32 => measure::<u32>(args, &context),
        Datatype::Uint64 => measure::<u64>(args, &context),
        Datatype::Float16 => measure::<f16>(args, &context),
        Datatype::Bfloat16 => measure::<bf16>(args, &context),
        Datatype::Float => measure::<f32>(args, &context),
        Datatype::Double => measure::<f64>(args, &context),
        Datatype::ComplexFloat => measure::<Complex<f32>>(args, &context),
        Datatype::ComplexDouble => measure::<Complex<f64>>(args, &context),
        Datatype::Bool => measure::<bool>(args, &context),
        Datatype::Byte => measure::<Byte>(args, &context),
        Datatype::FloatInt => measure::<Pair<f32>>(args, &context),
        Datatype::DoubleInt => measure::<Pair<f64>>(args, &context),
        Datatype::LongInt => measure::<Pair<i64>>(args, &context),
        Datatype::TwoInt => measure::<Pair<i32>>(args, &context),
        Datatype::ShortInt => measure::<Pair<i16>>(args, &context),
    };
    // Where the reader has left, all ranks have stopped.
    if measured.as_ref().map_or_else(|error| is_reader_left(&**error), |_| true) {
        context.finalize()?;
    }
    Ok(if measured? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Measures what overlaps of every collective asked for that has data.
fn measure_overlap(args: &Args, context: &Context) -> Result<()> {
    for collective in collectives(&args.collectives).into_iter().filter(|collective| collective.has_data()) {
        let plan = overlap::Plan {
            collective: match collective {
                Collective::Reduce => han::Collective::Reduce,
                Collective::Allreduce => han::Collective::Allreduce,
                Collective::Bcast | Collective::Barrier => han::Collective::Bcast,
            },
            repeats: args.repeats,
            repeat_time: Duration::from_millis(args.ms),
            bytes: counts(collective, args, size_of::<f32>()).iter().map(|count| count * size_of::<f32>()).collect(),
            json: args.json,
        };
        overlap::run(context, &plan)?;
    }
    Ok(())
}

/// Measures and prints every collective asked for; gives whether all results were right.
fn measure<T: Cell>(args: &Args, context: &Context) -> Result<bool> {
    let communicator = context.world();
    if let Some(spec) = args.noise {
        return noise::rank::<T>(args, spec, communicator);
    }
    let cores = series::common_cores(communicator)?;
    let mut verified = true;
    for collective in collectives(&args.collectives) {
        let plan = series::Plan {
            collective,
            operator: args.op,
            root: args.root,
            // A buffer that is rewritten between iterations needs them to be timed one by one.
            style: if args.cold { Style::Osu } else { args.style },
            cold: args.cold,
            buffers: args.buffers as usize,
            memory: args.alloc,
            repeats: args.repeats,
            repeat_time: Duration::from_millis(args.ms),
            counts: counts(collective, args, size_of::<T>()),
        };
        let before = series::probe(communicator, &cores)?;
        let points = series::run::<T>(communicator, &plan)?;
        let after = series::probe(communicator, &cores)?;
        let mut printed = Ok(());
        verified &= points.iter().all(|point| point.verified);
        if communicator.rank() == 0 {
            let report = report::Report {
                plan: &plan,
                datatype: T::DATATYPE,
                ranks: communicator.size(),
                nodes: context.node_count(),
                cores: &cores,
                one_way_ns: (before, after),
                points: &points,
            };
            printed = if args.json { report.print_json() } else { report.print_table() };
        }
        stop_together(communicator, printed)?;
    }
    Ok(verified)
}

/// Ends the measurement on all ranks if rank 0 could not print because its reader has left: no rank shall find
/// another one dead.
fn stop_together(communicator: &Communicator, printed: Result<()>) -> Result<()> {
    let has_left = matches!(&printed, Err(error) if is_reader_left(&**error));
    if !has_left {
        printed?;
    }
    let mut left = [u8::from(has_left)];
    communicator.bcast(&mut left, 0)?;
    if left[0] == 0 { Ok(()) } else { Err(ReaderLeft.into()) }
}

/// Element counts from `--min` to `--max`.
fn counts(collective: Collective, args: &Args, element_bytes: usize) -> Vec<usize> {
    if !collective.has_data() {
        return vec![0];
    }
    let factor = args.factor as usize;
    let mut counts = Vec::new();
    let (mut bytes, mut power) = (args.min, 1usize);
    while bytes <= args.max {
        let count = if bytes == 0 { 0 } else { (bytes / element_bytes).max(1) };
        if counts.last() != Some(&count) {
            counts.push(count);
        }
        while power <= bytes {
            match power.checked_mul(factor) {
                Some(next) => power = next,
                None => return counts,
            }
        }
        bytes = power;
    }
    counts
}

/// The collectives that the words select, each once.
fn collectives(selections: &[Selection]) -> Vec<Collective> {
    let chosen = |collective| selections.iter().any(|&s| s == Selection::All || s == Selection::One(collective));
    Collective::ALL.into_iter().filter(|&collective| chosen(collective)).collect()
}

fn parse_selection(text: &str) -> std::result::Result<Selection, String> {
    if text == "all" {
        return Ok(Selection::All);
    }
    let found = Collective::ALL.into_iter().find(|collective| collective.name() == text);
    found.map(Selection::One).ok_or_else(|| {
        let names = Collective::ALL.map(Collective::name);
        format!("there is no collective `{text}` here: choose all, {}", names.join(", "))
    })
}

fn parse_datatype(text: &str) -> std::result::Result<Datatype, String> {
    Datatype::from_name(text).ok_or_else(|| {
        let names = Datatype::ALL.map(Datatype::name);
        format!("there is no datatype `{text}`: choose {}", names.join(", "))
    })
}

fn parse_operator(text: &str) -> std::result::Result<Operator, String> {
    Operator::from_name(text).ok_or_else(|| {
        let names = Operator::ALL.map(Operator::name);
        format!("there is no operator `{text}`: choose {}", names.join(", "))
    })
}

pub(crate) fn parse_setting(text: &str) -> std::result::Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() && !text.contains(',') => Ok(text.to_owned()),
        _ => Err("a setting is KEY=VALUE, without commas; `han info` lists the keys".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> std::result::Result<Args, clap::Error> {
        Line::try_parse_from(["bench"].iter().chain(words)).map(|line| line.args)
    }

    #[test]
    fn collectives_come_alone_in_lists_and_all_together() {
        let of = |words: &[&str]| parse(words).map(|args| collectives(&args.collectives));
        assert!(of(&["bcast"]).is_ok_and(|c| c == [Collective::Bcast]));
        assert!(of(&["allreduce,barrier"]).is_ok_and(|c| c == [Collective::Barrier, Collective::Allreduce]));
        assert!(of(&["all"]).is_ok_and(|c| c == Collective::ALL));
        assert!(of(&["gather"]).is_err_and(|error| error.to_string().contains("allreduce")));
        assert!(of(&[]).is_err());
        assert!(of(&["--limits"]).is_ok_and(|c| c.is_empty()));
    }

    #[test]
    fn sizes_are_powers_above_the_smallest() {
        let args = parse(&["bcast", "--min", "12", "--max", "70", "--factor", "4"]).expect("valid");
        assert_eq!(counts(Collective::Bcast, &args, 4), [3, 4, 16]);
        let args = parse(&["bcast", "--min", "0", "--max", "32"]).expect("valid");
        assert_eq!(counts(Collective::Bcast, &args, 16), [0, 1, 2]);
        assert_eq!(counts(Collective::Barrier, &args, 16), [0]);
    }

    #[test]
    fn wrong_arguments_are_named_before_anything_starts() {
        let text = |words: &[&str]| match parse(words) {
            Ok(args) => check(&args).err().map(|error| error.to_string()).unwrap_or_default(),
            Err(error) => error.to_string(),
        };
        assert!(text(&["reduce", "--dtype", "f32", "--op", "band"]).contains("sum, prod, min, max"));
        assert!(text(&["bcast", "--dtype", "float"]).contains("bf16"));
        assert!(text(&["reduce", "--op", "plus"]).contains("maxloc"));
        assert!(text(&["reduce", "-n", "4", "--root", "4"]).contains("0 to 3"));
        assert!(text(&["reduce", "--min", "8K", "--max", "1K"]).contains("--max"));
        assert!(text(&["reduce", "--set", "chunk"]).contains("KEY=VALUE"));
        assert!(text(&["barrier", "--repeats", "4"]).contains("repeats"));
        assert_eq!(text(&["bcast", "--dtype", "byte"]), "");
    }
}

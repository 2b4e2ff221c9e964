//! The arguments of `han bench`.

use std::path::PathBuf;

use clap::ValueEnum;
use reduce_kernels::{Collective, Datatype, Operator, is_defined};

use super::{Result, noise};
use crate::effect;
use crate::model::noise::Spec;
use crate::named::find;
use crate::numbers::parse_bytes;
use crate::whole::{MOST_RANKS, within};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to measure: barrier, bcast, reduce, allreduce, several with commas, or `all`
    #[arg(value_name = "COLL", value_delimiter = ',', value_parser = parse_selection)]
    #[arg(required_unless_present_any = ["limits", "limits_peer", "one_way"])]
    pub(super) collectives: Vec<Selection>,
    /// Number of ranks to start [default: one a usable core; with several nodes two a node]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = within(1..=MOST_RANKS))]
    pub(super) ranks: Option<u32>,
    /// Number of (virtual) nodes to spread the ranks over
    #[arg(long, value_name = "K", value_parser = within(1..=MOST_RANKS))]
    pub(super) nodes: Option<u32>,
    /// Command prefix for the ranks of a node, as of `han run`
    #[arg(long, value_name = "PREFIX {node}", value_parser = crate::run::prefix)]
    pub(super) node_exec: Option<String>,
    /// Smallest message, in bytes; K, M and G are powers of 1024. Sizes are rounded down to whole elements, of which
    /// there is at least one unless B is 0 [default: 4, or --max if that is less]
    #[arg(long, value_name = "B", value_parser = parse_bytes)]
    min: Option<usize>,
    /// Largest message [default: 4M, or --min if that is more]
    #[arg(long, value_name = "B", value_parser = parse_bytes)]
    max: Option<usize>,
    /// Sizes between them: powers of this number
    #[arg(long, value_name = "F", default_value_t = 2, value_parser = within(2..=u32::MAX))]
    pub(super) factor: u32,
    /// Datatype of the elements
    #[arg(long, value_name = "TYPE", default_value = "f32", value_parser = parse_datatype)]
    pub(super) dtype: Datatype,
    /// Operator of reduce and allreduce
    #[arg(long, value_name = "OP", default_value = "sum", value_parser = parse_operator)]
    pub(super) op: Operator,
    /// Root of bcast and reduce
    #[arg(long, value_name = "R", default_value_t = 0)]
    pub(super) root: usize,
    /// Rewrite the send buffer before every iteration, outside the timed part (implies --style osu)
    #[arg(long)]
    pub(super) cold: bool,
    /// How iterations follow each other [default: loop]
    #[arg(long, value_enum)]
    pub(super) style: Option<Style>,
    /// Take turns on this many distinct buffers
    #[arg(long, value_name = "M", default_value_t = 1, value_parser = within(1..=1024_u32))]
    pub(super) buffers: u32,
    /// Where the buffers lie
    #[arg(long, value_enum, default_value_t = Memory::Private)]
    pub(super) alloc: Memory,
    /// Repeats of each size; minimum, median and maximum are over these
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = within(5..=u32::MAX))]
    pub(super) repeats: u32,
    /// How long one repeat lasts, about; this decides the number of iterations
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = within(1..=60_000_u64))]
    pub(super) ms: u64,
    /// Configuration of the library, as in HAN_SET; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    pub(super) set: Vec<String>,
    /// Over nodes: how much of its node's work each leader hides behind that of the network, and the reverse, with
    /// the maximum of f32
    #[arg(long, requires = "nodes", conflicts_with_all = ["dtype", "op", "root", "cold", "style", "buffers", "alloc"])]
    pub(super) overlap: bool,
    /// One JSON object a line
    #[arg(long)]
    pub(super) json: bool,
    /// Delays: rank=6,ms=1[,at=MS] or uniform=0..10ms,hz=10; compares the three policies of the network on operations
    /// of --max bytes, --repeats with delays and as many without, in each of three turns
    #[arg(long, value_name = "SPEC", value_parser = Spec::parse, conflicts_with_all = ["limits", "cold", "style", "overlap"])]
    #[arg(conflicts_with_all = ["min", "factor", "buffers", "ms"])]
    pub(super) noise: Option<Spec>,
    /// A plot of --noise or --overlap, as SVG
    #[arg(long, value_name = "FILE", value_parser = crate::output::picture_path)]
    pub(super) svg: Option<PathBuf>,
    /// All settings of the job, in place of those of --set; set by the process that starts the jobs of --noise
    #[arg(long, value_name = "KEY=VALUE,...", hide = true)]
    pub(super) settings: Option<String>,
    /// The number of the turn; set by the process that starts the jobs
    #[arg(long, value_name = "T", default_value_t = 0, hide = true)]
    pub(super) turn: u32,
    /// Measure what the machine allows, instead of a collective
    #[arg(long, conflicts_with_all = NOT_OF_LIMITS)]
    pub(super) limits: bool,
    /// This process is a rank; set by the process that starts the job
    #[arg(long, hide = true)]
    pub(super) worker: bool,
    /// This process is the second one of --limits, with the arena at this path
    #[arg(long, hide = true)]
    pub(super) limits_peer: Option<PathBuf>,
    /// Print the one-way latency between these two cores
    #[arg(long, hide = true, num_args = 2, value_names = ["FIRST", "SECOND"])]
    pub(super) one_way: Option<Vec<usize>>,
}

impl Args {
    /// Bytes of the smallest message.
    pub(super) fn min(&self) -> usize {
        self.min.unwrap_or_else(|| self.max.map_or(MIN, |max| MIN.min(max)))
    }

    /// Bytes of the largest message.
    pub(super) fn max(&self) -> usize {
        self.max.unwrap_or_else(|| self.min.map_or(MAX, |min| MAX.max(min)))
    }
}

/// Bytes of the smallest message, unless something else is said.
const MIN: usize = 4;
/// Bytes of the largest message, unless something else is said.
const MAX: usize = 4 << 20;

/// What `--limits` has no use for: two processes measure, always the same.
const NOT_OF_LIMITS: [&str; 19] = [
    "collectives",
    "ranks",
    "nodes",
    "node_exec",
    "min",
    "max",
    "factor",
    "dtype",
    "op",
    "root",
    "style",
    "cold",
    "buffers",
    "alloc",
    "repeats",
    "ms",
    "set",
    "overlap",
    "svg",
];

/// One word of the positional argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    One(Collective),
    All,
}

/// How iterations follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Style {
    /// One after the other, nothing between them; the time of the loop is divided
    Loop,
    /// A barrier before each, and only the operation is timed
    Osu,
}

impl Style {
    pub(super) fn name(self) -> &'static str {
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

/// The collectives that the words select, each once.
pub(super) fn collectives(selections: &[Selection]) -> Vec<Collective> {
    let chosen = |collective| selections.iter().any(|&s| s == Selection::All || s == Selection::One(collective));
    Collective::ALL.into_iter().filter(|&collective| chosen(collective)).collect()
}

fn parse_selection(text: &str) -> std::result::Result<Selection, String> {
    let one = Collective::ALL.map(|collective| (collective.name(), Selection::One(collective)));
    find(&[&[("all", Selection::All)], &one[..]].concat(), text, "collective")
}

pub(crate) fn parse_datatype(text: &str) -> std::result::Result<Datatype, String> {
    find(&Datatype::ALL.map(|datatype| (datatype.name(), datatype)), text, "datatype")
}

fn parse_operator(text: &str) -> std::result::Result<Operator, String> {
    find(&Operator::ALL.map(|operator| (operator.name(), operator)), text, "operator")
}

pub(crate) fn parse_setting(text: &str) -> std::result::Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.is_empty() => Ok(text.to_owned()),
        _ => Err("a setting is KEY=VALUE; `han info` lists the keys".to_owned()),
    }
}

/// Finds what is wrong with the arguments before any process is started.
pub(super) fn check(args: &Args) -> Result<()> {
    // --noise measures one length, the largest.
    let (min, max) = (args.min(), args.max());
    if args.noise.is_none() && min > max {
        return Err(format!("--min {min} is more than --max {max}").into());
    }
    if args.svg.is_some() && !args.overlap && args.noise.is_none() {
        return Err("--svg draws what --noise or --overlap measures: give one of them".into());
    }
    if args.overlap && collectives(&args.collectives) == [Collective::Barrier] {
        return Err("--overlap: a barrier has no data, so nothing overlaps".into());
    }
    if args.cold && args.style == Some(Style::Loop) {
        return Err("--cold needs iterations that are timed one by one: leave --style loop out".into());
    }
    let reduces = collectives(&args.collectives).iter().any(|collective| collective.reduces());
    if reduces && !is_defined(args.dtype, args.op) {
        let defined = Operator::ALL.into_iter().filter(|&operator| is_defined(args.dtype, operator));
        let names: Vec<_> = defined.map(Operator::name).collect();
        return Err(format!("{} is not defined on {}: choose {}", args.op, args.dtype, names.join(", ")).into());
    }
    if let Some(ranks) = args.ranks {
        check_root(args.root, ranks as usize)?;
    }
    args.noise.map_or(Ok(()), |spec| noise::check(args, spec))
}

/// What was given and has no effect on the collectives that are measured. No error, as one line may be meant for all of them in turn.
pub(super) fn idle(args: &Args) -> impl Iterator<Item = String> {
    let chosen = collectives(&args.collectives);
    let options = [
        ("--root", args.root != 0, Collective::has_root as fn(Collective) -> bool),
        ("--op", args.op != Operator::Sum, Collective::reduces),
        ("--dtype", args.dtype != Datatype::Float, Collective::has_data),
        ("--buffers", args.buffers != 1, Collective::has_data),
        ("--alloc", args.alloc != Memory::Private, Collective::has_data),
    ];
    options.into_iter().filter_map(move |(option, given, is_for)| effect::check(option, given, is_for, &chosen).err())
}

/// An error for a root that so many ranks do not have.
pub(crate) fn check_root(root: usize, ranks: usize) -> std::result::Result<(), String> {
    if root < ranks { Ok(()) } else { Err(format!("--root {root}: the ranks are 0 to {}", ranks - 1)) }
}

/// Element counts from `--min` to `--max`.
pub(super) fn counts(collective: Collective, args: &Args, element_bytes: usize) -> Vec<usize> {
    if !collective.has_data() {
        return vec![0];
    }
    let factor = args.factor as usize;
    let mut counts = Vec::new();
    let (mut bytes, mut power) = (args.min(), 1usize);
    while bytes <= args.max() {
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
    fn one_bound_beyond_the_other_s_default_stands_for_both() {
        for (words, expected) in [
            (&["bcast", "--min", "16M"][..], &[16 << 20][..]),
            (&["bcast", "--max", "2"], &[2]),
            (&["bcast", "--max", "0"], &[0]),
            (&["bcast", "--min", "2M"], &[2 << 20, 4 << 20]),
            (&["bcast", "--max", "8"], &[4, 8]),
        ] {
            let args = parse(words).expect("valid");
            assert!(check(&args).is_ok(), "{words:?}");
            assert_eq!(counts(Collective::Bcast, &args, 1), expected, "{words:?}");
        }
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
        assert!(text(&["bcast", "--svg", "a.svg"]).contains("--noise or --overlap"));
        assert_eq!(text(&["bcast", "--nodes", "2", "--overlap", "--svg", "a.svg"]), "");
        assert!(text(&["barrier", "--nodes", "2", "--overlap"]).contains("nothing overlaps"));
        for words in [
            &["bcast", "--noise", "rank=1,ms=1", "--nodes", "2", "--overlap"][..],
            &["bcast", "-n", "2", "--noise", "rank=1,ms=1", "--min", "4"],
            &["bcast", "-n", "2", "--noise", "rank=1,ms=1", "--factor", "4"],
            &["bcast", "-n", "2", "--noise", "rank=1,ms=1", "--buffers", "4"],
            &["bcast", "-n", "2", "--noise", "rank=1,ms=1", "--ms", "4"],
            &["bcast", "--nodes", "2", "--overlap", "--dtype", "f64"],
            &["bcast", "--nodes", "2", "--overlap", "--op", "max"],
            &["bcast", "--nodes", "2", "--overlap", "--root", "1"],
            &["bcast", "--nodes", "2", "--overlap", "--cold"],
            &["bcast", "--nodes", "2", "--overlap", "--style", "osu"],
            &["bcast", "--nodes", "2", "--overlap", "--buffers", "2"],
            &["bcast", "--nodes", "2", "--overlap", "--alloc", "shared"],
            &["--limits", "--svg", "a.svg"],
            &["--limits", "--nodes", "2"],
            &["--limits", "-n", "4"],
            &["--limits", "--set", "spins=1"],
            &["--limits", "--nodes", "2", "--overlap"],
        ] {
            assert!(text(words).contains("cannot be used with"), "{words:?}");
        }
        assert_eq!(text(&["bcast", "--dtype", "byte"]), "");
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let told = |words: &[&str]| parse(words).map(|args| idle(&args).collect::<Vec<_>>()).expect("valid");
        assert_eq!(
            told(&["allreduce,barrier", "--root", "1"]),
            ["--root has no effect on barrier, allreduce: it is for bcast, reduce"]
        );
        let barrier = told(&["barrier", "--op", "max", "--dtype", "f64", "--buffers", "2", "--alloc", "shared"]);
        assert_eq!(barrier.len(), 4, "{barrier:?}");
        assert!(told(&["all", "--root", "1", "--op", "max", "--dtype", "f64"]).is_empty());
    }
}

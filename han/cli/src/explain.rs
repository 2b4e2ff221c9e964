//! `han explain`: what the engine would choose for a collective in a job of this machine, and why.
//!
//! Nothing is measured. The methods come from a trial of two ranks, as in `han info`, and what is known of the network from an
//! endpoint; everything else from the engine's own rules and the configuration in force.

use std::io::Write;
use std::process::{Command, ExitCode};

use han::foreseen::{Foreseen, InMemory};
use han::select::NodesForm;
use han::select::form::Choice;
use han::task::{Across, TaskShape, figure};
use han::{Collective, Config, Datatype};
use reduce_kernels::{Folding, say};
use serde::Serialize;
use shm_core::settings::KEYS;
use shm_core::{Circumstances, Explanation, Question, explain};

use crate::Result;
use crate::bench::{Memory, check_root, configured, default_ranks, fit, own_words, parse_datatype, parse_setting};
use crate::effect;
use crate::info::{tell_doubts, trial};
use crate::named;
use crate::numbers::parse_bytes;
use crate::output::{counted, stdout};
use crate::run::{prefix, prefix_words};
use crate::status::ranges_text;
use crate::whole::{MOST_RANKS, within};

/// The collectives that need a length.
const WITH_DATA: [(&str, &str); 3] = [("collective", "bcast"), ("collective", "reduce"), ("collective", "allreduce")];
/// The datatypes that are taken unless one is given: the first of which a vector has a whole number.
const DEFAULTS: [Datatype; 3] = [Datatype::Float, Datatype::Uint16, Datatype::Uint8];
/// The setting by which leaders reduce and broadcast instead of an allreduce.
const SPLIT: &str = "inter_allreduce_algorithm=ir+ib";
/// Keys of a node's engine that say something of the network, too.
const OF_BOTH_LEVELS: [&str; 3] = ["assume_own_cores", "timeout_s", "topology"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to explain: barrier, bcast, reduce or allreduce
    #[arg(value_name = "COLL", value_parser = named::collective)]
    collective: Collective,
    /// Length of a rank's vector, in bytes; K, M and G are powers of 1024. A barrier has none
    #[arg(value_name = "BYTES", value_parser = parse_bytes, required_if_eq_any = WITH_DATA)]
    bytes: Option<usize>,
    /// Number of ranks [default: one a usable core; with several nodes two a node]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = within(1..=MOST_RANKS))]
    ranks: Option<u32>,
    /// Number of nodes; several are connected by the network
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = within(1..=MOST_RANKS))]
    nodes: u32,
    /// Command prefix for the ranks of a node, as of `han run`: the network is looked at behind it, as on node 0
    #[arg(long, value_name = "PREFIX {node}", requires = "nodes", value_parser = prefix)]
    node_exec: Option<String>,
    /// Root of bcast and reduce [default: 0]; an error for the others
    #[arg(long, value_name = "R")]
    root: Option<usize>,
    /// Datatype of the elements; all operators of a datatype that commute are carried out alike [default:
    /// the first of f32, u16 and u8 of which BYTES is a multiple]
    #[arg(long, value_name = "TYPE", value_parser = parse_datatype)]
    dtype: Option<Datatype>,
    /// The operator does not commute: it is one of the program's own, which keeps rank order
    #[arg(long)]
    non_commutative: bool,
    /// Where the buffers lie
    #[arg(long, value_enum, default_value_t = Memory::Private)]
    alloc: Memory,
    /// The result takes the place of what is sent
    #[arg(long)]
    in_place: bool,
    /// Draw the tasks of both levels, iteration by iteration
    #[arg(long, conflicts_with = "json")]
    plan: bool,
    /// Configuration of the library, as in HAN_SET; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_setting)]
    set: Vec<String>,
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// This process is behind the prefix; set by the one before it
    #[arg(long, hide = true)]
    on_node: bool,
}

impl Args {
    fn root(&self) -> usize {
        self.root.unwrap_or(0)
    }

    fn bytes(&self) -> usize {
        self.bytes.filter(|_| self.collective.has_data()).unwrap_or(0)
    }

    fn dtype(&self) -> Datatype {
        let fits = |dtype: &Datatype| self.bytes().is_multiple_of(dtype.size());
        self.dtype.or_else(|| DEFAULTS.into_iter().find(fits)).unwrap_or(DEFAULTS[0])
    }

    /// Why the datatype is another one than usual, if nobody has asked for it.
    fn point_of_dtype(&self) -> Option<explain::Point> {
        let (dtype, usual, bytes) = (self.dtype(), DEFAULTS[0], self.bytes());
        let because = || format!("{usual} has {} bytes, of which {bytes} is no multiple", usual.size());
        (self.dtype.is_none() && dtype != usual)
            .then(|| explain::Point::new("datatype", dtype.name(), because(), "--dtype"))
    }

    fn reduces(&self) -> bool {
        self.collective.reduces()
    }
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let config = configured(&args.set)?;
    tell_doubts(&config);
    if args.plan && args.nodes < 2 {
        return Err("--plan draws what several nodes do: give their number by --nodes".into());
    }
    if let Some(prefix) = args.node_exec.as_ref().filter(|_| !args.on_node) {
        return on_first_node(prefix);
    }
    let ranks = args.ranks.map_or_else(|| default_ranks(Some(args.nodes)), |ranks| ranks as usize);
    fit(ranks, args.nodes)?;
    check_effect(args)?;
    check_root(args.root(), ranks)?;
    check_length(args)?;
    if args.nodes > 1 {
        return between_nodes(args, config, ranks);
    }
    let methods = trial::methods(&config, &args.set)?;
    let mut explanation = Circumstances::here(0..ranks, config.settings, &methods)?.explain(question(args));
    explanation.points.extend(args.point_of_dtype());
    if args.json {
        writeln!(stdout(), "{}", serde_json::to_string(&Line::of(&explanation))?)?;
    } else {
        write!(stdout(), "{explanation}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What is asked of the engine of a node, were all ranks on one.
fn question(args: &Args) -> Question {
    Question {
        collective: args.collective,
        bytes: args.bytes(),
        root: args.root(),
        mapped: args.alloc == Memory::Shared,
        in_place: args.in_place,
        folding: match args.dtype() {
            _ if args.non_commutative => Folding::InOrder,
            // A sum, as far as anybody has said.
            dtype if dtype.is_short_float() => Folding::AtOnce,
            _ => Folding::Free,
        },
    }
}

/// An error for an option that the collective has no use for.
fn check_effect(args: &Args) -> Result<()> {
    for (option, given, is_for) in [
        ("--root", args.root.is_some(), Collective::has_root as fn(Collective) -> bool),
        ("--dtype", args.dtype.is_some(), Collective::has_data),
        ("--alloc shared", args.alloc == Memory::Shared, Collective::has_data),
        ("--in-place", args.in_place, Collective::reduces),
        ("--non-commutative", args.non_commutative, Collective::reduces),
    ] {
        effect::check(option, given, is_for, &[args.collective])?;
    }
    Ok(())
}

/// An error for a length that no call with the given datatype can have, and a note where there is no data.
fn check_length(args: &Args) -> Result<()> {
    let (coll, bytes, dtype) = (args.collective, args.bytes(), args.dtype());
    if let Some(idle @ 1..) = args.bytes.filter(|_| !coll.has_data()) {
        say(&format!("han explain: {coll} has no data, so its length of {idle} bytes has no effect"));
    }
    let size = dtype.size();
    if args.reduces() && !bytes.is_multiple_of(size) {
        let why = format!("{bytes} bytes are no whole number of {dtype}, which has {size}");
        return Err(format!("{why}: give a multiple, or another --dtype").into());
    }
    Ok(())
}

/// What would be chosen for ranks on several nodes.
fn between_nodes(args: &Args, config: Config, ranks: usize) -> Result<ExitCode> {
    let nodes = args.nodes as usize;
    if ranks < nodes {
        return Err(format!("{nodes} nodes need at least as many ranks, but -n is {ranks}").into());
    }
    let bytes = args.bytes();
    let foreseen = Foreseen::here((ranks, nodes), args.on_node, config.clone())?;
    let mut choice = chosen(args, &foreseen);
    choice.points.splice(..0, args.point_of_dtype());
    let points = &choice.points;
    let (in_memory, no_effect) = match choice.form {
        NodesForm::Flat => (Vec::new(), said_of_memory(args, &config)),
        NodesForm::Hierarchical => {
            let methods = trial::methods(&config, &args.set)?;
            (foreseen.in_memory(&choice, question(args), &methods)?, Vec::new())
        }
    };
    let mut out = stdout();
    if args.json {
        let line = NetworkLine {
            coll: args.collective.name(),
            bytes,
            ranks,
            nodes,
            root: args.root(),
            choice: choice.to_string(),
            points: points.iter().map(Point::from).collect(),
            in_memory: in_memory.iter().map(TaskLine::of).collect(),
            no_effect,
        };
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let coll = args.collective;
    let (ranks, nodes) = (counted(ranks, "rank"), counted(nodes, "node"));
    let how = match choice.form {
        NodesForm::Flat => "all over the network",
        NodesForm::Hierarchical => "on both levels",
    };
    writeln!(out, "{coll} of {bytes} bytes by {ranks} on {nodes}, {how}: {choice}")?;
    for point in points {
        let change = if point.change.starts_with("HAN_") || point.change.starts_with("--") { "" } else { "HAN_SET=" };
        writeln!(out, "  {} is {}: {} ({change}{}=...)", point.what, point.value, point.because, point.change)?;
    }
    if !no_effect.is_empty() {
        writeln!(out, "  nothing is done in the memory of a node, so these have no effect: {}", no_effect.join(", "))?;
    }
    for InMemory { kind, nodes: of, explanation } in &in_memory {
        let (plural, of) = (if of.len() == 1 { "" } else { "s" }, ranges_text(of));
        let text = explanation.to_string();
        writeln!(out, "in memory, {kind} on node{plural} {of}: {}", text.trim_end().replace('\n', "\n  "))?;
    }
    match (args.plan, choice.form) {
        (true, NodesForm::Hierarchical) => {
            let draw =
                |shape: &TaskShape| figure::draw(foreseen.layout(), shape).map_err(|why| format!("--plan: {why}"));
            write!(out, "{}", draw(&choice.shape)?)?;
            if coll == Collective::Allreduce && choice.shape.across == Across::Whole {
                let split = chosen(args, &foreseen.with(SPLIT)?);
                writeln!(out, "\nthe same with HAN_SET={SPLIT}: ia, between nodes, as ir and ib")?;
                write!(out, "{}", draw(&split.shape)?)?;
            }
        }
        (true, NodesForm::Flat) => {
            writeln!(out, "there is no plan of tasks to draw: it is one operation of all ranks")?
        }
        (false, _) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// What `job` would choose.
fn chosen(args: &Args, job: &Foreseen) -> Choice {
    job.explain(args.collective, args.bytes(), args.dtype(), !args.non_commutative, args.root())
}

/// What was asked for that says something of the memory of a node alone.
fn said_of_memory(args: &Args, config: &Config) -> Vec<String> {
    let shared = (args.alloc == Memory::Shared).then(|| "--alloc shared".to_owned());
    let in_place = args.in_place.then(|| "--in-place".to_owned());
    let is_of_memory = |key: &str| KEYS.iter().any(|(known, _)| *known == key) && !OF_BOTH_LEVELS.contains(&key);
    let set = config.entries().into_iter().filter(|entry| entry.origin == "HAN_SET" && is_of_memory(entry.key));
    shared.into_iter().chain(in_place).chain(set.map(|entry| format!("{}={}", entry.key, entry.value))).collect()
}

/// Replaces this process by itself on the first node, behind the prefix.
fn on_first_node(prefix: &str) -> Result<ExitCode> {
    use std::os::unix::process::CommandExt;
    let words: Vec<String> = prefix_words(prefix, 0).collect();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(std::env::current_exe()?).args(own_words(["--on-node"]));
    Err(format!("--node-exec: {}: {}", words[0], command.exec()).into())
}

/// The object of `--json` for several nodes.
#[derive(Serialize)]
struct NetworkLine<'a> {
    coll: &'static str,
    bytes: usize,
    ranks: usize,
    nodes: usize,
    root: usize,
    choice: String,
    points: Vec<Point<'a>>,
    in_memory: Vec<TaskLine<'a>>,
    /// Options and settings.
    no_effect: Vec<String>,
}

/// What nodes do in their memory.
#[derive(Serialize)]
struct TaskLine<'a> {
    task: &'static str,
    nodes: &'a [usize],
    #[serde(flatten)]
    line: Line<'a>,
}

impl<'a> TaskLine<'a> {
    fn of(InMemory { kind, nodes, explanation }: &'a InMemory) -> Self {
        // Each node has a leader of its own.
        Self { task: kind.name(), nodes, line: Line { root: None, ..Line::of(explanation) } }
    }
}

/// The object of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    coll: &'static str,
    bytes: usize,
    ranks: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    root: Option<usize>,
    own_cores: bool,
    alloc: &'static str,
    in_place: bool,
    choice: &'static str,
    points: Vec<Point<'a>>,
}

#[derive(Serialize)]
struct Point<'a> {
    what: &'a str,
    value: &'a str,
    because: &'a str,
    change: &'a str,
}

impl<'a> From<&'a explain::Point> for Point<'a> {
    fn from(point: &'a explain::Point) -> Self {
        Self { what: point.what, value: &point.value, because: &point.because, change: &point.change }
    }
}

impl<'a> Line<'a> {
    fn of(explanation: &'a Explanation) -> Self {
        let Question { collective, bytes, root, mapped, in_place, .. } = explanation.question;
        Self {
            coll: collective.name(),
            bytes,
            ranks: explanation.ranks,
            root: Some(root),
            own_cores: explanation.own_cores,
            alloc: if mapped { Memory::Shared } else { Memory::Private }.name(),
            in_place,
            choice: explanation.choice,
            points: explanation.points.iter().map(Point::from).collect(),
        }
    }
}

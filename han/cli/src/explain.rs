//! `han explain`: what the engine would choose for a collective in a job of this machine, and why.
//!
//! Nothing is measured. The methods come from a trial of two ranks, as in `han info`; everything else from the
//! engine's own rules and the configuration in force.

use std::io::Write;
use std::process::ExitCode;

use han::select::form::{Form, OverNodes};
use han::select::tuned;
use han::task::{Across, Layout, Shape, figure};
use han::{Collective, Config};
use net_fabric::algorithm::Topology;
use serde::Serialize;
use shm_core::sys::affinity::allowed_cores;
use shm_core::{Circumstances, Explanation, Question};

use crate::bench::{Memory, default_ranks, parse_setting, stats::parse_bytes};
use crate::info::{tell_misspelled, trial};
use crate::output::stdout;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The collectives that need a length.
const WITH_DATA: [(&str, &str); 3] = [("collective", "bcast"), ("collective", "reduce"), ("collective", "allreduce")];
/// Most ranks of one node.
const MOST_RANKS: usize = shm_core::job::MAX_RANKS;
/// The setting by which leaders reduce and broadcast instead of an allreduce.
const SPLIT: &str = "HAN_SET=inter_allreduce_algorithm=ir+ib";
/// Bytes of an element of the vector in question, a `double`.
const ELEMENT_BYTES: usize = 8;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to explain: barrier, bcast, reduce or allreduce
    #[arg(value_name = "COLL", value_parser = parse_collective)]
    collective: Collective,
    /// Length of a rank's vector, in bytes; K, M and G are powers of 1024
    #[arg(value_name = "BYTES", value_parser = parse_bytes, required_if_eq_any = WITH_DATA)]
    bytes: Option<usize>,
    /// Number of ranks [default: one a usable core; with several nodes two a node]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// Number of nodes; several are connected by the network
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
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
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let mut config = Config::from_environment()?;
    tell_misspelled(&config);
    args.set.iter().try_for_each(|pair| config.set_all(pair))?;
    if args.plan && args.nodes < 2 {
        return Err("--plan draws what several nodes do: give their number by --nodes".into());
    }
    if args.nodes > 1 {
        return between_nodes(args, &config);
    }
    let methods = trial::methods(&config, &args.set)?;
    let ranks = args.ranks.map_or_else(|| default_ranks(None), |ranks| ranks as usize);
    if ranks > MOST_RANKS {
        return Err(format!("-n {ranks}: one node has at most {MOST_RANKS} ranks; --nodes spreads them").into());
    }
    let question = Question {
        collective: args.collective,
        bytes: args.bytes.unwrap_or(0),
        mapped: args.alloc == Memory::Shared,
        in_place: args.in_place,
        keeps_order: false,
    };
    let explanation = Circumstances::here(ranks, config.settings, &methods)?.explain(question);
    if args.json {
        writeln!(stdout(), "{}", serde_json::to_string(&Line::of(&explanation))?)?;
    } else {
        write!(stdout(), "{explanation}")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What would be chosen for ranks on several nodes.
fn between_nodes(args: &Args, config: &Config) -> Result<ExitCode> {
    let nodes = args.nodes as usize;
    let ranks = args.ranks.map_or_else(|| default_ranks(Some(args.nodes)), |ranks| ranks as usize);
    if ranks < nodes {
        return Err(format!("{nodes} nodes need at least as many ranks, but -n is {ranks}").into());
    }
    // Blocks of ranks, as `han run` places them.
    let places: Vec<usize> = (0..ranks).map(|rank| rank * nodes / ranks).collect();
    let (topology, layout) = (Topology::new(&[&places]), Layout::new(&places));
    let bytes = args.bytes.unwrap_or(0);
    let cores = Cores::of(ranks, config)?;
    let question = OverNodes {
        collective: args.collective,
        count: bytes.div_ceil(ELEMENT_BYTES),
        element_bytes: ELEMENT_BYTES,
        commutative: true,
        reproducible: config.settings.reproducible,
        root: 0,
        shares_cores: cores.are_shared,
        wire_mbit_s: None,
        layout: &layout,
        topology: Some(&topology),
    };
    let mut choice = tuned::explain(&question, &config.inter, config.tuning.as_deref(), None);
    choice.points.push(cores.point());
    let points = &choice.points;
    let mut out = stdout();
    if args.json {
        let line = NetworkLine {
            coll: args.collective.name(),
            bytes,
            ranks,
            nodes,
            choice: choice.to_string(),
            points: points
                .iter()
                .map(|p| Point { what: p.what, value: &p.value, because: &p.because, change: p.change })
                .collect(),
        };
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let coll = args.collective;
    let how = match choice.form {
        Form::Flat => "all over the network",
        Form::Hierarchical => "on both levels",
    };
    writeln!(out, "{coll} of {bytes} bytes by {ranks} ranks on {nodes} nodes, {how}: {choice}")?;
    for point in points {
        let change = if point.change == "HAN_TUNING" { "" } else { "HAN_SET=" };
        writeln!(out, "  {} is {}: {} ({change}{}=...)", point.what, point.value, point.because, point.change)?;
    }
    match (args.plan, choice.form) {
        (true, Form::Hierarchical) => {
            write!(out, "{}", figure::draw(&layout, &choice.shape))?;
            if coll == Collective::Allreduce && choice.shape.across == Across::Whole {
                writeln!(out, "\nthe same with {SPLIT}: ia, between nodes, as ir and ib")?;
                write!(out, "{}", figure::draw(&layout, &Shape { across: Across::Split, ..choice.shape }))?;
            }
        }
        (true, Form::Flat) => writeln!(out, "there is no plan of tasks to draw: it is one operation of all ranks")?,
        (false, _) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether ranks of several nodes share cores, and why.
struct Cores {
    are_shared: bool,
    because: String,
}

impl Cores {
    /// As in a job of `han run` here, which plays all nodes on this machine.
    fn of(ranks: usize, config: &Config) -> Result<Self> {
        let (are_shared, because) = match (config.settings.assume_own_cores, &config.settings.topology) {
            (Some(own), _) => (!own, "the setting says so".to_owned()),
            (None, Some(_)) => (false, "each node is a machine as described".to_owned()),
            (None, None) => {
                let cores = allowed_cores()?.len();
                (ranks > cores, format!("this machine plays all nodes: {ranks} ranks, {cores} cores"))
            }
        };
        Ok(Self { are_shared, because })
    }

    fn point(self) -> han::select::Point {
        let value = if self.are_shared { "shared" } else { "own" }.to_owned();
        han::select::Point { what: "core", value, because: self.because, change: "assume_own_cores" }
    }
}

/// The object of `--json` for several nodes.
#[derive(Serialize)]
struct NetworkLine<'a> {
    coll: &'static str,
    bytes: usize,
    ranks: usize,
    nodes: usize,
    choice: String,
    points: Vec<Point<'a>>,
}

/// The object of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    coll: &'static str,
    bytes: usize,
    ranks: usize,
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

impl<'a> Line<'a> {
    fn of(explanation: &'a Explanation) -> Self {
        let Question { collective, bytes, mapped, in_place, .. } = explanation.question;
        let points = explanation.points.iter();
        Self {
            coll: collective.name(),
            bytes,
            ranks: explanation.ranks,
            own_cores: explanation.own_cores,
            alloc: if mapped { Memory::Shared } else { Memory::Private }.name(),
            in_place,
            choice: explanation.choice,
            points: points
                .map(|p| Point { what: p.what, value: &p.value, because: &p.because, change: &p.change })
                .collect(),
        }
    }
}

fn parse_collective(text: &str) -> std::result::Result<Collective, String> {
    let names = Collective::ALL.map(Collective::name);
    let found = Collective::ALL.into_iter().find(|collective| collective.name() == text);
    found.ok_or_else(|| format!("there is no collective `{text}` here: choose {}", names.join(", ")))
}

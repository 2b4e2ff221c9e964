//! `han explain`: what the engine would choose for a collective in a job of this machine, and why.
//!
//! Nothing is measured. The methods come from a trial of two ranks, as in `han info`; everything else from the
//! engine's own rules and the configuration in force.

use std::io::Write;
use std::process::ExitCode;

use han::{Collective, Config};
use serde::Serialize;
use shm_core::sys::affinity::allowed_cores;
use shm_core::{Circumstances, Explanation, Question};

use crate::bench::{Memory, stats::parse_bytes};
use crate::info::trial;
use crate::output::stdout;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The collectives that need a length.
const WITH_DATA: [(&str, &str); 3] = [("collective", "bcast"), ("collective", "reduce"), ("collective", "allreduce")];
/// Most ranks of one node.
const MOST_RANKS: i64 = 256;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What to explain: barrier, bcast, reduce or allreduce
    #[arg(value_name = "COLL", value_parser = parse_collective)]
    collective: Collective,
    /// Length of a rank's vector, in bytes; K, M and G are powers of 1024
    #[arg(value_name = "BYTES", value_parser = parse_bytes, required_if_eq_any = WITH_DATA)]
    bytes: Option<usize>,
    /// Number of ranks [default: one a usable core]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_RANKS))]
    ranks: Option<u32>,
    /// Where the buffers lie
    #[arg(long, value_enum, default_value_t = Memory::Private)]
    alloc: Memory,
    /// The result takes the place of what is sent
    #[arg(long)]
    in_place: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let config = Config::from_environment()?;
    let methods = trial::methods(&config)?;
    let ranks = args.ranks.map_or_else(|| allowed_cores().map_or(1, |cores| cores.len()), |ranks| ranks as usize);
    let question = Question {
        collective: args.collective,
        bytes: args.bytes.unwrap_or(0),
        mapped: args.alloc == Memory::Shared,
        in_place: args.in_place,
    };
    let explanation = Circumstances::here(ranks, config.settings, &methods)?.explain(question);
    if args.json {
        writeln!(stdout(), "{}", serde_json::to_string(&Line::of(&explanation))?)?;
    } else {
        write!(stdout(), "{explanation}")?;
    }
    Ok(ExitCode::SUCCESS)
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
        let Question { collective, bytes, mapped, in_place } = explanation.question;
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

//! `han model`: what collectives would take on a machine that is only described.
//!
//! Every number comes from a simulation of all ranks, each with the schedule and the engine that it would really
//! have. `net-fabric/docs/models.md` has the formulas and the sources of the shipped parameters.

mod choice;
mod lists;
pub(crate) mod noise;
pub(crate) mod plot;
mod report;
pub(crate) mod study;
mod tasks;
mod verify;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::ArgPredicate;
use han::files::read_text;
use net_fabric::algorithm::{Algorithm, Collective};
use net_fabric::engine::Policy;
use net_fabric::model::closed::Terms;
use net_fabric::model::{self, Case};
use net_fabric::transport::simulated::{Layout, Machine, Model, Noise};

use crate::Result;
use crate::bench::check_root;
use crate::effect;
use crate::named;
use crate::tune::{HowArgs, validate};
use crate::whole::within;
use choice::Way;
use lists::{Counts, Sizes};
pub(crate) use report::Equation;
use report::Row;

#[derive(clap::Args)]
#[command(mut_group("HowArgs", |how| how.requires("validate")))]
pub(crate) struct Args {
    /// What to predict: barrier, bcast, reduce or allreduce
    #[arg(value_name = "COLL", value_parser = named::collective, required = false)]
    #[arg(required_unless_present = "validate", default_value_if("validate", ArgPredicate::IsPresent, "allreduce"))]
    collective: Collective,
    /// Numbers of nodes: 64, or 8,16,24, or 8..4096 for all doublings
    #[arg(long, value_name = "N[,..]", value_parser = Counts::parse, default_value = "2")]
    nodes: Counts,
    /// Numbers of ranks of each node, as for --nodes
    #[arg(long, value_name = "P[,..]", value_parser = Counts::parse, default_value = "1")]
    #[arg(default_value_if("validate", ArgPredicate::IsPresent, "2"))]
    ppn: Counts,
    /// What other subcommands take, and this one cannot: it has many shapes
    #[arg(short = 'n', hide = true, value_parser = |_: &str| Err::<usize, _>("give --nodes N and --ppn P, the ranks of each"))]
    _ranks: Option<usize>,
    /// Lengths of the vector in bytes: 8, or 8,4K,1M, or 8..64K for all doublings [default: 8]
    #[arg(long, value_name = "B[,..]", value_parser = Sizes::parse)]
    #[arg(default_value_if("validate", ArgPredicate::IsPresent, "4M"))]
    bytes: Option<Sizes>,
    /// Algorithms, by name [default: all that do this]; nodes/A for the tasks of both levels with A among leaders, nodes-L/A
    /// with L leaders on each node, nodes/A+B for an allreduce whose ir is done by A and whose ib by B
    #[arg(long, value_name = "A[,..]", value_delimiter = ',')]
    algorithm: Vec<String>,
    /// Parameters of the machine: a file, or blue-waters, lassen or generic
    #[arg(long, value_name = "FILE", default_value = "generic")]
    parameters: String,
    /// Cost model [default: the one that the parameters name]
    #[arg(long, value_name = "MODEL", value_parser = choice::parse_model)]
    model: Option<Model>,
    /// How ranks work through their schedules: blocking, wait-all, event, or event:SENDS,RECEIVES
    #[arg(long, value_name = "POLICY", default_value = "event", value_parser = choice::parse_policy)]
    policy: Policy,
    /// Bytes of a pipelined piece [default: 64K]
    #[arg(long, value_name = "BYTES", value_parser = lists::parse_piece)]
    chunk: Option<usize>,
    /// Bytes of a chunk that goes through both levels, with nodes/A [default: 256K]
    #[arg(long, value_name = "BYTES", value_parser = lists::parse_piece)]
    segment: Option<usize>,
    /// Root of bcast and reduce [default: 0]
    #[arg(long, value_name = "R")]
    root: Option<usize>,
    /// Delays: rank=6,ms=1[,at=MS | ,hz=HZ] or uniform=0..10ms,hz=10; compares the three policies of one --algorithm
    #[arg(long, value_name = "SPEC", value_parser = noise::Spec::parse)]
    noise: Option<noise::Spec>,
    /// Operations that are simulated with other draws of the noise each [default: 20]
    #[arg(long, value_name = "N", requires = "noise", value_parser = within(1..=u32::MAX))]
    repeats: Option<u32>,
    /// Prove the schedules of these algorithms instead: 1 to 64 ranks, all roots, 1 to 5 chunks (`quick`: fewer cases
    /// above 16 ranks)
    #[arg(long, value_name = "HOW", num_args = 0..=1, default_missing_value = "quick")]
    #[arg(conflicts_with_all = ["noise", "svg", "against", "nodes", "ppn", "bytes"])]
    #[arg(conflicts_with_all = ["parameters", "model", "policy", "chunk", "segment", "root"])]
    verify: Option<verify::Extent>,
    /// How many times as long the others take as this algorithm, in place of microseconds
    #[arg(long, value_name = "A", conflicts_with = "noise")]
    against: Option<String>,
    /// A plot, as SVG
    #[arg(long, value_name = "FILE", value_parser = crate::output::picture_path)]
    svg: Option<PathBuf>,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
    /// Run a job of --nodes x --ppn (virtual) ranks, and set what the costs of its tasks and messages predict beside what it takes
    /// [default with it: allreduce of 4M by 2 x 2]
    #[arg(long, conflicts_with_all = ["noise", "verify", "against"])]
    #[arg(conflicts_with_all = ["algorithm", "parameters", "model", "policy", "chunk", "segment", "root"])]
    validate: bool,
    /// With --validate: all configurations that `han tune` searches, in place of those of its --quick
    #[arg(long, requires = "validate")]
    full: bool,
    #[command(flatten)]
    how: HowArgs,
}

impl Args {
    fn chunk(&self) -> usize {
        self.chunk.unwrap_or(64 << 10)
    }

    fn root(&self) -> usize {
        self.root.unwrap_or(0)
    }
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    if args.validate {
        return validated(args);
    }
    let ways = choice::ways(args.collective, &args.algorithm)?;
    if let Some(extent) = args.verify {
        return verify::main(args, extent, &choice::flat(&ways)?);
    }
    check(args, &ways)?;
    let machine = machine(args)?;
    if let Some(noise) = &args.noise {
        study::compare(args, &machine, &choice::flat(&ways)?, noise)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = rows(args, &machine, &ways)?;
    if let Some(against) = &args.against {
        if !rows.iter().any(|row| row.algorithm == *against) {
            return Err(format!("--against {against}: name it with --algorithm too, beside those to compare").into());
        }
        report::compare(&mut rows, against);
    }
    let printed =
        if args.json { report::print_json(args, &machine, &rows) } else { report::print(args, &machine, &rows) };
    // Drawn also where the reader of the table has left.
    if let Some(path) = &args.svg {
        plot::lines(path, args, &machine, &rows)?;
    }
    printed.map(|()| ExitCode::SUCCESS)
}

/// Finds what the worlds that were asked for do not have, before the first one is simulated.
fn check(args: &Args, ways: &[Way]) -> Result<()> {
    for (option, given, is_for) in [
        ("--root", args.root.is_some(), Collective::has_root as fn(Collective) -> bool),
        ("--bytes", args.bytes.is_some(), Collective::has_data),
        ("--chunk", args.chunk.is_some(), Collective::has_data),
        ("--segment", args.segment.is_some(), Collective::has_data),
    ] {
        effect::check(option, given, is_for, &[args.collective])?;
    }
    if args.segment.is_some() && !ways.iter().any(|way| matches!(way, Way::Tasks(_))) {
        return Err("--segment is for tasks of both levels: name one with --algorithm, as nodes/A".into());
    }
    if args.repeats.is_some() && args.noise.is_some_and(noise::Spec::is_once) {
        return Err("--repeats is for delays that are drawn: this one is the same each time".into());
    }
    for (nodes, ppn) in shapes(args) {
        check_root(args.root(), Layout::new(nodes, ppn)?.ranks())?;
    }
    if args.svg.is_some() && args.noise.is_none() && shapes(args).count() * sizes(args).len() < 2 {
        return Err("--svg draws lines: give several numbers of --nodes, of --ppn or of --bytes".into());
    }
    Ok(())
}

/// Lengths of the vector: a barrier has no bytes.
fn sizes(args: &Args) -> &[usize] {
    let unsaid: &[usize] = if args.collective.has_data() { &[8] } else { &[0] };
    args.bytes.as_ref().map_or(unsaid, Sizes::values)
}

/// All nodes x ranks of each.
fn shapes(args: &Args) -> impl Iterator<Item = (usize, usize)> {
    args.ppn.values().iter().flat_map(|&ppn| args.nodes.values().iter().map(move |&nodes| (nodes, ppn)))
}

/// The model of tasks beside measurements of a real job.
fn validated(args: &Args) -> Result<ExitCode> {
    let (&[nodes], &[ppn], &[bytes]) = (args.nodes.values(), args.ppn.values(), sizes(args)) else {
        return Err("--validate runs one job: give one number of --nodes, of --ppn and of --bytes".into());
    };
    validate::main(&validate::Question {
        collective: args.collective,
        bytes,
        nodes: u32::try_from(nodes)?,
        ranks_per_node: u32::try_from(ppn)?,
        is_full: args.full,
        how: &args.how,
        svg: args.svg.as_ref(),
        json: args.json,
    })
}

fn machine(args: &Args) -> Result<Machine> {
    let name = &args.parameters;
    let machine = if Machine::shipped_names().any(|shipped| shipped == name) {
        Machine::shipped(name)?
    } else {
        let text = read_text(Path::new(name)).map_err(|error| {
            let names: Vec<_> = Machine::shipped_names().collect();
            format!("--parameters {name}: {error}; give a file, or {}", names.join(", "))
        })?;
        Machine::parse(&text).map_err(|error| format!("--parameters {name}: {error}"))?
    };
    Ok(match args.model {
        Some(model) => machine.under(model)?,
        None => machine,
    })
}

/// A case of the command line without noise.
fn case(args: &Args, algorithm: Algorithm, (nodes, ppn): (usize, usize), bytes: usize) -> Result<Case> {
    Ok(Case {
        layout: Layout::new(nodes, ppn)?,
        collective: args.collective,
        algorithm,
        root: args.root(),
        bytes,
        chunk_bytes: args.chunk(),
        policy: args.policy,
        noise: Noise::None,
    })
}

/// All that was asked for, one after the other.
fn rows(args: &Args, machine: &Machine, ways: &[Way]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for shape @ (nodes, ppn) in shapes(args) {
        for &bytes in sizes(args) {
            for way in ways {
                // What is refused is so for these sizes only: the others are still of interest.
                let (outcome, equation) = match *way {
                    Way::Flat(algorithm) => {
                        let case = case(args, algorithm, shape, bytes)?;
                        let terms = Terms::of(machine, case.layout, bytes);
                        let prediction = model::simulate(machine, &case).map_err(|error| error.to_string());
                        (prediction, terms.and_then(|terms| Equation::of(&case, &terms)))
                    }
                    Way::Tasks(tasks) => {
                        let case = case(args, tasks.across, shape, bytes)?;
                        (tasks::simulate(machine, &case, tasks, args.segment.unwrap_or(256 << 10)), None)
                    }
                };
                rows.push(Row { nodes, ppn, bytes, algorithm: way.to_string(), outcome, equation, ratio: None });
            }
        }
    }
    if let [Row { outcome: Err(error), .. }] = &rows[..] {
        return Err(error.clone().into());
    }
    Ok(rows)
}

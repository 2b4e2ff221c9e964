//! `han tune`: measures which configurations are best for collectives over several nodes, and writes the tuning file.
//!
//! Started by hand it starts itself again as a job of `han run`, whose rank 0 tells how far it is; under any launcher
//! it is one rank. All ranks search together: what each measures is the same on all, so all go on alike.

mod bar;
mod file;
mod flat;
mod ranks;
mod report;
pub(crate) mod validate;
mod worker;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use han::select::is_searched;
use han::tune::{Method, Space};
use han::{Collective, Config};

use crate::Result;
use crate::bench::{Memory, SET_VARIABLE, fit, is_rank, no_prefix, own_words};
use crate::named;
use crate::numbers::parse_bytes;
use crate::whole::{MOST_RANKS, within};

/// The longest vectors of the whole search, and of the quick one.
const LONGEST: (usize, usize) = (16 << 20, 4 << 20);

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// What to tune, with commas between
    #[arg(long, value_name = "COLL[,..]", value_delimiter = ',', default_value = "bcast,reduce,allreduce")]
    #[arg(value_parser = named::collective)]
    collectives: Vec<Collective>,
    /// Smallest vector, in bytes; K, M and G are powers of 1024
    #[arg(long, value_name = "B", default_value = "4", value_parser = parse_bytes)]
    min: usize,
    /// Largest vector [default: 16M, or 4M with --quick]
    #[arg(long, value_name = "B", value_parser = parse_bytes)]
    max: Option<usize>,
    /// Fewer lengths, chunks and algorithms: an impression in a minute
    #[arg(long)]
    quick: bool,
    /// How to search: exhaustive, heuristic, task or task+heuristics
    #[arg(long, value_name = "METHOD", default_value = "task", value_parser = parse_method)]
    method: Method,
    /// Search by every method, and measure what each has found in turns; the file gets what the first has found
    #[arg(long, conflicts_with = "method")]
    compare: bool,
    /// Search nothing: measure the built-in rules and all ranks on the network in turns; an error if the rules are more
    /// than 5 % slower somewhere
    #[arg(long, conflicts_with_all = ["method", "compare", "resume", "out"])]
    against_flat: bool,
    /// The tuning file; what it has for other shapes of jobs, and for other collectives, stays
    #[arg(long, value_name = "FILE", default_value = "han-tuning.toml")]
    out: PathBuf,
    /// Go on with a search that was interrupted
    #[arg(long)]
    resume: bool,
}

/// The job that measures.
#[derive(clap::Args)]
pub(crate) struct JobArgs {
    /// Number of ranks to start [default: two a node]
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = within(2..=MOST_RANKS))]
    pub(crate) ranks: Option<u32>,
    /// Number of (virtual) nodes to spread the ranks over
    #[arg(long, value_name = "K", default_value_t = 2, value_parser = within(2..=MOST_RANKS))]
    pub(crate) nodes: u32,
    #[command(flatten)]
    pub(crate) how: HowArgs,
}

/// How it measures.
#[derive(clap::Args)]
pub(crate) struct HowArgs {
    /// Command prefix for the ranks of a node, as of `han run`
    #[arg(long, value_name = "PREFIX {node}", value_parser = crate::run::prefix)]
    pub(crate) node_exec: Option<String>,
    /// Where the buffers lie
    #[arg(long, value_enum, default_value_t = Memory::Private)]
    pub(crate) alloc: Memory,
    /// How long one measurement lasts, about, but at most 50 operations; each is made several times
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = within(1..=60_000_u64))]
    pub(crate) ms: u64,
    /// Configuration of the library that is not tuned, as in HAN_SET; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = crate::bench::parse_setting)]
    pub(crate) set: Vec<String>,
    /// This process is a rank; set by the process that starts the job
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
    /// Rank 0 writes how far it is; set by the process that draws it
    #[arg(long, hide = true)]
    pub(crate) report_progress: bool,
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let max = args.max.unwrap_or(if args.quick { LONGEST.1 } else { LONGEST.0 });
    if args.min > max {
        return Err(format!("--min {} is more than --max {max}", args.min).into());
    }
    if Space::new((2, 2), &args.collectives, (args.min, max), args.quick).cases().next().is_none() {
        return Err(format!(
            "--min {}, --max {max}: nothing to measure: the shortest length is --min in whole elements of 4 bytes",
            args.min
        )
        .into());
    }
    if args.job.how.worker {
        return ranks::work(args, (args.min, max));
    }
    // What is wrong with files is found before any process is started.
    if !args.against_flat {
        file::check(&args.out, args.resume)?;
    }
    let ranks = args.job.ranks.unwrap_or(2 * args.job.nodes);
    if !ranks.is_multiple_of(args.job.nodes) {
        return Err(format!(
            "{ranks} ranks are not spread evenly over {} nodes, so no shape is measured",
            args.job.nodes
        )
        .into());
    }
    become_job(ranks as usize, args.job.nodes, &args.job.how, &args.collectives)
}

/// Runs this very command as a job, and draws how far it is; under a launcher it only becomes a rank.
pub(crate) fn become_job(ranks: usize, nodes: u32, how: &HowArgs, collectives: &[Collective]) -> Result<ExitCode> {
    fit(ranks, nodes)?;
    leaves_open(&how.set, collectives)?;
    let executable = std::env::current_exe()?;
    let mut command = Command::new(&executable);
    // What is tuned must not be decided by a file.
    command.env_remove("HAN_TUNING");
    if is_rank(true) {
        use std::os::unix::process::CommandExt;
        no_prefix(how.node_exec.as_deref())?;
        return Err(command.args(own_words(["--worker"])).exec().into());
    }
    let parent = std::process::id().to_string();
    command.args(["run", "--with-parent", &parent, "-n", &ranks.to_string(), "--nodes", &nodes.to_string()]);
    if let Some(prefix) = &how.node_exec {
        command.args(["--node-exec", prefix]);
    }
    command.arg("--").arg(executable).args(own_words(["--worker", "--report-progress"]));
    bar::follow(command)
}

/// Refuses settings of what is compared: the file could not say that they hold.
fn leaves_open(set: &[String], collectives: &[Collective]) -> Result<()> {
    // Whatever the configuration, these reductions would go one and the same way.
    if collectives.iter().any(|collective| collective.reduces())
        && std::env::var("HAN_REPRODUCIBLE").is_ok_and(|value| value == "1")
    {
        return Err("HAN_REPRODUCIBLE=1 is set, and leaves reductions over nodes one way only: leave it out".into());
    }
    let mut config = Config::default();
    let inherited = std::env::var(SET_VARIABLE).unwrap_or_default();
    [&inherited].into_iter().chain(set).try_for_each(|pairs| config.set_all(pairs))?;
    match config.inter.assignments().find(|(key, _)| is_searched(key)) {
        Some((key, value)) => {
            Err(format!("{key}={value} is set, and is what configurations differ in: leave it out").into())
        }
        None => Ok(()),
    }
}

fn parse_method(text: &str) -> std::result::Result<Method, String> {
    named::find(&Method::NAMES, text, "method")
}

//! The binary `han`: starts jobs (`run`), measures them and the machine's limits (`bench`), tells what
//! this machine offers (`info`), what would be chosen for a collective (`explain`), what collectives would take on
//! a machine that is only described (`model`), what is best for jobs over several nodes (`tune`), what the local jobs
//! are doing (`status`) and what a job has recorded (`trace`).
//!
//! One module a subcommand; each has its `Args` and a `main` that returns the exit code or an error.

mod bench;
mod effect;
mod explain;
mod info;
mod limits;
mod manual;
mod model;
mod output;
mod run;
mod status;
mod trace;
mod tune;
mod whole;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use output::ended;

/// Collective communication on CPUs: launcher and tools.
#[derive(Parser)]
#[command(name = "han", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start N processes of a program as one job
    Run(run::Args),
    /// Measure a collective, or with --limits what the hardware allows
    Bench(bench::Args),
    /// Show topology, copy methods and configuration of this machine
    Info(info::Args),
    /// Show what would be chosen for a collective, and why
    Explain(explain::Args),
    /// Predict collectives on a described machine, by simulation
    Model(model::Args),
    /// Measure the best configurations for several nodes, and write the tuning file
    Tune(tune::Args),
    /// Show the local jobs: each rank's current operation and its age
    Status(status::Args),
    /// Tables and a picture of what HAN_TRACE has recorded
    Trace(trace::Args),
    /// Write the manual pages of these subcommands; for `make install`
    #[command(hide = true)]
    Manual(manual::Args),
}

fn main() -> ExitCode {
    // What looks like an option and is a number is a value, which is judged where it belongs.
    let command = Cli::command().mut_subcommands(|one| one.allow_negative_numbers(true));
    let read = Cli::from_arg_matches(&command.get_matches());
    match read.unwrap_or_else(|error| error.exit()).command {
        Command::Run(args) => run::main(&args),
        Command::Bench(args) => ended("bench", bench::main(&args)),
        Command::Info(args) => ended("info", info::main(&args)),
        Command::Explain(args) => ended("explain", explain::main(&args)),
        Command::Model(args) => ended("model", model::main(&args)),
        Command::Tune(args) => ended("tune", tune::main(&args)),
        Command::Status(args) => ended("status", status::main(&args)),
        Command::Trace(args) => ended("trace", trace::main(&args)),
        Command::Manual(args) => ended("manual", manual::main(&args, Cli::command())),
    }
}

//! The binary `han`: starts jobs (`run`), measures them and the machine's limits (`bench`), tells what
//! this machine offers (`info`), what would be chosen for a collective (`explain`), what collectives would take on
//! a machine that is only described (`model`), what is best for jobs over several nodes (`tune`), what the local jobs
//! are doing (`status`) and what a job has recorded (`trace`).
//!
//! Each subcommand has a module with its `Args` and a `main` that returns the exit code or an error; the other modules are
//! what they share.

// They panic where nothing can be written; `say` and `output::stdout` do not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod bench;
mod effect;
mod explain;
mod info;
mod limits;
mod manual;
mod model;
mod named;
mod numbers;
mod output;
mod run;
mod status;
mod tables;
mod trace;
mod tune;
mod whole;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use output::{ended, said};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

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
    /// Show your jobs on this node: each rank's current operation and its age
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
    let read = command
        .try_get_matches_from(run::with_np(std::env::args_os()))
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let (name, outcome) = match read.map(|cli| cli.command) {
        Err(error) if error.use_stderr() => error.exit(),
        Err(asked_for) => ("han", said(&asked_for)),
        Ok(Command::Run(args)) => return run::main(&args),
        Ok(Command::Bench(args)) => ("han bench", bench::main(&args)),
        Ok(Command::Info(args)) => ("han info", info::main(&args)),
        Ok(Command::Explain(args)) => ("han explain", explain::main(&args)),
        Ok(Command::Model(args)) => ("han model", model::main(&args)),
        Ok(Command::Tune(args)) => ("han tune", tune::main(&args)),
        Ok(Command::Status(args)) => ("han status", status::main(&args)),
        Ok(Command::Trace(args)) => ("han trace", trace::main(&args)),
        Ok(Command::Manual(args)) => ("han manual", manual::main(&args, Cli::command())),
    };
    ended(name, outcome)
}

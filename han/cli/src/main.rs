//! The binary `han`: starts jobs (`run`), measures them and the machine's limits (`bench`), tells what
//! this machine offers (`info`), what would be chosen for a collective (`explain`) and what the local jobs
//! are doing (`status`).
//!
//! One module a subcommand; each has its `Args` and a `main` that returns the exit code or an error.

mod bench;
mod explain;
mod info;
mod limits;
mod output;
mod run;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
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
    /// Show the local jobs: each rank's current operation and its age
    Status(status::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::main(args),
        Command::Bench(args) => ended("bench", bench::main(&args)),
        Command::Info(args) => ended("info", info::main(&args)),
        Command::Explain(args) => ended("explain", explain::main(&args)),
        Command::Status(args) => ended("status", status::main(&args)),
    }
}

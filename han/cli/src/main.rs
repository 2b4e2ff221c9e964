//! The binary `han`: starts jobs (`run`), measures them and the machine's limits (`bench`), tells what
//! this machine offers (`info`) and what the local jobs are doing (`status`).
//!
//! One module a subcommand; each has its `Args` and a `main` that returns the exit code.

mod bench;
mod info;
mod limits;
mod run;
mod status;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

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
    /// Show the local jobs: each rank's current operation and its age
    Status(status::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Run(args) => run::main(args),
        Command::Bench(args) => bench::main(args),
        Command::Info(args) => info::main(args),
        Command::Status(args) => status::main(args),
    }
}

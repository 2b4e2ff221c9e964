//! `bench-tables`: writes the tables and plots of measurements that `bench-peers` has kept once more.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use benches::Result;
use benches::record::Record;
use benches::report;
use clap::Parser;

/// Writes tables and plots beside files of measurements.
#[derive(Parser)]
#[command(name = "bench-tables")]
struct Args {
    /// Files that bench-peers has written
    #[arg(required = true, value_name = "FILE.json")]
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    for file in Args::parse().files {
        match write(&file) {
            Ok(page) => println!("{}", page.display()),
            Err(error) => {
                eprintln!("bench-tables: {error}");
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn write(file: &Path) -> Result<PathBuf> {
    report::write(&Record::load(file)?, file)
}

//! `bench-tables`: writes the tables and plots of measurements that `bench-peers` has kept once more.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use benches::Result;
use benches::record::Record;
use benches::{report, summary};
use clap::Parser;

/// Writes tables and plots beside files of measurements.
#[derive(Parser)]
#[command(name = "bench-tables")]
struct Args {
    /// Files that bench-peers has written
    #[arg(required = true, value_name = "FILE.json")]
    files: Vec<PathBuf>,
    /// Writes nothing: prints one table of all of them, with the number of cells in which han is behind, the least and the
    /// middle ratio
    #[arg(long)]
    summary: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.summary {
        return summarize(&args.files);
    }
    let mut code = ExitCode::SUCCESS;
    for file in args.files {
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

fn summarize(files: &[PathBuf]) -> ExitCode {
    let records: Result<Vec<_>> = files.iter().map(|file| Ok((file.as_path(), Record::load(file)?))).collect();
    match records {
        Ok(records) => {
            print!("{}", summary::markdown(&records));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench-tables: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(file: &Path) -> Result<PathBuf> {
    report::write(&Record::load(file)?, file)
}

//! `bench-tables`: our own numbers beside the machine's limits, as markdown; `make bench` runs it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use benches::Result;
use benches::job::{self, Row, Task};
use benches::machine::{self, State};
use benches::table::{Table, bytes_text, us_text};
use clap::Parser;
use serde::Deserialize;

/// The collectives with data; the barrier has a line of its own.
const COLLECTIVES: [&str; 3] = ["bcast", "reduce", "allreduce"];
/// Seconds that one series may take.
const LIMIT_S: u64 = 300;

/// Prints our own numbers beside the machine's limits.
#[derive(Parser)]
#[command(name = "bench-tables")]
struct Args {
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    ranks: Vec<usize>,
    /// Largest message in bytes
    #[arg(long, default_value_t = 4 << 20)]
    max: usize,
    /// Length of a repeat in milliseconds
    #[arg(long, default_value_t = 20)]
    ms: u64,
    /// How iterations follow each other: loop, osu, cold
    #[arg(long, default_value = "loop")]
    style: String,
    /// The binary `han` [default: the one beside this program]
    #[arg(long)]
    han: Option<PathBuf>,
}

/// A line of `han bench --limits --json`.
#[derive(Deserialize)]
struct Limit {
    limit: String,
    bytes: Option<usize>,
    value: f64,
    unit: String,
}

fn main() -> ExitCode {
    match print(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-tables: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print(args: &Args) -> Result<()> {
    let han = args.han.clone().map_or_else(machine::own_han, Ok)?;
    println!("{} | {} | {} style\n", machine::date()?, machine::name(), args.style);
    println!("{}", limits_table(&limits(&han)?).markdown());
    for &ranks in &args.ranks {
        let task = |collectives: &[&str]| Task {
            ranks,
            collectives: collectives.iter().map(|&name| name.to_owned()).collect(),
            min: 4,
            max: args.max,
            factor: 4,
            repeats: 7,
            ms: args.ms,
            style: args.style.clone(),
        };
        let before = machine::one_way_ns(&han)?;
        let mut all = COLLECTIVES.to_vec();
        if args.style != "cold" {
            all.insert(0, "barrier");
        }
        let rows = job::run(&mut task(&all).for_han(&han, LIMIT_S))?;
        let after = machine::one_way_ns(&han)?;
        let state = State::between(before, after).name();
        println!("### {ranks} ranks, microseconds; one-way latency {before:.0} and {after:.0} ns ({state})\n");
        if let Some(barrier) = rows.iter().find(|row| row.coll == "barrier") {
            println!("barrier: {} (chosen: {})\n", us_text(Some(barrier.us_median)), barrier.choice);
        }
        println!("{}", times_table(&rows).markdown());
    }
    Ok(())
}

fn limits(han: &Path) -> Result<Vec<Limit>> {
    let output = Command::new(han).args(["bench", "--limits", "--json"]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    String::from_utf8(output.stdout)?.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

fn limits_table(limits: &[Limit]) -> Table {
    let mut table = Table::new(["limit", "bytes", "value", "unit"]);
    for limit in limits {
        let bytes = limit.bytes.map_or_else(|| "-".to_owned(), bytes_text);
        table.add([limit.limit.clone(), bytes, format!("{:.1}", limit.value), limit.unit.clone()]);
    }
    table
}

/// A row for each size, for each collective the median and what was chosen.
fn times_table(rows: &[Row]) -> Table {
    let heads = COLLECTIVES.iter().flat_map(|&name| [name, "chosen"]);
    let mut table = Table::new(["bytes"].into_iter().chain(heads));
    let sizes: BTreeSet<usize> = rows.iter().filter(|row| row.coll != "barrier").map(|row| row.bytes).collect();
    for bytes in sizes {
        let cells = COLLECTIVES.iter().flat_map(|&name| {
            let row = rows.iter().find(|row| row.coll == name && row.bytes == bytes);
            [us_text(row.map(|row| row.us_median)), row.map_or("-", |row| &row.choice).to_owned()]
        });
        table.add(std::iter::once(bytes_text(bytes)).chain(cells));
    }
    table
}

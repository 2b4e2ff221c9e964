//! `bench-applications`: the examples asp and gradient with han and with the rivals, taking turns in one run.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use benches::applications::{self, Times};
use benches::contestants::{self, Contestant, Places};
use benches::network::{Network, Rate};
use benches::testbed::{self, Testbed};
use benches::{Result, machine};
use clap::Parser;

/// Times what applications spend communicating; prints tables, and keeps them with the measurements if told where.
#[derive(Parser)]
#[command(name = "bench-applications")]
struct Args {
    /// Numbers of nodes: ranks run on network namespaces of this machine (benches/testbed), which needs root; 1 is
    /// this machine itself
    #[arg(long, value_delimiter = ',', default_value = "2,4", value_parser = clap::value_parser!(u8).range(1..))]
    nodes: Vec<u8>,
    /// What each node's cable carries: like 10gbit, or 0 for no limit
    #[arg(long, value_delimiter = ',', default_value = "0")]
    rates: Vec<Rate>,
    /// Ranks on each node
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..))]
    ppn: u8,
    /// Rivals: installed, best, all, none, or beginnings of names
    #[arg(long, value_delimiter = ',', default_value = "best")]
    contestants: Vec<String>,
    /// How often everybody has a turn
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Start no further turn after this many seconds
    #[arg(long, default_value_t = 900)]
    budget: u64,
    /// Seconds that one turn may take
    #[arg(long, default_value_t = 60)]
    timeout: u64,
    /// Seconds to wait for others to leave the machine alone before a turn starts all the same
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// Where the rivals are installed
    #[arg(long, default_value = ".peers")]
    rivals: PathBuf,
    /// The script that makes nodes
    #[arg(long, default_value = "benches/testbed")]
    testbed: PathBuf,
    /// The directory of the examples' data
    #[arg(long, default_value = "examples/data")]
    data: PathBuf,
    /// Where han and collbench/ are [default: the directory of this program]
    #[arg(long)]
    release: Option<PathBuf>,
    /// Keep the measurements in this file, and the tables beside it as .md
    #[arg(long, value_name = "FILE.json")]
    save: Option<PathBuf>,
}

fn main() -> ExitCode {
    match compare(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-applications: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &Args) -> Result<()> {
    let places = Places::of(args.release.as_deref(), &args.rivals, &args.testbed)?;
    let asp = places.programs.join("han-asp");
    if !asp.exists() {
        return Err(format!("{} is missing: run `make collbench`, or give --release", asp.display()).into());
    }
    let data = fs::canonicalize(&args.data).map_err(|error| format!("{}: {error}", args.data.display()))?;
    let start = Instant::now();
    let (mut all, mut failures) = (Vec::new(), 0);
    for round in 0..args.rounds {
        for network in networks(args) {
            let testbed = network.map(|network| Testbed::up_to_measure(&places.testbed, network)).transpose()?;
            let ranks = usize::from(args.ppn) * network.map_or(1, |network| network.nodes);
            for application in applications::ALL {
                for contestant in contestants(args, &places, ranks, network.is_some(), round) {
                    if start.elapsed().as_secs() > args.budget {
                        eprintln!("bench-applications: the budget is spent in round {round} of {}", args.rounds);
                        return finish(args, &all, failures);
                    }
                    let job = application.job(&contestant, &places, &data, ranks, network);
                    let mut command = contestant.start(&places, &job, machine::cores(), args.timeout);
                    if let Some(testbed) = &testbed {
                        testbed.enter(&mut command);
                    }
                    let quiet = machine::wait_for_quiet(Duration::from_secs(args.patience));
                    let name = &contestant.name;
                    match application.run(&mut command) {
                        Ok((total_s, communicating_s, result)) => {
                            eprintln!(
                                "round {round}, {} on {}: {name}: {:.1} of {:.1} ms communicating",
                                application.name,
                                benches::job::world(ranks, network.as_ref()),
                                communicating_s * 1e3,
                                total_s * 1e3
                            );
                            let (application, contestant) = (application.name.to_owned(), name.clone());
                            all.push(Times {
                                application,
                                contestant,
                                ranks,
                                network,
                                round,
                                total_s,
                                communicating_s,
                                quiet,
                                result,
                            });
                        }
                        Err(error) => {
                            failures += 1;
                            eprintln!("bench-applications: {} with {name}: {error}", application.name);
                        }
                    }
                }
            }
        }
    }
    finish(args, &all, failures)
}

/// Where everything is run.
fn networks(args: &Args) -> Vec<Option<Network>> {
    let of = |nodes: u8| -> Vec<Option<Network>> {
        let several = |rate: &Rate| Some(Network { nodes: nodes.into(), rate: *rate });
        if nodes == 1 { vec![None] } else { args.rates.iter().map(several).collect() }
    };
    args.nodes.iter().flat_map(|&nodes| of(nodes)).collect()
}

/// Those who take part, each round another one first.
fn contestants(args: &Args, places: &Places, ranks: usize, over_nodes: bool, round: u32) -> Vec<Contestant> {
    let all = if over_nodes { contestants::over_nodes() } else { contestants::all(&["malloc".to_owned()]) };
    let meant = all.into_iter().filter(|contestant| contestant.is_meant(&args.contestants));
    let mut all: Vec<_> = meant
        .filter(|contestant| {
            contestant.takes_part(ranks, machine::cores()) && contestant.only.is_none() && contestant.is_there(places)
        })
        .collect();
    let first = round as usize % all.len().max(1);
    all.rotate_left(first);
    all
}

/// Writes, and checks that all found the same and nobody has failed.
fn finish(args: &Args, all: &[Times], failures: u32) -> Result<()> {
    let tables = applications::tables(all);
    print!("{tables}");
    if let Some(file) = &args.save {
        fs::write(file, serde_json::to_string_pretty(all)? + "\n")?;
        let mut head = format!("# Applications, {}, {}\n\n", machine::date()?, machine::name());
        if testbed::has_groups() && all.iter().any(|times| times.network.is_some()) {
            head += &format!("{}.\n\n", testbed::GROUPS_OFF);
        }
        fs::write(file.with_extension("md"), head + &tables)?;
    }
    match applications::disagreement(all) {
        Some(wrong) => Err(wrong.into()),
        None if failures > 0 => Err(format!("{failures} turns have failed").into()),
        None => Ok(()),
    }
}

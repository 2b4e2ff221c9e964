//! `bench-peers`: han beside the rivals, taking turns in one run, as markdown.
//!
//! `benches/peers/run` installs the rivals and starts this. The latency between the two cores is
//! probed before and after every series; a series in which it changed is measured again, and only
//! series of one state are compared.

mod summary;

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use benches::contestants::{self, Contestant, Rival};
use benches::job::{self, Row, Task};
use benches::machine::{self, State};
use benches::{Result, table::us_text};
use clap::{Parser, ValueEnum};
use serde::Serialize;

/// Runs of one series in the hope that the machine stays in one state.
const TRIES: u32 = 3;
/// Failures after which a contestant no longer takes part.
const FAILURES: u32 = 2;

/// Measures han and the rivals in turns and prints their tables.
#[derive(Parser)]
#[command(name = "bench-peers")]
struct Args {
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "2,4,8")]
    ranks: Vec<usize>,
    /// Collectives
    #[arg(long, value_delimiter = ',', default_value = "barrier,bcast,reduce,allreduce")]
    collectives: Vec<String>,
    /// Smallest message in bytes
    #[arg(long, default_value_t = 8)]
    min: usize,
    /// Largest message in bytes
    #[arg(long, default_value_t = 1 << 20)]
    max: usize,
    /// Sizes are powers of this number
    #[arg(long, default_value_t = 4)]
    factor: usize,
    /// How iterations follow each other: osu, loop, cold
    #[arg(long, value_enum, value_delimiter = ',', default_value = "osu,loop")]
    style: Vec<Style>,
    /// How often everybody has a turn
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Repeats of each size in one turn
    #[arg(long, default_value_t = 5)]
    repeats: u32,
    /// Length of a repeat in milliseconds
    #[arg(long, default_value_t = 10)]
    ms: u64,
    /// Who takes part: `all`, `installed`, `none`, or beginnings of names
    #[arg(long, value_delimiter = ',', default_value = "all")]
    contestants: Vec<String>,
    /// State of the machine to compare in [default: the one that han was measured in most]
    #[arg(long, value_enum)]
    state: Option<Compared>,
    /// Start no further series after this many seconds
    #[arg(long, default_value_t = 1800)]
    budget: u64,
    /// Seconds that one series may take
    #[arg(long, default_value_t = 120)]
    timeout: u64,
    /// Seconds to wait for others to leave the machine alone before a series starts all the same
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// Where the rivals are installed
    #[arg(long, default_value = ".peers")]
    rivals: PathBuf,
    /// The binary `han` [default: the one beside this program]
    #[arg(long)]
    han: Option<PathBuf>,
    /// Also write results and tables below this directory, by machine and date
    #[arg(long)]
    save: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Style {
    Osu,
    Loop,
    Cold,
}

impl Style {
    fn name(self) -> &'static str {
        match self {
            Self::Osu => "osu",
            Self::Loop => "loop",
            Self::Cold => "cold",
        }
    }
}

/// Which samples may be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Compared {
    Near,
    Far,
    Any,
}

/// One row of one series.
#[derive(Clone, Debug, Serialize)]
struct Sample {
    contestant: &'static str,
    rival: Option<&'static str>,
    installed: bool,
    round: u32,
    state: State,
    one_way_ns_before: f64,
    one_way_ns_after: f64,
    temperature: &'static str,
    #[serde(flatten)]
    row: Row,
}

/// One turn of one contestant; han is none of them.
struct Turn {
    contestant: Option<&'static Contestant>,
    style: Style,
    ranks: usize,
    round: u32,
    tries: u32,
}

fn main() -> ExitCode {
    match compare(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(args: &Args) -> Result<()> {
    let han = args.han.clone().map_or_else(machine::own_han, Ok)?;
    let rivals = fs::canonicalize(&args.rivals)
        .map_err(|error| format!("{}: {error}: benches/peers/install.sh installs the rivals", args.rivals.display()))?;
    let machine = machine::name();
    let mut files = args.save.as_deref().map(|root| Files::create(root, &machine)).transpose()?;
    let samples = measure(args, &han, &rivals, files.as_mut().map(|files| &mut files.samples))?;
    let mut text = format!("{} | {machine} | {} rounds of {} repeats\n", machine::date()?, args.rounds, args.repeats);
    for &ranks in &args.ranks {
        for style in &args.style {
            text += &summary::tables(&samples, ranks, style.name(), args.state, &args.collectives);
        }
    }
    print!("{text}");
    if let Some(files) = files {
        fs::write(&files.tables, text)?;
    }
    Ok(())
}

/// Where results are kept.
struct Files {
    samples: File,
    tables: PathBuf,
}

impl Files {
    fn create(root: &Path, machine: &str) -> Result<Self> {
        let directory = root.join(machine::slug(machine));
        fs::create_dir_all(&directory)?;
        let date = machine::date()?;
        Ok(Self {
            samples: File::create(directory.join(format!("{date}-peers.jsonl")))?,
            tables: directory.join(format!("{date}-peers.md")),
        })
    }
}

/// Gives everybody a turn, round by round.
fn measure(args: &Args, han: &Path, rivals: &Path, mut file: Option<&mut File>) -> Result<Vec<Sample>> {
    let cores = machine::cores();
    let start = Instant::now();
    let mut turns = turns(args, cores);
    let mut failures: HashMap<(&str, usize, &str), u32> = HashMap::new();
    let mut samples = Vec::new();
    while let Some(turn) = turns.pop_front() {
        if start.elapsed() > Duration::from_secs(args.budget) {
            eprintln!("bench-peers: the budget of {} s is spent, {} turns are left out", args.budget, turns.len() + 1);
            break;
        }
        let name = turn.contestant.map_or("han", |contestant| contestant.name);
        let failed = failures.entry((name, turn.ranks, turn.style.name())).or_default();
        if *failed >= FAILURES {
            continue;
        }
        if !machine::wait_for_quiet(Duration::from_secs(args.patience)) {
            eprintln!("bench-peers: others keep this machine busy: expect noise");
        }
        match play(args, &turn, han, rivals, cores) {
            Err(error) => {
                *failed += 1;
                eprintln!("bench-peers: {name}, {} ranks: {error}", turn.ranks);
            }
            Ok(new) => {
                progress(&new, turns.len());
                if new.iter().any(|sample| sample.state == State::Mixed) && turn.tries < TRIES && turn.ranks <= cores {
                    turns.push_back(Turn { tries: turn.tries + 1, ..turn });
                }
                if let Some(file) = &mut file {
                    for sample in &new {
                        writeln!(file, "{}", serde_json::to_string(sample)?)?;
                    }
                }
                samples.extend(new);
            }
        }
    }
    Ok(samples)
}

/// All turns in their order: in each round han first, then the others.
fn turns(args: &Args, cores: usize) -> VecDeque<Turn> {
    let wanted = |contestant: &Contestant| {
        args.contestants.iter().any(|word| match word.as_str() {
            "all" => true,
            "installed" => contestant.installed,
            word => contestant.name.starts_with(word),
        })
    };
    let mut turns = VecDeque::new();
    for &ranks in &args.ranks {
        for &style in &args.style {
            for round in 0..args.rounds {
                let rivals = contestants::ALL.iter().filter(|c| wanted(c) && c.takes_part(ranks, cores)).map(Some);
                let everybody = std::iter::once(None).chain(rivals);
                turns.extend(everybody.map(|contestant| Turn { contestant, style, ranks, round, tries: 1 }));
            }
        }
    }
    turns
}

/// One series between two probes.
fn play(args: &Args, turn: &Turn, han: &Path, rivals: &Path, cores: usize) -> Result<Vec<Sample>> {
    let has_data = |collective: &&String| turn.style != Style::Cold || *collective != "barrier";
    let task = Task {
        ranks: turn.ranks,
        collectives: args.collectives.iter().filter(has_data).cloned().collect(),
        min: args.min,
        max: args.max,
        factor: args.factor,
        repeats: args.repeats,
        ms: args.ms,
        style: turn.style.name().to_owned(),
    };
    let mut command = match turn.contestant {
        Some(contestant) => job::supervised(han, &contestant.command(rivals, &task, cores), args.timeout),
        None => task.for_han(han, args.timeout),
    };
    let before = machine::one_way_ns(han)?;
    let rows = job::run(&mut command)?;
    let after = machine::one_way_ns(han)?;
    let sample = |row| Sample {
        contestant: turn.contestant.map_or("han", |contestant| contestant.name),
        rival: turn.contestant.map(|contestant| contestant.rival.name()),
        installed: turn.contestant.is_some_and(|contestant| contestant.installed),
        round: turn.round,
        state: State::between(before, after),
        one_way_ns_before: before,
        one_way_ns_after: after,
        temperature: turn.style.name(),
        row,
    };
    Ok(rows.into_iter().map(sample).collect())
}

/// A line on stderr, so that a long run can be watched.
fn progress(new: &[Sample], left: usize) {
    let Some(first) = new.first() else { return };
    let small = new.iter().filter(|sample| sample.row.bytes <= 8);
    let times: Vec<_> =
        small.map(|sample| format!("{} {}", sample.row.coll, us_text(Some(sample.row.us_median)))).collect();
    eprintln!(
        "{:>4} left | {} ranks, {}, round {} | {} | {:<16} | {}",
        left,
        first.row.ranks,
        first.temperature,
        first.round,
        first.state.name(),
        first.contestant,
        times.join(", ")
    );
}

/// The rivals' names in the order of the tables' columns.
fn rival_names() -> [&'static str; Rival::ALL.len()] {
    Rival::ALL.map(Rival::name)
}

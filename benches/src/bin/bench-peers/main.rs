//! `bench-peers`: han beside the rivals, taking turns in one run.
//!
//! The latency between the two cores is probed before and after every turn; a turn in which it changed
//! is had again, and after each round those turns that were had in another state than most are had once
//! more, if the machine has come back to it. Everything is kept as it comes.

mod run;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use benches::contestants::{self, Contestant, Library, Places};
use benches::job::{self, Style};
use benches::machine;
use benches::network::{Network, Rate};
use benches::plan::Plan;
use benches::record::Record;
use benches::testbed;
use benches::{Result, ratios, report};
use clap::Parser;

use crate::run::Run;

/// Measures han and the rivals in turns; writes measurements, tables and plots.
#[derive(Parser)]
#[command(name = "bench-peers")]
struct Args {
    /// A few sizes on 2 and 4 ranks, beside the rivals as installed: about two minutes
    #[arg(long)]
    quick: bool,
    /// Numbers of ranks [default: 2,4,8]
    #[arg(long, value_delimiter = ',')]
    ranks: Option<Vec<usize>>,
    /// Numbers of nodes: ranks run on network namespaces of this machine (benches/testbed), which needs root
    #[arg(long, value_delimiter = ',', conflicts_with = "ranks", value_parser = clap::value_parser!(u8).range(2..))]
    nodes: Vec<u8>,
    /// What each node's cable carries: like 10gbit, or 0 for no limit
    #[arg(long, value_delimiter = ',', default_value = "0,10gbit,1gbit", requires = "nodes")]
    rates: Vec<Rate>,
    /// Ranks on each node
    #[arg(long, default_value_t = 1, requires = "nodes", value_parser = clap::value_parser!(u8).range(1..))]
    ppn: u8,
    /// Collectives
    #[arg(long, value_delimiter = ',', default_value = "barrier,bcast,reduce,allreduce")]
    collectives: Vec<String>,
    /// Bytes, with K, M, G [default: powers of 4; osu from 4 to 64M, 16M with more ranks than cores;
    /// loop up to 64K; cold from 16K; over nodes powers of 8 from 8 to 16M]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    sizes: Option<Vec<usize>>,
    /// How iterations follow each other [default: osu,loop,pair,cold; over nodes osu,pair]
    #[arg(long, value_enum, value_delimiter = ',')]
    styles: Option<Vec<Style>>,
    /// Memory of han's buffers: malloc, shared, register; what han has not is left out
    #[arg(long, value_delimiter = ',', default_value = "malloc,shared,register")]
    alloc: Vec<String>,
    /// Rivals: installed, best, all, none, or beginnings of names [default: best]
    #[arg(long, value_delimiter = ',')]
    contestants: Option<Vec<String>>,
    /// How often everybody has a turn [default: 2; over nodes 3]
    #[arg(long)]
    rounds: Option<u32>,
    /// Repeats of each size in one turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(5..))]
    repeats: u32,
    /// Length of a repeat in milliseconds [default: 4]
    #[arg(long)]
    ms: Option<u64>,
    /// Further options of collbench for all, such as --rotate-roots, after =
    #[arg(long, value_delimiter = ' ', value_name = "OPTIONS", allow_hyphen_values = true)]
    further: Vec<String>,
    /// Start no further turn after this many seconds
    #[arg(long, default_value_t = 1500)]
    budget: u64,
    /// Seconds that one turn may take
    #[arg(long, default_value_t = 90)]
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
    /// Where han and collbench/ are [default: the directory of this program]
    #[arg(long)]
    release: Option<PathBuf>,
    /// Directory of the results, by machine and date [default: benches/baselines; with --quick, measurements/
    /// beside this program]
    #[arg(long)]
    save: Option<PathBuf>,
    /// Go on with these measurements
    #[arg(long, value_name = "FILE.json")]
    resume: Option<PathBuf>,
}

impl Args {
    fn plan(&self) -> Plan {
        let quick_or = |quick: u32, otherwise| if self.quick { quick } else { otherwise };
        let over_nodes = !self.nodes.is_empty();
        let quick_sizes = || self.quick.then(|| vec![4, 4 << 10, 64 << 10, 1 << 20]);
        let all_styles = || vec![Style::Osu, Style::Loop, Style::Pair, Style::Cold];
        let styles = || match (self.quick, over_nodes) {
            (true, _) => vec![Style::Osu],
            (false, true) => vec![Style::Osu, Style::Pair],
            (false, false) => all_styles(),
        };
        Plan {
            worlds: self.worlds(),
            collectives: self.collectives.clone(),
            sizes: self.sizes.clone().or_else(quick_sizes),
            styles: self.styles.clone().unwrap_or_else(styles),
            rounds: self.rounds.unwrap_or_else(|| quick_or(1, if over_nodes { 3 } else { 2 })),
            repeats: self.repeats,
            ms: self.ms.unwrap_or_else(|| quick_or(2, 4).into()),
            further: self.further.clone(),
        }
    }

    /// Numbers of ranks, and the nodes that they are on.
    fn worlds(&self) -> Vec<(usize, Option<Network>)> {
        let usual = || if self.quick { vec![2, 4] } else { vec![2, 4, 8] };
        if self.nodes.is_empty() {
            let ranks = self.ranks.clone().unwrap_or_else(usual);
            return ranks.into_iter().map(|ranks| (ranks, None)).collect();
        }
        let at = |nodes: u8, rate| (usize::from(nodes) * usize::from(self.ppn), usize::from(nodes), rate);
        let all = self.nodes.iter().flat_map(|&nodes| self.rates.iter().map(move |&rate| at(nodes, rate)));
        all.map(|(ranks, nodes, rate)| (ranks, Some(Network { nodes, rate }))).collect()
    }

    /// Those who take part and are there; says who is not.
    fn contestants(&self, places: &Places) -> Vec<Contestant> {
        let quick_or_best = || vec![if self.quick { "installed" } else { "best" }.to_owned()];
        let words = self.contestants.clone().unwrap_or_else(quick_or_best);
        let all = if self.nodes.is_empty() { contestants::all(&self.alloc) } else { contestants::over_nodes() };
        let meant = all.into_iter().filter(|contestant| contestant.is_meant(&words));
        let (there, missing): (Vec<_>, Vec<_>) = meant.partition(|contestant| contestant.is_there(places));
        let mut names: Vec<_> = missing.iter().map(|contestant| contestant.library.name()).collect();
        names.dedup();
        for name in names {
            eprintln!("bench-peers: {name} is left out: benches/build-collbench.sh has found none");
        }
        there
            .into_iter()
            .filter(|contestant| contestant.library != Library::Han || has_memory(contestant, places))
            .collect()
    }

    /// The file of this run, and what is in it already.
    fn record(&self, quick: &Path) -> Result<(PathBuf, Record)> {
        if let Some(file) = &self.resume {
            return Ok((file.clone(), Record::load(file)?));
        }
        let machine = machine::name();
        let kept = || if self.quick { quick.to_owned() } else { PathBuf::from("benches/baselines") };
        let directory = self.save.clone().unwrap_or_else(kept).join(machine::slug(&machine));
        fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let date = machine::date()?;
        let first = if self.nodes.is_empty() { date.clone() } else { format!("{date}-nodes") };
        let names = std::iter::once(first.clone()).chain((2..).map(|number| format!("{first}-{number}")));
        let free = names.map(|name| directory.join(name + ".json")).find(|file| !file.exists());
        let file = free.unwrap_or_else(|| directory.join("record.json"));
        let groups_off = !self.nodes.is_empty() && testbed::has_groups();
        Ok((file, Record { date, machine, cores: machine::cores(), groups_off, ..Record::default() }))
    }
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
    let places = Places::of(args.release.as_deref(), &args.rivals, &args.testbed)?;
    for program in [places.han.clone(), places.programs.join("han")] {
        if !program.exists() {
            return Err(format!("{} is missing: run `make collbench`, or give --release", program.display()).into());
        }
    }
    let contestants = args.contestants(&places);
    let (file, record) = args.record(&places.han.with_file_name("measurements"))?;
    let mut run = Run::new(args, places, contestants, file.clone(), record);
    run.measure()?;
    let page = report::write(&run.record, &file)?;
    print!("{}", report::misses(&run.record, &ratios::groups(&run.record)));
    println!("\n{}\n{} s; {}", page.display(), run.start.elapsed().as_secs(), report::states(&run.record));
    let wrong = run.record.cells.iter().filter(|cell| !cell.row.verified).count();
    if wrong > 0 { Err(format!("{wrong} results were wrong: their times are in no table").into()) } else { Ok(()) }
}

/// Whether han has this contestant's kind of memory here, tried on one rank; says why if not.
fn has_memory(contestant: &Contestant, places: &Places) -> bool {
    let mut trial = Command::new(places.programs.join(contestant.library.word()));
    let tried = job::run(trial.args(["barrier", "--ms", "0.1", "--alloc", &contestant.alloc]));
    let failure = tried.map_or_else(|error| Some(error.to_string()), |outcome| outcome.failure);
    if let Some(failure) = &failure {
        eprintln!("bench-peers: {} is left out: {failure}", contestant.name);
    }
    failure.is_none()
}

/// `64`, `4K`, `1M`, `1G`.
fn bytes(text: &str) -> std::result::Result<usize, String> {
    let (digits, shift) = match text.char_indices().last() {
        Some((end, 'K')) => (&text[..end], 10),
        Some((end, 'M')) => (&text[..end], 20),
        Some((end, 'G')) => (&text[..end], 30),
        _ => (text, 0),
    };
    let number = digits.parse::<usize>().ok().filter(|&number| number > 0);
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| format!("`{text}` must be a number of bytes, like 64, 4K, 1M"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_may_have_units() {
        assert_eq!([bytes("64"), bytes("4K"), bytes("1M")], [Ok(64), Ok(4096), Ok(1 << 20)]);
        assert!([bytes("0"), bytes("K"), bytes("x"), bytes("")].iter().all(std::result::Result::is_err));
    }

    #[test]
    fn quick_is_shorter_unless_told_otherwise() {
        let parse = |words: &[&str]| Args::try_parse_from(["bench-peers"].iter().chain(words)).map(|args| args.plan());
        let quick = parse(&["--quick", "--ranks", "8"]).expect("right arguments");
        assert_eq!((quick.worlds, quick.rounds, quick.styles), (vec![(8, None)], 1, vec![Style::Osu]));
        let full = parse(&["--further=--rotate-roots --in-place", "--sizes", "1K,12345"]).expect("right arguments");
        assert_eq!((full.worlds.len(), full.sizes), (3, Some(vec![1024, 12345])));
        assert_eq!(full.further, ["--rotate-roots", "--in-place"]);
    }

    #[test]
    fn nodes_take_the_place_of_ranks() {
        let parse = |words: &[&str]| Args::try_parse_from(["bench-peers"].iter().chain(words));
        let plan = parse(&["--nodes", "2,4", "--rates", "0,1gbit", "--ppn", "2"]).expect("right arguments").plan();
        let network = |nodes, rate: &str| Some(Network { nodes, rate: rate.parse().expect("a rate") });
        let worlds = [(2, "0"), (2, "1gbit"), (4, "0"), (4, "1gbit")];
        assert_eq!(plan.worlds, worlds.map(|(nodes, rate)| (2 * nodes, network(nodes, rate))));
        assert_eq!((plan.rounds, plan.styles), (3, vec![Style::Osu, Style::Pair]));
        for wrong in [&["--nodes", "1"][..], &["--nodes", "2", "--ranks", "2"], &["--nodes", "2", "--rates", "1"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(parse(&["--rates", "1gbit"]).is_err(), "rates are those of nodes");
    }
}

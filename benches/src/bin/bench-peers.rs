//! `bench-peers`: han beside the rivals, taking turns in one run.
//!
//! The latency between the two cores is probed before and after every turn; a turn in which it changed
//! is had again, and after each round those turns that were had in another state than most are had once
//! more, if the machine has come back to it. Everything is kept as it comes.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use benches::contestants::{self, Contestant, Library, Places, Rank};
use benches::job::{self, Style};
use benches::machine::{self, State};
use benches::plan::{self, Plan, Turn};
use benches::record::{Cell, Failure, Record};
use benches::table::{bytes_text, us_text};
use benches::{Result, ratios, report};
use clap::Parser;

/// How often a turn is had in the hope that the machine stays in one state.
const TRIES: u32 = 3;
/// Failures after which a contestant no longer takes part with that number of ranks.
const FAILURES: u32 = 2;

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
    /// Collectives
    #[arg(long, value_delimiter = ',', default_value = "barrier,bcast,reduce,allreduce")]
    collectives: Vec<String>,
    /// Bytes, with K, M, G [default: powers of 4; osu from 4 to 64M, 16M with more ranks than cores;
    /// loop up to 64K; cold from 16K]
    #[arg(long, value_delimiter = ',', value_parser = bytes)]
    sizes: Option<Vec<usize>>,
    /// How iterations follow each other [default: osu,loop,cold]
    #[arg(long, value_enum, value_delimiter = ',')]
    styles: Option<Vec<Style>>,
    /// Memory of han's buffers: malloc, shared, register; what han has not is left out
    #[arg(long, value_delimiter = ',', default_value = "malloc,shared,register")]
    alloc: Vec<String>,
    /// Rivals: installed, best, all, none, or beginnings of names [default: best]
    #[arg(long, value_delimiter = ',')]
    contestants: Option<Vec<String>>,
    /// How often everybody has a turn [default: 2]
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
        let quick_sizes = || self.quick.then(|| vec![4, 4 << 10, 64 << 10, 1 << 20]);
        let ranks = || if self.quick { vec![2, 4] } else { vec![2, 4, 8] };
        let styles = || if self.quick { vec![Style::Osu] } else { vec![Style::Osu, Style::Loop, Style::Cold] };
        Plan {
            ranks: self.ranks.clone().unwrap_or_else(ranks),
            collectives: self.collectives.clone(),
            sizes: self.sizes.clone().or_else(quick_sizes),
            styles: self.styles.clone().unwrap_or_else(styles),
            rounds: self.rounds.unwrap_or_else(|| quick_or(1, 2)),
            repeats: self.repeats,
            ms: self.ms.unwrap_or_else(|| quick_or(2, 4).into()),
            further: self.further.clone(),
        }
    }

    /// Those who take part and are there; says who is not.
    fn contestants(&self, places: &Places) -> Vec<Contestant> {
        let quick_or_best = || vec![if self.quick { "installed" } else { "best" }.to_owned()];
        let words = self.contestants.clone().unwrap_or_else(quick_or_best);
        let meant = contestants::all(&self.alloc).into_iter().filter(|contestant| contestant.is_meant(&words));
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
    fn record(&self, release: &Path) -> Result<(PathBuf, Record)> {
        if let Some(file) = &self.resume {
            return Ok((file.clone(), Record::load(file)?));
        }
        let machine = machine::name();
        let kept = || if self.quick { release.join("measurements") } else { PathBuf::from("benches/baselines") };
        let directory = self.save.clone().unwrap_or_else(kept).join(machine::slug(&machine));
        fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let date = machine::date()?;
        let names = std::iter::once(date.clone()).chain((2..).map(|number| format!("{date}-{number}")));
        let free = names.map(|name| directory.join(name + ".json")).find(|file| !file.exists());
        let file = free.unwrap_or_else(|| directory.join("record.json"));
        Ok((file, Record { date, machine, cores: machine::cores(), ..Record::default() }))
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
    let own = std::env::current_exe()?;
    let beside = own.parent().ok_or("this program is in no directory")?;
    let release = args.release.clone().unwrap_or_else(|| beside.to_owned());
    let places = Places {
        han: release.join("han"),
        programs: release.join("collbench"),
        rivals: fs::canonicalize(&args.rivals).unwrap_or_else(|_| args.rivals.clone()),
    };
    if !places.han.exists() || !places.programs.join("han").exists() {
        let release = release.display();
        return Err(format!("{release} lacks han or collbench/han: run `make collbench`, or give --release").into());
    }
    let contestants = args.contestants(&places);
    let (file, record) = args.record(&release)?;
    let mut run = Run { args, places, contestants, file, record, failures: BTreeMap::new(), start: Instant::now() };
    run.measure()?;
    let page = report::write(&run.record, &run.file)?;
    print!("{}", report::misses(&run.record, &ratios::groups(&run.record)));
    println!("\n{}\n{} s; {}", page.display(), run.start.elapsed().as_secs(), report::states(&run.record));
    Ok(())
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

struct Run<'a> {
    args: &'a Args,
    places: Places,
    contestants: Vec<Contestant>,
    file: PathBuf,
    record: Record,
    /// By contestant and number of ranks.
    failures: BTreeMap<(usize, usize), u32>,
    start: Instant,
}

impl Run<'_> {
    /// Gives everybody a turn, round by round; after each round once more to those whom tables lack.
    fn measure(&mut self) -> Result<()> {
        let turns = self.args.plan().turns(&self.contestants, self.record.cores);
        let resumed = self.args.resume.is_some();
        let mut queue: VecDeque<Turn> = turns.clone().into();
        queue.retain(|turn| !resumed || !turn.is_in(&self.record, &self.contestants));
        while let Some(turn) = queue.pop_front() {
            if self.is_over() {
                eprintln!("bench-peers: the budget is spent: {} turns are left out", queue.len() + 1);
                return Ok(());
            }
            let state = self.play(&turn, queue.len())?;
            let round = turn.round;
            if state == Some(State::Changed) && turn.tries < TRIES && !self.record.is_crowded(turn.task.ranks) {
                queue.push_front(Turn { tries: turn.tries + 1, ..turn });
            }
            if queue.front().is_none_or(|next| next.round != round) {
                self.fill(&turns)?;
            }
        }
        Ok(())
    }

    /// Turns for those who were measured in another state than the others, while the machine is in it.
    fn fill(&mut self, turns: &[Turn]) -> Result<()> {
        let missing = plan::missing(turns, &self.record, &self.contestants);
        for (left, (turn, wanted)) in missing.iter().rev().enumerate().rev() {
            if self.is_over() {
                break;
            }
            if State::of(machine::one_way_ns(&self.places.han)?) == *wanted {
                self.play(turn, left)?;
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.start.elapsed() > Duration::from_secs(self.args.budget)
    }

    /// One turn between two probes; gives the state in which it was had.
    fn play(&mut self, turn: &Turn, left: usize) -> Result<Option<State>> {
        let place = (turn.contestant, turn.task.ranks);
        if self.failures.get(&place).is_some_and(|&count| count >= FAILURES) {
            return Ok(None);
        }
        let quiet = machine::wait_for_quiet(Duration::from_secs(self.args.patience));
        let contestant = &self.contestants[turn.contestant];
        let before = machine::one_way_ns(&self.places.han)?;
        if !self.record.limits.iter().any(|limit| limit.state == State::of(before)) {
            let limits = machine::limits(&self.places.han)?;
            self.record.limits.extend(limits.into_iter().filter(|limit| limit.state != State::Changed));
        }
        let mut command = contestant.command(&self.places, &turn.task, self.record.cores, self.args.timeout);
        let outcome = job::run(&mut command)?;
        let after = machine::one_way_ns(&self.places.han)?;
        let state = State::between(before, after);
        let cell = |row| Cell {
            contestant: contestant.name.clone(),
            library: contestant.library.name().to_owned(),
            installed: contestant.rank == Rank::Installed,
            round: turn.round,
            state,
            one_way_ns_before: before,
            one_way_ns_after: after,
            quiet,
            row,
        };
        let cells: Vec<Cell> = outcome.rows.into_iter().map(cell).collect();
        let state_text = format!("{}{}", state.name(), if quiet { "" } else { ", busy" });
        progress(turn, &contestant.name, &state_text, &cells, left);
        if let Some(reason) = outcome.failure {
            *self.failures.entry(place).or_default() += 1;
            let task =
                format!("{} on {} ranks, {:?}", turn.task.collectives.join(","), turn.task.ranks, turn.task.style);
            eprintln!("bench-peers: {}, {task}: {reason}", contestant.name);
            self.record.failures.push(Failure { contestant: contestant.name.clone(), task, reason });
        }
        self.record.cells.extend(cells);
        self.record.save(&self.file)?;
        Ok(Some(state))
    }
}

/// A line on stderr, so that a long run can be watched.
fn progress(turn: &Turn, name: &str, state: &str, cells: &[Cell], left: usize) {
    let text = |cell: &Cell| format!("{} {}", bytes_text(cell.row.bytes), us_text(Some(cell.row.us_median)));
    let ends = [cells.first(), cells.last()].map(|cell| cell.map_or_else(|| "-".to_owned(), text));
    eprintln!(
        "{left:>4} left | {} ranks, {:?}, {}, round {} | {} | {name:<16} | {} us",
        turn.task.ranks,
        turn.task.style,
        turn.task.collectives.join("+"),
        turn.round,
        state,
        ends.join(" .. ")
    );
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
        assert_eq!((quick.ranks, quick.rounds, quick.styles), (vec![8], 1, vec![Style::Osu]));
        let full = parse(&["--further=--rotate-roots --in-place", "--sizes", "1K,12345"]).expect("right arguments");
        assert_eq!((full.ranks, full.sizes), (vec![2, 4, 8], Some(vec![1024, 12345])));
        assert_eq!(full.further, ["--rotate-roots", "--in-place"]);
    }
}

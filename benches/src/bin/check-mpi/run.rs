//! A program run with and without the library, and what it says of itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use benches::Result;
use benches::contestants::{self, Job, Places};
use benches::job::{Style, Task};
use benches::machine;
use benches::testbed::Testbed;

use crate::World;
use crate::build::{Mpi, is_newer};

/// What a program notes whose subject the MPI does not have (`check.h`).
const NOT_IN_THIS_MPI: &str = "has no ";

/// Short programs have few calls on a communicator, and the library is to take most of them.
const SOON: &str = "HAN_MPI_AFTER=4";

/// What a comparison found.
pub(crate) enum Outcome {
    /// The same, with so many calls of all ranks that the library took.
    Same(u64),
    /// The MPI does not have what the program is about.
    Missing(String),
    /// The MPI alone does not finish the program in so many seconds.
    Endless(u64),
    /// What is different, or went wrong.
    Different(String),
}

/// What runs programs.
pub(crate) struct Runner {
    pub(crate) places: Places,
    pub(crate) library: PathBuf,
    pub(crate) timeout_s: u64,
    pub(crate) testbed: Option<Testbed>,
}

/// What the MPI makes of a program without the library.
enum Alone {
    /// It ends with these notes.
    Notes(String),
    /// It does not end in so many seconds.
    Endless(u64),
    /// It fails.
    Failed(String),
}

/// The exit status of `han run`, which supervises all runs, when time is over.
const TIME_IS_OVER: i32 = 124;

/// What is left of a run.
struct Run {
    /// The lines that begin with `note`: the program's own, in the order of ranks.
    notes: String,
    /// What went wrong, unless it ended well.
    failure: Option<String>,
    /// It was ended because its time was over.
    is_endless: bool,
    /// Everything that it and its launcher said.
    said: String,
}

impl Runner {
    /// Runs `binary` with the library and compares its notes with those that it leaves without.
    pub(crate) fn compare(&self, mpi: &Mpi, binary: &Path, world: &World) -> Result<Outcome> {
        let alone = match self.alone(mpi, binary, world)? {
            Alone::Notes(notes) => notes,
            Alone::Endless(seconds) => return Ok(Outcome::Endless(seconds)),
            Alone::Failed(why) => return Ok(Outcome::Different(format!("the MPI alone fails: {why}"))),
        };
        if let Some(line) = alone.lines().find(|line| line.contains(NOT_IN_THIS_MPI)) {
            return Ok(Outcome::Missing(line.trim_start_matches("note 0 ").to_owned()));
        }
        let preload = format!("LD_PRELOAD={}", self.library.display());
        let with = self.run(mpi, binary, world, &[&preload, "HAN_MPI_REPORT=1", SOON])?;
        if let Some(why) = with.failure {
            return Ok(Outcome::Different(why));
        }
        let taken = taken(&with.said);
        Ok(match first_difference(&alone, &with.notes) {
            Some(difference) => Outcome::Different(difference),
            // Alone a rank has nobody to communicate with; otherwise every program has calls for the library.
            None if taken == 0 && world.ranks > 1 => Outcome::Different("the library took none of the calls".into()),
            None => Outcome::Same(taken),
        })
    }

    /// What the program notes without the library: kept beside the program, as neither this project nor chance has part
    /// in it. Or that it does not end, which is kept until somebody has more patience: with other work on the cores it may.
    fn alone(&self, mpi: &Mpi, binary: &Path, world: &World) -> Result<Alone> {
        let name = format!("{}-{}", binary.file_name().unwrap_or_default().to_string_lossy(), world.name());
        let kept = |ending: &str| binary.with_file_name(format!("{name}.{ending}"));
        let (notes, endless) = (kept("notes"), kept("endless"));
        if is_newer(&notes, binary) {
            return Ok(Alone::Notes(fs::read_to_string(&notes)?));
        }
        if let Some(seconds) = given_up(&endless, binary).filter(|&seconds| seconds >= self.timeout_s) {
            return Ok(Alone::Endless(seconds));
        }
        let run = self.run(mpi, binary, world, &[])?;
        if run.is_endless {
            fs::write(&endless, self.timeout_s.to_string())?;
            return Ok(Alone::Endless(self.timeout_s));
        }
        let is_missing = run.notes.contains(NOT_IN_THIS_MPI);
        if let Some(why) = run.failure.filter(|_| !is_missing) {
            return Ok(Alone::Failed(why));
        }
        fs::write(&notes, &run.notes)?;
        Ok(Alone::Notes(run.notes))
    }

    fn run(&self, mpi: &Mpi, binary: &Path, world: &World, variables: &[&str]) -> Result<Run> {
        let cores = machine::cores();
        let task = Task { ranks: world.ranks, network: world.network, ..Task::of("", &[], Style::Osu) };
        let contestant = contestants::usual(mpi.library, &task, cores)
            .ok_or_else(|| format!("no settings of {} for {} ranks", mpi.name, world.name()))?;
        let words = mpi.variables.iter().chain(variables).map(|word| (*word).to_owned());
        let arguments = words.chain([binary.display().to_string()]).collect();
        let job = Job { ranks: world.ranks, network: world.network, program: "/usr/bin/env".into(), arguments };
        let mut command = contestant.start(&self.places, &job, cores, self.timeout_s);
        if let Some(testbed) = self.testbed.as_ref().filter(|_| world.network.is_some()) {
            testbed.enter(&mut command);
        }
        finish(&mut command)
    }
}

/// The seconds after which the program was given up, if it is still the same.
fn given_up(endless: &Path, binary: &Path) -> Option<u64> {
    if is_newer(endless, binary) { fs::read_to_string(endless).ok()?.trim().parse().ok() } else { None }
}

fn finish(command: &mut Command) -> Result<Run> {
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr).into_owned() + &text;
    let notes: String = text.lines().filter(|line| line.starts_with("note ")).flat_map(|line| [line, "\n"]).collect();
    let wrong =
        || said.lines().find(|line| line.contains("WRONG") || line.contains("han")).or_else(|| said.lines().next());
    let failure = (!output.status.success()).then(|| format!("{}: {}", output.status, wrong().unwrap_or_default()));
    Ok(Run { notes, failure, is_endless: output.status.code() == Some(TIME_IS_OVER), said })
}

/// The calls that the library took, by its report: the number after each collective's name.
fn taken(said: &str) -> u64 {
    let lines = said.lines().filter_map(|line| line.trim_start().strip_prefix("han: "));
    let number = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
    lines.filter_map(number).sum()
}

/// The first line in which two texts differ.
fn first_difference(alone: &str, with: &str) -> Option<String> {
    if alone == with {
        return None;
    }
    let (mut alone_lines, mut with_lines) = (alone.lines(), with.lines());
    loop {
        match (alone_lines.next(), with_lines.next()) {
            (a, b) if a == b && a.is_some() => {}
            (a, b) => {
                let shown = |line: Option<&str>| line.unwrap_or("nothing more").to_owned();
                return Some(format!("`{}` is with the library `{}`", shown(a), shown(b)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_difference_is_shown() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n").as_deref(), Some("`b` is with the library `c`"));
        assert_eq!(first_difference("a\n", "a\nc\n").as_deref(), Some("`nothing more` is with the library `c`"));
    }

    #[test]
    fn calls_taken_are_added_up() {
        let report = "han: collectives of 2 ranks\nhan: collective taken bytes\nhan: barrier  3 0 0.1 7\n\
                      han: bcast 12 4096 0.2 0\nanother 99\n";
        assert_eq!(taken(report), 15);
        assert_eq!(taken(""), 0);
    }
}

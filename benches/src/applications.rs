//! The applications: the examples' programs, compiled for every library, and what they say of their times.

use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::contestants::{Contestant, Job, Library, Places};
use crate::network::Network;
use crate::table::{Table, median};

/// A program with its input.
#[derive(Clone, Copy, Debug)]
pub struct Application {
    /// Its name, and that of its source.
    pub name: &'static str,
    /// What it communicates with.
    pub collective: &'static str,
    /// Arguments, paths being below the directory of the data.
    arguments: &'static [&'static str],
    /// The line of its output that is the same whoever carries its messages begins so.
    same: &'static str,
}

/// All of them.
pub const ALL: [Application; 2] = [
    Application { name: "asp", collective: "bcast", arguments: &["airports.csv", "1200"], same: "digest of" },
    Application { name: "gradient", collective: "allreduce", arguments: &["digits.csv", "400"], same: "test accuracy" },
];

/// What one run took, as means over the ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Name of the application.
    pub application: String,
    /// Name of the contestant.
    pub contestant: String,
    /// Number of ranks.
    pub ranks: usize,
    /// The nodes that they were on, if not all on this machine.
    pub network: Option<Network>,
    /// In which round.
    pub round: u32,
    /// Seconds from the first step to the last.
    pub total_s: f64,
    /// Seconds of that within collectives.
    pub communicating_s: f64,
    /// Whether others left the machine alone.
    pub quiet: bool,
    /// The line that has to be everybody's.
    pub result: String,
}

impl Application {
    /// The job that runs it for `contestant`; the data is in the directory `data`.
    #[must_use]
    pub fn job(
        &self,
        contestant: &Contestant,
        places: &Places,
        data: &std::path::Path,
        ranks: usize,
        network: Option<Network>,
    ) -> Job {
        let program = places.programs.join(format!("{}-{}", contestant.library.word(), self.name));
        let file = data.join(self.arguments[0]).to_string_lossy().into_owned();
        let rest = self.arguments[1..].iter().map(|&word| word.to_owned());
        Job { ranks, network, program, arguments: std::iter::once(file).chain(rest).collect() }
    }

    /// Runs `command` and reads total seconds, seconds communicating, and the result off its output.
    ///
    /// # Errors
    /// It cannot be started, fails, or says something else.
    pub fn run(&self, command: &mut Command) -> Result<(f64, f64, String)> {
        let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            let first = errors.lines().find(|line| line.chars().any(char::is_alphabetic)).unwrap_or_default();
            return Err(format!("{}: {first}", output.status).into());
        }
        let result = said.lines().find(|line| line.starts_with(self.same));
        let times = said.lines().find_map(times);
        let (Some(result), Some((total_s, communicating_s))) = (result, times) else {
            return Err(format!("{} says neither what it found nor how long it took: {said}", self.name).into());
        };
        Ok((total_s, communicating_s, result.to_owned()))
    }
}

/// Total seconds and those communicating in a line like `4 ranks, 0.123 s: computing 0.1 s, communicating 0.02 s (16 %)`.
fn times(line: &str) -> Option<(f64, f64)> {
    let (_, rest) = line.split_once(" ranks, ")?;
    let (total, rest) = rest.split_once(" s: computing ")?;
    let (_, rest) = rest.split_once("communicating ")?;
    let (communicating, _) = rest.split_once(" s (")?;
    Some((total.parse().ok()?, communicating.parse().ok()?))
}

/// For each application and world: everybody's median of seconds communicating with the least and the most, their share
/// of the whole, and how many times as long as han's.
#[must_use]
pub fn tables(all: &[Times]) -> String {
    let mut text = String::new();
    let mut worlds: Vec<(&str, usize, Option<Network>)> = Vec::new();
    for times in all {
        let world = (times.application.as_str(), times.ranks, times.network);
        if !worlds.contains(&world) {
            worlds.push(world);
        }
    }
    for (application, ranks, network) in worlds {
        let here: Vec<&Times> = all
            .iter()
            .filter(|times| (times.application.as_str(), times.ranks, times.network) == (application, ranks, network))
            .collect();
        let mut names: Vec<&str> = Vec::new();
        for times in &here {
            if !names.contains(&times.contestant.as_str()) {
                names.push(&times.contestant);
            }
        }
        let of = |name: &str, value: fn(&Times) -> f64| -> Vec<f64> {
            here.iter().filter(|times| times.contestant == name).map(|times| value(times)).collect()
        };
        let ms = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), |s| format!("{:.1}", s * 1e3));
        let own = median(of(Library::Han.word(), |times| times.communicating_s));
        let mut table = Table::new(["library", "communicating ms", "least", "most", "share %", "han is faster by"]);
        for name in names {
            let mut communicating = of(name, |times| times.communicating_s);
            communicating.sort_by(f64::total_cmp);
            let middle = median(communicating.clone());
            let share = median(of(name, |times| 100.0 * times.communicating_s / times.total_s));
            let factor = middle.zip(own).map_or_else(|| "-".to_owned(), |(middle, own)| format!("{:.2}", middle / own));
            table.add([
                name.to_owned(),
                ms(middle),
                ms(communicating.first().copied()),
                ms(communicating.last().copied()),
                share.map_or_else(|| "-".to_owned(), |share| format!("{share:.0}")),
                factor,
            ]);
        }
        let collective = ALL.iter().find(|known| known.name == application).map_or("", |known| known.collective);
        let world = crate::job::world(ranks, network.as_ref());
        let busy = here.iter().filter(|times| !times.quiet).count();
        let remark = if busy > 0 {
            format!("\n{busy} of {} runs were disturbed by others.\n", here.len())
        } else {
            String::new()
        };
        text += &format!("### {application} ({collective}), {world}\n\n{}{remark}\n", table.markdown());
    }
    text
}

/// Who has found something else than the first of the same application.
#[must_use]
pub fn disagreement(all: &[Times]) -> Option<String> {
    all.iter().find_map(|times| {
        let first = all.iter().find(|first| first.application == times.application)?;
        (first.result != times.result).then(|| {
            let Times { application, contestant, result, .. } = times;
            format!("{application}: {contestant} says \"{result}\", but {} \"{}\"", first.contestant, first.result)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_in_their_line() {
        let line = "4 ranks, 1.250 s: computing 1.000 s, communicating 0.250 s (20 %), allreduce 400 x 5208 bytes";
        assert_eq!(times(line), Some((1.25, 0.25)));
        assert_eq!(times("digest of the 4 x 4 distances: 12"), None);
    }

    #[test]
    fn a_run_that_says_nothing_or_fails_is_an_error() {
        let shell = |script: &str| ALL[0].run(Command::new("sh").args(["-c", script]));
        let fine = "echo 'digest of all: 1'; echo '2 ranks, 3.0 s: computing 2.0 s, communicating 1.0 s (33 %)'";
        assert_eq!(shell(fine).expect("both lines"), (3.0, 1.0, "digest of all: 1".to_owned()));
        assert!(shell("echo hello").is_err_and(|error| error.to_string().contains("how long")));
        assert!(shell("echo reason >&2; exit 3").is_err_and(|error| error.to_string().contains("reason")));
    }

    fn of_asp(contestant: &str, communicating_s: f64) -> Times {
        Times {
            application: "asp".to_owned(),
            contestant: contestant.to_owned(),
            ranks: 4,
            network: None,
            round: 0,
            total_s: 2.0,
            communicating_s,
            quiet: true,
            result: String::new(),
        }
    }

    /// Of MPICH in the table of these.
    fn cells(all: &[Times]) -> Vec<String> {
        let text = tables(all);
        assert!(text.starts_with("### asp (bcast), 4 ranks\n"), "{text}");
        let row = text.lines().find(|line| line.contains("mpich")).expect("a row");
        row.split('|').map(|cell| cell.trim().to_owned()).collect()
    }

    #[test]
    fn tables_compare_with_han_whoever_was_first() {
        let mpich = [0.3, 0.5, 0.4].map(|communicating_s| of_asp("mpich", communicating_s));
        let all = [&mpich[..1], &[of_asp("han", 0.1)], &mpich[1..]].concat();
        assert_eq!(cells(&all)[1..7], ["mpich", "400.0", "300.0", "500.0", "20", "4.00"]);
        assert_eq!(cells(&mpich)[6], "-", "without han there is nothing to compare with");
    }

    #[test]
    fn whoever_finds_something_else_is_told_of() {
        let with = |contestant: &str, result: &str| Times { result: result.to_owned(), ..of_asp(contestant, 0.1) };
        let all =
            [with("han", "1"), with("mpich", "1"), Times { application: "gradient".to_owned(), ..with("han", "2") }];
        assert_eq!(disagreement(&all), None);
        let all = [&all[..], &[with("mpich", "3")]].concat();
        assert_eq!(disagreement(&all).as_deref(), Some("asp: mpich says \"3\", but han \"1\""));
    }
}

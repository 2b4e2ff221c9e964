//! One run of a benchmark program, and the lines that it prints.

use std::path::Path;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::Result;

/// One size of one collective, as `han bench --json` and `mpibench` print it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The collective.
    pub coll: String,
    /// Size of the message.
    pub bytes: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// How iterations follow each other: `loop`, `osu`.
    pub style: String,
    /// What the library chose; empty for rivals, which do not tell.
    #[serde(default)]
    pub choice: String,
    /// Operations in one repeat.
    pub iters: u32,
    /// Repeats.
    pub repeats: u32,
    /// Best repeat's time per operation, in microseconds; the slowest rank counts.
    pub us_min: f64,
    /// Middle repeat's.
    pub us_median: f64,
    /// Worst repeat's.
    pub us_max: f64,
    /// Whether all results were right.
    pub verified: bool,
}

/// What to measure in one run; both programs understand it.
#[derive(Clone, Debug)]
pub struct Task {
    /// Number of ranks.
    pub ranks: usize,
    /// Names of collectives.
    pub collectives: Vec<String>,
    /// Smallest message in bytes.
    pub min: usize,
    /// Largest message in bytes.
    pub max: usize,
    /// Sizes are powers of this number.
    pub factor: usize,
    /// Repeats of each size.
    pub repeats: u32,
    /// Length of a repeat in milliseconds.
    pub ms: u64,
    /// `loop`, `osu` or `cold`.
    pub style: String,
}

impl Task {
    /// The command of han, which is ended after `limit_s` seconds.
    #[must_use]
    pub fn for_han(&self, han: &Path, limit_s: u64) -> Command {
        let style = if self.style == "cold" { "osu" } else { &self.style };
        // `han bench` becomes `han run`, which ends its ranks when it is told to end.
        let mut command = Command::new("timeout");
        command.args(["--kill-after=3", &limit_s.to_string()]).arg(han);
        command.args(["bench", &self.collectives.join(","), "--json", "--style", style]);
        for (name, value) in [
            ("-n", self.ranks.to_string()),
            ("--min", self.min.to_string()),
            ("--max", self.max.to_string()),
            ("--factor", self.factor.to_string()),
            ("--repeats", self.repeats.to_string()),
            ("--ms", self.ms.to_string()),
        ] {
            command.args([name, &value]);
        }
        if self.style == "cold" {
            command.arg("--cold");
        }
        command
    }

    /// The arguments of `mpibench`.
    #[must_use]
    pub fn for_mpibench(&self) -> Vec<String> {
        let numbers = [self.min, self.max, self.factor, self.repeats as usize].map(|number| number.to_string());
        let mut arguments = vec![self.collectives.join(",")];
        arguments.extend(numbers);
        arguments.extend([self.ms.to_string(), self.style.clone()]);
        arguments
    }
}

/// Runs `command` and gives the rows that it printed.
///
/// # Errors
/// It cannot be started, ends with an error, or prints a wrong result.
pub fn run(command: &mut Command) -> Result<Vec<Row>> {
    let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    let rows = rows(&String::from_utf8_lossy(&output.stdout));
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|line| line.chars().any(char::is_alphabetic)).unwrap_or_default();
        return Err(format!("{} after {} rows: {first}", output.status, rows.len()).into());
    }
    if let Some(wrong) = rows.iter().find(|row| !row.verified) {
        return Err(format!("wrong result of {} at {} bytes", wrong.coll, wrong.bytes).into());
    }
    Ok(rows)
}

/// `command` as the only rank of a job of `han run`, which ends it after `limit_s` seconds and leaves
/// none of its processes behind: a launcher that is killed leaves its ranks, and they spin for ever.
#[must_use]
pub fn supervised(han: &Path, command: &Command, limit_s: u64) -> Command {
    let mut supervised = Command::new(han);
    supervised.args(["run", "-n", "1", "--bind", "none", "--timeout", &limit_s.to_string(), "--", "env"]);
    // The launcher must not take itself for a rank.
    for name in ["PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID"] {
        supervised.args(["-u", name]);
    }
    supervised.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            supervised.env(name, value);
        }
    }
    supervised
}

/// The lines that are rows; launchers print others between them.
fn rows(text: &str) -> Vec<Row> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_among_other_lines() {
        let text = "a launcher's greeting\n\
            {\"coll\":\"bcast\",\"bytes\":8,\"ranks\":2,\"style\":\"osu\",\"iters\":5,\"repeats\":5,\
            \"us_min\":0.1,\"us_median\":0.2,\"us_max\":0.3,\"verified\":true}\n{\"other\":1}\n";
        let rows = rows(text);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].coll.as_str(), rows[0].bytes, rows[0].choice.as_str()), ("bcast", 8, ""));
    }

    #[test]
    fn failures_and_wrong_results_are_errors() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            run(&mut command)
        };
        assert!(shell("echo reason >&2; exit 3").is_err_and(|error| error.to_string().contains("reason")));
        let wrong = "echo '{\"coll\":\"bcast\",\"bytes\":8,\"ranks\":2,\"style\":\"osu\",\"iters\":5,\"repeats\":5,\
            \"us_min\":0.1,\"us_median\":0.2,\"us_max\":0.3,\"verified\":false}'";
        assert!(shell(wrong).is_err_and(|error| error.to_string().contains("wrong result")));
        assert!(shell("true").is_ok_and(|rows| rows.is_empty()));
    }
}

//! One run of `collbench`: what it is asked for, and the lines that it prints.

use std::process::{Command, Stdio};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::network::Network;

/// How iterations follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Style {
    /// A barrier before each, only the operation is timed
    Osu,
    /// One after the other, the loop is timed
    Loop,
    /// A barrier before each, both are timed
    Pair,
    /// As osu, with the send buffer rewritten before each
    Cold,
}

/// What to measure in one run.
#[derive(Clone, Debug)]
pub struct Task {
    /// Number of ranks.
    pub ranks: usize,
    /// The nodes that share them in equal blocks, if not this machine has them all.
    pub network: Option<Network>,
    /// Names of collectives.
    pub collectives: Vec<String>,
    /// Sizes in bytes.
    pub sizes: Vec<usize>,
    /// How iterations follow each other.
    pub style: Style,
    /// Repeats of each size.
    pub repeats: u32,
    /// Length of a repeat in milliseconds.
    pub ms: u64,
    /// Further options of `collbench`, such as `--rotate-roots`.
    pub further: Vec<String>,
}

impl Task {
    /// A short task of one collective on two ranks.
    #[must_use]
    pub fn of(collective: &str, sizes: &[usize], style: Style) -> Self {
        let collectives = vec![collective.to_owned()];
        let (sizes, further) = (sizes.to_vec(), Vec::new());
        Self { ranks: 2, network: None, collectives, sizes, style, repeats: 5, ms: 1, further }
    }

    /// Where it runs: `4 ranks`, `4 ranks on 2 nodes, 10 Gbit/s`.
    #[must_use]
    pub fn world(&self) -> String {
        world(self.ranks, self.network.as_ref())
    }

    /// The arguments of `collbench` with buffers in this kind of memory.
    #[must_use]
    pub fn arguments(&self, alloc: &str) -> Vec<String> {
        let sizes: Vec<String> = self.sizes.iter().map(ToString::to_string).collect();
        let mut words = vec![self.collectives.join(","), "--sizes".into(), sizes.join(",")];
        words.extend(["--repeats".into(), self.repeats.to_string(), "--ms".into(), self.ms.to_string()]);
        words.extend(["--alloc".into(), alloc.to_owned()]);
        match self.style {
            Style::Osu => {}
            Style::Loop => words.push("--loop".into()),
            Style::Pair => words.push("--pair".into()),
            Style::Cold => words.push("--cold".into()),
        }
        words.extend(self.further.iter().cloned());
        words
    }
}

/// So many ranks, on the nodes of a network if there is one.
#[must_use]
pub fn world(ranks: usize, network: Option<&Network>) -> String {
    network.map_or_else(|| format!("{ranks} ranks"), |network| format!("{ranks} ranks on {network}"))
}

/// One size of one collective, as `collbench` prints it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The collective.
    pub coll: String,
    /// Size of the message.
    pub bytes: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// `f32`, `f64`.
    pub dtype: String,
    /// How iterations follow each other: `loop`, `pair`, `osu`.
    pub style: String,
    /// Whether send buffers were rewritten before each iteration.
    pub cold: bool,
    /// The memory of buffers: `malloc`, `shared`, `register`.
    pub alloc: String,
    /// On how many pairs of buffers iterations took turns.
    pub buffers: u32,
    /// Whether the root changed with each iteration.
    pub rotate_roots: bool,
    /// Whether reductions were in place.
    pub in_place: bool,
    /// Operations in one repeat.
    pub iters: u64,
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

impl Row {
    /// What distinguishes this way of measuring from others: `osu`, `osu cold`, `loop f64 in place`.
    #[must_use]
    pub fn form(&self) -> String {
        let mut form = self.style.clone();
        for (holds, word) in [
            (self.cold, " cold"),
            (self.dtype == "f64", " f64"),
            (self.rotate_roots, " rotating roots"),
            (self.in_place, " in place"),
        ] {
            form += if holds { word } else { "" };
        }
        if self.buffers > 1 {
            form += &format!(" {} buffers", self.buffers);
        }
        form
    }
}

/// What a run left: rows, and why there are no more if it failed.
#[derive(Debug)]
pub struct Outcome {
    /// All rows, also those of a run that failed later.
    pub rows: Vec<Row>,
    /// What went wrong.
    pub failure: Option<String>,
}

/// Runs `command` to its end.
///
/// # Errors
/// It cannot be started.
pub fn run(command: &mut Command) -> Result<Outcome> {
    let output = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output()?;
    let rows = rows(&String::from_utf8_lossy(&output.stdout));
    let mut failure = None;
    if let Some(wrong) = rows.iter().find(|row| !row.verified) {
        failure = Some(format!("wrong result of {} at {} bytes", wrong.coll, wrong.bytes));
    } else if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let first = said.lines().find(|line| line.chars().any(char::is_alphabetic)).unwrap_or_default();
        failure = Some(format!("{} after {} rows: {first}", output.status, rows.len()));
    }
    Ok(Outcome { rows, failure })
}

/// The lines that are rows; launchers print others between them.
fn rows(text: &str) -> Vec<Row> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(verified: bool) -> String {
        format!(
            "{{\"coll\":\"bcast\",\"bytes\":8,\"ranks\":2,\"dtype\":\"f64\",\"style\":\"osu\",\"cold\":true,\
             \"alloc\":\"malloc\",\"buffers\":3,\"rotate_roots\":true,\"in_place\":false,\"iters\":5,\
             \"repeats\":5,\"us_min\":0.1,\"us_median\":0.2,\"us_max\":0.3,\"verified\":{verified}}}"
        )
    }

    #[test]
    fn rows_are_found_among_other_lines() {
        let rows = rows(&format!("a launcher's greeting\n{}\n{{\"other\":1}}\n", line(true)));
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].coll.as_str(), rows[0].bytes, rows[0].iters), ("bcast", 8, 5));
        assert_eq!(rows[0].form(), "osu cold f64 rotating roots 3 buffers");
    }

    #[test]
    fn failures_keep_the_rows_before_them() {
        let shell = |script: &str| run(Command::new("sh").args(["-c", script])).expect("there is a shell");
        let failed = shell(&format!("echo '{}'; echo reason >&2; exit 3", line(true)));
        assert_eq!(failed.rows.len(), 1);
        assert!(failed.failure.is_some_and(|failure| failure.contains("reason")));
        let wrong = shell(&format!("echo '{}'; exit 1", line(false)));
        assert!(wrong.failure.is_some_and(|failure| failure.contains("wrong result of bcast at 8 bytes")));
        let nothing = shell("true");
        assert!(nothing.rows.is_empty() && nothing.failure.is_none());
    }

    #[test]
    fn a_task_becomes_arguments() {
        let task = Task { further: vec!["--in-place".into()], ..Task::of("reduce", &[4, 1000], Style::Cold) };
        let line = task.arguments("shared").join(" ");
        assert_eq!(line, "reduce --sizes 4,1000 --repeats 5 --ms 1 --alloc shared --cold --in-place");
    }
}

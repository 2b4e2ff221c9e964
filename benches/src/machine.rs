//! The machine: its name, its quiet, and how far apart its two cores are at the moment.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Result;

/// Cores' worth of work by others below which the machine counts as quiet.
const QUIET_CORES: f64 = 0.3;
/// How long the load is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// The kernel's clock ticks in a second, as `/proc/stat` counts them.
const TICKS_PER_S: f64 = 100.0;

/// One-way latency of a cache line in nanoseconds from which on two cores count as far apart. Within a
/// cache that they share it takes 25 to 60, on the mesh of a large socket 90 to 130, between two such caches or sockets
/// 140 to 250.
const FAR_NS: f64 = 135.0;

/// How far apart the two cores are; virtual ones move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// They share a cache.
    Near,
    /// They do not.
    Far,
    /// One before and the other after: the figures belong to neither.
    Changed,
}

impl State {
    /// The state that one probe shows.
    #[must_use]
    pub fn of(one_way_ns: f64) -> Self {
        if one_way_ns < FAR_NS { Self::Near } else { Self::Far }
    }

    /// The state of a turn between two probes.
    #[must_use]
    pub fn between(before_ns: f64, after_ns: f64) -> Self {
        let (before, after) = (Self::of(before_ns), Self::of(after_ns));
        if before == after { before } else { Self::Changed }
    }

    /// The word for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
            Self::Changed => "changed",
        }
    }
}

/// One thing that the machine can do, in a state.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// When it was measured.
    #[serde(default = "unknown")]
    pub state: State,
    /// What: `memcpy`, `cache_line_one_way`, ...
    pub limit: String,
    /// Of how many bytes, for bandwidths.
    pub bytes: Option<usize>,
    /// How much.
    pub value: f64,
    /// Of what: `ns`, `GB/s`.
    pub unit: String,
}

fn unknown() -> State {
    State::Changed
}

/// One-way latency of a cache line between cores 0 and 1, in nanoseconds.
///
/// # Errors
/// `han` cannot measure it.
pub fn one_way_ns(han: &Path) -> Result<f64> {
    let output = Command::new(han).args(["bench", "--one-way", "0", "1"]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// What the machine itself can do at the moment, as far as `han bench --limits` measures it.
///
/// # Errors
/// `han` cannot measure it.
pub fn limits(han: &Path) -> Result<Vec<Limit>> {
    let before = one_way_ns(han)?;
    let output = Command::new(han).args(["bench", "--limits", "--json"]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let state = State::between(before, one_way_ns(han)?);
    let lines = String::from_utf8(output.stdout)?;
    let limit = |line: &str| Ok(Limit { state, ..serde_json::from_str(line)? });
    lines.lines().map(limit).collect()
}

/// Waits until others leave the machine alone, at most `patience`; false if they do not.
#[must_use]
pub fn wait_for_quiet(patience: Duration) -> bool {
    let start = Instant::now();
    loop {
        let (Some(before), ()) = (busy_s(), sleep(LOOK)) else { return true };
        let load = busy_s().map_or(0.0, |after| (after - before) / LOOK.as_secs_f64());
        if load < QUIET_CORES {
            return true;
        }
        if start.elapsed() > patience {
            return false;
        }
        sleep(Duration::from_secs(1));
    }
}

/// Seconds of work that all cores have done since the start of the machine.
fn busy_s() -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    busy_ticks(&stat).map(|ticks| ticks / TICKS_PER_S)
}

/// Of user, nice, system, idle, iowait, irq, softirq and steal, all but idle and iowait.
fn busy_ticks(stat: &str) -> Option<f64> {
    let all: Vec<f64> = stat.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    Some(all.iter().take(8).sum::<f64>() - all.get(3)? - all.get(4)?)
}

/// Processor model and number of cores.
#[must_use]
pub fn name() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model);
    format!("{model}, {} cores", cores())
}

/// Cores that this process may use.
#[must_use]
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The name as a directory: lower case, hyphens.
#[must_use]
pub fn slug(name: &str) -> String {
    let plain = name.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), " ");
    plain.split_whitespace().collect::<Vec<_>>().join("-")
}

/// Today, as `2026-11-20`.
///
/// # Errors
/// The program `date` is missing.
pub fn date() -> Result<String> {
    let output = Command::new("date").args(["-u", "+%F"]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_a_state_only_if_it_did_not_change() {
        assert_eq!(State::between(31.0, 50.0), State::Near);
        assert_eq!(State::between(160.0, 170.0), State::Far);
        assert_eq!(State::between(31.0, 160.0), State::Changed);
    }

    #[test]
    fn busy_time_leaves_idle_and_waiting_out() {
        let stat = "cpu  10 1 5 1000 200 0 2 3 0 0\ncpu0 ...\n";
        assert_eq!(busy_ticks(stat), Some(21.0));
        assert_eq!(busy_ticks(""), None);
    }

    #[test]
    fn names_become_directories() {
        assert_eq!(slug("AMD EPYC 9354, 2 cores"), "amd-epyc-9354-2-cores");
    }
}

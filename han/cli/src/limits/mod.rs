//! `han bench --limits`: what this machine charges for the parts that collectives are made of.
//!
//! Two real processes, this one and a [`peer`], measure on two cores of the affinity mask,
//! those that `han bench` gives to ranks 0 and 1. A collective's time is worth something only
//! beside these figures, and only if both were taken in the same state of the machine.

mod peer;

use std::io::Write;
use std::process::{Command, Stdio};

use charts::as_f64;
use reduce_kernels::say;
use serde::Serialize;
use shm_core::sys::affinity::allowed_cores;
use shm_core::sys::limits::{self, Side, Wait};
use shm_core::topo::binding_order;

use crate::Result;
use crate::numbers::{bytes_text, median};
use crate::output::stdout;
use crate::tables;
pub(crate) use peer::serve;
use peer::{Peer, Work};

/// Sizes of the bandwidth figures.
const SIZES: [usize; 9] = [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26];
/// Below this one-way latency the two cores share a cache, above [`FAR_NS`] they do not.
const NEAR_NS: f64 = 80.0;
/// See [`NEAR_NS`].
const FAR_NS: f64 = 120.0;

/// One line of the output.
#[derive(Serialize)]
struct Limit {
    limit: &'static str,
    bytes: Option<usize>,
    value: f64,
    unit: &'static str,
}

/// How far apart the two cores were when they were looked at: virtual cores move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Distance {
    /// A cache line takes less than 80 ns.
    Near,
    /// Neither near nor far: the state was changing, or another process disturbed.
    Between,
    /// A cache line takes more than 120 ns, as between two sockets.
    Far,
}

impl Distance {
    /// The state that a one-way latency in nanoseconds belongs to.
    pub(crate) fn of(one_way_ns: f64) -> Self {
        match one_way_ns {
            ns if ns < NEAR_NS => Self::Near,
            ns if ns > FAR_NS => Self::Far,
            _ => Self::Between,
        }
    }

    /// The word for tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Between => "between",
            Self::Far => "far",
        }
    }
}

/// Measures and prints every limit.
pub(crate) fn main(json: bool) -> Result<()> {
    let mut found = Vec::new();
    measure(&mut |limit| {
        if json {
            writeln!(stdout(), "{}", serde_json::to_string(&limit)?)?;
        } else {
            found.push(limit);
        }
        Ok(())
    })?;
    if !json {
        print_table(&found)?;
    }
    Ok(())
}

/// Gives every limit to `report` as soon as it is known.
fn measure(report: &mut dyn FnMut(Limit) -> Result<()>) -> Result<()> {
    let cores = binding_order(allowed_cores()?);
    let first = *cores.first().ok_or("this process may run on no core")?;
    let mut peer = Peer::start(SIZES[SIZES.len() - 1])?;
    limits::pin(first)?;
    if let Some(&second) = cores.get(1) {
        report(time("cache_line_one_way", peer.ping_pong(second, Wait::Spin, 10_000, 15)?))?;
        report(time("futex_wake", peer.ping_pong(second, Wait::Futex, 500, 9)?))?;
        for bytes in SIZES {
            let rounds = u32::try_from((64 << 20) / bytes)?.clamp(9, 500);
            peer.order(second, Work::Rewrite { bytes, rounds })?;
            let times = peer.arena().copy_from_peer(Side::First, bytes, rounds)?;
            peer.answer()?;
            report(bandwidth("memcpy_from_peer", bytes, as_f64(bytes) / median(&times)))?;
        }
    } else {
        say("han bench: one core only: no limit between two cores can be measured");
    }
    report(time("yield_switch", peer.ping_pong(first, Wait::Yield, 10_000, 9)?))?;
    for bytes in SIZES {
        report(bandwidth("memcpy", bytes, limits::memcpy_rate(bytes)))?;
        report(bandwidth("reduce_f32_sum", bytes, limits::reduce_f32_sum_rate(bytes)?))?;
    }
    let source = peer.expose(cores.get(1).copied().unwrap_or(first), SIZES[SIZES.len() - 1])?;
    for bytes in SIZES {
        match limits::process_vm_readv_rate(peer.pid(), source, bytes) {
            Ok(rate) => report(bandwidth("process_vm_readv", bytes, rate))?,
            Err(error) => {
                say(&format!("han bench: {error}: this machine does not let one process read another"));
                break;
            }
        }
    }
    Ok(())
}

/// One-way latency in nanoseconds between two cores, measured by processes of its own, so that
/// the caller's binding does not matter and does not change.
pub(crate) fn one_way_ns(cores: (usize, usize)) -> Result<f64> {
    let output = Command::new(std::env::current_exe()?)
        .args(["bench", "--one-way", &cores.0.to_string(), &cores.1.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("the processes that measure it have failed: {}", output.status).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().parse()?)
}

/// What `han bench --one-way FIRST SECOND` does: prints the latency that [`one_way_ns`] asks for.
pub(crate) fn print_one_way(first: usize, second: usize) -> Result<()> {
    let mut peer = Peer::start(0)?;
    limits::pin(first)?;
    let times = peer.ping_pong(second, Wait::Spin, 5_000, 15)?;
    Ok(writeln!(stdout(), "{:.1}", median(&times))?)
}

fn time(limit: &'static str, batches: Vec<f64>) -> Limit {
    Limit { limit, bytes: None, value: rounded(median(&batches)), unit: "ns" }
}

fn bandwidth(limit: &'static str, bytes: usize, value: f64) -> Limit {
    Limit { limit, bytes: Some(bytes), value: rounded(value), unit: "GB/s" }
}

/// Two decimals are more than the measurement is good for.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Latencies one a line, bandwidths with a column for each kind.
fn print_table(limits: &[Limit]) -> Result<()> {
    let mut latencies = tables::plain(["limit", "ns"]);
    for limit in limits.iter().filter(|limit| limit.bytes.is_none()) {
        latencies.add_row([limit.limit.to_owned(), format!("{:.1}", limit.value)]);
    }
    let mut kinds: Vec<&str> = Vec::new();
    for limit in limits.iter().filter(|limit| limit.bytes.is_some()) {
        if !kinds.contains(&limit.limit) {
            kinds.push(limit.limit);
        }
    }
    let mut rates = tables::plain(["GB/s at"].iter().chain(&kinds));
    for bytes in SIZES {
        let value = |kind: &str| {
            let hit = limits.iter().find(|limit| limit.limit == kind && limit.bytes == Some(bytes));
            hit.map_or_else(|| "-".to_owned(), |limit| format!("{:.1}", limit.value))
        };
        let mut row = vec![bytes_text(bytes)];
        row.extend(kinds.iter().map(|kind| value(kind)));
        rates.add_row(row);
    }
    for table in [latencies, rates] {
        writeln!(stdout(), "{}\n", tables::right(table, |column| column > 0))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Distance;

    #[test]
    fn latencies_fall_into_states() {
        assert_eq!(Distance::of(31.0), Distance::Near);
        assert_eq!(Distance::of(100.0), Distance::Between);
        assert_eq!(Distance::of(160.0), Distance::Far);
    }
}

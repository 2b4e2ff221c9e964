//! `HAN_MPI_REPORT=1`: what became of the program's collectives, in a table at the end.

use std::cell::Cell;
use std::env;
use std::fmt::Write;
use std::sync::{Once, OnceLock};
use std::time::{Duration, Instant};

use han::{Collective, Exchange};
use shm_core::say;

use crate::rules::Why;

/// Why there will be no table, where one is wanted.
static NONE: OnceLock<&str> = OnceLock::new();

/// There will be no table, for a reason that is said at the end if one is wanted.
pub(crate) fn none(why: &'static str) {
    if env::var_os("HAN_MPI_REPORT").is_some_and(|value| value == "1") {
        NONE.get_or_init(|| why);
    }
}

/// Says that there is no table, and why, if one is wanted; once.
pub(crate) fn say_none() {
    static SAID: Once = Once::new();
    if let Some(why) = NONE.get() {
        SAID.call_once(|| say(&format!("libhan_mpi: no report: {why}")));
    }
}

/// Numbers of one rank.
#[derive(Default)]
pub(crate) struct Report {
    lines: [Line; Collective::ALL.len()],
}

#[derive(Default)]
struct Line {
    taken: Cell<u64>,
    bytes: Cell<u64>,
    time_ns: Cell<u64>,
    passed: [Cell<u64>; Why::ALL.len()],
}

fn add(cell: &Cell<u64>, more: u64) {
    cell.set(cell.get() + more);
}

impl Report {
    /// Notes a call of `bytes` that was carried out here, begun at `since`.
    pub(crate) fn taken(&self, collective: Collective, bytes: usize, since: Instant) {
        let line = &self.lines[collective.index()];
        add(&line.taken, 1);
        add(&line.bytes, bytes as u64);
        let time = Duration::min(since.elapsed(), Duration::from_secs(1 << 32));
        add(&line.time_ns, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Notes a call that went on to the MPI.
    pub(crate) fn passed(&self, collective: Collective, why: Why) {
        add(&self.lines[collective.index()].passed[why as usize], 1);
    }

    /// The numbers of all ranks together; collective. Counts and bytes are sums, times are means.
    pub(crate) fn table(&self, exchange: &mut dyn Exchange, mpi: &str) -> Result<String, String> {
        let own: Vec<u8> = self.lines.iter().flat_map(Line::numbers).flat_map(u64::to_le_bytes).collect();
        let all = exchange.allgather(&own).map_err(|e| e.to_string())?;
        let mut sums = vec![0_u64; own.len() / 8];
        for words in &all {
            for (sum, word) in sums.iter_mut().zip(words.as_chunks::<8>().0) {
                *sum = sum.wrapping_add(u64::from_le_bytes(*word));
            }
        }
        Ok(text(&sums, all.len(), mpi))
    }
}

impl Line {
    fn numbers(&self) -> Vec<u64> {
        let first = [&self.taken, &self.bytes, &self.time_ns];
        first.into_iter().chain(&self.passed).map(Cell::get).collect()
    }
}

/// The table of numbers that were summed over `ranks`.
#[allow(clippy::cast_precision_loss)] // for people
fn text(sums: &[u64], ranks: usize, mpi: &str) -> String {
    let mut text = format!(
        "han: {ranks} ranks under {mpi}: calls and bytes of all ranks, mean time of a rank\n\
         han: {:10} {:>12} {:>16} {:>12} {:>12}\n",
        "collective", "taken", "bytes", "time (s)", "passed on"
    );
    for (collective, numbers) in Collective::ALL.iter().zip(sums.chunks_exact(3 + Why::ALL.len())) {
        let (taken, bytes, passed) = (numbers[0], numbers[1], &numbers[3..]);
        let time_s = numbers[2] as f64 / 1e9 / ranks as f64;
        let total: u64 = passed.iter().sum();
        let _ = write!(text, "han: {collective:10} {taken:12} {bytes:16} {time_s:12.6} {total:12}");
        let reasons = Why::ALL.iter().zip(passed).filter(|(_, calls)| **calls > 0);
        let reasons: Vec<String> = reasons.map(|((_, words), calls)| format!("{words}: {calls}")).collect();
        let _ = writeln!(text, "{}{}", if reasons.is_empty() { "" } else { "  " }, reasons.join(", "));
    }
    text
}

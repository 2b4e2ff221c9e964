//! Start-up without a launcher: rank 0 listens at an address that all ranks were told, and the others connect to it.
//!
//! Who connects proves that it knows the job's secret before anything else that it says is looked at, and so does
//! rank 0 ([`handshake`]); from then on every message carries a code that only the two can make ([`message`]). These
//! two do no input or output. The connections stay open for the whole job: an exchange goes to rank 0 ([`root`]) and
//! comes back from there ([`member`]).

mod caller;
mod handshake;
mod member;
mod message;
mod proof;
mod root;
mod settings;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use std::net::TcpStream;
use std::time::{Duration, Instant};
use std::{io, thread};

use shm_core::exchange::Exchange;
use shm_core::sys::socket;

use super::error::{Error, Result};
pub(super) use settings::{ADDRESS, RANK, SIZE, Settings};

/// Meets the other ranks.
///
/// # Errors
/// [`Error::Rendezvous`]: an address that cannot be listened at or reached, a secret that is another, or ranks that have
/// not come within the time limit, by their numbers.
pub(super) fn meet(settings: Settings) -> Result<Box<dyn Exchange>> {
    if settings.rank == 0 {
        let listener = root::listen(&settings)?;
        return Ok(Box::new(root::Root::gather(&listener, settings)?));
    }
    Ok(Box::new(member::Member::join(settings)?))
}

/// Prepares a connection for small messages at start-up and long silence afterwards, which a firewall may take for its end.
///
/// # Errors
/// The system refuses it.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    const QUIET: Duration = Duration::from_secs(60);
    stream.set_nodelay(true)?;
    socket::keep_alive(stream, QUIET)
}

/// A point in time after which nothing is waited for, with growing naps until then.
#[derive(Debug)]
struct Limit {
    end: Instant,
    nap: Duration,
}

impl Limit {
    const SHORTEST_NAP: Duration = Duration::from_micros(100);
    const LONGEST_NAP: Duration = Duration::from_millis(5);

    fn of(length: Duration) -> Self {
        Self { end: Instant::now() + length, nap: Self::SHORTEST_NAP }
    }

    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Waits a little, the longer the longer nothing has happened.
    fn nap(&mut self) {
        thread::sleep(self.nap);
        self.nap = (self.nap * 2).min(Self::LONGEST_NAP);
    }

    /// Something has happened.
    fn stir(&mut self) {
        self.nap = Self::SHORTEST_NAP;
    }
}

/// `1, 3..5, 9`: some ranks, ascending, for people; only the first of many ranges.
fn list(ranks: &[usize]) -> String {
    const SHOWN: usize = 8;
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let shown = ranges.iter().take(SHOWN).map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}..{last}"),
    });
    let more = if ranges.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", shown.collect::<Vec<_>>().join(", "))
}

fn failed(text: impl Into<String>) -> Error {
    Error::Rendezvous(text.into())
}

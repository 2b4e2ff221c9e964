//! Each way to share memory between processes, tried once, with the system's own words when it fails: the
//! kinds of segment one by one, the copy methods by the probe of a job of two ranks, this process and
//! another one of its program.
#![allow(unsafe_code)] // vouches for the exchange

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use comfy_table::Table;
use han::{Config, Exchange, Method, Methods};
use nix::sys::signal::Signal;
use serde::Serialize;
use shm_core::sys::map::{DEV_SHM, SharedMap};
use shm_core::sys::process::die_with_parent;
use shm_core::{ExchangeError, Job};

use super::Result;
use crate::bench::{SET_VARIABLE, joined};
use crate::tables;

/// One way and its verdict.
#[derive(Serialize)]
pub(super) struct Trial {
    method: &'static str,
    works: bool,
    verdict: String,
    used_for: &'static str,
}

/// Tries every way, under the settings of `config`.
pub(super) fn all(config: &Config) -> Vec<Trial> {
    let mut trials =
        vec![Trial::of("memfd", memfd(), "segments"), Trial::of("dev_shm", dev_shm(), "segments where memfd fails")];
    let uses = [
        "buffers of alloc or han_malloc, and registered ones, that peers map",
        "other large buffers, that the kernel copies",
        "small buffers, and where nothing else works",
    ];
    let job = two_ranks(config, &[]);
    for (method, used_for) in Method::ALL.into_iter().zip(uses) {
        let obstacle = |job: &Job| job.methods().obstacle(method).map(str::to_owned);
        let why = job.as_ref().map_or_else(|error| Some(error.to_string()), obstacle);
        trials.push(Trial::of(method.name(), why.map_or(Ok(()), |why| Err(why.into())), used_for));
    }
    trials
}

/// Which methods the ranks of a job could use here, under the settings of `config`, of which `set` are not from the
/// environment.
///
/// # Errors
/// There can be no job.
pub(crate) fn methods(config: &Config, set: &[String]) -> Result<Methods> {
    Ok(two_ranks(config, set)?.methods().clone())
}

/// Starts another process of this program and makes a job with it.
fn two_ranks(config: &Config, set: &[String]) -> Result<Job> {
    let mut command = Command::new(std::env::current_exe()?);
    command.env(SET_VARIABLE, joined(set));
    command.args(["info", "--trial-peer"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    die_with_parent(&mut command, Signal::SIGKILL);
    let mut peer = command.spawn()?;
    let (orders, answers) = (peer.stdin.take(), peer.stdout.take());
    let mut exchange = Pair {
        rank: 0,
        to: orders.ok_or("the peer has no standard input")?,
        from: BufReader::new(answers.ok_or("the peer has no standard output")?),
    };
    let job = Job::together(&mut exchange, config.settings.clone());
    // It has said all that it has to say.
    drop(exchange);
    peer.wait()?;
    let job = job?;
    job.finalize();
    Ok(job)
}

/// The other process of a trial.
pub(super) fn serve() -> Result<()> {
    let mut exchange = Pair { rank: 1, to: std::io::stdout(), from: BufReader::new(std::io::stdin()) };
    let job = Job::together(&mut exchange, Config::from_environment()?.settings)?;
    job.finalize();
    Ok(())
}

/// Two ranks at the ends of two pipes; what one gives is a line of numbers.
struct Pair<W, R> {
    rank: usize,
    to: W,
    from: BufReader<R>,
}

// SAFETY: the pipes' other end is the other rank alone, which was started for that; what it gives comes line by line, one a
// round.
unsafe impl<W: Write, R: Read> Exchange for Pair<W, R> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        2
    }

    fn allgather(&mut self, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, ExchangeError> {
        writeln!(self.to, "{}", serde_json::to_string(bytes)?)?;
        self.to.flush()?;
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err("the second process ended".into());
        }
        let other: Vec<u8> = serde_json::from_str(&line)?;
        Ok(if self.rank == 0 { vec![bytes.to_vec(), other] } else { vec![other, bytes.to_vec()] })
    }
}

impl Trial {
    fn of(method: &'static str, outcome: Result<()>, used_for: &'static str) -> Self {
        let verdict = outcome.as_ref().map_or_else(ToString::to_string, |()| "works".to_owned());
        Self { method, works: outcome.is_ok(), verdict, used_for }
    }
}

pub(super) fn table(trials: &[Trial]) -> Table {
    let mut table = tables::plain(["method", "verdict", "used for"]);
    for trial in trials {
        table.add_row([trial.method, &trial.verdict, trial.used_for]);
    }
    table
}

/// Makes an anonymous object and reaches it the way that another process would.
fn memfd() -> Result<()> {
    let map = SharedMap::anonymous("han-info", 4096)?;
    SharedMap::open(&map.path_for_peers(), 4096)?;
    Ok(())
}

/// Makes a named object, reaches it by its name, removes the name.
fn dev_shm() -> Result<()> {
    let path = Path::new(DEV_SHM).join(format!("han-info-{}", std::process::id()));
    let _map = SharedMap::named(&path, 4096)?;
    let reached = SharedMap::open(&path, 4096);
    fs::remove_file(&path)?;
    reached?;
    Ok(())
}

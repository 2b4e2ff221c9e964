//! The second process of the limits: starts this binary again, gives it orders over a pipe, and
//! takes its word when they are done. It sleeps in `read` while it has none, so it disturbs nothing,
//! and it ends with this process, however this one ends.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use shm_core::sys::limits::{Arena, Side, Wait, pin};
use shm_core::sys::process::die_with_parent;

use super::Result;

/// What the peer is told to do, one JSON object a line. It says when it is there, on its core, and
/// again when it is done.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    pub(super) core: usize,
    pub(super) work: Work,
}

/// The peer's part of a measurement.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Work {
    /// Answer a ping-pong.
    PingPong { wait: Waiting, rounds: u32, batches: u32 },
    /// Rewrite the arena's data before each of the first side's copies.
    Rewrite { bytes: usize, rounds: u32 },
    /// Write a private buffer and answer with its address.
    Expose { bytes: usize },
}

/// [`Wait`] as it goes over the pipe.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum Waiting {
    Spin,
    Yield,
    Futex,
}

impl From<Wait> for Waiting {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::Spin => Self::Spin,
            Wait::Yield => Self::Yield,
            Wait::Futex => Self::Futex,
        }
    }
}

impl From<Waiting> for Wait {
    fn from(wait: Waiting) -> Self {
        match wait {
            Waiting::Spin => Self::Spin,
            Waiting::Yield => Self::Yield,
            Waiting::Futex => Self::Futex,
        }
    }
}

/// The peer, seen from the first side. Dropped, it is gone.
pub(super) struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    arena: Arena,
}

impl Peer {
    /// Starts the peer with an arena of `data_bytes`.
    pub(super) fn start(data_bytes: usize) -> Result<Self> {
        let arena = Arena::create(data_bytes)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "--limits-peer"]).arg(arena.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        die_with_parent(&mut command, Signal::SIGKILL);
        let mut child = command.spawn()?;
        let orders = child.stdin.take().ok_or("the peer has no standard input")?;
        let answers = child.stdout.take().ok_or("the peer has no standard output")?;
        Ok(Self { child, orders, answers: BufReader::new(answers), arena })
    }

    /// The memory that both processes share.
    pub(super) fn arena(&self) -> &Arena {
        &self.arena
    }

    /// The peer's process id.
    pub(super) fn pid(&self) -> i32 {
        // Process ids are below 2^22 on Linux.
        self.child.id().cast_signed()
    }

    /// Sets the peer to work and waits until it is there; the caller plays the first side, then takes
    /// the [`Self::answer`].
    pub(super) fn order(&mut self, core: usize, work: Work) -> Result<()> {
        self.arena.reset();
        writeln!(self.orders, "{}", serde_json::to_string(&Order { core, work })?)?;
        self.answer().map(drop)
    }

    /// Waits for the peer's next line.
    pub(super) fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.answers.read_line(&mut line)? == 0 {
            return Err(format!("the second process ended: {}", self.child.wait()?).into());
        }
        Ok(line.trim_end().to_owned())
    }

    /// One-way times in nanoseconds between this process and the peer on `core`, one a batch.
    pub(super) fn ping_pong(&mut self, core: usize, wait: Wait, rounds: u32, batches: u32) -> Result<Vec<f64>> {
        self.order(core, Work::PingPong { wait: wait.into(), rounds, batches })?;
        let times = self.arena.ping_pong(Side::First, wait, rounds, batches)?;
        self.answer()?;
        Ok(times)
    }

    /// The address of a buffer of `bytes` that the peer has written.
    pub(super) fn expose(&mut self, core: usize, bytes: usize) -> Result<usize> {
        self.order(core, Work::Expose { bytes })?;
        Ok(self.answer()?.parse()?)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Both fail only for a process that is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peer's own main: obeys orders on the arena at `path` until the pipe ends.
pub(crate) fn serve(path: &Path) -> Result<()> {
    let arena = Arena::attach(path)?;
    let mut out = std::io::stdout();
    let mut exposed = Vec::new();
    for line in std::io::stdin().lines() {
        let order: Order = serde_json::from_str(&line?)?;
        pin(order.core)?;
        writeln!(out, "there")?;
        let mut answer = String::from("done");
        match order.work {
            Work::PingPong { wait, rounds, batches } => {
                arena.ping_pong(Side::Second, wait.into(), rounds, batches)?;
            }
            Work::Rewrite { bytes, rounds } => {
                arena.copy_from_peer(Side::Second, bytes, rounds)?;
            }
            Work::Expose { bytes } => {
                exposed = vec![1u8; bytes];
                answer = exposed.as_ptr().addr().to_string();
            }
        }
        writeln!(out, "{answer}")?;
    }
    drop(exposed);
    Ok(())
}

//! The rank's side of PMI-1.
//!
//! Requests and answers alternate strictly, except for the barrier, whose answer comes when all ranks
//! are there. A launcher that dies closes the connection, which ends every wait here.
#![allow(unsafe_code)] // vouches for the exchange

use std::fmt::Display;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use shm_core::exchange::{Exchange, ExchangeError};
use shm_core::sys::held::Held;
use shm_core::sys::process;

use super::{mapping, value, wire};
use crate::bootstrap::error::{Error, Result};
use crate::bootstrap::patience::Patience;
use wire::{LineBuffer, MAX_ANSWER_BYTES, MAX_LINE_BYTES, Message};

/// Room for the other fields of a line that carries a value, in the longest wording seen.
const ANSWER_FIELDS_BYTES: usize = 64;

/// How often a rank that waits for the others looks up.
const LOOK_UP: Duration = Duration::from_millis(100);

/// A rank's connection to its PMI-1 launcher.
///
/// Dropped without [`Exchange::finalize`], it looks to the launcher like a rank that died.
#[derive(Debug)]
pub struct Client {
    /// Any stream socket: std sends on this type without raising `SIGPIPE`, which would end a program
    /// that is not Rust.
    link: Held<UnixStream>,
    /// The descriptor that the launcher left open.
    inherited: Option<RawFd>,
    lines: LineBuffer,
    rank: usize,
    size: usize,
    kvsname: String,
    key_bytes: usize,
    piece_bytes: usize,
    nodes: Option<Vec<usize>>,
    /// Number of exchanges so far; part of every key, so that no value is read twice.
    generation: u64,
    patience: Patience,
}

impl Client {
    /// Talks over the descriptor `fd` that the launcher left open for this process.
    ///
    /// # Errors
    /// [`Error::Environment`] for a rank outside the world, [`Error::Io`] for a descriptor that is not
    /// open, and whatever the handshake meets.
    pub fn over_inherited(fd: RawFd, rank: usize, size: usize) -> Result<Self> {
        if rank >= size {
            return Err(Error::Environment(format!(
                "PMI_RANK and PMI_SIZE name rank {rank} of {size}, which cannot be"
            )));
        }
        let link = process::duplicate_inherited(fd).map_err(|e| not_inherited(fd, &e))?;
        Self::handshake(Self { inherited: Some(fd), ..Self::unconnected(link)? }, rank, size)
    }

    /// Connects to a launcher that listens at `address` (`host:port`) and knows this process as `id`.
    ///
    /// # Errors
    /// [`Error::Io`] when nobody answers there, and whatever the handshake meets.
    pub fn over_tcp(address: &str, id: usize) -> Result<Self> {
        let link = TcpStream::connect(address).map_err(Error::io(format!("connect to PMI_PORT={address}")))?;
        link.set_nodelay(true).map_err(Error::io("set TCP_NODELAY on the PMI connection"))?;
        let mut client = Self::unconnected(link.into())?;
        client.call("initack", &[("pmiid", &id)], "initack")?;
        let size = client.announced("size")?;
        let rank = client.announced("rank")?;
        client.announced("debug")?;
        if rank >= size {
            return Err(Error::Protocol(format!("the launcher announced rank {rank} of {size}")));
        }
        Self::handshake(client, rank, size)
    }

    /// Tells of long waits for other ranks, and gives them up.
    pub(in crate::bootstrap) fn with(self, patience: Patience) -> Self {
        Self { patience, ..self }
    }

    /// Leaves it to the ranks to find out on which nodes they are.
    pub(in crate::bootstrap) fn without_nodes(self) -> Self {
        Self { nodes: None, ..self }
    }

    fn unconnected(link: OwnedFd) -> Result<Self> {
        let link = Held::new(UnixStream::from(link)).map_err(|error| Error::Protocol(error.to_string()))?;
        Ok(Self {
            link,
            inherited: None,
            lines: LineBuffer::new(MAX_ANSWER_BYTES),
            rank: 0,
            size: 0,
            kvsname: String::new(),
            key_bytes: 0,
            piece_bytes: 0,
            nodes: None,
            generation: 0,
            patience: Patience { speak_s: 0.0, limit_s: 0.0 },
        })
    }

    fn handshake(mut self, rank: usize, size: usize) -> Result<Self> {
        (self.rank, self.size) = (rank, size);
        self.call("init", &[("pmi_version", &1), ("pmi_subversion", &1)], "response_to_init")?;
        let maxes = self.call("get_maxes", &[], "maxes")?;
        let maxes = Message::parse(&maxes)?;
        // The maxima count a terminating zero in some launchers and not in others.
        self.key_bytes = maxes.number::<usize>("keylen_max")?.saturating_sub(1);
        let value_bytes = maxes.number::<usize>("vallen_max")?.saturating_sub(1);
        let answer = self.call("get_my_kvsname", &[], "my_kvsname")?;
        Message::parse(&answer)?.require("kvsname")?.clone_into(&mut self.kvsname);
        let overhead = ANSWER_FIELDS_BYTES + self.kvsname.len() + self.key_bytes.min(MAX_LINE_BYTES);
        self.piece_bytes = value_bytes.min(MAX_LINE_BYTES.saturating_sub(overhead));
        let first_piece_bytes = value::encode(&[])?.len();
        if self.piece_bytes < first_piece_bytes {
            let room = self.piece_bytes;
            return Err(Error::Protocol(format!(
                "the launcher leaves {room} bytes for a value; {first_piece_bytes} are needed"
            )));
        }
        self.nodes = match self.lookup(mapping::KEY)? {
            Some(text) => Some(mapping::parse(&text, size)?),
            None => None,
        };
        Ok(self)
    }

    /// Publishes a value under a key that no rank has used.
    ///
    /// # Errors
    /// [`Error::Protocol`] for a key or value that does not fit, [`Error::Refused`] by the launcher.
    pub fn put(&mut self, key: &str, value: &str) -> Result<()> {
        if key.len() > self.key_bytes {
            let limit = self.key_bytes;
            return Err(Error::Protocol(format!("key {key:?} exceeds the launcher's {limit} bytes")));
        }
        let kvsname = self.kvsname.clone();
        self.call("put", &[("kvsname", &kvsname), ("key", &key), ("value", &value)], "put_result")?;
        Ok(())
    }

    /// Waits until all ranks have come; what was put before is then visible to all.
    ///
    /// # Errors
    /// [`Error::Closed`] when the launcher ends the job meanwhile.
    pub fn barrier(&mut self) -> Result<()> {
        let (rank, size, began) = (self.rank, self.size, Instant::now());
        let mut wait = self.patience.wait(move |seconds| {
            format!(
                "rank {rank} has waited {seconds:.1} s at the start for the other ranks of {size}; those that do not say so \
                 have not come"
            )
        });
        self.look_up_every(Some(LOOK_UP))?;
        self.send(&wire::format("barrier_in", &[])?)?;
        let line = self.receive(|| wait.look(began.elapsed()))?;
        self.look_up_every(None)?;
        expect(&line, "barrier_out")?;
        accepted("barrier_in", line)?;
        Ok(())
    }

    /// The value that some rank put under `key`.
    ///
    /// # Errors
    /// [`Error::Refused`] when there is none.
    pub fn get(&mut self, key: &str) -> Result<String> {
        let reason = || format!("no rank has put the key {key:?}");
        self.lookup(key)?.ok_or_else(|| Error::Refused { request: "get", reason: reason() })
    }

    fn lookup(&mut self, key: &str) -> Result<Option<String>> {
        let kvsname = self.kvsname.clone();
        let answer = self.ask("get", &[("kvsname", &kvsname), ("key", &key)], "get_result")?;
        let answer = Message::parse(&answer)?;
        if answer.number::<i64>("rc")? != 0 {
            return Ok(None);
        }
        Ok(Some(answer.require("value")?.to_owned()))
    }

    /// One exchange through the store: put, barrier, get.
    fn gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let generation = self.generation;
        self.generation += 1;
        let text = value::encode(bytes)?;
        for (piece, digits) in text.as_bytes().chunks(self.piece_bytes).enumerate() {
            self.put(&key(generation, self.rank, piece), &String::from_utf8_lossy(digits))?;
        }
        self.barrier()?;
        let mut all = Vec::with_capacity(self.size);
        for rank in 0..self.size {
            all.push(if rank == self.rank { bytes.to_vec() } else { self.fetch(generation, rank)? });
        }
        Ok(all)
    }

    fn fetch(&mut self, generation: u64, rank: usize) -> Result<Vec<u8>> {
        let mut text = self.get(&key(generation, rank, 0))?;
        let whole = value::text_len(&text)?;
        for piece in 1.. {
            if text.len() >= whole {
                break;
            }
            let digits = self.get(&key(generation, rank, piece))?;
            if digits.is_empty() {
                return Err(Error::Protocol(format!("piece {piece} of rank {rank}'s value is empty")));
            }
            text.push_str(&digits);
        }
        value::decode(&text)
    }

    /// Sends a request and returns the answer, which must have this name and no error.
    fn call(&mut self, request: &'static str, fields: &[(&str, &dyn Display)], answer: &str) -> Result<String> {
        accepted(request, self.ask(request, fields, answer)?)
    }

    fn ask(&mut self, request: &str, fields: &[(&str, &dyn Display)], answer: &str) -> Result<String> {
        self.send(&wire::format(request, fields)?)?;
        let line = self.receive(|| Ok(()))?;
        expect(&line, answer)?;
        Ok(line)
    }

    /// What the launcher tells unasked after `initack`.
    fn announced(&mut self, name: &str) -> Result<usize> {
        let line = self.receive(|| Ok(()))?;
        expect(&line, "set")?;
        Message::parse(&line)?.number(name)
    }

    fn look_up_every(&self, period: Option<Duration>) -> Result<()> {
        self.link.set_read_timeout(period).map_err(Error::io("read from the launcher"))
    }

    fn send(&mut self, line: &str) -> Result<()> {
        if !self.link.is_open() {
            return Err(Error::Gone);
        }
        match (&*self.link).write_all(line.as_bytes()) {
            Err(e) if is_closed(&e) => Err(Error::Closed),
            other => other.map_err(Error::io("write to the launcher")),
        }
    }

    /// Does `look` whenever it has waited for a while, if [`look_up_every`](Self::look_up_every) says so.
    fn receive(&mut self, mut look: impl FnMut() -> Result<()>) -> Result<String> {
        let mut chunk = [0; MAX_LINE_BYTES];
        loop {
            if let Some(line) = self.lines.next_line()? {
                return Ok(line);
            }
            match (&*self.link).read(&mut chunk) {
                Ok(0) => return Err(Error::Closed),
                Ok(bytes) => self.lines.push(&chunk[..bytes]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => look()?,
                Err(e) if is_closed(&e) => return Err(Error::Closed),
                Err(e) => return Err(Error::io("read from the launcher")(e)),
            }
        }
    }
}

// SAFETY: rank, size and values are the launcher's, which is the one of this job. A key has the rank and the number of the
// exchange in it, and is read when all ranks have met in the barrier behind it.
unsafe impl Exchange for Client {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn allgather(&mut self, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, ExchangeError> {
        Ok(self.gather(bytes)?)
    }

    fn nodes(&self) -> Option<Vec<usize>> {
        self.nodes.clone()
    }

    fn finalize(&mut self) -> std::result::Result<(), ExchangeError> {
        self.call("finalize", &[], "finalize_ack")?;
        // A program that this one becomes or starts now may be the next rank of a script. If the program has closed the
        // descriptor, it wants none.
        let _ = self.inherited.map(process::pass_on_inherited);
        Ok(())
    }

    fn abort(&mut self, code: i32, _why: &str) {
        // Best effort: a launcher that is gone has ended the job already.
        if let Ok(line) = wire::format("abort", &[("exitcode", &code)]) {
            let _ = self.send(&line);
        }
    }
}

fn not_inherited(fd: RawFd, error: &std::io::Error) -> Error {
    Error::Environment(format!(
        "PMI_FD={fd} is no open connection here ({error}): if a command stands between the launcher and this program, \
         as after --node-exec, it must pass on open files: `ip netns exec` and `nsenter` do, `sudo` and `ssh` do not; a rank passes \
         it on to other programs only when it has finalized"
    ))
}

fn key(generation: u64, rank: usize, piece: usize) -> String {
    format!("han-{generation}-{rank}-{piece}")
}

fn expect(line: &str, answer: &str) -> Result<()> {
    let command = Message::parse(line)?.command();
    if command == answer {
        return Ok(());
    }
    Err(Error::Protocol(format!("the launcher answered `cmd={command}` where `cmd={answer}` was due")))
}

fn accepted(request: &'static str, line: String) -> Result<String> {
    let message = Message::parse(&line)?;
    if message.get("rc").is_some_and(|rc| rc != "0") {
        let reason = message.get("msg").map_or_else(|| line.clone(), |reason| reason.replace('_', " "));
        return Err(Error::Refused { request, reason });
    }
    Ok(line)
}

fn is_closed(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
#[path = "client_tests.rs"]
mod tests;

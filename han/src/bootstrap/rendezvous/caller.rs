//! Connections that have not proven themselves yet, and what became of those that were no ranks.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use shm_core::sys::process::random_bytes;

use super::handshake::{CLAIM_BYTES, GREETING_BYTES, Greeted, Greeting, Place};
use super::proof::Key;
use super::{Limit, prepare};

/// A connection of which nothing is known yet.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    until: Limit,
    held: Vec<u8>,
    greeted: Option<Greeted>,
}

/// How far a caller has come.
#[derive(Debug)]
pub(super) enum Progress {
    Waiting,
    Stirred,
    Proven(Place, Key),
    Gone(&'static str),
}

impl Caller {
    /// A connection that has to prove itself within a time.
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, within: Duration) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        prepare(&stream)?;
        Ok(Self { stream, peer, until: Limit::of(within), held: Vec::new(), greeted: None })
    }

    /// Goes on with the handshake as far as it goes.
    pub(super) fn go_on(&mut self, secret: &Key) -> Progress {
        let wanted = if self.greeted.is_none() { GREETING_BYTES } else { CLAIM_BYTES };
        let mut chunk = [0; if GREETING_BYTES > CLAIM_BYTES { GREETING_BYTES } else { CLAIM_BYTES }];
        match self.stream.read(&mut chunk[..wanted - self.held.len()]) {
            Ok(0) => return Progress::Gone("hung up before it had proven itself"),
            Ok(bytes) => self.held.extend_from_slice(&chunk[..bytes]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                let why = "said nothing";
                return if self.until.is_over() { Progress::Gone(why) } else { Progress::Waiting };
            }
            Err(_) => return Progress::Gone("hung up before it had proven itself"),
        }
        if self.held.len() < wanted {
            return Progress::Stirred;
        }
        let held = mem::take(&mut self.held);
        match &self.greeted {
            None => self.greet(&held, secret),
            Some(greeted) => match held.try_into().ok().and_then(|claim| greeted.check_claim(&claim)) {
                Some(place) => match self.stream.write_all(&greeted.welcome(place)) {
                    Ok(()) => Progress::Proven(place, greeted.key(place)),
                    Err(_) => Progress::Gone("hung up before it was welcome"),
                },
                None => {
                    let _ = self.stream.write_all(&Greeted::refusal());
                    Progress::Gone("has another secret")
                }
            },
        }
    }

    fn greet(&mut self, held: &[u8], secret: &Key) -> Progress {
        let Some(member) = held.try_into().ok().and_then(Greeting::from_bytes) else {
            return Progress::Gone("speaks something else");
        };
        let Ok(nonce) = random_bytes() else { return Progress::Gone("could not be greeted: no random numbers here") };
        let root = Greeting::new(nonce);
        // A few bytes into an empty buffer: this does not block.
        if self.stream.write_all(root.bytes()).is_err() {
            return Progress::Gone("hung up before it had proven itself");
        }
        self.greeted = Some(Greeted { secret: secret.clone(), member, root });
        Progress::Stirred
    }
}

/// Connections that were no ranks of this job.
#[derive(Debug, Default)]
pub(super) struct TurnedAway {
    count: usize,
    last: Option<(SocketAddr, &'static str)>,
}

impl TurnedAway {
    pub(super) fn note(&mut self, peer: SocketAddr, why: &'static str) {
        self.count += 1;
        self.last = Some((peer, why));
    }
}

impl fmt::Display for TurnedAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last {
            Some((peer, why)) if self.count == 1 => write!(f, "; a connection from {peer} {why}"),
            Some((peer, why)) => write!(f, "; {} connections were refused, the last from {peer}: it {why}", self.count),
            None => Ok(()),
        }
    }
}

//! The side of all ranks but 0: they connect, prove themselves, and speak with rank 0 alone.
#![allow(unsafe_code)] // vouches for the exchange

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use shm_core::exchange::{Exchange, ExchangeError};
use shm_core::sys::process::random_bytes;

use super::handshake::{GREETING_BYTES, Greeted, Greeting, Place, VERDICT_BYTES, Verdict};
use super::message::{self, Inbox, Kind, MAX_GIVEN_BYTES, Outbox, Sender};
use super::{Limit, Settings, failed, prepare};
use crate::bootstrap::error::Result;

/// One attempt to connect and to be greeted, where nothing answers at all.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// Longer than rank 0 waits, so that its word on who is missing comes first.
const GRACE: Duration = Duration::from_secs(5);

/// A rank that is connected to rank 0.
#[derive(Debug)]
pub(super) struct Member {
    stream: TcpStream,
    inbox: Inbox,
    outbox: Outbox,
    pub(super) settings: Settings,
    /// Why there will be no further exchange.
    over: Option<String>,
}

/// Why an attempt to join has failed; of several addresses' the greatest counts.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Obstacle {
    /// Somebody else is there; rank 0 may be at another address.
    Elsewhere(String),
    /// Rank 0 may not be there yet.
    Later(String),
    /// It will be the same next time.
    Final(String),
}

impl From<io::Error> for Obstacle {
    fn from(error: io::Error) -> Self {
        Self::Later(error.to_string())
    }
}

impl Member {
    /// Connects to rank 0, as often as it takes within the time limit.
    ///
    /// # Errors
    /// [`Error::Rendezvous`](crate::bootstrap::Error::Rendezvous): rank 0 does not answer, or who answers there is not rank 0 of this job.
    pub(super) fn join(settings: Settings) -> Result<Self> {
        let limit = Limit::of(settings.limit);
        loop {
            let why = match attempt(&settings, &limit) {
                Ok((stream, inbox, outbox)) => return Ok(Self { stream, inbox, outbox, settings, over: None }),
                Err(Obstacle::Later(why)) => why,
                Err(Obstacle::Elsewhere(why) | Obstacle::Final(why)) => {
                    return Err(failed(format!("at {}: {why}", settings.address())));
                }
            };
            if limit.left() <= PAUSE {
                return Err(failed(format!(
                    "rank {} has not reached rank 0 at {} within {} s: {why}",
                    settings.rank,
                    settings.address(),
                    settings.limit.as_secs_f64()
                )));
            }
            thread::sleep(PAUSE);
        }
    }

    fn exchange(&mut self, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, String> {
        if bytes.len() > MAX_GIVEN_BYTES {
            let why = format!("gives {} bytes to an exchange; {MAX_GIVEN_BYTES} are allowed", bytes.len());
            self.tell(&why);
            return Err(format!("rank {} {why}", self.settings.rank));
        }
        let limit = Limit::of(self.settings.limit + GRACE);
        let sealed = self.outbox.seal(Kind::Bytes, bytes)?;
        // What rank 0 has said before it left says more than that it cannot be written to.
        let sent = self.stream.write_all(&sealed);
        match self.receive(&limit) {
            Ok((Kind::Bytes, payload)) => message::split(&payload, self.settings.size)
                .ok_or_else(|| "rank 0 has sent something else than every rank's bytes".to_owned()),
            Ok((Kind::Failure, why)) => Err(String::from_utf8_lossy(&why).into_owned()),
            Err(why) => Err(sent.err().map_or(why, |error| format!("rank 0 has left: {error}"))),
        }
    }

    fn receive(&mut self, limit: &Limit) -> std::result::Result<(Kind, Vec<u8>), String> {
        let mut chunk = [0; 4096];
        loop {
            if let Some(message) = self.inbox.next().map_err(|why| format!("rank 0 has sent {why}"))? {
                return Ok(message);
            }
            let bytes = read_some(&mut self.stream, &mut chunk, limit).map_err(|error| match error.kind() {
                ErrorKind::TimedOut => {
                    format!("rank 0 has not answered within {} s", self.settings.limit.as_secs_f64())
                }
                ErrorKind::UnexpectedEof => "rank 0 has left".to_owned(),
                _ => format!("rank 0 has left: {error}"),
            })?;
            self.inbox.push(&chunk[..bytes]);
        }
    }

    /// Lets rank 0 know why the job is over; it learns that it is from the end of the connection as well.
    fn tell(&mut self, why: &str) {
        if let Ok(sealed) = self.outbox.seal(Kind::Failure, why.as_bytes()) {
            let _ = self.stream.write_all(&sealed);
        }
    }
}

// SAFETY: rank 0 has proved that it knows the secret, and answers each message with all ranks' of the same round, in their
// order; codes and numbers tell any other message.
unsafe impl Exchange for Member {
    fn rank(&self) -> usize {
        self.settings.rank
    }

    fn size(&self) -> usize {
        self.settings.size
    }

    fn allgather(&mut self, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, ExchangeError> {
        if let Some(why) = &self.over {
            return Err(failed(why.clone()).into());
        }
        Ok(self.exchange(bytes).map_err(|why| {
            self.over = Some(why.clone());
            failed(why)
        })?)
    }

    fn abort(&mut self, code: i32, why: &str) {
        self.tell(&format!("has ended the job with code {code}: {why}"));
    }
}

/// Looks for rank 0 at all addresses of its name.
fn attempt(settings: &Settings, limit: &Limit) -> std::result::Result<(TcpStream, Inbox, Outbox), Obstacle> {
    let addresses = (settings.host.as_str(), settings.port).to_socket_addrs();
    let addresses = addresses.map_err(|e| Obstacle::Later(format!("{} cannot be looked up: {e}", settings.host)))?;
    attempt_any(addresses, settings, limit)
}

/// Joins at the first address where rank 0 of this job answers.
pub(super) fn attempt_any(
    addresses: impl IntoIterator<Item = SocketAddr>,
    settings: &Settings,
    limit: &Limit,
) -> std::result::Result<(TcpStream, Inbox, Outbox), Obstacle> {
    let mut greatest = None;
    for address in addresses {
        match attempt_at(&address, settings, limit) {
            Err(obstacle) => greatest = greatest.max(Some(obstacle)),
            joined => return joined,
        }
    }
    Err(greatest.unwrap_or_else(|| Obstacle::Later(format!("{} has no address", settings.host))))
}

fn attempt_at(
    address: &SocketAddr,
    settings: &Settings,
    limit: &Limit,
) -> std::result::Result<(TcpStream, Inbox, Outbox), Obstacle> {
    let within = limit.left().clamp(Duration::from_millis(1), ATTEMPT);
    let mut stream = connect(address, within)?;
    prepare(&stream)?;
    stream.set_write_timeout(Some(settings.limit))?;
    let no_random = |error| Obstacle::Final(format!("no random numbers: {error}"));
    let greeting = Greeting::new(random_bytes().map_err(no_random)?);
    stream.write_all(greeting.bytes())?;
    let root = answer(&mut stream, &Limit::of(within))?;
    let greeted = Greeted { secret: settings.secret.clone(), member: greeting, root };
    let number = |value: usize| u32::try_from(value).map_err(|e| Obstacle::Final(e.to_string()));
    let place = Place { rank: number(settings.rank)?, size: number(settings.size)? };
    stream.write_all(&greeted.claim(place))?;
    let mut verdict = [0; VERDICT_BYTES];
    read_exact(&mut stream, &mut verdict, limit)?;
    match greeted.check_verdict(&verdict, place) {
        Verdict::Welcome => {}
        Verdict::Refused => {
            let why =
                "rank 0 has another secret: HAN_SECRET or the file of HAN_SECRET_FILE must be the same on all ranks";
            return Err(Obstacle::Final(why.to_owned()));
        }
        Verdict::Impostor => {
            return Err(Obstacle::Elsewhere("who answers there as rank 0 does not know the secret".to_owned()));
        }
    }
    let key = greeted.key(place);
    let inbox = Inbox::new(key.clone(), Sender::Root, message::max_joined_bytes(settings.size));
    Ok((stream, inbox, Outbox::new(key, Sender::Member)))
}

/// What somebody answers who may be rank 0.
fn answer(stream: &mut TcpStream, limit: &Limit) -> std::result::Result<Greeting, Obstacle> {
    let (mut bytes, mut held) = ([0; GREETING_BYTES], 0);
    while held < GREETING_BYTES && Greeting::may_begin(&bytes[..held]) {
        held += match read_some(stream, &mut bytes[held..], limit) {
            Ok(more) => more,
            Err(e) if held > 0 => {
                return Err(Obstacle::Later(format!("somebody there has answered {held} bytes and no more: {e}")));
            }
            // A rank 0 that does not run does this as well.
            Err(e) => return Err(Obstacle::Later(format!("somebody there has accepted and said nothing: {e}"))),
        };
    }
    Greeting::from_bytes(bytes).ok_or_else(|| {
        let why = format!("who answers there is no rank 0 of a job of han: its first {held} bytes are something else");
        Obstacle::Elsewhere(why)
    })
}

fn connect(address: &SocketAddr, within: Duration) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(address, within)?;
    // A connection to a free port of this machine may be given that very port, and then is one to itself. Closed with
    // a byte unread, it leaves the port free for rank 0 at once.
    if stream.local_addr()? == stream.peer_addr()? {
        stream.write_all(&[0])?;
        return Err(ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

fn read_exact(stream: &mut TcpStream, mut buffer: &mut [u8], limit: &Limit) -> io::Result<()> {
    while !buffer.is_empty() {
        let bytes = read_some(stream, buffer, limit)?;
        buffer = &mut buffer[bytes..];
    }
    Ok(())
}

/// Reads at least a byte within the limit: `TimedOut` if none comes, `UnexpectedEof` if none will.
fn read_some(stream: &mut TcpStream, buffer: &mut [u8], limit: &Limit) -> io::Result<usize> {
    loop {
        let left = limit.left();
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            other => return other,
        }
    }
}

//! Rank 0's side: it lets the others in, collects what each gives to an exchange, and sends all of it to each.
#![allow(unsafe_code)] // vouches for the exchange

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use shm_core::exchange::{Exchange, ExchangeError};
use shm_core::sys::socket;

use super::caller::{Caller, Progress, TurnedAway};
use super::handshake::Place;
use super::message::{self, Inbox, Kind, MAX_GIVEN_BYTES, Outbox, Sender};
use super::proof::Key;
use super::{Limit, Settings, failed, list};
use crate::bootstrap::error::Result;

/// Connections that may be proving themselves at a time, beside one for each rank.
const SPARE_CONNECTIONS: usize = 64;

/// How long a connection may take to prove itself.
const PROVE_WITHIN: Duration = Duration::from_secs(10);

/// What became of a connection that waited to be accepted.
const GONE: [ErrorKind; 4] =
    [ErrorKind::ConnectionAborted, ErrorKind::NetworkDown, ErrorKind::NetworkUnreachable, ErrorKind::HostUnreachable];

/// Rank 0 of a job, connected to all others.
#[derive(Debug)]
pub(super) struct Root {
    members: Vec<Option<Member>>,
    pub(super) settings: Settings,
    /// Why there will be no further exchange.
    over: Option<String>,
}

/// Another rank.
#[derive(Debug)]
struct Member {
    stream: TcpStream,
    peer: SocketAddr,
    inbox: Inbox,
    outbox: Outbox,
}

/// Listens where the ranks are to meet: at an address that is given as one, at the loopback interface for `localhost`,
/// and at all interfaces for a name, because on the machine itself its name often stands for the loopback interface.
///
/// # Errors
/// [`Error::Rendezvous`](crate::bootstrap::Error::Rendezvous): the address is not this machine's, or is in use.
pub(super) fn listen(settings: &Settings) -> Result<TcpListener> {
    let port = settings.port;
    let listener = match settings.host.parse::<IpAddr>() {
        Ok(address) => TcpListener::bind((address, port)),
        Err(_) if settings.host == "localhost" => TcpListener::bind((Ipv4Addr::LOCALHOST, port)),
        // Where there is no IPv6, there is IPv4.
        Err(_) => match socket::listen_everywhere(port) {
            Err(e) if e.kind() != ErrorKind::AddrInUse => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
            other => other,
        },
    };
    let listener = listener.and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::AddrInUse => ": another job or program listens there; take another port",
            ErrorKind::AddrNotAvailable => ": it must be an address of the machine on which rank 0 runs",
            _ => "",
        };
        failed(format!("rank 0 cannot listen at {}: {error}{hint}", settings.address()))
    })
}

impl Root {
    /// Waits until all other ranks have come and proven themselves.
    ///
    /// # Errors
    /// [`Error::Rendezvous`](crate::bootstrap::Error::Rendezvous), which those that have come learn, too.
    pub(super) fn gather(listener: &TcpListener, settings: Settings) -> Result<Self> {
        let members = (1..settings.size).map(|_| None).collect();
        socket::make_room_for_files(settings.size + SPARE_CONNECTIONS);
        let mut root = Self { members, settings, over: None };
        match root.let_in(listener) {
            Ok(()) => Ok(root),
            Err(why) => Err(failed(root.end(why))),
        }
    }

    fn let_in(&mut self, listener: &TcpListener) -> std::result::Result<(), String> {
        let mut limit = Limit::of(self.settings.limit);
        let mut callers: Vec<Caller> = Vec::new();
        let mut turned_away = TurnedAway::default();
        while self.members.iter().any(Option::is_none) {
            if limit.is_over() {
                return Err(self.who_has_not_come(&turned_away));
            }
            let mut stirred = self.accept(listener, &mut callers, &mut turned_away)?;
            let mut waiting = Vec::new();
            for mut caller in callers {
                match caller.go_on(&self.settings.secret) {
                    Progress::Waiting => waiting.push(caller),
                    Progress::Stirred => {
                        stirred = true;
                        waiting.push(caller);
                    }
                    Progress::Proven(place, key) => self.admit(caller, place, &key)?,
                    Progress::Gone(why) => turned_away.note(caller.peer, why),
                }
            }
            callers = waiting;
            self.listen_to_members()?;
            if stirred { limit.stir() } else { limit.nap() }
        }
        Ok(())
    }

    /// Takes connections that wait, no more than leave time for those that there are; of too many the oldest make room.
    fn accept(
        &self,
        listener: &TcpListener,
        callers: &mut Vec<Caller>,
        turned_away: &mut TurnedAway,
    ) -> std::result::Result<bool, String> {
        let mut any = false;
        for _ in 0..SPARE_CONNECTIONS {
            match listener.accept() {
                Ok((stream, peer)) => {
                    any = true;
                    if callers.len() >= self.settings.size + SPARE_CONNECTIONS {
                        turned_away.note(callers.remove(0).peer, "made room for others before it had proven itself");
                    }
                    match Caller::new(stream, peer, PROVE_WITHIN) {
                        Ok(caller) => callers.push(caller),
                        Err(_) => turned_away.note(peer, "hung up"),
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(any),
                // It was gone before it was taken.
                Err(e) if GONE.contains(&e.kind()) || e.kind() == ErrorKind::Interrupted => {}
                Err(e) if callers.is_empty() => return Err(format!("rank 0 cannot accept connections: {e}")),
                // Of too many the oldest makes room, for now for the descriptor that greeting the others takes.
                Err(_) => {
                    let why = "made room for others, as rank 0 can accept no more (`ulimit -n`)";
                    turned_away.note(callers.remove(0).peer, why);
                    return Ok(true);
                }
            }
        }
        Ok(any)
    }

    /// Takes in a rank that has proven itself.
    fn admit(&mut self, caller: Caller, place: Place, key: &Key) -> std::result::Result<(), String> {
        let Caller { stream, peer, .. } = caller;
        let (rank, size) = (place.rank as usize, place.size as usize);
        let inbox = Inbox::new(key.clone(), Sender::Member, MAX_GIVEN_BYTES);
        let mut member = Member { stream, peer, inbox, outbox: Outbox::new(key.clone(), Sender::Root) };
        let here = self.settings.size;
        let known = rank.checked_sub(1).and_then(|index| self.members.get(index)).and_then(Option::as_ref);
        let why = if size != here {
            format!("sizes differ: rank 0 has HAN_SIZE={here}, rank {rank} at {peer} has HAN_SIZE={size}")
        } else if rank == 0 || rank >= here {
            format!("a second process, at {peer}, says that it is rank {rank} of {here}")
        } else if let Some(known) = known {
            format!("two processes say that they are rank {rank}: one at {}, one at {peer}", known.peer)
        } else {
            self.members[rank - 1] = Some(member);
            return Ok(());
        };
        member.tell(&why);
        Err(why)
    }

    fn who_has_not_come(&self, turned_away: &TurnedAway) -> String {
        let missing: Vec<usize> = (1..self.settings.size).filter(|rank| self.members[rank - 1].is_none()).collect();
        format!(
            "{} of {} ranks have not come to {} within {} s: {}{turned_away}",
            missing.len(),
            self.settings.size,
            self.settings.address(),
            self.settings.limit.as_secs_f64(),
            list(&missing)
        )
    }

    /// Reads what members have sent so far; an error if one has left.
    fn listen_to_members(&mut self) -> std::result::Result<bool, String> {
        let mut any = false;
        for (index, member) in self.members.iter_mut().enumerate() {
            if let Some(member) = member {
                any |= member.receive().map_err(|why| match member.last_word() {
                    Some(word) => format!("rank {}: {word}", index + 1),
                    None => format!("rank {} (at {}) {why}", index + 1, member.peer),
                })?;
            }
        }
        Ok(any)
    }

    /// What each rank gives, in rank order.
    fn collect(&mut self, own: &[u8]) -> std::result::Result<Vec<Vec<u8>>, String> {
        let mut given: Vec<Option<Vec<u8>>> = vec![None; self.settings.size];
        given[0] = Some(own.to_vec());
        let mut limit = Limit::of(self.settings.limit);
        loop {
            for (index, member) in self.members.iter_mut().enumerate() {
                let rank = index + 1;
                let (Some(member), None) = (member, &given[rank]) else { continue };
                let message = member.inbox.next().map_err(|why| format!("rank {rank} (at {}) sent {why}", member.peer));
                match message? {
                    Some((Kind::Bytes, bytes)) => given[rank] = Some(bytes),
                    Some((Kind::Failure, why)) => {
                        return Err(format!("rank {rank}: {}", String::from_utf8_lossy(&why)));
                    }
                    None => {}
                }
            }
            let missing: Vec<usize> = (0..given.len()).filter(|rank| given[*rank].is_none()).collect();
            if missing.is_empty() {
                return Ok(given.into_iter().flatten().collect());
            }
            if limit.is_over() {
                let seconds = self.settings.limit.as_secs_f64();
                return Err(format!("these ranks have not come to an exchange within {seconds} s: {}", list(&missing)));
            }
            if self.listen_to_members()? { limit.stir() } else { limit.nap() }
        }
    }

    fn exchange(&mut self, own: &[u8]) -> std::result::Result<Vec<Vec<u8>>, String> {
        if own.len() > MAX_GIVEN_BYTES {
            return Err(format!("rank 0 gives {} bytes to an exchange; {MAX_GIVEN_BYTES} are allowed", own.len()));
        }
        let all = self.collect(own)?;
        let payload = message::join(&all);
        for (index, member) in self.members.iter_mut().enumerate() {
            if let Some(member) = member {
                let sent = member.send(Kind::Bytes, &payload, self.settings.limit);
                sent.map_err(|why| format!("rank {} (at {}) {why}", index + 1, member.peer))?;
            }
        }
        Ok(all)
    }

    /// Tells everybody why the job is over, and gives the reason back.
    fn end(&mut self, why: String) -> String {
        self.members.iter_mut().flatten().for_each(|member| member.tell(&why));
        self.over = Some(why.clone());
        why
    }
}

// SAFETY: a connection is let in once as the rank that it has proved to be; each gives one message a round, which has a code
// that nobody without the secret can make, and a number. All of them go to all ranks, in the order of ranks.
unsafe impl Exchange for Root {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        self.settings.size
    }

    fn allgather(&mut self, bytes: &[u8]) -> std::result::Result<Vec<Vec<u8>>, ExchangeError> {
        if let Some(why) = &self.over {
            return Err(failed(why.clone()).into());
        }
        Ok(self.exchange(bytes).map_err(|why| failed(self.end(why)))?)
    }

    fn abort(&mut self, code: i32, why: &str) {
        self.end(format!("rank 0 has ended the job with code {code}: {why}"));
    }
}

impl Member {
    /// Long enough for a word to a rank that listens, and no longer for one that does not.
    const TELL_WITHIN: Duration = Duration::from_secs(1);

    /// Reads what there is. Whether there was any; an error if there will be no more.
    fn receive(&mut self) -> std::result::Result<bool, String> {
        let mut chunk = [0; 4096];
        let mut any = false;
        while !self.inbox.is_full() {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err("has left".to_owned()),
                Ok(bytes) => {
                    any = true;
                    self.inbox.push(&chunk[..bytes]);
                    // What was said before the end is looked at before the end.
                    if bytes < chunk.len() {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("has left: {e}")),
            }
        }
        Ok(any)
    }

    /// Why the rank has ended the job, if it said so before it left.
    fn last_word(&mut self) -> Option<String> {
        while let Ok(Some((kind, bytes))) = self.inbox.next() {
            if kind == Kind::Failure {
                return Some(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
        None
    }

    fn send(&mut self, kind: Kind, payload: &[u8], within: Duration) -> std::result::Result<(), String> {
        let sealed = self.outbox.seal(kind, payload)?;
        let mut limit = Limit::of(within);
        let mut rest = &sealed[..];
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(0) => return Err("has left".to_owned()),
                Ok(bytes) => {
                    limit.stir();
                    rest = &rest[bytes..];
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock && !limit.is_over() => limit.nap(),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Err("does not read what it is sent".to_owned()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("has left: {e}")),
            }
        }
        Ok(())
    }

    /// Says that the job is over. A rank that cannot be told learns it by the end of the connection.
    fn tell(&mut self, why: &str) {
        let _ = self.send(Kind::Failure, why.as_bytes(), Self::TELL_WITHIN);
    }
}

//! Whether peers that something is awaited from are still there, for providers that do not tell.
//!
//! Providers over TCP end the messages of a closed connection at best: a receive that has not begun to arrive, and
//! with some of them a send, stays under way for ever, and new sends are busy for ever. Their endpoints listen on a
//! port of the kernel's, though. So when nothing has come from an awaited peer for a while, a helper connects there: the
//! kernel of a host with a living endpoint accepts without the peer's help, that of a host whose endpoint is gone refuses,
//! and a host that is out of reach does not answer. The connection is kept until something comes from the peer. It is
//! lost when the endpoint goes, and the kernels ask each other over it whether the hosts are in reach. One for each question
//! would wait at the peer's port until the peer itself looks there, which may be in an hour; when there is no room for
//! more, its kernel does not answer either.
//!
//! A peer that refuses may have left in order, and its last message not be read yet. And one whose host does not answer
//! may be a living one whose port has no room at that moment, if what else asks there is dropped on the way. So both are
//! asked twice, with polls that read what came between, and only one that something is still awaited from is given up.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};

/// How long a host may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// Connections that are kept, lest descriptors run out. Peers beyond are asked anew, one a look: each seldom.
const MOST_LINES: usize = 64;

/// A port at which nobody listens: a host that is in reach refuses.
const NOBODYS_PORT: u16 = 1;

/// Looks at who is quiet in each interval.
const LOOKS: u32 = 4;

/// Polls that find nothing for less are of a rank that has better to do than to look.
const A_MOMENT: Duration = Duration::from_micros(100);

/// What is known of the peers, and which one is being asked.
pub(super) struct Watch {
    peers: Vec<Peer>,
    looked: Option<Instant>,
    interval: Duration,
    /// The connection to a peer, or none if its kernel has no room for one.
    asked: Option<(usize, JoinHandle<io::Result<Option<TcpStream>>>)>,
    /// The peer to begin with next time.
    cursor: usize,
}

struct Peer {
    /// Where it listens.
    address: SocketAddr,
    /// Something has come from it since the last look.
    heard: bool,
    /// Looks in a row, up to [`LOOKS`], at which it was awaited and nothing had come from it. What comes from others says
    /// nothing about it: those that wait for this rank ask it again and again.
    quiet: u32,
    /// What its kernel has accepted.
    line: Option<TcpStream>,
    asked: Option<Instant>,
    /// It has refused, or not answered, when it was asked last.
    suspicion: Option<ErrorKind>,
}

/// Providers whose endpoints listen for TCP connections at their address.
pub(super) fn listens(provider: &str) -> bool {
    matches!(provider, "tcp" | "net" | "tcp;ofi_rxm" | "net;ofi_rxm" | "sockets")
}

impl Watch {
    pub(super) fn new(addresses: Vec<SocketAddr>, interval: Duration) -> Self {
        let peer = |address| Peer { address, heard: false, quiet: 0, line: None, asked: None, suspicion: None };
        let peers = addresses.into_iter().map(peer).collect();
        Self { peers, looked: None, interval, asked: None, cursor: 0 }
    }

    /// A message has come from a peer.
    #[inline]
    pub(super) fn heard(&mut self, peer: usize) {
        if let Some(peer) = self.peers.get_mut(peer) {
            peer.heard = true;
        }
    }

    /// Nothing has completed for `idle`. `awaited` are the peers of the messages under way. Gives a peer that is
    /// gone, and why.
    pub(super) fn tick(
        &mut self,
        idle: Duration,
        awaited: impl Iterator<Item = usize> + Clone,
    ) -> Option<(usize, String)> {
        if let Some((number, helper)) = self.asked.take_if(|(_, helper)| helper.is_finished()) {
            // A helper that could not work says nothing about the peer.
            let answer = helper.join().unwrap_or(Ok(None));
            let lines = self.peers.iter().filter(|peer| peer.line.is_some()).count();
            let peer = &mut self.peers[number];
            let suspicion = peer.suspicion.take();
            if awaited.clone().any(|awaited| awaited == number) {
                peer.asked = Some(Instant::now());
                match answer {
                    Ok(line) => peer.line = line.filter(|_| lines < MOST_LINES),
                    Err(error) if may_live(error.kind()) && suspicion != Some(error.kind()) => {
                        peer.suspicion = Some(error.kind());
                    }
                    Err(error) => return Some((number, peer.reason(&error)?)),
                }
            }
        }
        if idle < A_MOMENT || self.looked.is_some_and(|looked| looked.elapsed() < self.interval / LOOKS) {
            return None;
        }
        if let Some(gone) = self.look(awaited.clone()) {
            return Some(gone);
        }
        if self.asked.is_some() {
            return None;
        }
        // A suspect, or the next one from the cursor on, or the lowest.
        let distance = |number: &usize| {
            (self.peers[*number].suspicion.is_none(), (number + self.peers.len() - self.cursor) % self.peers.len())
        };
        let to_be_asked =
            |number: &usize| self.peers.get(*number).is_some_and(|peer| peer.is_to_be_asked(self.interval));
        let number = awaited.filter(to_be_asked).min_by_key(distance)?;
        self.cursor = (number + 1) % self.peers.len();
        let address = self.peers[number].address;
        let helper = thread::Builder::new().name("han-peer-alive".to_owned()).spawn(move || connect(address));
        self.asked = helper.ok().map(|helper| (number, helper));
        None
    }

    /// Notes who is awaited and quiet; the first whose host is out of reach.
    fn look(&mut self, awaited: impl Iterator<Item = usize>) -> Option<(usize, String)> {
        self.looked = Some(Instant::now());
        let mut is_awaited = vec![false; self.peers.len()];
        awaited.for_each(|peer| is_awaited.get_mut(peer).into_iter().for_each(|is_awaited| *is_awaited = true));
        let mut gone = None;
        for (number, (peer, is_awaited)) in self.peers.iter_mut().zip(is_awaited).enumerate() {
            if !is_awaited || std::mem::take(&mut peer.heard) {
                (peer.quiet, peer.line, peer.suspicion) = (0, None, None);
            } else {
                peer.quiet = (peer.quiet + 1).min(LOOKS);
                gone = gone.or(peer.listen().map(|why| (number, why)));
            }
        }
        gone
    }
}

impl Peer {
    fn is_to_be_asked(&self, interval: Duration) -> bool {
        self.quiet == LOOKS && self.line.is_none() && self.asked.is_none_or(|asked| asked.elapsed() >= interval)
    }

    /// Gives up a connection that is lost; why the host is out of reach if that is the cause.
    fn listen(&mut self) -> Option<String> {
        let error = self.line.as_ref()?.peek(&mut [0]).err();
        if error.as_ref().is_none_or(|error| error.kind() != ErrorKind::WouldBlock) {
            self.line = None;
        }
        self.reason(&error?)
    }

    /// What an error says about the peer, if it does.
    fn reason(&self, error: &io::Error) -> Option<String> {
        let reason = match error.kind() {
            ErrorKind::ConnectionRefused => "nobody listens any more",
            ErrorKind::TimedOut => "its host does not answer",
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
                "there is no way to its host any more"
            }
            _ => return None,
        };
        Some(format!("{reason} at {}", self.address))
    }
}

/// Whether a peer may live although it was asked with this outcome.
fn may_live(outcome: ErrorKind) -> bool {
    matches!(outcome, ErrorKind::ConnectionRefused | ErrorKind::TimedOut)
}

/// Connects to a peer. None if its host is in reach and does not answer at this port: too many wait there already.
fn connect(address: SocketAddr) -> io::Result<Option<TcpStream>> {
    let line = match TcpStream::connect_timeout(&address, ANSWER) {
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            let host = TcpStream::connect_timeout(&SocketAddr::new(address.ip(), NOBODYS_PORT), ANSWER);
            let is_in_reach = host.map_or_else(|error| error.kind() == ErrorKind::ConnectionRefused, |_| true);
            return if is_in_reach { Ok(None) } else { Err(error) };
        }
        outcome => outcome?,
    };
    kept(line).map(Some)
}

/// A connection to a peer, made ready to be kept.
fn kept(line: TcpStream) -> io::Result<TcpStream> {
    // The kernel may give it the very port at which a peer of this host listens no more: it is its own other end.
    if line.local_addr()? == line.peer_addr()? {
        return Err(ErrorKind::ConnectionRefused.into());
    }
    // A host that does not answer for three seconds is out of reach.
    line.set_nonblocking(true)?;
    setsockopt(&line, sockopt::TcpKeepIdle, &1)?;
    setsockopt(&line, sockopt::TcpKeepInterval, &1)?;
    setsockopt(&line, sockopt::TcpKeepCount, &3)?;
    setsockopt(&line, sockopt::KeepAlive, &true)?;
    Ok(line)
}

/// The port and address in a `sockaddr_in` or `sockaddr_in6`.
pub(super) fn listening_at(ip: Option<IpAddr>, name: &[u8]) -> Option<SocketAddr> {
    let port = name.get(2..4)?;
    Some(SocketAddr::new(ip?, u16::from_be_bytes([port[0], port[1]])))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname, listen, socket};

    use super::*;

    /// Asks a peer that has no line, and hears what came of it when something is awaited from `awaited`.
    fn ask(watch: &mut Watch, peer: usize, awaited: usize) -> Option<(usize, String)> {
        // No look beyond the question, which could hear the answer.
        for _ in 0..LOOKS {
            grow_quiet(watch, peer, u32::from(watch.asked.is_none()));
        }
        while !watch.asked.as_ref().unwrap().1.is_finished() {
            thread::yield_now();
        }
        watch.tick(Duration::ZERO, [awaited].into_iter())
    }

    /// Looks as many times at a peer that is awaited and quiet.
    fn grow_quiet(watch: &mut Watch, peer: usize, looks: u32) {
        for _ in 0..looks {
            watch.looked = None;
            watch.peers.iter_mut().for_each(|peer| peer.asked = None);
            assert_eq!(watch.tick(A_MOMENT, [peer].into_iter()), None);
        }
    }

    #[test]
    fn those_that_listen_live() {
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let mut watch = Watch::new(addresses, Duration::from_secs(1));
        for peer in [0, 1] {
            assert_eq!(ask(&mut watch, peer, peer), None);
            grow_quiet(&mut watch, peer, 2 * LOOKS);
            assert!(watch.peers[peer].line.is_some() && watch.asked.is_none(), "it is asked once");
        }
        drop(listeners);
        assert_eq!(ask(&mut watch, 1, 1), None);
        let (peer, reason) = ask(&mut watch, 1, 1).unwrap();
        assert!(peer == 1 && reason.contains("nobody listens"), "{reason}");
    }

    #[test]
    fn a_connection_to_itself_is_none() {
        let own = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
        bind(own.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
        let address: SockaddrIn = getsockname(own.as_raw_fd()).unwrap();
        nix::sys::socket::connect(own.as_raw_fd(), &address).unwrap();
        assert_eq!(kept(TcpStream::from(own)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_port_with_no_room_is_that_of_a_living_host() {
        let listener = socket(AddressFamily::Inet, SockType::Stream, SockFlag::empty(), None).unwrap();
        bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).unwrap();
        listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let listener = TcpListener::from(listener);
        let mut watch = Watch::new(vec![listener.local_addr().unwrap()], Duration::from_secs(1));
        let waiting: Vec<_> = (0..3).map_while(|_| connect(watch.peers[0].address).unwrap()).collect();
        assert!(waiting.len() < 3, "there is room for one or two");
        assert_eq!(ask(&mut watch, 0, 0), None);
        assert!(watch.peers[0].line.is_none() && watch.peers[0].suspicion.is_none());
    }

    #[test]
    fn those_that_do_not_answer_are_gone_if_they_do_not_twice() {
        let mut watch = Watch::new(vec!["192.0.2.1:1".parse().unwrap()], Duration::from_secs(1));
        let mut answer = |kind: Option<ErrorKind>| {
            watch.asked = Some((0, thread::spawn(move || kind.map_or(Ok(None), |kind| Err(kind.into())))));
            ask(&mut watch, 0, 0)
        };
        let (silence, refusal) = (Some(ErrorKind::TimedOut), Some(ErrorKind::ConnectionRefused));
        for outcome in [silence, None, silence, refusal] {
            assert_eq!(answer(outcome), None);
        }
        assert_eq!(answer(silence), None, "it has refused in between");
        let (peer, reason) = answer(silence).unwrap();
        assert!(peer == 0 && reason.contains("does not answer"), "{reason}");
    }

    #[test]
    fn those_whose_last_message_came_have_left_in_order() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut watch = Watch::new(vec![listener.local_addr().unwrap(); 2], Duration::from_secs(1));
        drop(listener);
        // A first refusal is asked again, a second one counts while something is awaited from the peer.
        for _ in 0..3 {
            assert_eq!((ask(&mut watch, 1, 1), ask(&mut watch, 1, 0)), (None, None));
        }
        // Another peer's refusal is not this one's.
        assert_eq!((ask(&mut watch, 0, 0), ask(&mut watch, 1, 1)), (None, None));
        assert_eq!(ask(&mut watch, 1, 1).map(|(peer, _)| peer), Some(1));
    }

    #[test]
    fn those_that_are_quiet_for_an_interval_are_asked_whatever_comes_from_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut watch = Watch::new(vec![listener.local_addr().unwrap(); 2], Duration::from_secs(1));
        grow_quiet(&mut watch, 1, LOOKS - 1);
        watch.heard(0);
        // A rank that has just got something has better to do; and there is a time between two looks.
        watch.looked = None;
        assert_eq!(watch.tick(A_MOMENT / 2, [1].into_iter()), None);
        assert_eq!(watch.looked, None);
        assert!(watch.asked.is_none());
        watch.heard(1);
        grow_quiet(&mut watch, 1, LOOKS);
        assert!(watch.asked.is_none(), "something has come from it in between");
        // Neither are those that nothing is awaited from.
        grow_quiet(&mut watch, 0, 1);
        grow_quiet(&mut watch, 1, LOOKS - 1);
        assert!(watch.asked.is_none());
        assert_eq!(watch.tick(A_MOMENT, [1].into_iter()), None);
        assert!(watch.asked.is_none());
        grow_quiet(&mut watch, 1, 1);
        assert_eq!(watch.asked.as_ref().map(|(peer, _)| *peer), Some(1));
    }

    #[test]
    fn addresses_are_read_from_their_c_form() {
        let name = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let ip = Some("127.0.0.1".parse().unwrap());
        assert_eq!(listening_at(ip, &name), Some("127.0.0.1:8080".parse().unwrap()));
        assert_eq!((listening_at(None, &name), listening_at(ip, &name[..3])), (None, None));
    }
}

//! Whether peers that something is awaited from are still there, for providers that do not tell.
//!
//! Providers over TCP end the messages of a closed connection at best: a receive that has not begun to arrive, and
//! with some of them a send, stays under way for ever, and new sends are busy for ever. Their endpoints listen on a
//! port of the kernel's, though. So when nothing has come from an awaited peer for a while, a helper connects there, and
//! closes at once: the kernel of a host with a living endpoint accepts without the peer's help, that of a host whose endpoint
//! is gone refuses, and a host that is out of reach does not answer.
//!
//! A peer that refuses may have left in order, and its last message not be read yet. So it is asked twice, with polls
//! that read what came between, and only one that something is still awaited from is given up.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a host may take to answer.
const ANSWER: Duration = Duration::from_secs(3);

/// Looks at who is quiet in each interval.
const LOOKS: u32 = 4;

/// Polls that find nothing for less are of a rank that has better to do than to look.
const A_MOMENT: Duration = Duration::from_micros(100);

/// Where peers listen, and which one is being asked.
pub(super) struct Watch {
    addresses: Vec<SocketAddr>,
    /// Something has come from a peer since the last look.
    heard: Vec<bool>,
    /// Looks in a row, up to [`LOOKS`], at which a peer was awaited and nothing had come from it. What comes from others
    /// says nothing about it: those that wait for this rank ask it again and again.
    quiet: Vec<u32>,
    looked: Option<Instant>,
    interval: Duration,
    asked: Option<(usize, JoinHandle<io::Result<()>>)>,
    last: Option<Instant>,
    /// The peer that refused when it was asked last.
    suspect: Option<usize>,
    /// The peer to begin with next time.
    cursor: usize,
}

/// Providers whose endpoints listen for TCP connections at their address.
pub(super) fn listens(provider: &str) -> bool {
    matches!(provider, "tcp" | "net" | "tcp;ofi_rxm" | "net;ofi_rxm" | "sockets")
}

impl Watch {
    pub(super) fn new(addresses: Vec<SocketAddr>, interval: Duration) -> Self {
        let (heard, quiet) = (vec![false; addresses.len()], vec![0; addresses.len()]);
        Self { addresses, heard, quiet, looked: None, interval, asked: None, last: None, suspect: None, cursor: 0 }
    }

    /// A message has come from a peer.
    #[inline]
    pub(super) fn heard(&mut self, peer: usize) {
        if let Some(heard) = self.heard.get_mut(peer) {
            *heard = true;
        }
    }

    /// Nothing has completed for `idle`. `awaited` are the peers of the messages under way. Gives a peer that is
    /// gone, and why.
    pub(super) fn tick(
        &mut self,
        idle: Duration,
        awaited: impl Iterator<Item = usize> + Clone,
    ) -> Option<(usize, String)> {
        if let Some((peer, helper)) = self.asked.take_if(|(_, helper)| helper.is_finished()) {
            // A helper that could not work says nothing about the peer.
            let error = helper.join().ok().and_then(Result::err);
            let suspected = self.suspect.take();
            if let Some(error) = error
                && let Some(reason) = reason(&error)
                && awaited.clone().any(|awaited| awaited == peer)
            {
                if suspected == Some(peer) || error.kind() != ErrorKind::ConnectionRefused {
                    return Some((peer, format!("{reason} at {}", self.addresses[peer])));
                }
                (self.suspect, self.cursor, self.last) = (Some(peer), peer, Some(Instant::now()));
            }
        }
        if idle < A_MOMENT || self.looked.is_some_and(|looked| looked.elapsed() < self.interval / LOOKS) {
            return None;
        }
        self.look(awaited.clone());
        if self.asked.is_some() || self.last.is_some_and(|last| last.elapsed() < self.interval) {
            return None;
        }
        // The next one from the cursor on, or the lowest.
        let distance = |peer: &usize| (peer + self.addresses.len() - self.cursor) % self.addresses.len();
        let is_quiet = |peer: &usize| self.quiet.get(*peer).is_some_and(|looks| *looks == LOOKS);
        let peer = awaited.filter(is_quiet).min_by_key(distance)?;
        self.last = Some(Instant::now());
        self.cursor = (peer + 1) % self.addresses.len();
        let address = self.addresses[peer];
        let helper = thread::Builder::new().name("han-peer-alive".to_owned());
        let helper = helper.spawn(move || TcpStream::connect_timeout(&address, ANSWER).map(drop));
        self.asked = helper.ok().map(|helper| (peer, helper));
        None
    }

    /// Notes who is awaited and quiet.
    fn look(&mut self, awaited: impl Iterator<Item = usize>) {
        self.looked = Some(Instant::now());
        let mut is_awaited = vec![false; self.addresses.len()];
        awaited.for_each(|peer| is_awaited.get_mut(peer).into_iter().for_each(|is_awaited| *is_awaited = true));
        for ((heard, quiet), is_awaited) in self.heard.iter_mut().zip(&mut self.quiet).zip(is_awaited) {
            let is_quiet = is_awaited && !std::mem::take(heard);
            *quiet = if is_quiet { (*quiet + 1).min(LOOKS) } else { 0 };
        }
    }
}

/// What an error says about the peer, if it does.
fn reason(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        ErrorKind::ConnectionRefused => Some("nobody listens any more"),
        ErrorKind::TimedOut => Some("its host does not answer"),
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => {
            Some("there is no way to its host any more")
        }
        _ => None,
    }
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

    use super::*;

    /// Asks a peer, and hears what came of it when something is awaited from `awaited`.
    fn ask(watch: &mut Watch, peer: usize, awaited: usize) -> Option<(usize, String)> {
        grow_quiet(watch, peer, LOOKS);
        while !watch.asked.as_ref().unwrap().1.is_finished() {
            thread::yield_now();
        }
        watch.tick(Duration::ZERO, [awaited].into_iter())
    }

    /// Looks as many times at a peer that is awaited and quiet.
    fn grow_quiet(watch: &mut Watch, peer: usize, looks: u32) {
        for _ in 0..looks {
            (watch.last, watch.looked) = (None, None);
            assert_eq!(watch.tick(A_MOMENT, [peer].into_iter()), None);
        }
    }

    #[test]
    fn those_that_listen_live() {
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let mut watch = Watch::new(addresses, Duration::from_secs(1));
        for peer in [0, 1, 0, 1] {
            assert_eq!(ask(&mut watch, peer, peer), None);
        }
        drop(listeners);
        assert_eq!(ask(&mut watch, 1, 1), None);
        let (peer, reason) = ask(&mut watch, 1, 1).unwrap();
        assert!(peer == 1 && reason.contains("nobody listens"), "{reason}");
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

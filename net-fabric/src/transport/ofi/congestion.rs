//! How the kernel's sockets under a provider over TCP avoid congestion.
//!
//! BBR spreads what it sends over time, at a rate that it finds by sending more and less in turns. Between nodes, where
//! a message's way takes tens of microseconds, that costs up to half of the bandwidth (`docs/libfabric.md` has the
//! measurements). Where the system has it for all connections, those of the endpoint are given Reno, which every user may
//! take. The provider makes them when the first messages go to and come from a peer, so they are looked for among the
//! process's descriptors once something has completed with a peer for the first time.
#![allow(unsafe_code)] // Borrows descriptors by their numbers.

use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{SockaddrStorage, getpeername, getsockname, getsockopt, setsockopt};

/// What paces.
const PACING: &str = "bbr";
/// What the system gives all connections.
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// What is taken instead.
const INSTEAD: &str = "reno";
/// After a peer was met: when two ranks connect to each other at once, one of the connections soon goes again.
const LOOKS: u32 = 3;
/// Looking through the descriptors takes at most one part in so many of the time, and each further look comes
/// so many times later than the one before.
const SHARE: u32 = 32;
/// A look takes so long at least.
const LEAST_LOOK: Duration = Duration::from_micros(50);

/// The connections of an endpoint, on a system that would pace them.
pub(super) struct Connections {
    own: SocketAddr,
    /// By rank, and in order.
    peers: Vec<SocketAddr>,
    sorted: Vec<SocketAddr>,
    /// By rank: something has completed with it.
    met: Vec<bool>,
    /// How often connections are still to be looked for.
    looks: u32,
    not_before: Option<Instant>,
    /// The same for peers that are met meanwhile.
    at_the_earliest: Option<Instant>,
}

/// Gives the listening socket at `own` Reno in place of BBR, and with it all connections that it will accept. True if
/// it had BBR, so that the connections which the endpoint makes itself will have it, too.
pub(super) fn was_pacing(own: SocketAddr) -> bool {
    relieve(|local, _| is_at(local, own)) > 0
}

/// Whether the system paces all connections of TCP. Those that an endpoint makes itself then stay paced in part
/// (`docs/libfabric.md`).
#[must_use]
pub fn system_paces() -> bool {
    fs::read_to_string(DEFAULT).is_ok_and(|name| name.trim() == PACING)
}

impl Connections {
    pub(super) fn new(own: SocketAddr, peers: Vec<SocketAddr>) -> Self {
        let mut sorted = peers.clone();
        sorted.sort_unstable();
        Self { own, met: vec![false; peers.len()], peers, sorted, looks: 0, not_before: None, at_the_earliest: None }
    }

    /// Something has completed with a peer.
    pub(super) fn note(&mut self, peer: usize) {
        if let Some(met) = self.met.get_mut(peer).filter(|met| !**met) {
            *met = true;
            if self.peers[peer] != self.own {
                self.looks = LOOKS;
                self.not_before = self.at_the_earliest;
            }
        }
    }

    /// Looks for new connections, if there are any.
    pub(super) fn settle(&mut self) {
        if self.looks == 0 || self.not_before.is_some_and(|then| Instant::now() < then) {
            return;
        }
        let started = Instant::now();
        relieve(|local, remote| {
            is_at(local, self.own) || remote.is_some_and(|at| self.sorted.binary_search(&at).is_ok())
        });
        let pause = started.elapsed().max(LEAST_LOOK) * SHARE;
        self.at_the_earliest = Some(started + pause);
        self.not_before = Some(started + pause * SHARE.pow(LOOKS - self.looks));
        self.looks -= 1;
    }
}

/// Whether a socket's own address is that of an endpoint; it may listen at all of the host's.
fn is_at(local: SocketAddr, own: SocketAddr) -> bool {
    local.port() == own.port() && (local.ip() == own.ip() || local.ip().is_unspecified())
}

/// Gives the sockets of this process that `is_ours` knows by their own and their peer's address Reno, where they have
/// BBR. Returns how many had it.
fn relieve(is_ours: impl Fn(SocketAddr, Option<SocketAddr>) -> bool) -> usize {
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else { return 0 };
    let numbers = descriptors.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let relieved = numbers.filter(|&number| {
        let ours = local_address(number).is_some_and(|local| is_ours(local, remote_address(number)));
        ours && is_relieved(number)
    });
    relieved.count()
}

fn is_relieved(number: RawFd) -> bool {
    // SAFETY: used for the two calls alone; should another thread close it meanwhile, they fail, or ask for Reno on
    // what it has opened, which does no harm.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    let paces = getsockopt(&socket, TcpCongestion).is_ok_and(|name| name.to_string_lossy().starts_with(PACING));
    paces && setsockopt(&socket, TcpCongestion, &OsStr::new(INSTEAD).to_owned()).is_ok()
}

fn local_address(number: RawFd) -> Option<SocketAddr> {
    address(getsockname(number.as_raw_fd()).ok()?)
}

fn remote_address(number: RawFd) -> Option<SocketAddr> {
    address(getpeername(number.as_raw_fd()).ok()?)
}

fn address(raw: SockaddrStorage) -> Option<SocketAddr> {
    let four = raw.as_sockaddr_in().map(|&raw| SocketAddr::V4(raw.into()));
    four.or_else(|| raw.as_sockaddr_in6().map(|&raw| SocketAddr::V6(raw.into())))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    fn name(socket: impl AsFd) -> String {
        let name = getsockopt(&socket, TcpCongestion).unwrap();
        name.to_string_lossy().trim_end_matches('\0').to_owned()
    }

    #[test]
    fn sockets_of_the_endpoint_are_relieved_and_no_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        // Where there is no BBR, nothing is to be done.
        let can = [listener.as_fd(), other.as_fd()]
            .map(|socket| setsockopt(&socket, TcpCongestion, &OsStr::new(PACING).to_owned()).is_ok());
        let own = listener.local_addr().unwrap();
        assert_eq!(was_pacing(own), can[0]);
        assert!(!was_pacing(own), "it was relieved before");
        assert_ne!(name(&listener), PACING);
        assert_eq!(name(&other) == PACING, can[1], "another socket is left alone");

        let to_own = TcpStream::connect(own).unwrap();
        let elsewhere = TcpStream::connect(other.local_addr().unwrap()).unwrap();
        for stream in [&to_own, &elsewhere] {
            let _ = setsockopt(stream, TcpCongestion, &OsStr::new(PACING).to_owned());
        }
        let before = name(&elsewhere);
        let mut connections = Connections::new("127.0.0.1:1".parse().unwrap(), vec![own]);
        connections.settle();
        assert_eq!(name(&to_own) == PACING, can[0], "nothing is new");
        connections.note(0);
        connections.settle();
        assert_ne!(name(&to_own), PACING);
        assert_eq!(name(&elsewhere), before);
    }

    #[test]
    fn a_listener_may_be_at_all_addresses() {
        let own = "10.1.2.3:99".parse().unwrap();
        assert!(is_at("0.0.0.0:99".parse().unwrap(), own) && is_at(own, own));
        assert!(!is_at("0.0.0.0:98".parse().unwrap(), own) && !is_at("10.1.2.4:99".parse().unwrap(), own));
    }
}

//! How the kernel's sockets under a provider over TCP avoid congestion, and how much they receive ahead.
//!
//! BBR spreads what it sends over time, at a rate that it finds by sending more and less in turns. Between nodes, where
//! a message's way takes tens of microseconds, that costs up to half of the bandwidth, and a connection that began with it
//! goes on to spread with any other algorithm (`docs/libfabric.md` has the measurements). Where the system has it for all
//! connections, libfabric's sockets are given Reno, which every user may take, before they connect or listen; what they
//! accept inherits it. libfabric has no word for that, so its calls of `socket` come here.
//!
//! Provider `sockets` reads no part of a header: it leaves that in the kernel until the rest has come. Where segments are
//! long, as on loopback, one of which a few bytes are left takes most of a receiver's first buffer, and the kernel lets
//! nothing more in: the rest never comes. So that provider's connections are given room for several.
#![allow(unsafe_code)] // Takes libfabric's calls of a function of C.

use std::ffi::{c_int, c_void};
use std::fs;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{RcvBuf, TcpCongestion};

/// What paces.
const PACING: &str = "bbr";
/// What the system gives all connections.
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// What is taken instead.
const INSTEAD: &str = "reno";

/// Bytes for which receivers get room under `sockets`; the system may grant less.
const ROOM: usize = 1 << 20;
/// Whether they do by now.
static HAVE_ROOM: AtomicBool = AtomicBool::new(false);

/// Whether the system paces all connections of TCP.
fn system_paces() -> bool {
    static PACES: OnceLock<bool> = OnceLock::new();
    *PACES.get_or_init(|| fs::read_to_string(DEFAULT).is_ok_and(|name| name.trim() == PACING))
}

/// Sees to it that libfabric's connections are not paced, and have the room that `provider` needs, from now on and in the
/// whole process. True if they would be paced, and are not any more. After libfabric has loaded its providers.
pub(super) fn relieve(provider: &str) -> bool {
    static TAKEN: OnceLock<bool> = OnceLock::new();
    HAVE_ROOM.fetch_or(provider == "sockets", Ordering::Relaxed);
    if !system_paces() && !HAVE_ROOM.load(Ordering::Relaxed) {
        return false;
    }
    // SAFETY: it has the type of `socket` and does what that does.
    let take = || unsafe { libfabric_sys::calls::replace(c"socket", socket as *const c_void) } > 0;
    *TAKEN.get_or_init(take) && system_paces()
}

/// A socket that does not pace, with the room that it needs.
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> RawFd {
    // SAFETY: takes no pointers.
    let number = unsafe { nix::libc::socket(domain, kind, protocol) };
    if number >= 0 && matches!(domain, nix::libc::AF_INET | nix::libc::AF_INET6) {
        // SAFETY: nobody else knows of it yet.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        prepare(socket, system_paces(), HAVE_ROOM.load(Ordering::Relaxed));
    }
    number
}

/// A socket of another protocol refuses, and one of TCP that does not take it is paced, or has the room that it has.
fn prepare(socket: BorrowedFd<'_>, would_pace: bool, has_room: bool) {
    if would_pace {
        let _ = setsockopt(&socket, TcpCongestion, &INSTEAD.into());
    }
    if has_room {
        let _ = setsockopt(&socket, RcvBuf, &ROOM);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};

    use nix::sys::socket::getsockopt;

    use super::*;

    fn name(socket: impl AsFd) -> String {
        let name = getsockopt(&socket, TcpCongestion).unwrap();
        name.to_string_lossy().trim_end_matches('\0').to_owned()
    }

    /// A socket as libfabric would get it, whatever the system and the provider.
    fn made(kind: c_int) -> OwnedFd {
        // SAFETY: takes no pointers.
        let number = unsafe { socket(nix::libc::AF_INET, kind, 0) };
        assert!(number >= 0);
        // SAFETY: it was just made.
        let made = unsafe { OwnedFd::from_raw_fd(number) };
        prepare(made.as_fd(), true, true);
        made
    }

    #[test]
    fn a_receiver_has_room_for_several_long_segments() {
        let listener = TcpListener::from(made(nix::libc::SOCK_STREAM));
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let room = getsockopt(&listener.accept().unwrap().0, RcvBuf).unwrap();
        assert!(room >= 6 * (1 << 16), "{room} bytes, with what the kernel needs beside them");
    }

    #[test]
    fn sockets_of_tcp_take_reno_and_others_are_made_as_ever() {
        assert_eq!(name(made(nix::libc::SOCK_STREAM)), INSTEAD);
        let listener = TcpListener::from(made(nix::libc::SOCK_STREAM | nix::libc::SOCK_CLOEXEC));
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(name(listener.accept().unwrap().0), INSTEAD, "what it accepts inherits it");
        made(nix::libc::SOCK_DGRAM);
        // SAFETY: takes no pointers.
        assert_eq!(unsafe { socket(nix::libc::AF_INET, -1, 0) }, -1);
    }
}

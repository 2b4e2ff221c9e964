//! How the kernel's sockets under a provider over TCP avoid congestion.
//!
//! BBR spreads what it sends over time, at a rate that it finds by sending more and less in turns. Between nodes, where
//! a message's way takes tens of microseconds, that costs up to half of the bandwidth, and a connection that began with it
//! goes on to spread with any other algorithm (`docs/libfabric.md` has the measurements). Where the system has it for all
//! connections, libfabric's sockets are given Reno, which every user may take, before they connect or listen; what they
//! accept inherits it. libfabric has no word for that, so its calls of `socket` come here.
#![allow(unsafe_code)] // Takes libfabric's calls of a function of C.

use std::ffi::{c_int, c_void};
use std::fs;
use std::os::fd::{BorrowedFd, RawFd};
use std::sync::OnceLock;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::TcpCongestion;

/// What paces.
const PACING: &str = "bbr";
/// What the system gives all connections.
const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
/// What is taken instead.
const INSTEAD: &str = "reno";

/// Whether the system paces all connections of TCP.
fn system_paces() -> bool {
    fs::read_to_string(DEFAULT).is_ok_and(|name| name.trim() == PACING)
}

/// Sees to it that libfabric's connections are not paced, from now on and in the whole process. True if they would be, and
/// are not any more. After libfabric has loaded its providers.
pub(super) fn relieve() -> bool {
    static RELIEVED: OnceLock<bool> = OnceLock::new();
    *RELIEVED.get_or_init(|| {
        // SAFETY: it has the type of `socket` and does what that does.
        system_paces() && unsafe { libfabric_sys::calls::replace(c"socket", socket as *const c_void) } > 0
    })
}

/// A socket that does not pace.
unsafe extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> RawFd {
    // SAFETY: takes no pointers.
    let number = unsafe { nix::libc::socket(domain, kind, protocol) };
    if number >= 0 && matches!(domain, nix::libc::AF_INET | nix::libc::AF_INET6) {
        // SAFETY: nobody else knows of it yet.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        // A socket of another protocol refuses, and one of TCP that does not take it is paced.
        let _ = setsockopt(&socket, TcpCongestion, &INSTEAD.into());
    }
    number
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

    /// A socket as libfabric would get it.
    fn made(kind: c_int) -> OwnedFd {
        // SAFETY: takes no pointers.
        let number = unsafe { socket(nix::libc::AF_INET, kind, 0) };
        assert!(number >= 0);
        // SAFETY: it was just made.
        unsafe { OwnedFd::from_raw_fd(number) }
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

//! What connections of start-up need that the standard library has no functions for.

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6, TcpListener, TcpStream};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn6, bind, listen, setsockopt, socket, sockopt,
};

/// Has the system speak on `stream` whenever nobody has for `quiet`, so that nothing on the way takes the connection for
/// given up; a host that does not answer several times ends it.
///
/// # Errors
/// The system refuses it.
pub fn keep_alive(stream: &TcpStream, quiet: Duration) -> io::Result<()> {
    let seconds = u32::try_from(quiet.as_secs()).map_err(io::Error::other)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &seconds)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &seconds)?;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    Ok(())
}

/// Listens at `port` on all interfaces, for IPv6 and IPv4 alike, whatever `net.ipv6.bindv6only` is.
///
/// # Errors
/// The port is in use, or there is no IPv6.
pub fn listen_everywhere(port: u16) -> io::Result<TcpListener> {
    let listener = socket(AddressFamily::Inet6, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&listener, sockopt::ReuseAddr, &true)?;
    setsockopt(&listener, sockopt::Ipv6V6Only, &false)?;
    let address = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
    bind(std::os::fd::AsRawFd::as_raw_fd(&listener), &SockaddrIn6::from(address))?;
    listen(&listener, Backlog::MAXCONN)?;
    Ok(TcpListener::from(listener))
}

/// Allows this process `more` open files than it has, as far as that is for it to decide.
pub fn make_room_for_files(more: usize) {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let needed = ((open + more) as u64).min(hard);
    if needed > soft {
        // Where this is refused, running out of them is told.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, needed, hard);
    }
}

//! Ports of this machine for programs that are told which to take.

use std::mem;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// The system gives these to nobody who does not ask for one of them: any other may be a connection's of a test beside this one
/// as soon as it was found free.
const FIRST: u32 = 20_000;
const PORTS: u32 = 10_000;

/// A port at which nobody listens now. It is this process's among tests, which may look at the same time.
pub(crate) fn free() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let port = FIRST + (process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = u16::try_from(port).unwrap();
        let name = SocketAddr::from_abstract_name(format!("han-test-port-{port}")).unwrap();
        let Ok(claim) = UnixListener::bind_addr(&name) else { continue };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            mem::forget(claim);
            return port;
        }
    }
}

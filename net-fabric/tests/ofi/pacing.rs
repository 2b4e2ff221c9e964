//! How the kernel sends what a provider over TCP gives it.

use std::fs;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::sys::socket::sockopt::TcpCongestion;
use nix::sys::socket::{getpeername, getsockopt};

use crate::world::{World, over, pattern, providers};

/// How each connection of this process over TCP avoids congestion.
fn algorithms() -> Vec<String> {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let numbers = descriptors.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let algorithm = |number: i32| {
        // SAFETY: for two questions; should a test beside this one close it, they fail.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        getpeername::<nix::sys::socket::SockaddrStorage>(number).ok()?;
        let name = getsockopt(&socket, TcpCongestion).ok()?;
        Some(name.to_string_lossy().trim_end_matches('\0').to_owned())
    };
    numbers.filter_map(algorithm).collect()
}

#[test]
fn no_connection_stays_paced() {
    for provider in providers().iter().filter(|name| matches!(name.as_str(), "net" | "tcp" | "tcp;ofi_rxm")) {
        let mut world = World::new(&over(provider), 2);
        let (data, mut into) = (pattern(1, 5000), vec![0; 5000]);
        let receive = world.receive(1, 0, 1, &mut into);
        world.send(0, 1, 1, 0, &data).unwrap();
        world.received(1, receive, 0, 5000);
        // Those that ask whether a peer lives, for tests beside this one, are soon gone.
        let patience = Instant::now() + Duration::from_secs(60);
        loop {
            let algorithms = algorithms();
            assert!(!algorithms.is_empty(), "{provider} has connections");
            if algorithms.iter().all(|name| name != "bbr") {
                break;
            }
            assert!(Instant::now() < patience, "{provider}: {algorithms:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

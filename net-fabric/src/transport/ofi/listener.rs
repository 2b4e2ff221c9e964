//! A provider's listener, which is to end with its process.
//!
//! Peers take a listener that accepts for a rank that lives (`watch`). But libfabric's descriptors are inherited by every
//! child, whether it goes on in this program or in another, and while one has them the kernel goes on accepting, whatever
//! became of the rank. So the descriptor is closed in programs that children start, and a child that is forked gives it up
//! before its `fork` returns. A child of a bare `clone` that starts no program keeps it.
//!
//! Handlers of `fork` belong to the process and cannot be given a value, hence the static here.
#![allow(unsafe_code)] // Borrows descriptors of libfabric's, and closes them in children.

use std::fs;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::libc;
use nix::sys::socket::{SockaddrStorage, getsockname, getsockopt, sockopt};

/// Endpoints of one process at one time whose listeners children give up.
const MOST: usize = 64;
/// The number of no descriptor.
const NONE: RawFd = -1;

struct Entry {
    number: AtomicI32,
    /// Tells whether the number is still the listener's. While it is 0, which is no socket's, the entry is being made.
    inode: AtomicU64,
}

static LISTENERS: [Entry; MOST] = [const { Entry { number: AtomicI32::new(NONE), inode: AtomicU64::new(0) } }; MOST];

/// As long as it lives, children of this process do not keep a listener.
pub(super) struct Listener(&'static Entry);

impl Listener {
    /// Of the endpoint whose peers reach it at `address`. None if no such listener is found, or there are too many: then
    /// a child that outlives the rank looks like the rank itself.
    pub(super) fn at(address: SocketAddr) -> Option<Self> {
        let number = find(address)?;
        // SAFETY: the endpoint, which has the descriptor, is open.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        // Where that is refused, programs that children start keep it.
        let _ = fcntl(socket, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC));
        let inode = inode(number)?;
        // N2 (Acquire): pairs with N1: the inode is emptied before it is written again.
        let free =
            |entry: &&Entry| entry.number.compare_exchange(NONE, number, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let entry = LISTENERS.iter().find(free)?;
        entry.inode.store(inode, Ordering::Relaxed);
        Some(Self(entry))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.inode.store(0, Ordering::Relaxed);
        // N1 (Release): the place is empty. Pairs with N2.
        self.0.number.store(NONE, Ordering::Release);
    }
}

/// The descriptor that listens at an address.
fn find(address: SocketAddr) -> Option<RawFd> {
    let numbers = fs::read_dir("/proc/self/fd").ok()?;
    let mut numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    numbers.find(|number: &RawFd| {
        // SAFETY: it is only asked what it is. Another thread may close it meanwhile, and it is told to be something else then.
        let descriptor = unsafe { BorrowedFd::borrow_raw(*number) };
        let name = || getsockname::<SockaddrStorage>(descriptor.as_raw_fd()).ok();
        getsockopt(&descriptor, sockopt::AcceptConn) == Ok(true)
            && name().and_then(|name| socket_address(&name)).is_some_and(|own| {
                own.port() == address.port() && (own.ip() == address.ip() || own.ip().is_unspecified())
            })
    })
}

fn socket_address(name: &SockaddrStorage) -> Option<SocketAddr> {
    let of_4 = |name: &nix::sys::socket::SockaddrIn| SocketAddr::new(IpAddr::V4(name.ip()), name.port());
    let of_6 = |name: &nix::sys::socket::SockaddrIn6| SocketAddr::new(IpAddr::V6(name.ip()), name.port());
    name.as_sockaddr_in().map(of_4).or_else(|| name.as_sockaddr_in6().map(of_6))
}

/// The inode of a descriptor's file; system calls only.
fn inode(number: RawFd) -> Option<u64> {
    let mut told = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: it is there to be written.
    if unsafe { libc::fstat(number, told.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: written by the call above.
    let told = unsafe { told.assume_init() };
    (told.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(told.st_ino)
}

/// To be called in each forked child before its `fork` returns: it gives up the listeners of the endpoints that it has
/// inherited, which are of no use to it. Makes system calls and atomic accesses only.
pub extern "C" fn leave_to_parent() {
    for entry in &LISTENERS {
        // A child has one thread. A number and an inode that do not belong together are no listener's.
        let number = entry.number.swap(NONE, Ordering::Relaxed);
        let is_there = number != NONE && inode(number) == Some(entry.inode.load(Ordering::Relaxed));
        if is_there {
            replace(number);
        }
    }
}

/// Closes a listener, and has its number taken by something else, lest libfabric take a file of the child's for it.
fn replace(number: RawFd) {
    // SAFETY: a constant string.
    let nothing = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    // SAFETY: the number is a listener's of libfabric's, which uses none of its descriptors in a child.
    if nothing < 0 || unsafe { libc::dup3(nothing, number, libc::O_CLOEXEC) } < 0 {
        // SAFETY: as above.
        unsafe { libc::close(number) };
    }
    if nothing >= 0 {
        // SAFETY: this function has opened it.
        unsafe { libc::close(nothing) };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use nix::sys::wait::waitpid;
    use nix::unistd::{ForkResult, fork};

    use super::*;

    #[test]
    fn children_give_it_up_and_the_parent_keeps_it() {
        for ip in ["127.0.0.1", "::1"] {
            let Ok(socket) = TcpListener::bind((ip, 0)) else { continue };
            let address = socket.local_addr().unwrap();
            fcntl(&socket, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
            let listener = Listener::at(address).unwrap();
            assert_eq!(listener.0.number.load(Ordering::Relaxed), socket.as_raw_fd());
            assert_eq!(fcntl(&socket, FcntlArg::F_GETFD), Ok(FdFlag::FD_CLOEXEC.bits()));
            // Not this socket's any more: a child leaves alone what has its number.
            let other = Listener::at(address).unwrap();
            other.0.inode.store(1, Ordering::Relaxed);
            // SAFETY: the child makes system calls and atomic accesses only, and ends.
            match unsafe { fork() }.unwrap() {
                ForkResult::Child => {
                    let before = inode(socket.as_raw_fd()).is_some();
                    leave_to_parent();
                    let is_gone = inode(socket.as_raw_fd()).is_none();
                    // SAFETY: takes no pointers.
                    let is_taken = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_GETFD) } == libc::FD_CLOEXEC;
                    let is_empty = LISTENERS.iter().all(|entry| entry.number.load(Ordering::Relaxed) == NONE);
                    let fine = before && is_gone && is_taken && is_empty;
                    // SAFETY: ends this process, which is a copy of one thread of the tests'.
                    unsafe { libc::_exit(i32::from(!fine)) };
                }
                ForkResult::Parent { child } => {
                    let ended = waitpid(child, None).unwrap();
                    assert!(matches!(ended, nix::sys::wait::WaitStatus::Exited(_, 0)), "{ended:?}");
                }
            }
            TcpStream::connect(address).unwrap();
            drop((listener, other, socket));
            assert!(Listener::at(address).is_none());
        }
    }
}

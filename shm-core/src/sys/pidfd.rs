//! The lives of other processes, without the races of process ids.
#![allow(unsafe_code)] // pidfd_open has no safe wrapper in nix

use std::cell::RefCell;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::{Error, Result};

/// A handle on a process that stays true when its id is used again.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process `pid`.
    ///
    /// # Errors
    /// The process has already ended and was reaped, or this kernel has no `pidfd_open`.
    pub fn open(pid: u32) -> Result<Self> {
        let pid = libc::pid_t::try_from(pid).map_err(|_| Error::system("pidfd_open", Errno::EINVAL))?;
        // SAFETY: pidfd_open takes no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0u32) };
        let fd = RawFd::try_from(fd).unwrap_or(-1);
        if fd < 0 {
            return Err(Error::system("pidfd_open", Errno::last()));
        }
        // SAFETY: the kernel has just given this descriptor to us alone.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

/// The lives of a job's ranks, by rank: `None` for those that nobody watches.
#[derive(Debug)]
pub struct Lives(RefCell<Vec<Option<PidFd>>>);

impl Lives {
    /// Watches these.
    #[must_use]
    pub fn new(ranks: Vec<Option<PidFd>>) -> Self {
        Self(RefCell::new(ranks))
    }

    /// True if `rank` is watched and has ended. As long as this is false its process id is nobody else's.
    #[must_use]
    pub fn has_ended(&self, rank: usize) -> bool {
        let ranks = self.0.borrow();
        let Some(PidFd(fd)) = &ranks[rank] else { return false };
        matches!(poll(&mut [PollFd::new(fd.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO), Ok(n) if n > 0)
    }

    /// Those that are watched and have ended.
    #[must_use]
    pub fn ended(&self) -> Vec<usize> {
        let ranks = self.0.borrow();
        let watched = ranks.iter().enumerate().filter_map(|(i, p)| p.as_ref().map(|p| (i, p)));
        let (index, mut fds): (Vec<usize>, Vec<PollFd<'_>>) =
            watched.map(|(i, p)| (i, PollFd::new(p.0.as_fd(), PollFlags::POLLIN))).unzip();
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(n) if n > 0 => {
                index.into_iter().zip(fds).filter(|(_, fd)| fd.any().unwrap_or(false)).map(|(i, _)| i).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Watches `rank` no longer.
    pub fn forget(&self, rank: usize) {
        self.0.borrow_mut()[rank] = None;
    }
}

//! A place in another process's memory, by the process's id. Whether that process is still the one that is meant is
//! for [`Reach`](super::Reach) to say.
#![allow(unsafe_code)] // copies between processes

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::sys::remote::{self, Partial, Way};

/// A place in another process's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RemoteBuffer {
    rank: usize,
    pid: u32,
    address: usize,
}

impl RemoteBuffer {
    /// The place at `address` of rank `rank`, which is process `pid`.
    pub(super) fn at(rank: usize, pid: u32, address: usize) -> Self {
        Self { rank, pid, address }
    }

    /// Whose it is.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// Reads one word.
    pub(super) fn read_word(&self, offset: usize) -> Result<u64> {
        let mut word = 0_u64;
        // SAFETY: the word is there to be written.
        unsafe { self.read(offset, (&raw mut word).cast(), size_of::<u64>()) }.map(|()| word)
    }

    /// Copies `bytes` that stand `offset` bytes into the buffer to `to`.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: the peer has no memory there, has gone, or access is refused.
    ///
    /// # Safety
    /// `to` may be written for `bytes`.
    #[inline]
    pub(super) unsafe fn read(&self, offset: usize, to: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        let outcome = unsafe { remote::copy(Way::Read, self.pid, self.address + offset, to, bytes) };
        outcome.map_err(|partial| self.refused(Way::Read, offset, partial))
    }

    /// Copies `bytes` at `from` to the place `offset` bytes into the buffer.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Safety
    /// `from` may be read for `bytes`, and the peer has given the buffer to be written.
    #[inline]
    pub(super) unsafe fn write(&self, offset: usize, from: *const u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise; the bytes here are only read.
        let outcome = unsafe { remote::copy(Way::Write, self.pid, self.address + offset, from.cast_mut(), bytes) };
        outcome.map_err(|partial| self.refused(Way::Write, offset, partial))
    }

    #[cold]
    fn refused(&self, way: Way, offset: usize, Partial { bytes: done, errno }: Partial) -> Error {
        let at = self.address + offset + done;
        let reason = match errno {
            Errno::EFAULT => return nothing_there(self.rank, self.pid, way == Way::Write, at),
            Errno::EPERM | Errno::ENOSYS => format!("{} is refused ({errno:?}): {}", way.api(), remote::restriction()),
            Errno::ESRCH => return self.gone(),
            _ => format!("{}: {} ({errno:?})", way.api(), errno.desc()),
        };
        Error::Unreachable { rank: self.rank, pid: self.pid, reason }
    }

    /// The error of a peer that has ended; the kernel says the same of one whose main thread has.
    #[cold]
    pub(super) fn gone(&self) -> Error {
        let reason = "the process has ended, or its main thread has: peers reach its memory by that thread".to_owned();
        Error::Unreachable { rank: self.rank, pid: self.pid, reason }
    }
}

/// The error of a rank's memory that is to be read, or to be written, and is none that the kernel copies.
pub(super) fn nothing_there(rank: usize, pid: u32, is_written: bool, at: usize) -> Error {
    let can_be = if is_written { "written" } else { "read" };
    let reason = format!(
        "nothing is mapped there at {at:#x} that can be {can_be}: the buffer must stay allocated until the collective has \
         completed; memory that the kernel does not copy, of a device for instance, needs HAN_SET=single_copy=never"
    );
    Error::Unreachable { rank, pid, reason }
}

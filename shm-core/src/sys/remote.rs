//! Copies between this process's memory and another's by the kernel, without the other's help.
#![allow(unsafe_code)] // process_vm_readv and process_vm_writev take raw addresses, prctl has no safe wrapper for this

use std::fs;
use std::ops::Range;

use nix::errno::Errno;

use super::maps;

/// Most bytes that the kernel moves in one call: it cuts longer ones off without saying so.
const MOST_BYTES: usize = 0x7fff_f000;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the other process into this one.
    Read,
    /// From this process into the other one.
    Write,
}

impl Way {
    /// The system call, as in its manual page.
    #[must_use]
    pub fn api(self) -> &'static str {
        match self {
            Self::Read => "process_vm_readv",
            Self::Write => "process_vm_writev",
        }
    }
}

/// A copy that the kernel did not carry out to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partial {
    /// Bytes that were copied.
    pub bytes: usize,
    /// Why the next one was not.
    pub errno: Errno,
}

/// Copies `bytes` between `here` in this process and `there` in process `pid`.
///
/// Longer copies than one call moves are continued, and so are copies that the kernel cut short.
///
/// # Errors
/// The kernel's refusal and how far the copy came: `EFAULT` where `there` is not mapped, `EPERM` where it
/// is not permitted, `ESRCH` where the process has gone, `ENOSYS` where there is no such call.
///
/// # Safety
/// `here` is valid for `bytes`, for writing where they are read into it. The kernel checks `there`; that
/// writing to it breaks nothing in the other process is the caller's promise.
pub unsafe fn copy(way: Way, pid: u32, there: usize, here: *mut u8, bytes: usize) -> Result<(), Partial> {
    // A process id that does not fit is nobody's.
    let pid = libc::pid_t::try_from(pid).unwrap_or(-1);
    let mut done = 0;
    while done < bytes {
        let length = (bytes - done).min(MOST_BYTES);
        let local = libc::iovec { iov_base: here.wrapping_add(done).cast(), iov_len: length };
        let remote =
            libc::iovec { iov_base: std::ptr::without_provenance_mut(there.wrapping_add(done)), iov_len: length };
        let moved = match way {
            // SAFETY: one vector on each side, both alive; the local one is the caller's to write, the remote
            // one is checked by the kernel.
            Way::Read => unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) },
            // SAFETY: as above; the local one is only read.
            Way::Write => unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) },
        };
        match usize::try_from(moved) {
            Ok(0) => return Err(Partial { bytes: done, errno: Errno::EFAULT }),
            Ok(moved) => done += moved,
            Err(_) => match Errno::last() {
                Errno::EINTR => {}
                errno => return Err(Partial { bytes: done, errno }),
            },
        }
    }
    Ok(())
}

/// Where the memory of this process in `range` cannot take part in such copies, if the system tells: it is to be written for
/// those into this process, and to be read for those out of it.
#[must_use]
pub fn obstacle_here(way: Way, range: &Range<usize>) -> Option<usize> {
    let needed = match way {
        Way::Read => 'w',
        Way::Write => 'r',
    };
    let mut reached = range.start;
    let seen = maps::each(|mapping| {
        let is_next = mapping.range.contains(&reached) && mapping.permissions.contains(needed);
        if is_next {
            reached = mapping.range.end;
        }
        mapping.range.end >= range.end
    });
    (seen.is_ok() && reached < range.end).then_some(reached)
}

/// Where the Yama security module tells how far it restricts a process's access to others.
const YAMA: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Lets processes of the same user copy from and to this one where Yama would allow that only to its
/// ancestors (scope 1). Elsewhere there is nothing to do.
pub fn admit_peers() {
    let restricted = fs::read_to_string(YAMA).is_ok_and(|scope| scope.trim() == "1");
    if restricted {
        // SAFETY: prctl reads no memory of this process for this option; a refusal is found by the probe.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    }
}

/// What forbids one process to reach into another here, for messages.
#[must_use]
pub fn restriction() -> String {
    match fs::read_to_string(YAMA).as_deref().map(str::trim) {
        Ok("0") | Err(_) => "seccomp, a process that is not dumpable, or another user forbids it".to_owned(),
        Ok(scope) => format!("Yama's ptrace_scope is {scope}; or seccomp or another user forbids it"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    use super::*;

    const PAGE: usize = 4096;

    fn read(there: usize, into: &mut [u8]) -> Result<(), Partial> {
        // SAFETY: the slice is writable.
        unsafe { copy(Way::Read, std::process::id(), there, into.as_mut_ptr(), into.len()) }
    }

    #[test]
    fn bytes_go_both_ways() {
        let mut theirs = vec![1u8; 10_000];
        let mut ours: Vec<u8> = (0..10_000).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let there = theirs.as_mut_ptr().expose_provenance();
        // SAFETY: both vectors are that long, and nothing else touches them.
        unsafe { copy(Way::Write, std::process::id(), there, ours.as_mut_ptr(), ours.len()) }.unwrap();
        assert_eq!(theirs, ours);
        let mut again = vec![0; 10_000];
        read(there, &mut again).unwrap();
        assert_eq!(again, ours);
    }

    #[test]
    fn a_hole_ends_a_copy_where_it_begins() {
        let length = std::num::NonZeroUsize::new(4 * PAGE).unwrap();
        // SAFETY: a new mapping where the kernel likes.
        let base = unsafe {
            mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE)
        };
        let base = base.unwrap();
        // SAFETY: its third page, which nobody uses.
        let hole = unsafe { base.byte_add(2 * PAGE) };
        // SAFETY: a page of the mapping of above.
        unsafe { munmap(hole, PAGE) }.unwrap();
        let start = base.as_ptr().addr();
        let mut into = vec![0; 3 * PAGE];
        assert_eq!(read(start + 100, &mut into), Err(Partial { bytes: 2 * PAGE - 100, errno: Errno::EFAULT }));
        assert_eq!(read(start + 2 * PAGE, &mut into), Err(Partial { bytes: 0, errno: Errno::EFAULT }));
        read(start + 100, &mut into[..2 * PAGE - 100]).unwrap();
        // SAFETY: what is left of the mapping; unmapping a hole again does no harm.
        unsafe { munmap(base, 4 * PAGE) }.unwrap();
    }

    #[test]
    fn nobody_has_no_memory() {
        let mut into = [0; 8];
        // SAFETY: the array is writable.
        let outcome = unsafe { copy(Way::Read, u32::MAX, PAGE, into.as_mut_ptr(), into.len()) };
        assert_eq!(outcome.unwrap_err().errno, Errno::ESRCH);
    }
}

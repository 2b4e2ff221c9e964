//! Shared memory objects: made without a name, mapped, reached by other processes.
#![allow(unsafe_code)] // a mapping's first word as an atomic; madvise takes an address

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use memmap2::{Advice, MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::statvfs::statvfs;
use nix::unistd::{geteuid, gettid};

use super::held::Held;
use crate::error::{Error, Result};

/// Where named objects stand when anonymous ones cannot be shared.
pub const DEV_SHM: &str = "/dev/shm";

/// A descriptor to give up when a mapping needs one and the program has taken all others.
#[derive(Debug)]
pub struct Spare {
    _file: Held,
}

impl Spare {
    /// `None` where all are taken.
    #[must_use]
    pub fn take() -> Option<Self> {
        // A file of its own, lest one that the program has opened with its number is taken for it.
        let file = memfd_create(c"han-spare", MFdFlags::MFD_CLOEXEC).ok()?;
        Held::new(file.into()).ok().map(|file| Self { _file: file })
    }
}

/// A mapping of a shared object. Never hands out references: other processes write here.
#[derive(Debug)]
pub struct SharedMap {
    /// Open as long as others may attach or look through it; the maker of a named object holds a lock on it, by which others
    /// see that it lives. Goes before the mapping, as long as which no other file has its identity.
    file: Option<Held>,
    map: MmapRaw,
    /// The object's name, as long as it has one; removed with the mapping at the latest.
    name: Option<PathBuf>,
}

impl SharedMap {
    /// Makes an anonymous object of `bytes` zero bytes whose size can never change again.
    ///
    /// Pages are taken when they are first touched, by the rank that touches them.
    ///
    /// # Errors
    /// The kernel refuses `memfd_create`, or has no memory.
    pub fn anonymous(name: &str, bytes: usize) -> Result<Self> {
        let file = sealed_memfd(name, bytes as u64)?;
        Self::map(file, bytes as u64)
    }

    /// Makes a named object in [`DEV_SHM`] with all its pages reserved, so that a full file system
    /// is an error here and not a signal later.
    ///
    /// The maker holds a lock on the file; [`sweep`] removes files whose maker has gone.
    ///
    /// # Errors
    /// There is no room, or the directory cannot be written.
    pub fn named(path: &Path, bytes: usize) -> Result<Self> {
        check_file_limit("fallocate in /dev/shm", bytes as u64)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(|e| Error::io("open in /dev/shm", &e))?;
        let remove = |error: Error| {
            let _ = fs::remove_file(path);
            error
        };
        // The lock goes with the descriptor, also where the program has closed that itself.
        file.lock().map_err(|e| remove(Error::io("flock", &e)))?;
        // A sweep may have taken the file for a left-over before it was locked.
        if fs::metadata(path).map(|m| m.ino()).ok() != file.metadata().map(|m| m.ino()).ok() {
            return Err(Error::System { api: "flock", reason: format!("{} was removed meanwhile", path.display()) });
        }
        let length = i64::try_from(bytes).unwrap_or(i64::MAX);
        fallocate(&file, FallocateFlags::empty(), 0, length).map_err(|e| {
            remove(match e {
                Errno::ENOSPC | Errno::EDQUOT | Errno::ENOMEM => {
                    let reason = format!(
                        "/dev/shm has {} KiB left ({e:?}): make it larger (docker run --shm-size), or free communicators",
                        room_in_dev_shm() / 1024
                    );
                    Error::NoMemory { bytes, reason }
                }
                _ => Error::system("fallocate in /dev/shm", e),
            })
        })?;
        let mapped = MmapOptions::new().map_raw(&file);
        let map = mapped.map_err(|e| remove(Error::of_memory("mmap", bytes as u64, &e)))?;
        Ok(Self { map, file: Some(Held::new(file).map_err(remove)?), name: Some(path.to_owned()) })
    }

    /// Maps the object that another process holds open as `fd`, or a named one.
    ///
    /// # Errors
    /// It cannot be opened (other user, other process namespace), or is not `bytes` long.
    pub fn open(path: &Path, bytes: usize) -> Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(|e| Error::System { api: "open", reason: format!("{}: {e}", path.display()) })?;
        let length = file.metadata().map_err(|e| Error::io("fstat", &e))?.len();
        if length != bytes as u64 {
            let reason = format!("{} is {length} bytes long, expected {bytes}", path.display());
            return Err(Error::System { api: "open", reason });
        }
        Self::map(file, length)
    }

    /// Maps somebody's object of at least `least` bytes to look at it, if it cannot shrink under the
    /// mapping: it is sealed, or this user's own.
    ///
    /// # Errors
    /// It cannot be opened, is too short, or could be taken away.
    pub fn inspect(path: &Path, least: usize) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| Error::io("open", &e))?;
        let seen = file.metadata().map_err(|e| Error::io("fstat", &e))?;
        let seals = fcntl(&file, FcntlArg::F_GET_SEALS).map_or(SealFlag::empty(), SealFlag::from_bits_truncate);
        let stays = seals.contains(SealFlag::F_SEAL_SHRINK) || seen.uid() == geteuid().as_raw();
        if seen.len() < least as u64 || !stays {
            return Err(Error::System { api: "open", reason: format!("{} is no segment", path.display()) });
        }
        Self::map(file, seen.len())
    }

    /// Maps `bytes` at `offset` of the object that process `pid` holds open as `fd`, if it is the one that
    /// is meant.
    ///
    /// # Errors
    /// It cannot be opened or mapped, or is another object than the one of `inode`.
    pub fn of_peer(pid: u32, fd: u32, inode: u64, offset: u64, bytes: usize) -> Result<Self> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let opened = OpenOptions::new().read(true).write(true).open(&path);
        let file = opened.map_err(|e| Error::System { api: "open", reason: format!("{path}: {e}") })?;
        let seen = file.metadata().map_err(|e| Error::io("fstat", &e))?;
        if seen.ino() != inode || seen.len() < offset.saturating_add(bytes as u64) {
            let reason = format!("{path} has become another file: its owner must not close it");
            return Err(Error::System { api: "open", reason });
        }
        let map = MmapOptions::new().offset(offset).len(bytes).map_raw(&file).map_err(|e| Error::io("mmap", &e))?;
        Ok(Self { map, file: None, name: None })
    }

    fn map(file: File, bytes: u64) -> Result<Self> {
        let map = MmapOptions::new().map_raw(&file).map_err(|e| Error::of_memory("mmap", bytes, &e))?;
        Ok(Self { map, file: Some(Held::new(file)?), name: None })
    }

    /// First byte; page-aligned.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// The first word, which every object has room for.
    #[must_use]
    pub fn first_word(&self) -> &AtomicU64 {
        // SAFETY: a mapping is never empty, so it has a page, which is aligned and mapped as long as `self`.
        unsafe { AtomicU64::from_ptr(self.base().cast()) }
    }

    /// Length of the mapping in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.len()
    }

    /// The object's number among its like, and so its identity while it lives.
    #[must_use]
    pub fn inode(&self) -> Option<u64> {
        self.file.as_ref().map(Held::inode)
    }

    /// The descriptor, while it is open.
    #[must_use]
    pub fn fd(&self) -> Option<u32> {
        self.file.as_ref().and_then(|file| u32::try_from(file.as_raw_fd()).ok())
    }

    /// Asks for huge pages, where the system permits them for shared memory.
    pub fn prefer_huge_pages(&self) {
        // Advice: where it is refused the memory has small pages.
        let _ = self.map.advise(Advice::HugePage);
    }

    /// Gives the memory of a part of the object back at once, whoever maps it; it reads as zeros then.
    ///
    /// # Errors
    /// The descriptor was closed, by the program perhaps, or this kernel cannot.
    pub fn discard(&self, offset: usize, bytes: usize) -> Result<()> {
        let file = self.file.as_ref().filter(|file| file.is_open()).ok_or(Error::system("fallocate", Errno::EBADF))?;
        let (offset, bytes) = (i64::try_from(offset), i64::try_from(bytes));
        let (Ok(offset), Ok(bytes)) = (offset, bytes) else { return Err(Error::system("fallocate", Errno::EINVAL)) };
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&**file, flags, offset, bytes).map_err(|e| Error::system("fallocate(PUNCH_HOLE)", e))
    }

    /// How a process of the same user reaches this object while this one holds it open and the calling thread lives: that
    /// thread's number also serves where the main thread has ended.
    #[must_use]
    pub fn path_for_peers(&self) -> PathBuf {
        let fd = self.file.as_ref().map_or(-1, |file| file.as_raw_fd());
        PathBuf::from(format!("/proc/{}/fd/{fd}", gettid()))
    }

    /// Closes the descriptor; the memory stays mapped.
    pub fn forget_file(&mut self) {
        self.file = None;
    }

    /// Removes the object's name, if it has one; the memory stays mapped.
    pub fn unlink(&mut self) {
        if let Some(name) = self.name.take() {
            let _ = fs::remove_file(name);
        }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        self.unlink();
    }
}

/// Takes the pages of `bytes` from `start` on at once, where they are not there yet: one call in place of a fault for each.
///
/// What they hold stays. Where the kernel refuses (before Linux 5.14, no memory) they are taken when they are touched.
#[inline(never)]
pub(crate) fn touch(start: *mut u8, bytes: usize) {
    // SAFETY: it changes no contents, and what is not mapped is refused.
    let _ = unsafe { libc::madvise(start.cast(), bytes, libc::MADV_POPULATE_WRITE) };
}

/// An anonymous file of `bytes` zero bytes whose size can never change again.
pub(super) fn sealed_memfd(name: &str, bytes: u64) -> Result<File> {
    check_file_limit("ftruncate", bytes)?;
    let name = CString::new(name).map_err(|_| Error::system("memfd_create", Errno::EINVAL))?;
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let made = memfd_create(name.as_c_str(), flags);
    let fd: OwnedFd = made.map_err(|e| Error::of_memory("memfd_create", bytes, &e.into()))?;
    let file = File::from(fd);
    file.set_len(bytes).map_err(|e| Error::of_memory("ftruncate", bytes, &e))?;
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(|e| Error::system("fcntl(F_ADD_SEALS)", e))?;
    Ok(file)
}

/// How long a file of this process may be; the kernel's answer to a longer one would be a signal.
#[must_use]
pub fn file_limit() -> u64 {
    getrlimit(Resource::RLIMIT_FSIZE).map_or(u64::MAX, |(soft, _)| soft)
}

/// An error of `api` if a file may not be `bytes` long: the kernel's answer would be a signal.
fn check_file_limit(api: &'static str, bytes: u64) -> Result<()> {
    let most = file_limit();
    if bytes <= most {
        return Ok(());
    }
    let reason = format!("{bytes} bytes are more than the limit on a file's size, {most}: raise it (ulimit -f)");
    Err(Error::System { api, reason })
}

/// Bytes that are free in [`DEV_SHM`], as far as the system says.
#[must_use]
pub fn room_in_dev_shm() -> u64 {
    statvfs(DEV_SHM).map_or(u64::MAX, |seen| seen.blocks_available().saturating_mul(seen.fragment_size()))
}

/// What the names of this user's objects in [`DEV_SHM`] begin with.
#[must_use]
pub fn prefix() -> String {
    format!("han-{}-", geteuid())
}

/// Removes this user's objects in [`DEV_SHM`] whose maker was killed before it could.
pub fn sweep() {
    let Ok(entries) = fs::read_dir(DEV_SHM) else { return };
    let prefix = prefix();
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)) {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits());
        let Ok(file) = options.open(entry.path()) else { continue };
        let own = file.metadata().is_ok_and(|seen| seen.is_file() && seen.uid() == geteuid().as_raw());
        // The lock is held until the name is gone, so that nobody takes the file for a living one.
        if own && file.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_go_with_their_maker_and_sweeping_spares_the_living() {
        let path = Path::new(DEV_SHM).join(format!("{}test-{}", prefix(), std::process::id()));
        let map = SharedMap::named(&path, 4096).unwrap();
        sweep();
        assert!(path.exists(), "its maker lives");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "nobody else's");
        drop(map);
        assert!(!path.exists(), "removed with the mapping");
        fs::write(&path, b"left by a killed maker").unwrap();
        sweep();
        assert!(!path.exists(), "nobody holds its lock");
    }

    #[test]
    fn an_object_that_could_shrink_is_looked_at_only_if_it_is_ours() {
        let map = SharedMap::anonymous("han-test", 4096).unwrap();
        assert!(SharedMap::inspect(&map.path_for_peers(), 4096).is_ok());
        assert!(SharedMap::inspect(&map.path_for_peers(), 4097).is_err());
    }
}

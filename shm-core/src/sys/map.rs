//! Shared memory objects: made without a name, mapped, reached by other processes.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use memmap2::{MmapOptions, MmapRaw};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FlockArg, SealFlag, fallocate, FallocateFlags, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::error::{Error, Result};

/// Where named objects stand when anonymous ones cannot be shared.
pub const DEV_SHM: &str = "/dev/shm";

/// A mapping of a shared object. Never hands out references: other processes write here.
#[derive(Debug)]
pub struct SharedMap {
    map: MmapRaw,
    /// Open as long as others may attach or look through it.
    file: Option<File>,
}

impl SharedMap {
    /// Makes an anonymous object of `bytes` zero bytes whose size can never change again.
    ///
    /// Pages are taken when they are first touched, by the rank that touches them.
    ///
    /// # Errors
    /// The kernel refuses `memfd_create`, or has no memory.
    pub fn anonymous(name: &str, bytes: usize) -> Result<Self> {
        let name = CString::new(name).map_err(|_| Error::system("memfd_create", Errno::EINVAL))?;
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let fd: OwnedFd = memfd_create(name.as_c_str(), flags).map_err(|e| Error::system("memfd_create", e))?;
        let file = File::from(fd);
        file.set_len(bytes as u64).map_err(|e| Error::io("ftruncate", &e))?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).map_err(|e| Error::system("fcntl(F_ADD_SEALS)", e))?;
        Self::map(file)
    }

    /// Makes a named object in [`DEV_SHM`] with all its pages reserved, so that a full file system
    /// is an error here and not a signal later.
    ///
    /// The maker holds a lock on the file; [`sweep`] removes files whose maker has gone.
    ///
    /// # Errors
    /// There is no room, or the directory cannot be written.
    pub fn named(path: &Path, bytes: usize) -> Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(path).map_err(|e| Error::io("open in /dev/shm", &e))?;
        let reserve = || {
            nix::fcntl::Flock::lock(file.try_clone()?, FlockArg::LockExclusiveNonblock)
                .map(std::mem::forget) // the lock belongs to the open file and ends with it
                .map_err(|(_, e)| io::Error::from(e))?;
            let length = i64::try_from(bytes).map_err(|_| io::Error::from(Errno::EFBIG))?;
            fallocate(&file, FallocateFlags::empty(), 0, length).map_err(io::Error::from)
        };
        if let Err(e) = reserve() {
            let _ = fs::remove_file(path);
            return Err(Error::System {
                api: "fallocate in /dev/shm",
                reason: format!("{e}; {} KiB are needed: give the container a larger /dev/shm", bytes / 1024),
            });
        }
        Self::map(file)
    }

    /// Maps the object that another process holds open as `fd`, or a named one.
    ///
    /// # Errors
    /// It cannot be opened (other user, other process namespace), or is not `bytes` long.
    pub fn open(path: &Path, bytes: usize) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| Error::System {
            api: "open",
            reason: format!("{}: {e}", path.display()),
        })?;
        let length = file.metadata().map_err(|e| Error::io("fstat", &e))?.len();
        if length != bytes as u64 {
            let reason = format!("{} is {length} bytes long, expected {bytes}", path.display());
            return Err(Error::System { api: "open", reason });
        }
        Self::map(file)
    }

    /// Maps `path` for looking only, if it is a regular object of at least `least` bytes.
    ///
    /// # Errors
    /// It cannot be opened or is too short.
    pub fn inspect(path: &Path, least: usize) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|e| Error::io("open", &e))?;
        let length = file.metadata().map_err(|e| Error::io("fstat", &e))?.len();
        if length < least as u64 {
            return Err(Error::System { api: "open", reason: format!("{} is too short", path.display()) });
        }
        Self::map(file)
    }

    fn map(file: File) -> Result<Self> {
        let map = MmapOptions::new().map_raw(&file).map_err(|e| Error::io("mmap", &e))?;
        Ok(Self { map, file: Some(file) })
    }

    /// First byte; page-aligned.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Length of the mapping in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.map.len()
    }

    /// How a process of the same user reaches this object while this one holds it open.
    #[must_use]
    pub fn path_for_peers(&self) -> PathBuf {
        let fd = self.file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        PathBuf::from(format!("/proc/{}/fd/{fd}", std::process::id()))
    }

    /// Closes the descriptor; the memory stays mapped.
    pub fn forget_file(&mut self) {
        self.file = None;
    }
}

/// Removes objects in [`DEV_SHM`] whose name begins with `prefix` and whose maker has ended.
pub fn sweep(prefix: &str) {
    let Ok(entries) = fs::read_dir(DEV_SHM) else { return };
    for entry in entries.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(prefix) {
            continue;
        }
        let Ok(file) = OpenOptions::new().read(true).write(true).open(entry.path()) else { continue };
        if nix::fcntl::Flock::lock(file, FlockArg::LockExclusiveNonblock).is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

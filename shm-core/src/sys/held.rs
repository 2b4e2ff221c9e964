//! Files that the engine holds open, in a program that may close any descriptor: all from 3 on for instance, or one twice.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};

use nix::sys::stat::{FileStat, fstat};
use nix::unistd::close;

use crate::error::{Error, Result};

/// An open file or connection, and which one it is: its number may be another file's by now, the program's own. It is closed when this is
/// dropped, unless the program has done so.
#[derive(Debug)]
pub struct Held<T: AsFd + AsRawFd = File> {
    file: ManuallyDrop<T>,
    /// Device and inode.
    identity: (u64, u64),
}

impl<T: AsFd + AsRawFd> Held<T> {
    /// Holds `file`.
    ///
    /// # Errors
    /// The system does not tell which file it is.
    pub fn new(file: T) -> Result<Self> {
        let identity = identity(&fstat(&file).map_err(|errno| Error::system("fstat", errno))?);
        Ok(Self { file: ManuallyDrop::new(file), identity })
    }

    /// Whether the descriptor is still the file's.
    #[must_use]
    pub fn is_open(&self) -> bool {
        fstat(&*self.file).is_ok_and(|seen| identity(&seen) == self.identity)
    }

    pub(super) fn inode(&self) -> u64 {
        self.identity.1
    }
}

impl<T: AsFd + AsRawFd> Deref for Held<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.file
    }
}

impl<T: AsFd + AsRawFd> Drop for Held<T> {
    fn drop(&mut self) {
        if self.is_open() {
            let _ = close(self.file.as_raw_fd());
        }
    }
}

fn identity(seen: &FileStat) -> (u64, u64) {
    (seen.st_dev, seen.st_ino)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_its_number_is_left_alone() {
        let mut held = Held::new(tempfile::tempfile().unwrap()).unwrap();
        assert!(held.is_open());
        let other = tempfile::tempfile().unwrap();
        let place = format!("/proc/self/fd/{}", other.as_raw_fd());
        // As if the program had closed the one and opened the other.
        *held.file = other;
        assert!(!held.is_open());
        drop(held);
        assert!(std::fs::metadata(place).is_ok());
    }
}

//! Files that the engine holds open, in a program that may close any descriptor: all from 3 on for instance, or one twice.

use std::fs::{File, Metadata};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use nix::unistd::close;

use crate::error::{Error, Result};

/// An open file, and which one it is: its number may be another file's by now, the program's own. It is closed when this is
/// dropped, unless the program has done so.
#[derive(Debug)]
pub(super) struct Held {
    file: ManuallyDrop<File>,
    /// Device and inode.
    identity: (u64, u64),
}

impl Held {
    /// # Errors
    /// The system does not tell which file it is.
    pub(super) fn new(file: File) -> Result<Self> {
        let identity = identity(&file.metadata().map_err(|error| Error::io("fstat", &error))?);
        Ok(Self { file: ManuallyDrop::new(file), identity })
    }

    /// Whether the descriptor is still the file's.
    pub(super) fn is_open(&self) -> bool {
        self.file.metadata().is_ok_and(|seen| identity(&seen) == self.identity)
    }

    pub(super) fn inode(&self) -> u64 {
        self.identity.1
    }
}

impl Deref for Held {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.is_open() {
            let _ = close(self.file.as_raw_fd());
        }
    }
}

fn identity(seen: &Metadata) -> (u64, u64) {
    (seen.dev(), seen.ino())
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

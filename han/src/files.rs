//! Files that users name: they may be links, devices, and anything else, and longer than they may be.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use shm_core::sys::map::file_limit;

/// More than this is no text that anybody has written; a device may have no end.
const LONGEST_TEXT: u64 = 64 << 20;

/// The regular file that `path` is, through links or by itself, or would be: what can be replaced by another file.
///
/// # Errors
/// It is there and something else, or cannot be looked at.
pub fn replaceable(path: &Path) -> io::Result<PathBuf> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => return Err(io::Error::other("it is no regular file")),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut path = path.to_owned();
    while let Ok(target) = fs::read_link(&path) {
        path.set_file_name(target);
    }
    Ok(path)
}

/// A file that is written anew. Where the system limits a file's size, more is an error, as on a full disk: the signal that it
/// otherwise is ends the process.
#[derive(Debug)]
pub(crate) struct NewFile {
    file: File,
    bytes: u64,
}

impl NewFile {
    /// Makes it, or empties the one that is there.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: File::create(path)?, bytes: 0 })
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes + bytes.len() as u64 > file_limit() {
            let reason = "it is longer than the limit on a file's size: raise it (ulimit -f)";
            return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
        }
        let written = self.file.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The text in the file at `path`.
///
/// # Errors
/// It cannot be read, or is longer than any text.
pub fn read_text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    if File::open(path)?.take(LONGEST_TEXT + 1).read_to_string(&mut text)? as u64 > LONGEST_TEXT {
        return Err(io::Error::other(format!("it is longer than {} MiB", LONGEST_TEXT >> 20)));
    }
    Ok(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_an_end() {
        assert!(read_text(Path::new("/dev/zero")).unwrap_err().to_string().contains("longer than 64 MiB"));
    }
}

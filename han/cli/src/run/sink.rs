//! Where output goes: lines whole and apart, whoever wrote them.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Writes of this size are atomic on a pipe (`PIPE_BUF`), so that others may write to it, too.
const BATCH_BYTES: usize = 4096;

/// Who writes: a rank, or without one the launcher, on one of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Speaker {
    pub(super) rank: Option<usize>,
    pub(super) stream: &'static str,
}

/// Standard output or standard error of the launcher, or both.
pub(super) struct Sink {
    file: File,
    label: bool,
    /// Whose line has begun here and not ended.
    open_line: Option<Speaker>,
}

impl Sink {
    pub(super) fn new(file: File, label: bool) -> Self {
        Self { file, label, open_line: None }
    }

    /// Whether it may be somebody who answers.
    pub(super) fn is_interactive(&self) -> io::Result<bool> {
        Ok(!self.file.metadata()?.is_file())
    }

    /// Passes on lines, the last of which may go on with the next write. It ends where somebody else writes in between.
    pub(super) fn write(&mut self, speaker: Speaker, text: &[u8]) -> io::Result<()> {
        let label = speaker.rank.filter(|_| self.label).map_or_else(String::new, |rank| format!("[{rank}] "));
        let mut batch = Vec::with_capacity(BATCH_BYTES);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if !batch.is_empty() && batch.len() + label.len() + line.len() > BATCH_BYTES {
                self.write_all(&batch)?;
                batch.clear();
            }
            if self.open_line != Some(speaker) {
                batch.extend(self.open_line.map(|_| b'\n'));
                batch.extend_from_slice(label.as_bytes());
            }
            batch.extend_from_slice(line);
            self.open_line = (!line.ends_with(b"\n")).then_some(speaker);
        }
        self.write_all(&batch)
    }

    /// Passes on the last words of `speaker`, which may be half a line.
    pub(super) fn finish(&mut self, speaker: Speaker, text: &[u8]) -> io::Result<()> {
        self.write(speaker, text)?;
        if self.label && self.open_line == Some(speaker) { self.write(speaker, b"\n") } else { Ok(()) }
    }

    /// Writes everything, also to a file that someone has made non-blocking.
    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.wait_writable()?,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn wait_writable(&self) -> io::Result<()> {
        match poll(&mut [PollFd::new(self.file.as_fd(), PollFlags::POLLOUT)], PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

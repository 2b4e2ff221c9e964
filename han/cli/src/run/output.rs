//! Forwards what the ranks print, whole lines at a time.
//!
//! One thread per stream (standard output, standard error) reads all ranks' pipes and alone writes to
//! the sink, so lines of different ranks never mix, and a reader who is slow to take the one stream
//! does not hold up the other, the PMI server or signals: what the launcher itself says on standard error goes the
//! same way as what the ranks say. Bytes are passed on as they are; only `--label` adds to them.

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, channel};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{say, start_thread};

/// Writes of this size are atomic on a pipe (`PIPE_BUF`), so that both streams may share one.
const BATCH_BYTES: usize = 4096;
/// A line longer than this is passed on in parts.
const LONGEST_LINE_BYTES: usize = 64 * 1024;

/// One rank's end of a stream; without a rank it is the launcher's own.
pub(super) struct Source {
    pub(super) rank: Option<usize>,
    pub(super) pipe: OwnedFd,
}

/// The threads that forward output.
pub(super) struct Forwarders {
    stop: PipeWriter,
    done: PipeReader,
    lost: Receiver<()>,
    voice: File,
}

impl Forwarders {
    /// Starts forwarding `stdout` and `stderr` of the ranks to those of this process.
    pub(super) fn start(stdout: Vec<Source>, mut stderr: Vec<Source>, label: bool) -> io::Result<Self> {
        let (heard, voice) = io::pipe()?;
        fcntl(&voice, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        stderr.push(Source { rank: None, pipe: heard.into() });
        let (stop_reader, stop) = io::pipe()?;
        let (done, done_writer) = io::pipe()?;
        let (loses, lost) = channel();
        let out = (stdout, io::stdout().as_fd().try_clone_to_owned()?, "standard output");
        let err = (stderr, io::stderr().as_fd().try_clone_to_owned()?, "standard error");
        for (sources, sink, name) in [out, err] {
            let mut forwarder = Forwarder::new(sources, File::from(sink), label)?;
            let (stop, done, loses) = (stop_reader.try_clone()?, done_writer.try_clone()?, loses.clone());
            start_thread(move || {
                // A sink that takes no more closes the ranks' pipes: they learn it as from any reader. That a reader
                // has left is its own wish; anything else loses what the ranks have said.
                if let Err(e) = forwarder.run(&stop)
                    && e.kind() != ErrorKind::BrokenPipe
                {
                    say(&format!("cannot write to {name}: {e}; what the ranks print there is lost"));
                    let _ = loses.send(());
                }
                drop(done);
            })?;
        }
        Ok(Self { stop, done, lost, voice: File::from(OwnedFd::from(voice)) })
    }

    /// One whole line on standard error. A reader who takes nothing is not waited for: if its pipe and this one are
    /// full, the line is lost.
    pub(super) fn say(&self, text: &str) {
        let _ = (&self.voice).write_all(super::line(text).as_bytes());
    }

    /// Tells the threads that no writer is left: they forward what the pipes still hold and end.
    /// The first result becomes readable when they have; then the second holds something if output could not be written.
    pub(super) fn drain(self) -> (PipeReader, Receiver<()>) {
        drop(self.stop);
        (self.done, self.lost)
    }
}

struct Stream {
    rank: Option<usize>,
    pipe: File,
    /// The beginning of a line.
    pending: Vec<u8>,
}

struct Forwarder {
    streams: Vec<Stream>,
    sink: File,
    label: bool,
}

enum Got {
    Bytes,
    Nothing,
    End,
}

impl Forwarder {
    fn new(sources: Vec<Source>, sink: File, label: bool) -> io::Result<Self> {
        let mut streams = Vec::with_capacity(sources.len());
        for Source { rank, pipe } in sources {
            fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            streams.push(Stream { rank, pipe: File::from(pipe), pending: Vec::new() });
        }
        Ok(Self { streams, sink, label })
    }

    fn run(&mut self, stop: &PipeReader) -> io::Result<()> {
        while !self.streams.is_empty() {
            let (ready, stopped) = self.wait(stop)?;
            let mut open = Vec::with_capacity(self.streams.len());
            for (mut stream, ready) in std::mem::take(&mut self.streams).into_iter().zip(ready) {
                let got = if ready || stopped { self.forward(&mut stream)? } else { Got::Nothing };
                match got {
                    Got::Bytes => open.push(stream),
                    Got::Nothing if !stopped => open.push(stream),
                    Got::Nothing | Got::End => self.finish(&stream)?,
                }
            }
            self.streams = open;
        }
        Ok(())
    }

    /// Which streams have something, and whether `stop` was given.
    fn wait(&self, stop: &PipeReader) -> io::Result<(Vec<bool>, bool)> {
        let input = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds: Vec<PollFd<'_>> = self.streams.iter().map(|stream| input(stream.pipe.as_fd())).collect();
        fds.push(input(stop.as_fd()));
        wait_for(&mut fds)?;
        let mut ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let stopped = ready.pop().unwrap_or(false);
        Ok((ready, stopped))
    }

    fn forward(&mut self, stream: &mut Stream) -> io::Result<Got> {
        let mut chunk = [0; 16 * 1024];
        let bytes = match stream.pipe.read(&mut chunk) {
            Ok(0) => return Ok(Got::End),
            Ok(bytes) => bytes,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(Got::Nothing),
            Err(_) => return Ok(Got::End),
        };
        stream.pending.extend_from_slice(&chunk[..bytes]);
        let whole = match stream.pending.iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => newline + 1,
            None if stream.pending.len() >= LONGEST_LINE_BYTES => stream.pending.len(),
            None => 0,
        };
        self.write_lines(stream.rank, &stream.pending[..whole])?;
        stream.pending.drain(..whole);
        Ok(Got::Bytes)
    }

    /// Forwards a last line that has no newline.
    fn finish(&mut self, stream: &Stream) -> io::Result<()> {
        let mut rest = stream.pending.clone();
        if self.label && !rest.is_empty() {
            rest.push(b'\n');
        }
        self.write_lines(stream.rank, &rest)
    }

    fn write_lines(&mut self, rank: Option<usize>, text: &[u8]) -> io::Result<()> {
        let label = rank.filter(|_| self.label).map_or_else(String::new, |rank| format!("[{rank}] "));
        let mut batch = Vec::with_capacity(BATCH_BYTES);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            if !batch.is_empty() && batch.len() + label.len() + line.len() > BATCH_BYTES {
                write_all(&mut self.sink, &batch)?;
                batch.clear();
            }
            batch.extend_from_slice(label.as_bytes());
            batch.extend_from_slice(line);
        }
        write_all(&mut self.sink, &batch)
    }
}

/// Writes everything, also to a sink that someone has made non-blocking.
fn write_all(sink: &mut File, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match sink.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => wait_writable(sink.as_fd())?,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn wait_writable(sink: BorrowedFd<'_>) -> io::Result<()> {
    wait_for(&mut [PollFd::new(sink, PollFlags::POLLOUT)])
}

fn wait_for(fds: &mut [PollFd<'_>]) -> io::Result<()> {
    match poll(fds, PollTimeout::NONE) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Seek;

    use super::*;

    /// What a forwarder makes of these writes, all of them made before it starts.
    fn forwarded(writes: &[(usize, &[u8])], label: bool) -> Vec<u8> {
        let pipes: Vec<_> = writes.iter().map(|_| io::pipe().unwrap()).collect();
        let mut sources = Vec::new();
        for ((rank, text), (reader, mut writer)) in writes.iter().zip(pipes) {
            writer.write_all(text).unwrap();
            sources.push(Source { rank: Some(*rank), pipe: reader.into() });
        }
        let mut sink = tempfile::tempfile().unwrap();
        let (stop, _writer) = io::pipe().unwrap();
        Forwarder::new(sources, sink.try_clone().unwrap(), label).unwrap().run(&stop).unwrap();
        let mut text = Vec::new();
        sink.rewind().unwrap();
        sink.read_to_end(&mut text).unwrap();
        text
    }

    #[test]
    fn bytes_are_passed_on_unchanged() {
        let binary: Vec<u8> = (0..60_000_u32).flat_map(u32::to_le_bytes).take(50_000).collect();
        assert_eq!(forwarded(&[(0, &binary)], false), binary);
    }

    #[test]
    fn labels_stand_before_every_line() {
        assert_eq!(forwarded(&[(3, b"a\n\nb")], true), b"[3] a\n[3] \n[3] b\n");
        assert_eq!(forwarded(&[(0, b"")], true), b"");
    }

    #[test]
    fn a_pipe_that_stays_open_is_drained_when_told_to_stop() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"last words").unwrap();
        let mut sink = tempfile::tempfile().unwrap();
        let (stop, stop_writer) = io::pipe().unwrap();
        drop(stop_writer);
        let source = Source { rank: Some(0), pipe: reader.into() };
        Forwarder::new(vec![source], sink.try_clone().unwrap(), false).unwrap().run(&stop).unwrap();
        let mut text = String::new();
        sink.rewind().unwrap();
        sink.read_to_string(&mut text).unwrap();
        assert_eq!(text, "last words");
    }
}

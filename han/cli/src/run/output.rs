//! Forwards what the ranks print, whole lines at a time.
//!
//! One thread per stream (standard output, standard error) reads all ranks' pipes and writes to the [`Sink`], so lines
//! of different ranks never mix, and a reader who is slow to take the one stream does not hold up the other, the PMI
//! server or signals: what the launcher itself says on standard error goes the same way as what the ranks say. Where
//! both streams go to one file they share a thread, so that what a rank prints on standard error stands behind what it
//! has printed before, and what is said of its end behind both. Half a line is shown only if it may be a prompt. Bytes are passed on
//! as they are; only `--label` adds to them, and a line that is passed on in parts ends where somebody else's comes in
//! between.

use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::sink::{Sink, Speaker};
use super::start_thread;

/// What is read at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// A line longer than this is passed on in parts.
const LONGEST_LINE_BYTES: usize = 1024 * 1024;
/// When all ranks have been silent for so long, half a line may be a prompt.
const PROMPT_MS: u16 = 100;

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
    /// Whether the reader of standard output has left.
    reader_left: Arc<AtomicBool>,
    /// Since when each of them has been writing, if it is.
    writing: Vec<Writing>,
}

type Writing = Arc<Mutex<Option<Instant>>>;

impl Forwarders {
    /// Starts forwarding `stdout` and `stderr` of the ranks to those of this process.
    pub(super) fn start(stdout: Vec<Source>, stderr: Vec<Source>, label: bool) -> io::Result<Self> {
        let (heard, voice) = io::pipe()?;
        fcntl(&voice, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let heard = vec![Source { rank: None, pipe: heard.into() }];
        let (stop_reader, stop) = io::pipe()?;
        let (done, done_writer) = io::pipe()?;
        let (loses, lost) = channel();
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let err = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let file = |file: &File| file.metadata().map(|file| (file.dev(), file.ino()));
        let shared = file(&out)? == file(&err)?;
        let sink = |file| Arc::new(Mutex::new(Sink::new(file, label)));
        let reader_left = Arc::default();
        let (stdout, stderr, heard) =
            (("standard output", stdout), ("standard error", stderr), ("standard error", heard));
        let err = sink(err);
        let streams = if shared {
            vec![(vec![stdout, stderr, heard], Arc::clone(&err), Arc::clone(&reader_left))]
        } else {
            let out = (vec![stdout], sink(out), Arc::clone(&reader_left));
            vec![out, (vec![stderr, heard], Arc::clone(&err), Arc::default())]
        };
        let mut writing = Vec::new();
        for (sources, sink, reader_left) in streams {
            let name = sources[0].0;
            let mut forwarder = Forwarder::new(sources, sink, reader_left)?;
            writing.push(Arc::clone(&forwarder.writing));
            let err = Arc::clone(&err);
            let (stop, done, loses) = (stop_reader.try_clone()?, done_writer.try_clone()?, loses.clone());
            start_thread(move || {
                // A sink that takes no more closes the ranks' pipes: they learn it as from any reader. That a reader
                // has left is its own wish; anything else loses what the ranks have said.
                if let Err(e) = forwarder.run(&stop)
                    && e.kind() != ErrorKind::BrokenPipe
                {
                    let _ = loses.send(());
                    let why = format!("cannot write to {name}: {e}; what the ranks print there is lost");
                    let launcher = Speaker { rank: None, stream: name };
                    let _ = lock(&err).write(launcher, super::line(&why).as_bytes());
                }
                drop(done);
            })?;
        }
        Ok(Self { stop, done, lost, voice: File::from(OwnedFd::from(voice)), reader_left, writing })
    }

    /// Whether a reader keeps one of them waiting, and so maybe processes whose output it takes.
    pub(super) fn waits_for_a_reader(&self) -> bool {
        /// What a reader takes for longer is not written at once.
        const AT_ONCE: Duration = Duration::from_millis(10);
        let waits = |since: &Writing| lock(since).is_some_and(|since| since.elapsed() > AT_ONCE);
        self.writing.iter().any(waits)
    }

    /// Whether a rank can have learnt that nobody reads standard output any more.
    pub(super) fn reader_has_left(&self) -> bool {
        // Relaxed: the rank whose end is asked about ended behind the store, as its pipe was closed behind it.
        self.reader_left.load(Ordering::Relaxed)
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
    speaker: Speaker,
    /// What those of later turns say comes behind what was said here before.
    turn: usize,
    pipe: File,
    /// The beginning of a line.
    pending: Vec<u8>,
    /// Only rank 0 reads input, and nobody answers what a file says.
    may_ask: bool,
}

impl Stream {
    fn is_asking(&self) -> bool {
        self.may_ask && !self.pending.is_empty()
    }
}

struct Forwarder {
    streams: Vec<Stream>,
    sink: Arc<Mutex<Sink>>,
    reader_left: Arc<AtomicBool>,
    writing: Writing,
}

#[derive(PartialEq, Eq)]
enum Got {
    Bytes,
    Nothing,
    End,
}

impl Forwarder {
    /// Of streams of these names, in turn.
    fn new(
        turns: Vec<(&'static str, Vec<Source>)>,
        sink: Arc<Mutex<Sink>>,
        reader_left: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let interactive = lock(&sink).is_interactive()?;
        let mut streams = Vec::new();
        for (turn, (stream, sources)) in turns.into_iter().enumerate() {
            for Source { rank, pipe } in sources {
                fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
                let may_ask = interactive && rank == Some(0);
                let (speaker, pipe) = (Speaker { rank, stream }, File::from(pipe));
                streams.push(Stream { speaker, turn, pipe, pending: Vec::new(), may_ask });
            }
        }
        Ok(Self { streams, sink, reader_left, writing: Arc::default() })
    }

    fn run(&mut self, stop: &PipeReader) -> io::Result<()> {
        while !self.streams.is_empty() {
            let (ready, stopped) = self.wait(stop)?;
            let silence = !stopped && !ready.contains(&true);
            let turns = self.streams.iter().zip(&ready).filter(|(_, ready)| **ready).map(|(stream, _)| stream.turn);
            let last_turn = turns.max().unwrap_or(0);
            let mut open = Vec::with_capacity(self.streams.len());
            for (mut stream, ready) in std::mem::take(&mut self.streams).into_iter().zip(ready) {
                let got = if stream.turn < last_turn {
                    self.catch_up(&mut stream)?
                } else if ready || stopped {
                    self.forward(&mut stream)?
                } else {
                    Got::Nothing
                };
                match got {
                    Got::Bytes => open.push(stream),
                    Got::Nothing if !stopped => {
                        if silence && stream.is_asking() {
                            let prompt = std::mem::take(&mut stream.pending);
                            self.pass_on(|sink| sink.write(stream.speaker, &prompt))?;
                        }
                        open.push(stream);
                    }
                    Got::Nothing | Got::End => {
                        self.pass_on(|sink| sink.finish(stream.speaker, &stream.pending))?;
                    }
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
        let asking = self.streams.iter().any(Stream::is_asking);
        match poll(&mut fds, if asking { PollTimeout::from(PROMPT_MS) } else { PollTimeout::NONE }) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(e.into()),
        }
        let mut ready: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let stopped = ready.pop().unwrap_or(false);
        Ok((ready, stopped))
    }

    /// Takes all that the stream holds by now.
    fn catch_up(&mut self, stream: &mut Stream) -> io::Result<Got> {
        /// As much as a pipe holds.
        const CHUNKS: usize = 64 * 1024 / CHUNK_BYTES;
        let mut got = Got::Bytes;
        for _ in 0..CHUNKS {
            got = self.forward(stream)?;
            if got != Got::Bytes {
                break;
            }
        }
        Ok(got)
    }

    fn forward(&mut self, stream: &mut Stream) -> io::Result<Got> {
        let mut chunk = [0; CHUNK_BYTES];
        let bytes = match stream.pipe.read(&mut chunk) {
            Ok(0) => return Ok(Got::End),
            Ok(bytes) => bytes,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(Got::Nothing),
            Err(_) => return Ok(Got::End),
        };
        let before = stream.pending.len();
        stream.pending.extend_from_slice(&chunk[..bytes]);
        let whole = match chunk[..bytes].iter().rposition(|byte| *byte == b'\n') {
            Some(newline) => before + newline + 1,
            None if stream.pending.len() >= LONGEST_LINE_BYTES => stream.pending.len(),
            None => return Ok(Got::Bytes),
        };
        self.pass_on(|sink| sink.write(stream.speaker, &stream.pending[..whole]))?;
        stream.pending.drain(..whole);
        Ok(Got::Bytes)
    }

    /// Writes, and notes that the reader has left before any rank learns it, by the end of its own pipe.
    fn pass_on(&self, write: impl FnOnce(&mut Sink) -> io::Result<()>) -> io::Result<()> {
        *lock(&self.writing) = Some(Instant::now());
        let written = write(&mut lock(&self.sink));
        *lock(&self.writing) = None;
        if written.as_ref().is_err_and(|e| e.kind() == ErrorKind::BrokenPipe) {
            self.reader_left.store(true, Ordering::Relaxed);
        }
        written
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
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
        let shared = Arc::new(Mutex::new(Sink::new(sink.try_clone().unwrap(), label)));
        Forwarder::new(vec![("", sources)], shared, Arc::default()).unwrap().run(&stop).unwrap();
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
    fn a_line_in_parts_ends_where_another_comes_in_between() {
        let speaker = |rank| Speaker { rank, stream: "" };
        let mut out = tempfile::tempfile().unwrap();
        let mut sink = Sink::new(out.try_clone().unwrap(), true);
        sink.write(speaker(Some(0)), b"long ").unwrap();
        sink.write(speaker(Some(0)), b"line\nan").unwrap();
        sink.write(speaker(Some(1)), b"short\n").unwrap();
        sink.write(speaker(Some(0)), b"other").unwrap();
        sink.write(speaker(None), b"launcher\n").unwrap();
        let mut text = String::new();
        out.rewind().unwrap();
        out.read_to_string(&mut text).unwrap();
        assert_eq!(text, "[0] long line\n[0] an\n[1] short\n[0] other\nlauncher\n");
    }

    #[test]
    fn what_is_said_later_comes_later() {
        let (first, mut writer) = io::pipe().unwrap();
        let early = "early\n".repeat(8000);
        writer.write_all(early.as_bytes()).unwrap();
        let (second, mut late) = io::pipe().unwrap();
        late.write_all(b"late\n").unwrap();
        drop((writer, late));
        let mut sink = tempfile::tempfile().unwrap();
        let (stop, _writer) = io::pipe().unwrap();
        let shared = Arc::new(Mutex::new(Sink::new(sink.try_clone().unwrap(), false)));
        let turns = [("out", first), ("err", second)]
            .map(|(name, pipe)| (name, vec![Source { rank: Some(0), pipe: pipe.into() }]));
        Forwarder::new(turns.into(), shared, Arc::default()).unwrap().run(&stop).unwrap();
        let mut text = String::new();
        sink.rewind().unwrap();
        sink.read_to_string(&mut text).unwrap();
        assert_eq!(text, early + "late\n");
    }

    #[test]
    fn a_pipe_that_stays_open_is_drained_when_told_to_stop() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"last words").unwrap();
        let mut sink = tempfile::tempfile().unwrap();
        let (stop, stop_writer) = io::pipe().unwrap();
        drop(stop_writer);
        let source = Source { rank: Some(0), pipe: reader.into() };
        let shared = Arc::new(Mutex::new(Sink::new(sink.try_clone().unwrap(), false)));
        Forwarder::new(vec![("", vec![source])], shared, Arc::default()).unwrap().run(&stop).unwrap();
        let mut text = String::new();
        sink.rewind().unwrap();
        sink.read_to_string(&mut text).unwrap();
        assert_eq!(text, "last words");
    }
}

//! Standard output, and what becomes of a subcommand whose reader leaves it, as `head` does.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, StdoutLock, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use reduce_kernels::say;

/// The code by which a shell tells that `SIGPIPE` has ended a program.
pub(crate) const READER_LEFT_CODE: u8 = 141;

/// Nobody reads standard output any more.
#[derive(Debug, thiserror::Error)]
#[error("the reader of standard output has left")]
pub(crate) struct ReaderLeft;

/// Standard output, whose broken pipe can be told from every other, and whose errors say of what they are.
pub(crate) struct Stdout(StdoutLock<'static>);

/// Standard output for the subcommands.
pub(crate) fn stdout() -> Stdout {
    Stdout(io::stdout().lock())
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

fn named(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::BrokenPipe => io::Error::new(ErrorKind::BrokenPipe, ReaderLeft),
        // The writer's way to go on.
        ErrorKind::Interrupted => error,
        kind => io::Error::new(kind, format!("cannot write to standard output: {error}")),
    }
}

/// Prints the help, or the version.
pub(crate) fn said(text: &clap::Error) -> Result<ExitCode, Box<dyn Error>> {
    text.print().and_then(|()| io::stdout().flush()).map_err(named)?;
    Ok(ExitCode::SUCCESS)
}

/// True if `error` says that the reader has left.
pub(crate) fn is_reader_left(error: &(dyn Error + 'static)) -> bool {
    let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error.is::<ReaderLeft>() || inner.is_some_and(<dyn Error + Send + Sync>::is::<ReaderLeft>)
}

/// `1 rank`, `2 ranks`.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A path for a picture: there is none yet, or one that may be replaced.
pub(crate) fn picture_path(path: &str) -> Result<PathBuf, String> {
    // What is XML may be anything else, a machine that hwloc has written for instance.
    let says_svg = |start: &[u8]| start.windows(4).any(|word| word == b"<svg");
    let is_picture = |start: &[u8]| start.starts_with(b"<svg") || (start.starts_with(b"<?xml") && says_svg(start));
    new_or_own(path, is_picture, "picture")
}

/// A path for a trace.
pub(crate) fn trace_path(path: &str) -> Result<PathBuf, String> {
    new_or_own(path, |start| start.starts_with(b"{\"displayTimeUnit\""), "trace")
}

/// The path, unless there is a file whose start is something else.
fn new_or_own(path: &str, is_own: impl Fn(&[u8]) -> bool, what: &str) -> Result<PathBuf, String> {
    /// Where a file has to say what it is.
    const START_BYTES: u64 = 1024;
    let path = PathBuf::from(path);
    let mut start = Vec::new();
    // What cannot be read may be written all the same, a device for instance.
    if let Some(Ok(file)) = path.is_file().then(|| File::open(&path)) {
        let _ = file.take(START_BYTES).read_to_end(&mut start);
    }
    if start.is_empty() || is_own(&start) {
        return Ok(path);
    }
    Err(format!("that file is no {what}, and stays as it is: name another one"))
}

/// Writes the file that a user has named; what is left of one that could not be written is removed.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), String> {
    let written = File::create(path).and_then(|mut file| {
        let written = file.write_all(text.as_bytes());
        written.inspect_err(|_| drop(path.is_file().then(|| fs::remove_file(path))))
    });
    written.map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// The exit code of a command: quiet if its reader has left, else its error is printed.
pub(crate) fn ended(name: &str, outcome: Result<ExitCode, Box<dyn Error>>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        if is_reader_left(&*error) {
            return READER_LEFT_CODE.into();
        }
        say(&format!("{name}: {error}"));
        ExitCode::FAILURE
    })
}

//! How far a search is: rank 0 writes it, the process that started the job draws it.

use std::io::{BufRead, BufReader, IsTerminal, Write, stderr};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};

use indicatif::{ProgressBar, ProgressStyle};

use super::Result;
use crate::output::stdout;
use crate::run::KeysHeld;

/// What the lines begin with.
const MARK: &str = "@progress";

/// The line for `done` of `total`, at work on `what`.
pub(super) fn line(done: u64, total: u64, what: &str) -> String {
    format!("{MARK} {done} {total} {what}\n")
}

/// Runs `command`, draws its progress lines on stderr if that is a terminal, and passes all others on.
pub(super) fn follow(mut command: Command) -> Result<ExitCode> {
    let keys = KeysHeld::while_running(&mut command)?;
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("the job has no output")?;
    let bar = if stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    bar.set_style(ProgressStyle::with_template("[{elapsed_precise}] {bar:32} {percent:>3} %, {eta} left  {wide_msg}")?);
    let passed_on = BufReader::new(output).split(b'\n').try_for_each(|bytes| {
        let bytes = bytes?;
        let text = String::from_utf8_lossy(&bytes);
        match progress(&text) {
            Some((done, total, what)) => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(what.to_owned());
                Ok(())
            }
            None => bar.suspend(|| stdout().write_all(&[&bytes, &b"\n"[..]].concat())),
        }
    });
    bar.finish_and_clear();
    // Where the reader has left, the job finds its output closed.
    let status = child.wait()?;
    drop(keys);
    passed_on?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn progress(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.strip_prefix(MARK)?.trim_start().splitn(3, ' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_written() {
        assert_eq!(progress(line(3, 70, "task bcast 4").trim_end()), Some((3, 70, "task bcast 4")));
        for other in ["", "bcast 4", "@progress", "@progress a b c"] {
            assert_eq!(progress(other), None);
        }
    }
}

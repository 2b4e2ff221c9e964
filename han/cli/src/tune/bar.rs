//! How far a search is: rank 0 writes it, the process that started the job draws it, or says it now and then.

use std::io::{BufRead, BufReader, IsTerminal, Write, stderr};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use reduce_kernels::say;

use super::Result;
use crate::output::stdout;
use crate::run::KeysHeld;

/// What the lines begin with.
const MARK: &str = "@progress";

/// The line for `done` of `total`, at work on `what`.
pub(super) fn line(done: u64, total: u64, what: &str) -> String {
    format!("{MARK} {done} {total} {what}\n")
}

/// Runs `command`, draws its progress lines on stderr, says a few of them where that is no terminal, and passes all others on.
pub(super) fn follow(mut command: Command) -> Result<ExitCode> {
    let keys = KeysHeld::while_running(&mut command)?;
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().ok_or("the job has no output")?;
    let bar = if stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let (since, mut tenths) = (Instant::now(), Tenths::default());
    bar.set_style(ProgressStyle::with_template("[{elapsed_precise}] {bar:32} {percent:>3} %, {eta} left  {wide_msg}")?);
    let passed_on = BufReader::new(output).split(b'\n').try_for_each(|bytes| {
        let bytes = bytes?;
        let text = String::from_utf8_lossy(&bytes);
        match progress(&text) {
            Some((done, total, what)) => {
                if let Some(line) = tenths.told(done, total, since.elapsed()).filter(|_| bar.is_hidden()) {
                    say(&line);
                }
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

/// What is said where nothing can be drawn: the beginning, and each tenth.
#[derive(Default)]
struct Tenths {
    /// The first that has not been told.
    next: u64,
}

impl Tenths {
    /// What there is to say of `done` parts of `total`, which may grow, that have taken so long.
    fn told(&mut self, done: u64, total: u64, elapsed: Duration) -> Option<String> {
        let tenth = 10 * done / total.max(1);
        if done == 0 || done >= total || tenth < self.next {
            return None;
        }
        self.next = tenth + 1;
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let left_s = elapsed.as_secs_f64() * (total - done) as f64 / done as f64;
        let left = if left_s < 100.0 { format!("{left_s:.0} s") } else { format!("{:.0} min", left_s / 60.0) };
        Some(format!("han: {} % measured, about {left} left", 100 * done / total))
    }
}

fn progress(line: &str) -> Option<(u64, u64, &str)> {
    let mut words = line.strip_prefix(MARK)?.trim_start().splitn(3, ' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_tenths_are_said() {
        let mut tenths = Tenths::default();
        let mut told = |done, total, s| tenths.told(done, total, Duration::from_secs(s)).unwrap_or_default();
        assert_eq!(told(1, 200, 1), "han: 0 % measured, about 3 min left");
        assert_eq!([told(2, 200, 2), told(19, 200, 19)], ["", ""]);
        assert_eq!(told(110, 200, 110), "han: 55 % measured, about 90 s left");
        // More has turned out to be there.
        assert_eq!([told(111, 400, 111), told(230, 400, 230), told(400, 400, 400)], ["", "", ""]);
        assert_eq!(told(241, 400, 241), "han: 60 % measured, about 3 min left");
    }

    #[test]
    fn lines_are_read_as_they_are_written() {
        assert_eq!(progress(line(3, 70, "task bcast 4").trim_end()), Some((3, 70, "task bcast 4")));
        for other in ["", "bcast 4", "@progress", "@progress a b c"] {
            assert_eq!(progress(other), None);
        }
    }
}

//! Standard error.

use std::io::{self, Write as _};

/// Says `text` and a line's end on standard error, in one piece. If that cannot be written, because the disk or the pipe
/// is full, the job goes on all the same: `eprintln!` would panic.
pub fn say(text: &str) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

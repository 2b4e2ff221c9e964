//! PMI-1 lines: `cmd=NAME name=value name=value`, one newline, at most [`MAX_LINE_BYTES`] (a launcher's answers
//! [`MAX_ANSWER_BYTES`]).
//!
//! Both ends read what another program wrote, so everything is bounded and nothing is guessed: a line
//! that is too long, holds a byte outside printable ASCII, repeats a name or lacks an `=` is an error. Words for
//! people are the one value with spaces: they go to the line's end (`cmd=abort`, MPICH from 4.2 on).

use std::fmt::{Display, Write};
use std::str::FromStr;

use crate::bootstrap::error::{Error, Result};

/// Longest line, its newline included.
pub const MAX_LINE_BYTES: usize = 1024;

/// Longest answer of a launcher. Slurm's tell the nodes of all ranks in one line: with `-m cyclic` a block for each round.
pub const MAX_ANSWER_BYTES: usize = 1 << 20;

/// How words for people begin.
const WORDS: &str = "message=";

/// The fields of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    command: &'a str,
    fields: Vec<(&'a str, &'a str)>,
}

impl<'a> Message<'a> {
    /// Reads a line without its newline.
    ///
    /// # Errors
    /// [`Error::Protocol`] with the reason and the beginning of the line.
    pub fn parse(line: &'a str) -> Result<Self> {
        let refuse = |why: &str| Error::Protocol(format!("{why} in the line {:?}", excerpt(line)));
        if !line.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err(refuse("a byte that is not printable ASCII"));
        }
        let mut fields: Vec<(&str, &str)> = Vec::new();
        let mut rest = line.trim_matches(' ');
        while !rest.is_empty() {
            let end = if rest.starts_with(WORDS) { None } else { rest.split_once(' ') };
            let (token, behind) = end.unwrap_or((rest, ""));
            rest = behind.trim_start_matches(' ');
            let (name, value) = token.split_once('=').ok_or_else(|| refuse("a word without `name=`"))?;
            if name.is_empty() || fields.iter().any(|(known, _)| *known == name) {
                return Err(refuse("an empty or repeated name"));
            }
            fields.push((name, value));
        }
        match fields.first() {
            Some(("cmd", command)) if !command.is_empty() => Ok(Self { command, fields: fields.split_off(1) }),
            _ => Err(refuse("no leading `cmd=`")),
        }
    }

    /// The value of `cmd`.
    #[must_use]
    pub fn command(&self) -> &'a str {
        self.command
    }

    /// The value of `name`, if the line has it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The value of `name`.
    ///
    /// # Errors
    /// [`Error::Protocol`] when the line does not have it.
    pub fn require(&self, name: &str) -> Result<&'a str> {
        self.get(name).ok_or_else(|| Error::Protocol(format!("`cmd={}` came without `{name}`", self.command)))
    }

    /// The value of `name` as a number.
    ///
    /// # Errors
    /// [`Error::Protocol`] when it is missing or is no number of this type.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<T> {
        let value = self.require(name)?;
        let refuse = |_| Error::Protocol(format!("`cmd={}` came with {name}={value:?}, not a number", self.command));
        value.parse().map_err(refuse)
    }
}

/// Writes a line, newline included.
///
/// # Errors
/// [`Error::Protocol`] when a value holds a space or a byte outside printable ASCII, or the line would
/// be longer than [`MAX_LINE_BYTES`].
pub fn format(command: &str, fields: &[(&str, &dyn Display)]) -> Result<String> {
    let mut line = format!("cmd={command}");
    for (name, value) in fields {
        let start = line.len();
        // Writing to a String cannot fail.
        let _ = write!(line, " {name}={value}");
        if !line.bytes().skip(start + 1).all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::Protocol(format!("{name} of `cmd={command}` has a space or a byte that is not ASCII")));
        }
    }
    line.push('\n');
    if line.len() > MAX_LINE_BYTES {
        return Err(Error::Protocol(too_long(&line, MAX_LINE_BYTES)));
    }
    Ok(line)
}

/// Cuts a stream of bytes into lines and never holds more than one line and what was pushed last.
#[derive(Debug)]
pub struct LineBuffer {
    bytes: Vec<u8>,
    longest: usize,
}

impl LineBuffer {
    /// Takes lines of up to `longest` bytes, the newline included.
    #[must_use]
    pub fn new(longest: usize) -> Self {
        Self { bytes: Vec::new(), longest }
    }

    /// Appends what was read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole line, without its newline; `None` until there is one.
    ///
    /// # Errors
    /// [`Error::Protocol`] for a line that is too long or not text.
    pub fn next_line(&mut self) -> Result<Option<String>> {
        let newline = self.bytes.iter().take(self.longest).position(|byte| *byte == b'\n');
        let Some(newline) = newline else {
            if self.bytes.len() < self.longest {
                return Ok(None);
            }
            return Err(Error::Protocol(too_long(&String::from_utf8_lossy(&self.bytes), self.longest)));
        };
        let mut line: Vec<u8> = self.bytes.drain(..=newline).collect();
        line.pop();
        let text = String::from_utf8(line);
        let refuse = |e: std::string::FromUtf8Error| {
            let line = String::from_utf8_lossy(e.as_bytes()).into_owned();
            Error::Protocol(format!("a byte that is not printable ASCII in the line {:?}", excerpt(&line)))
        };
        text.map(Some).map_err(refuse)
    }

    /// Whether bytes of an unfinished line are held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.bytes.len()
    }
}

fn too_long(line: &str, longest: usize) -> String {
    format!("a line of more than {longest} bytes that begins with {:?}", excerpt(line))
}

/// Enough of a hostile line to recognise it.
fn excerpt(line: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    let mut shown: String = line.chars().take(SHOWN_CHARS).collect();
    if shown.len() < line.len() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let message = Message::parse("cmd=put kvsname=kvs_1 key=a value=x=y ").unwrap();
        assert_eq!(message.command(), "put");
        assert_eq!(message.require("value").unwrap(), "x=y");
        assert_eq!(message.get("rc"), None);
        assert_eq!(Message::parse("cmd=r rc=-1").unwrap().number::<i32>("rc").unwrap(), -1);
        assert_eq!(Message::parse("cmd=r value=").unwrap().get("value"), Some(""));
        let said = Message::parse(" cmd=abort  exitcode=6 message=MPI_Abort(WORLD, 6) - process=0 ").unwrap();
        assert_eq!(said.number::<i32>("exitcode").unwrap(), 6);
        assert_eq!(said.get("message"), Some("MPI_Abort(WORLD, 6) - process=0"));
    }

    #[test]
    fn what_is_not_a_line_is_refused() {
        let bad = [
            "",
            " ",
            "cmd",
            "cmd=",
            "key=a cmd=put",
            "cmd=put key",
            "cmd=put my message=a",
            "cmd=a k=1 k=2",
            "cmd=a cmd=b",
            "cmd=a =1",
        ];
        for line in bad {
            assert!(matches!(Message::parse(line), Err(Error::Protocol(_))), "{line:?}");
        }
        for line in ["cmd=a\tk=1", "cmd=\u{e9}", "cmd=a\0", "cmd=a\n"] {
            assert!(Message::parse(line).unwrap_err().to_string().contains("printable ASCII"), "{line:?}");
        }
        let message = Message::parse("cmd=maxes vallen_max=99999999999999999999").unwrap();
        assert!(message.number::<usize>("vallen_max").is_err());
        assert!(message.number::<usize>("keylen_max").is_err());
    }

    #[test]
    fn values_that_would_break_the_line_are_not_written() {
        assert!(format("put", &[("value", &"a b")]).is_err());
        assert!(format("put", &[("value", &"a\ncmd=abort")]).is_err());
        assert!(format("put", &[("value", &"\u{e9}")]).is_err());
        let room = MAX_LINE_BYTES - "cmd=put value=\n".len();
        assert_eq!(format("put", &[("value", &"x".repeat(room))]).unwrap().len(), MAX_LINE_BYTES);
        assert!(format("put", &[("value", &"x".repeat(room + 1))]).is_err());
    }

    #[test]
    fn a_line_without_an_end_is_refused_at_the_limit() {
        let mut buffer = LineBuffer::new(MAX_LINE_BYTES);
        buffer.push(&[b'x'; MAX_LINE_BYTES - 1]);
        assert_eq!(buffer.next_line().unwrap(), None);
        buffer.push(b"x");
        assert!(buffer.next_line().unwrap_err().to_string().contains("more than 1024 bytes"));
        let mut buffer = LineBuffer::new(MAX_LINE_BYTES);
        buffer.push(&[b'x'; MAX_LINE_BYTES - 1]);
        buffer.push(b"\n\xff\n");
        assert_eq!(buffer.next_line().unwrap().unwrap().len(), MAX_LINE_BYTES - 1);
        assert!(buffer.next_line().is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            let mut buffer = LineBuffer::new(MAX_LINE_BYTES);
            buffer.push(&bytes);
            while let Ok(Some(line)) = buffer.next_line() {
                let _ = Message::parse(&line);
            }
        }

        #[test]
        fn what_was_formatted_is_read_back(
            command in "[a-z_]{1,20}",
            values in prop::collection::btree_map("[a-z]{1,10}", "[!-~]{0,60}", 0..8),
        ) {
            prop_assume!(!values.contains_key("cmd"));
            let fields: Vec<(&str, &dyn Display)> =
                values.iter().map(|(name, value)| (name.as_str(), value as &dyn Display)).collect();
            let line = format(&command, &fields).unwrap();
            let message = Message::parse(line.trim_end_matches('\n')).unwrap();
            prop_assert_eq!(message.command(), command.as_str());
            for (name, value) in &values {
                prop_assert_eq!(message.get(name), Some(value.as_str()));
            }
        }

        #[test]
        fn lines_do_not_depend_on_how_the_stream_was_cut(
            lines in prop::collection::vec("[ -~]{0,200}", 0..10),
            cut in 1_usize..300,
        ) {
            let stream: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            let mut buffer = LineBuffer::new(MAX_LINE_BYTES);
            let mut seen = Vec::new();
            for chunk in stream.as_bytes().chunks(cut) {
                buffer.push(chunk);
                while let Some(line) = buffer.next_line().unwrap() {
                    seen.push(line);
                }
            }
            prop_assert_eq!(seen, lines);
            prop_assert!(buffer.is_empty());
        }
    }
}

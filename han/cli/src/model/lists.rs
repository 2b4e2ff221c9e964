//! Lists on the command line: numbers, and doublings from one to another.

use crate::numbers::{bytes_text, parse_bytes};

/// What all ranks of the largest simulated world have together can still be counted.
const MOST_BYTES: usize = 1 << 38;

/// Numbers of nodes, or of ranks of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Counts(Vec<usize>);

/// Numbers of bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sizes(Vec<usize>);

impl Counts {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.parse() {
            Ok(0) | Err(_) => Err(format!("`{text}` is no number of nodes or ranks: give 1 or more")),
            Ok(number) => Ok(number),
        };
        list(text, number).map(Self)
    }

    pub(super) fn values(&self) -> &[usize] {
        &self.0
    }
}

impl Sizes {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let length = |text: &str| match parse_bytes(text)? {
            bytes @ ..=MOST_BYTES => Ok(bytes),
            _ => Err(format!("`{text}` is more than {}, the longest vector of a simulation", bytes_text(MOST_BYTES))),
        };
        list(text, length).map(Self)
    }

    pub(super) fn values(&self) -> &[usize] {
        &self.0
    }
}

/// Bytes of a piece: pieces of none never make up a vector.
pub(super) fn parse_piece(text: &str) -> Result<usize, String> {
    match parse_bytes(text)? {
        0 => Err("a piece has at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// `1,2,8..64`, each once and in order.
fn list(text: &str, number: impl Fn(&str) -> Result<usize, String>) -> Result<Vec<usize>, String> {
    let mut values = Vec::new();
    for item in text.split(',') {
        let Some((first, last)) = item.split_once("..") else {
            values.push(number(item)?);
            continue;
        };
        let (first, last) = (number(first)?, number(last)?);
        if first == 0 || first > last {
            return Err(format!("`{item}` is no range: its first is at least 1 and at most its last"));
        }
        values.extend(
            std::iter::successors(Some(first), |&value| value.checked_mul(2)).take_while(|&value| value <= last),
        );
    }
    values.sort_unstable();
    values.dedup();
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_doublings() {
        assert_eq!(Counts::parse("5,2..16,4"), Ok(Counts(vec![2, 4, 5, 8, 16])));
        assert_eq!(Sizes::parse("0,8..40,1K"), Ok(Sizes(vec![0, 8, 16, 32, 1024])));
        assert_eq!(Sizes::parse("8..8"), Ok(Sizes(vec![8])));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", "0", "1,", "x", "8..4", "0..4", "-1"] {
            assert!(Counts::parse(text).is_err(), "{text}");
        }
        assert!(Sizes::parse("8X").is_err());
        assert!(Sizes::parse("0..8").is_err());
        assert!(Sizes::parse("256G").is_ok());
        for text in ["257G", "8,17179869183G", "8..17179869183G"] {
            assert!(Sizes::parse(text).is_err_and(|error| error.contains("more than 256G")), "{text}");
        }
    }
}

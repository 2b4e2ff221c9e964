//! Why a job ended, as words of shared memory and as an error.

use crate::error::Error;

/// Why the job ended; the same for every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reason {
    kind: Kind,
    rank: usize,
    pid: u32,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Died = 1,
    Mismatch = 2,
    Aborted = 3,
    Timeout = 4,
    Unreachable = 5,
    Lost = 6,
}

impl Reason {
    pub(crate) fn died(rank: usize, pid: u32) -> Self {
        Self { kind: Kind::Died, rank, pid, text: String::new() }
    }

    pub(crate) fn mismatch(text: String) -> Self {
        Self { kind: Kind::Mismatch, rank: 0, pid: 0, text }
    }

    pub(crate) fn aborted(rank: usize, pid: u32, why: &str) -> Self {
        Self { kind: Kind::Aborted, rank, pid, text: why.to_owned() }
    }

    pub(crate) fn timeout(text: String) -> Self {
        Self { kind: Kind::Timeout, rank: 0, pid: 0, text }
    }

    /// `rank` is the one whose memory a peer cannot reach.
    pub(crate) fn unreachable(rank: usize, pid: u32, why: String) -> Self {
        Self { kind: Kind::Unreachable, rank, pid, text: why }
    }

    /// `rank` is one of another node.
    pub(crate) fn lost(rank: usize, why: String) -> Self {
        Self { kind: Kind::Lost, rank, pid: 0, text: why }
    }

    /// Kind and rank, pid and length, then the text, cut to what fits.
    pub(crate) fn to_words<const WORDS: usize>(&self) -> [u64; WORDS] {
        let mut bytes = self.text.as_bytes();
        let room = 8 * (WORDS - 2);
        if bytes.len() > room {
            let cut = (0..=room).rev().find(|&at| self.text.is_char_boundary(at)).unwrap_or(0);
            bytes = &bytes[..cut];
        }
        let mut words = [0; WORDS];
        words[0] = self.kind as u64 | (self.rank as u64) << 8;
        words[1] = u64::from(self.pid) | (bytes.len() as u64) << 32;
        for (word, chunk) in words[2..].iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(padded);
        }
        words
    }

    pub(crate) fn from_words(words: &[u64]) -> Self {
        let kind = match words[0] & 0xff {
            1 => Kind::Died,
            2 => Kind::Mismatch,
            4 => Kind::Timeout,
            5 => Kind::Unreachable,
            6 => Kind::Lost,
            _ => Kind::Aborted,
        };
        let rank = usize::try_from(words[0] >> 8).unwrap_or(usize::MAX);
        let pid = u32::try_from(words[1] & 0xffff_ffff).unwrap_or(0);
        let length = usize::try_from(words[1] >> 32).unwrap_or(0);
        let bytes: Vec<u8> = words[2..].iter().flat_map(|word| word.to_ne_bytes()).take(length).collect();
        Self { kind, rank, pid, text: String::from_utf8_lossy(&bytes).into_owned() }
    }

    /// The error that a rank reports which was in `operation` when it learned of it.
    pub(crate) fn into_error(self, operation: Option<&str>) -> Error {
        match self.kind {
            Kind::Died => Error::PeerDied {
                rank: self.rank,
                pid: self.pid,
                operation: operation.map_or_else(
                    || "its job has ended, no further operation is possible".to_owned(),
                    |operation| format!("pending here was {operation}"),
                ),
            },
            Kind::Mismatch => Error::Mismatch(self.text),
            Kind::Aborted => Error::Aborted { rank: self.rank, pid: self.pid, why: self.text },
            Kind::Timeout => Error::Timeout(self.text),
            Kind::Unreachable => Error::Unreachable { rank: self.rank, pid: self.pid, reason: self.text },
            Kind::Lost => Error::Lost { rank: self.rank, why: self.text },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_survives_its_words() {
        for reason in [
            Reason::died(255, 4_000_000),
            Reason::mismatch("rank 0 called barrier() but rank 1 bcast(count 4, double, root 0)".into()),
            Reason::aborted(3, 7, ""),
            Reason::timeout("x".repeat(8 * 62)),
            Reason::unreachable(1, 9, "nothing is mapped there".into()),
            Reason::lost(300, "its connection is closed".into()),
        ] {
            assert_eq!(Reason::from_words(&reason.to_words::<64>()), reason);
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let reason = Reason::mismatch("\u{e9}".repeat(300));
        let again = Reason::from_words(&reason.to_words::<64>());
        assert_eq!(again.text, "\u{e9}".repeat(8 * 62 / 2));
    }
}

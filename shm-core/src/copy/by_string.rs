//! Whether long payloads enter cells by the processor's string instruction.
//!
//! It can take whole lines without asking for what is in them, which a vector store to a line of another cache does first.
//! How much that saves depends on the processor and on where the other cache is, so the two are compared now and then.
//! Measurements are in `docs/copy-in-copy-out.md`, decision 9.

use super::stores::{IN_A_ROW, line_ns};

/// Shorter payloads never go by it: it takes some time to begin. Into cells, and into peers' vectors, whose lines the writer itself
/// may have written last.
pub(super) const LEAST_BYTES: usize = 8 << 10;
pub(super) const LEAST_BYTES_ABROAD: usize = 16 << 10;
/// Timed copies by ordinary stores between two comparisons, at most: they are doubled with each that changes nothing.
const LAST_PAUSE: u32 = 16;
/// The part of what ordinary stores take that it may take, so that chance does not decide.
const CLEARLY: f64 = 0.9;
/// What the instruction takes to begin.
const START_NS: f64 = 100.0;

#[derive(Debug)]
pub(super) struct ByString {
    taken: bool,
    /// A setting has decided; nothing is compared.
    fixed: bool,
    /// Shorter payloads never go by it.
    least_bytes: usize,
    /// Comparisons in a row that were for the other.
    against: u32,
    /// Timed copies by ordinary stores until the next comparison.
    until_next: u32,
    pause: u32,
    /// The next long copy that is timed goes by the instruction, to be compared with this.
    ordinary: Option<Ordinary>,
}

/// What a copy by ordinary stores took.
#[derive(Debug)]
pub(super) struct Ordinary {
    line_ns: f64,
    /// Copies from the comparison to the next that is timed.
    until_look: u32,
}

impl ByString {
    /// `setting`: what a setting has decided, if it did. Without one, `fixed` means never.
    pub(super) fn new(setting: Option<bool>, fixed: bool, least_bytes: usize) -> Self {
        Self {
            least_bytes,
            taken: setting.unwrap_or(false),
            fixed: fixed || setting.is_some(),
            against: 0,
            until_next: 0,
            pause: 1,
            ordinary: None,
        }
    }

    /// True if a payload goes by the instruction.
    #[inline]
    pub(super) fn takes(&self, bytes: usize) -> bool {
        self.taken && bytes >= self.least_bytes
    }

    /// A copy by ordinary stores was timed. True if the next one that is timed is to be compared with it.
    pub(super) fn is_due(&mut self, bytes: usize) -> bool {
        self.until_next = self.until_next.saturating_sub(1);
        !self.fixed && bytes >= self.least_bytes && self.until_next == 0
    }

    /// Ordinary stores took `took_ns`; `until_look` copies behind the comparison the next is timed.
    pub(super) fn note(&mut self, bytes: usize, took_ns: u64, until_look: u32) {
        self.ordinary = Some(Ordinary { line_ns: line_ns(bytes, took_ns, 0.0), until_look });
    }

    /// What the copy that is timed now is to be compared with, if it goes by the instruction.
    pub(super) fn compares(&mut self, bytes: usize) -> Option<Ordinary> {
        self.ordinary.take().filter(|_| bytes >= self.least_bytes)
    }

    /// Draws the conclusion from a copy by the instruction that took `took_ns`, of which a line may take `limit_ns`. Returns
    /// the copies until the next is timed.
    pub(super) fn judge(&mut self, ordinary: &Ordinary, bytes: usize, took_ns: u64, limit_ns: f64) -> u32 {
        let is_quicker = line_ns(bytes, took_ns, 0.0) < CLEARLY * ordinary.line_ns;
        let is_better = is_quicker && line_ns(bytes, took_ns, START_NS) <= limit_ns;
        if is_better == self.taken {
            (self.against, self.until_next) = (0, self.pause);
            self.pause = (2 * self.pause).min(LAST_PAUSE);
            return ordinary.until_look;
        }
        self.against += 1;
        if self.against < IN_A_ROW {
            return 0;
        }
        (self.taken, self.against, self.pause) = (is_better, 0, 1);
        ordinary.until_look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 16 << 10;
    const LIMIT_NS: f64 = 4.5;
    const UNTIL_LOOK: u32 = 7;

    fn compared(by_string: &mut ByString, ordinary_ns: u64, string_ns: u64) -> u32 {
        by_string.note(BYTES, ordinary_ns, UNTIL_LOOK);
        let ordinary = by_string.compares(BYTES).expect("just noted");
        by_string.judge(&ordinary, BYTES, string_ns, LIMIT_NS)
    }

    #[test]
    fn two_comparisons_in_a_row_decide() {
        let mut by_string = ByString::new(None, false, LEAST_BYTES);
        assert_eq!(compared(&mut by_string, 600, 200), 0, "the next is timed as well");
        assert!(!by_string.takes(BYTES));
        assert_eq!(compared(&mut by_string, 600, 200), UNTIL_LOOK);
        assert!(by_string.takes(BYTES) && by_string.takes(LEAST_BYTES) && !by_string.takes(LEAST_BYTES - 1));
        assert_eq!(compared(&mut by_string, 200, 600), 0);
        assert_eq!(compared(&mut by_string, 600, 200), UNTIL_LOOK);
        assert!(by_string.takes(BYTES), "one that was disturbed changes nothing");
        compared(&mut by_string, 200, 600);
        compared(&mut by_string, 200, 600);
        assert!(!by_string.takes(BYTES));
    }

    #[test]
    fn what_memory_does_quicker_is_left_to_it() {
        let mut by_string = ByString::new(None, false, LEAST_BYTES);
        for _ in 0..3 {
            compared(&mut by_string, 9_000, 4_000);
        }
        assert!(!by_string.takes(BYTES));
    }

    #[test]
    fn comparisons_become_rarer_while_nothing_changes() {
        let mut by_string = ByString::new(None, false, LEAST_BYTES);
        let mut pauses = Vec::new();
        for _ in 0..6 {
            let timed = (1..).find(|_| by_string.is_due(BYTES));
            pauses.extend(timed);
            compared(&mut by_string, 200, 600);
        }
        assert_eq!(pauses, [1, 1, 2, 4, 8, LAST_PAUSE]);
    }

    #[test]
    fn a_short_copy_ends_a_comparison() {
        let mut by_string = ByString::new(None, false, LEAST_BYTES);
        assert!(!by_string.is_due(LEAST_BYTES - 1));
        by_string.note(BYTES, 600, UNTIL_LOOK);
        assert!(by_string.compares(LEAST_BYTES - 1).is_none());
        assert!(by_string.compares(BYTES).is_none());
    }

    #[test]
    fn a_setting_decides() {
        let mut always = ByString::new(Some(true), false, LEAST_BYTES);
        assert!(always.takes(LEAST_BYTES) && !always.is_due(BYTES));
        for mut never in [ByString::new(Some(false), false, LEAST_BYTES), ByString::new(None, true, LEAST_BYTES)] {
            assert!(!never.takes(BYTES) && !never.is_due(BYTES));
        }
    }
}

//! What a rank has called on a communicator: a fingerprint for each call, in memory that does not grow with their number.
//!
//! A rank may be thousands of calls ahead of another one, as the root of bcasts is. Such calls repeat themselves: in a row
//! that does, each is the same as the one some calls before it, so that only the first has to be kept.

use std::collections::VecDeque;

use super::seal::Fingerprint;

/// Calls after which a row may repeat itself.
const LONGEST_PERIOD: u32 = 8;
/// Rows that are kept. Calls without any order are each a row.
const ROWS: usize = 1 << 12;
/// Calls of a row: what is to be recalled is computed from its first one on.
const LONGEST_ROW: u32 = 1 << 14;
// Numbers wrap around: what is kept must not.
const _: () = assert!(ROWS * LONGEST_ROW as usize <= 1 << 30);

/// Calls of which each is the same as the one `period` before it, but for the first.
#[derive(Debug, Clone, Copy)]
struct Row {
    /// The number of its first call.
    first: u32,
    period: u32,
    /// Of its first call.
    fingerprint: Fingerprint,
    /// The digest of all calls before.
    before: u32,
}

/// The calls of a communicator, of which the latest can be recalled.
#[derive(Debug, Default)]
pub(super) struct History {
    latest: Option<u32>,
    /// By number modulo their number.
    recent: [Fingerprint; LONGEST_PERIOD as usize],
    rows: VecDeque<Row>,
}

impl History {
    /// A call; `before` is the digest of all before it.
    pub(super) fn record(&mut self, sequence: u32, fingerprint: Fingerprint, before: u32) {
        let follows = self.latest == Some(sequence.wrapping_sub(1));
        let goes_on = |row: &Row| {
            self.recent(sequence.wrapping_sub(row.period)) == fingerprint
                && sequence.wrapping_sub(row.first) < LONGEST_ROW
        };
        if !(follows && self.rows.back().is_some_and(goes_on)) {
            self.begin_row(sequence, fingerprint, before, follows);
        }
        self.recent[(sequence % LONGEST_PERIOD) as usize] = fingerprint;
        self.latest = Some(sequence);
    }

    fn begin_row(&mut self, first: u32, fingerprint: Fingerprint, before: u32, follows: bool) {
        if !follows {
            self.rows.clear();
        } else if self.rows.len() == ROWS {
            self.rows.pop_front();
        }
        let is_same = |period: &u32| self.recent(first.wrapping_sub(*period)) == fingerprint;
        let period = (1..=LONGEST_PERIOD).find(is_same).filter(|_| follows).unwrap_or(1);
        self.rows.push_back(Row { first, period, fingerprint, before });
    }

    fn recent(&self, sequence: u32) -> Fingerprint {
        self.recent[(sequence % LONGEST_PERIOD) as usize]
    }

    /// A call's fingerprint, and the digest of it and all before it; none if it is not known any more, or not yet.
    pub(super) fn recall(&self, sequence: u32) -> Option<(Fingerprint, u32)> {
        let row = self.row_of(sequence)?;
        let calls = sequence.wrapping_sub(row.first) + 1;
        let one_period: Option<Vec<_>> =
            (0..calls.min(row.period)).map(|call| self.fingerprint(row.first.wrapping_add(call))).collect();
        let all = one_period?.into_iter().cycle().take(calls as usize);
        Some((self.fingerprint(sequence)?, all.fold(row.before, |before, fingerprint| fingerprint.digest(before))))
    }

    fn fingerprint(&self, mut sequence: u32) -> Option<Fingerprint> {
        loop {
            let row = self.row_of(sequence)?;
            match sequence.wrapping_sub(row.first) % row.period {
                0 => return Some(row.fingerprint),
                behind_first => sequence = row.first.wrapping_add(behind_first).wrapping_sub(row.period),
            }
        }
    }

    fn row_of(&self, sequence: u32) -> Option<&Row> {
        let age = |sequence: u32| self.latest.map_or(0, |latest| latest.wrapping_sub(sequence));
        let begun = self.rows.partition_point(|row| age(row.first) >= age(sequence));
        self.rows.get(begun.checked_sub(1)?)
    }

    /// Whether a call is still to come.
    pub(super) fn is_before(&self, sequence: u32) -> bool {
        // Numbers wrap around: the nearer side counts.
        self.latest.is_none_or(|latest| sequence.wrapping_sub(latest).wrapping_sub(1) < 1 << 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records calls from `first` on, and looks at what is recalled of the latest `known`.
    fn recalls(first: u32, calls: &[u64], known: usize) -> History {
        let (mut history, mut digest, mut all) = (History::default(), 0, Vec::new());
        for (sequence, &call) in (0..).map(|call: u32| first.wrapping_add(call)).zip(calls) {
            let fingerprint = Fingerprint([call, 7]);
            assert!(history.is_before(sequence) && history.recall(sequence).is_none());
            history.record(sequence, fingerprint, digest);
            digest = fingerprint.digest(digest);
            all.push((sequence, fingerprint, digest));
        }
        for &(sequence, fingerprint, digest) in all.iter().rev().take(known) {
            assert_eq!(history.recall(sequence), Some((fingerprint, digest)), "call {sequence} of {calls:?}");
            assert!(!history.is_before(sequence));
        }
        history
    }

    #[test]
    fn calls_that_repeat_themselves_are_all_known() {
        for period in 1..=u64::from(LONGEST_PERIOD) {
            let calls: Vec<u64> = [9, 9, 3].into_iter().chain((0..5000).map(|call| call % period)).collect();
            // Numbers that wrap around, too.
            for first in [0, 1, 77, u32::MAX - 2500] {
                let history = recalls(first, &calls, calls.len());
                assert!(history.rows.len() <= 20, "{} rows", history.rows.len());
            }
        }
        let rows = recalls(1, &[5; 3 << 14], 2).rows.len();
        assert_eq!(rows, 3, "of no more than so many calls");
    }

    #[test]
    fn of_calls_without_order_the_latest_are_known() {
        let mut random = 1_u64;
        for kinds in [2, 3, 20, 1 << 60] {
            let mut call = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % kinds
            };
            let calls: Vec<u64> = (0..3 * ROWS).map(|_| call()).collect();
            let history = recalls(1, &calls, ROWS / 2);
            assert!(history.rows.len() <= ROWS);
        }
    }

    #[test]
    fn calls_behind_a_gap_are_not_taken_for_others() {
        let mut history = History::default();
        for sequence in [3, 4, 6, 7] {
            history.record(sequence, Fingerprint([1, 1]), sequence);
        }
        assert_eq!([3, 4, 5, 8].map(|sequence| history.recall(sequence)), [None; 4]);
        assert_eq!(history.recall(6), Some((Fingerprint([1, 1]), Fingerprint([1, 1]).digest(6))));
    }
}

//! Which instructions bring a bcast's payload out of the root's cells, or its mapped vector: vector loads and stores, or the
//! string instruction.
//!
//! The latter need not fetch the receiver's own lines before it overwrites them. How quick it is to read lines that another core
//! has just written differs between processors, and between near and distant caches. So the two are compared as they go, by the
//! mean of many pairs of copies: they differ by little, and single copies by as much.
//! Measurements are in `docs/copy-in-copy-out.md`, decision 11.

use super::cico::copy_string;
use super::stores::line_ns;
use crate::sys::clock;

/// Shorter payloads never go by the string instruction.
const LEAST_BYTES: usize = 16 << 10;
/// Copies between two pairs that are timed.
const LOOK_EVERY: u32 = 32;
/// Pairs of which the mean decides.
const PAIRS: u8 = 16;
/// What the string instruction may take of the other's time in the mean, to be taken, and not to be left again.
const TAKEN_BELOW: f64 = 1.0;
const LEFT_ABOVE: f64 = 1.03;
/// One pair counts for no more or less than this: one of its copies may have been interrupted.
const PAIR: (f64, f64) = (0.5, 2.0);

/// How payloads of `bytes` come out of cells, and why, if it is not always by vector loads.
pub(crate) fn in_words(by_string: Option<bool>, own_cores: bool, bytes: usize) -> Option<(&'static str, &'static str)> {
    match by_string {
        _ if bytes < LEAST_BYTES => None,
        Some(true) => Some(("string", "string_stores=1 was set")),
        None if own_cores => Some(("ordinary or string", "timed now and then, and what takes less is taken")),
        _ => None,
    }
}

/// How one rank takes payloads out of its peers' cells of one communicator, or out of their vectors.
#[derive(Debug)]
pub(crate) struct Loads {
    by_string: bool,
    /// The copy by vector loads.
    by_vectors: unsafe fn(*mut u8, *const u8, usize),
    /// A setting has decided, or ranks share cores; nothing is timed.
    fixed: bool,
    /// Copies until the next pair is timed.
    until_look: u32,
    /// The first copy of a pair, by vector loads: from whom, and nanoseconds a line.
    first: Option<(usize, f64)>,
    pairs: u8,
    /// The sum of all pairs' times by the string instruction, each as part of the other's.
    parts: f64,
}

impl Loads {
    /// `by_string`: what a setting has decided, if it did. `own_cores`: each rank has a core.
    pub(crate) fn new(
        by_string: Option<bool>,
        own_cores: bool,
        by_vectors: unsafe fn(*mut u8, *const u8, usize),
    ) -> Self {
        Self {
            by_vectors,
            by_string: by_string.unwrap_or(false),
            fixed: by_string.is_some() || !own_cores,
            until_look: LOOK_EVERY,
            first: None,
            pairs: 0,
            parts: 0.0,
        }
    }

    /// Copies a payload from where `peer` has it.
    ///
    /// # Safety
    /// As for [`copy`](super::cico::copy).
    #[inline]
    #[allow(unsafe_code)] // passes its caller's promise on
    pub(crate) unsafe fn copy_out(&mut self, to: *mut u8, peer: usize, from: *const u8, bytes: usize) {
        if bytes < LEAST_BYTES {
            // SAFETY: the caller's promise.
            return unsafe { (self.by_vectors)(to, from, bytes) };
        }
        if self.first.is_some_and(|(of, _)| of != peer) {
            // Roots that take turns may be near and far.
            (self.first, self.until_look) = (None, LOOK_EVERY);
        }
        if self.until_look == 0 && !self.fixed {
            // SAFETY: the caller's promise.
            return unsafe { self.copy_timed(to, peer, from, bytes) };
        }
        self.until_look = self.until_look.saturating_sub(1);
        let copy = if self.by_string { copy_string } else { self.by_vectors };
        // SAFETY: the caller's promise.
        unsafe { copy(to, from, bytes) };
    }

    /// # Safety
    /// As for [`copy_out`](Self::copy_out).
    #[inline(never)]
    #[allow(unsafe_code)] // passes its caller's promise on
    unsafe fn copy_timed(&mut self, to: *mut u8, peer: usize, from: *const u8, bytes: usize) {
        let first = self.first.take();
        let copy = if first.is_some() { copy_string } else { self.by_vectors };
        let start_ns = clock::now_ns();
        // SAFETY: the caller's promise.
        unsafe { copy(to, from, bytes) };
        // No pair: the copy is done only when its stores have left the core.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let line_ns = line_ns(bytes, clock::now_ns().saturating_sub(start_ns), 0.0);
        match first {
            Some((_, first)) => self.note(first, line_ns),
            None => self.first = Some((peer, line_ns)),
        }
    }

    /// Of two copies from the same peer one by vector loads took `by_vectors` nanoseconds a line, one by the string instruction
    /// `by_string`.
    fn note(&mut self, by_vectors: f64, by_string: f64) {
        self.until_look = LOOK_EVERY;
        let (least, most) = PAIR;
        // Where the clock has not moved in between, the pair tells nothing.
        let part = if by_vectors > 0.0 { by_string / by_vectors } else { 1.0 };
        self.parts += part.clamp(least, most);
        self.pairs += 1;
        if self.pairs == PAIRS {
            let limit = if self.by_string { LEFT_ABOVE } else { TAKEN_BELOW };
            self.by_string = self.parts < limit * f64::from(PAIRS);
            (self.pairs, self.parts) = (0, 0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::cico::copy;

    fn compared(loads: &mut Loads, pairs: u8, ordinary_ns: f64, string_ns: f64) {
        for _ in 0..pairs {
            loads.note(ordinary_ns, string_ns);
            assert_eq!(loads.until_look, LOOK_EVERY);
        }
    }

    fn fresh() -> Loads {
        Loads::new(None, true, copy)
    }

    #[test]
    fn the_mean_of_many_pairs_decides() {
        let mut loads = fresh();
        compared(&mut loads, PAIRS - 1, 1.2, 1.1);
        assert!(!loads.by_string, "not before all are known");
        compared(&mut loads, 1, 1.2, 1.1);
        assert!(loads.by_string);
        compared(&mut loads, PAIRS, 1.2, 1.22);
        assert!(loads.by_string, "for so little nothing changes");
        compared(&mut loads, PAIRS, 2.6, 2.8);
        assert!(!loads.by_string);
        compared(&mut loads, PAIRS, 1.2, 1.22);
        assert!(!loads.by_string);
    }

    #[test]
    fn one_copy_that_was_interrupted_decides_nothing() {
        let mut loads = fresh();
        compared(&mut loads, 1, 1_000.0, 1.0);
        compared(&mut loads, PAIRS - 1, 1.0, 1.1);
        assert!(!loads.by_string);
        compared(&mut loads, 1, 1.0, 1_000.0);
        compared(&mut loads, PAIRS - 1, 1.2, 1.0);
        assert!(loads.by_string);
        compared(&mut loads, PAIRS, 0.0, 0.0);
        assert!(loads.by_string, "a clock that stands still tells nothing");
    }

    #[test]
    #[allow(unsafe_code)] // the copy's contract
    fn a_pair_is_two_copies_from_one_peer() {
        let (mut to, from) = (vec![0; LEAST_BYTES], vec![7_u8; LEAST_BYTES]);
        let mut loads = Loads { until_look: 0, ..fresh() };
        for (peer, pairs, until_look) in [(1, 0, 0), (2, 0, LOOK_EVERY - 1), (2, 0, 0), (2, 1, LOOK_EVERY)] {
            to.fill(0);
            // SAFETY: two vectors of as many bytes.
            unsafe { loads.copy_out(to.as_mut_ptr(), peer, from.as_ptr(), LEAST_BYTES) };
            assert_eq!((loads.pairs, loads.until_look, to == from), (pairs, until_look, true));
            if pairs == 0 {
                loads.until_look = 0;
            }
        }
    }

    #[test]
    fn nothing_is_compared_where_a_setting_decides_or_ranks_share_cores() {
        for (by_string, own_cores, fixed, taken) in [
            (None, true, false, false),
            (None, false, true, false),
            (Some(true), true, true, true),
            (Some(false), true, true, false),
            (Some(true), false, true, true),
        ] {
            let loads = Loads::new(by_string, own_cores, copy);
            assert_eq!((loads.fixed, loads.by_string), (fixed, taken));
            let in_words = in_words(by_string, own_cores, LEAST_BYTES);
            assert_eq!(in_words.is_some(), taken || !fixed);
        }
        assert_eq!(in_words(None, true, LEAST_BYTES - 1), None);
    }
}

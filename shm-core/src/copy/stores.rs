//! Which stores bring a payload into cells: ordinary ones, or non-temporal ones past the caches.
//!
//! An ordinary store to a line that a reader's cache still holds must first have that copy taken back.
//! Between near caches this costs a few nanoseconds a line, between distant ones (other L3 slices, other
//! sockets) more than a copy through memory. Which it is follows from no table, because ranks and virtual
//! cores move: so now and then a copy by ordinary stores is timed, and what it took decides for those that
//! follow. Measurements are in `docs/copy-in-copy-out.md`.

use super::cico::{copy, copy_past_caches, copy_to_shared};
use crate::sys::clock;

/// Shorter payloads always go by ordinary stores.
const LEAST_BYTES: usize = 512;
/// Copies by ordinary stores between two that are timed, at least.
const LOOK_EVERY: u32 = 32;
/// Copies past the caches between two trials of ordinary stores, at first; doubled with each that fails.
const FIRST_PAUSE: u32 = 32;
const LAST_PAUSE: u32 = 1024;
/// What a copy may take beside its lines, and for each line, before copies past the caches are better.
const START_NS: u64 = 150;
const LINE_NS: f64 = 12.0;
/// Copies in a row that it takes to change: a slow one may have been interrupted, and of a fast one the lines may have
/// been read on this very core.
const IN_A_ROW: u32 = 2;

/// True if a payload always goes by ordinary stores.
#[inline]
const fn is_short(bytes: usize) -> bool {
    bytes < LEAST_BYTES
}

/// How payloads of `bytes` go into cells, why, and the setting that would change it, if one would.
pub(crate) fn in_words(past_caches: Option<bool>, bytes: usize) -> (&'static str, String, &'static str) {
    if is_short(bytes) {
        return ("ordinary", format!("fewer than {LEAST_BYTES} bytes at a time"), "");
    }
    match past_caches {
        Some(true) => ("non-temporal", "past_caches=1 was set".to_owned(), "past_caches"),
        Some(false) => ("ordinary", "past_caches=0 was set".to_owned(), "past_caches"),
        None => {
            let limit = format!("{IN_A_ROW} in a row take more than {START_NS} ns and {LINE_NS} ns a cache line");
            let why = format!("timed now and then; non-temporal for a while when {limit}");
            ("ordinary or non-temporal", why, "past_caches")
        }
    }
}

/// How one rank's payloads go into its cells of one communicator.
#[derive(Debug)]
pub(crate) struct Stores {
    past_caches: bool,
    /// A setting has decided; nothing is timed.
    fixed: bool,
    /// Copies until the next is timed.
    until_look: u32,
    pause: u32,
    /// Timed copies in a row that were for the other kind of stores.
    against: u32,
}

impl Stores {
    /// `past_caches`: what a setting has decided, if it did.
    pub(crate) fn new(past_caches: Option<bool>) -> Self {
        let (fixed, past_caches) = (past_caches.is_some(), past_caches.unwrap_or(false));
        Self { past_caches, fixed, until_look: LOOK_EVERY, pause: FIRST_PAUSE, against: 0 }
    }

    /// True while payloads go past the caches.
    pub(crate) fn go_past_caches(&self) -> bool {
        self.past_caches
    }

    /// True if the next copy had better be timed, for which its lines must not be asked for.
    pub(crate) fn look_is_due(&self) -> bool {
        self.until_look == 0 && !self.fixed
    }

    /// Copies a payload into cells. `rested`: they have been written and read before, and nobody has asked for them
    /// since, so that the time that ordinary stores take says something.
    ///
    /// # Safety
    /// As for [`copy`].
    #[inline]
    #[allow(unsafe_code)] // passes its caller's promise on
    pub(crate) unsafe fn copy_in(&mut self, to: *mut u8, from: *const u8, bytes: usize, rested: bool) {
        if is_short(bytes) {
            // SAFETY: the caller's promise.
            return unsafe { copy(to, from, bytes) };
        }
        if self.look_is_due() && rested {
            // SAFETY: the caller's promise.
            return unsafe { self.copy_timed(to, from, bytes) };
        }
        self.until_look = self.until_look.saturating_sub(1);
        if self.past_caches {
            // SAFETY: the caller's promise.
            unsafe { copy_past_caches(to, from, bytes) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { copy_to_shared(to, from, bytes) }
        }
    }

    /// # Safety
    /// As for [`copy`].
    #[inline(never)]
    #[allow(unsafe_code)] // passes its caller's promise on
    unsafe fn copy_timed(&mut self, to: *mut u8, from: *const u8, bytes: usize) {
        let start_ns = clock::now_ns();
        // Requests in advance would overlap the lines' ways, and hide how long these are.
        // SAFETY: the caller's promise.
        unsafe { copy(to, from, bytes) };
        // No pair: the stores have reached the cache only behind a full fence.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.judge(bytes, clock::now_ns().saturating_sub(start_ns));
    }

    /// Draws the conclusion from a copy by ordinary stores that took `took_ns`.
    fn judge(&mut self, bytes: usize, took_ns: u64) {
        #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small
        let allowed_ns = START_NS + (bytes as f64 / 64.0 * LINE_NS) as u64;
        let is_slow = took_ns > allowed_ns;
        if is_slow != self.past_caches {
            self.against += 1;
            self.until_look = 0;
            if self.against < IN_A_ROW {
                return;
            }
            (self.past_caches, self.pause) = (is_slow, FIRST_PAUSE);
        } else if is_slow {
            self.pause = (2 * self.pause).min(LAST_PAUSE);
        }
        self.against = 0;
        self.until_look = if is_slow { self.pause } else { LOOK_EVERY };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 16 * 1024;
    const NEAR_NS: u64 = 400;
    const FAR_NS: u64 = 7_000;

    #[test]
    fn one_slow_copy_changes_nothing_two_do() {
        let mut stores = Stores::new(None);
        stores.judge(BYTES, FAR_NS);
        assert!(!stores.past_caches);
        assert_eq!(stores.until_look, 0, "the next copy is timed as well");
        stores.judge(BYTES, FAR_NS);
        assert!(stores.past_caches);
    }

    #[test]
    fn trials_become_rarer_while_they_fail_and_two_that_succeed_end_it() {
        let mut stores = Stores::new(None);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            stores.judge(BYTES, FAR_NS);
            if stores.until_look > 0 {
                pauses.push(stores.until_look);
            }
        }
        assert!(pauses.is_sorted() && pauses.first() == Some(&FIRST_PAUSE) && pauses.last() == Some(&LAST_PAUSE));
        stores.judge(BYTES, NEAR_NS);
        assert!(stores.past_caches);
        assert_eq!(stores.until_look, 0, "the next copy is timed as well");
        stores.judge(BYTES, NEAR_NS);
        assert!(!stores.past_caches);
    }
}

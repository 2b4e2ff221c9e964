//! Which stores bring a payload into cells, or into a peer's vector: ordinary ones, those of the string instruction, or
//! non-temporal ones past the caches.
//!
//! An ordinary store to a line that a reader's cache still holds must first have that copy taken back.
//! Between near caches this costs a few nanoseconds a line, between distant ones (other L3 slices, other
//! sockets) more than a copy through memory. Which it is follows from no table, because ranks and virtual
//! cores move: so now and then a copy by ordinary stores is timed, and what it took decides for those that
//! follow. What memory takes differs between machines by as much, so that is timed before ordinary stores are given up.
//! Where ordinary stores are quick, and each rank has a core, lines are not asked for in advance either.
//! Measurements are in `docs/copy-in-copy-out.md`.

use super::by_string::{self, ByString};
use super::cico::{LINE, copy, copy_past_caches, copy_string, copy_to_shared, read_lines};
use crate::sys::clock;

/// Shorter payloads always go by ordinary stores.
const LEAST_BYTES: usize = 512;
/// Copies by ordinary stores between two that are timed, at least; into peers' vectors, where pieces are short, more.
const LOOK_EVERY: u32 = 32;
const LOOK_ABROAD_EVERY: u32 = 256;
/// Copies past the caches between two trials of ordinary stores, at first; doubled with each that fails.
const FIRST_PAUSE: u32 = 32;
const LAST_PAUSE: u32 = 1024;
/// What a copy takes beside its lines, and what one through memory does.
const START_NS: f64 = 100.0;
const MEMORY_START_NS: f64 = 400.0;
/// Nanoseconds a line that ordinary stores may take on any machine, and those that are too many on any.
const LINE_NS: (f64, f64) = (4.5, 12.0);
/// Between these they may take so many times as long as memory, because a reader, too, pays for what lies there.
const TIMES_MEMORY: f64 = 2.0;
/// Lines are asked for in advance where ordinary stores take more than so many nanoseconds each, beside those of the copy: else
/// the requests take as long.
const UNASKED_LINE_NS: f64 = 2.5;
const UNASKED_START_NS: f64 = 50.0;
/// Timed copies for which a time of memory holds.
const MEMORY_HOLDS: u32 = 64;
/// Copies in a row that it takes to change: a slow one may have been interrupted, and of a fast one the lines may have
/// been read on this very core.
pub(super) const IN_A_ROW: u32 = 2;

/// True if a payload always goes by ordinary stores.
#[inline]
const fn is_short(bytes: usize) -> bool {
    bytes < LEAST_BYTES
}

/// How payloads of `bytes` go into cells, or into the vectors of so many peers `abroad`, why, and the setting that would change it, if one would.
pub(crate) fn in_words(
    past_caches: Option<bool>,
    by_string: Option<bool>,
    bytes: usize,
    abroad: Option<usize>,
) -> (&'static str, String, &'static str) {
    if is_short(bytes) {
        return ("ordinary", format!("fewer than {LEAST_BYTES} bytes at a time"), "");
    }
    let is_long = bytes >= if abroad.is_some() { by_string::LEAST_BYTES_ABROAD } else { by_string::LEAST_BYTES };
    match past_caches {
        _ if is_long && by_string == Some(true) => ("string", "string_stores=1 was set".to_owned(), "string_stores"),
        Some(true) => ("non-temporal", "past_caches=1 was set".to_owned(), "past_caches"),
        Some(false) => ("ordinary", "past_caches=0 was set".to_owned(), "past_caches"),
        None if abroad == Some(1) && is_long && by_string.is_none() => (
            "ordinary or string",
            "timed now and then, and what takes less is taken".to_owned(),
            "past_caches, string_stores",
        ),
        None if abroad.is_some() => {
            ("ordinary", "vectors in place, or that caches hold, stay there".to_owned(), "past_caches")
        }
        None => {
            let (least, most) = LINE_NS;
            let line_ns = format!("{TIMES_MEMORY} times what memory takes, {least} to {most} ns a cache line");
            let limit = format!("{IN_A_ROW} in a row take more than {line_ns}");
            let why = format!("timed now and then; non-temporal for a while when {limit}");
            if is_long && by_string.is_none() {
                let both = format!("{why}; by the string instruction where that takes less");
                return ("ordinary, string or non-temporal", both, "past_caches, string_stores");
            }
            ("ordinary or non-temporal", why, "past_caches")
        }
    }
}

/// How one rank's payloads go into its cells of one communicator, or into its peers' vectors.
#[derive(Debug)]
pub(crate) struct Stores {
    past_caches: bool,
    /// Whether long ones go by the string instruction in place of either.
    by_string: ByString,
    /// Ordinary stores are slow enough for their lines to be asked for.
    ask_ahead: bool,
    own_cores: bool,
    /// A setting has decided; nothing is timed.
    fixed: bool,
    /// These go into peers' vectors, where timing never decides for stores past the caches.
    abroad: bool,
    /// Copies until the next is timed.
    until_look: u32,
    pause: u32,
    /// Timed copies in a row that were for the other kind of stores.
    against: u32,
    /// What ordinary stores may take a line, as memory was last timed; until so many copies have been timed.
    limit_ns: f64,
    holds: u32,
    /// The next copy that is timed goes through memory.
    asks_memory: bool,
}

impl Stores {
    /// `past_caches`, `by_string`: what settings have decided, if they did. `own_cores`: each rank has a core.
    pub(crate) fn new(past_caches: Option<bool>, by_string: Option<bool>, own_cores: bool) -> Self {
        let (fixed, past_caches) = (past_caches.is_some(), past_caches.unwrap_or(false));
        Self {
            past_caches,
            by_string: ByString::new(by_string, fixed, by_string::LEAST_BYTES),
            ask_ahead: true,
            own_cores,
            fixed,
            abroad: false,
            until_look: LOOK_EVERY,
            pause: FIRST_PAUSE,
            against: 0,
            limit_ns: LINE_NS.0,
            holds: 0,
            asks_memory: false,
        }
    }

    /// The same for the mapped vectors of `peers`, in place of cells. Past the caches only if that was set. Times say something of
    /// one peer only, so with several nothing is timed.
    pub(crate) fn abroad(past_caches: Option<bool>, by_string: Option<bool>, own_cores: bool, peers: usize) -> Self {
        let stores = Self::new(past_caches, by_string, own_cores);
        let fixed = stores.fixed || peers > 1;
        let by_string = ByString::new(by_string, fixed, by_string::LEAST_BYTES_ABROAD);
        Self { abroad: true, by_string, fixed, limit_ns: LINE_NS.1, ..stores }
    }

    /// True if the lines of the next copy are worth asking for, by a rank that may be `idle`: where nobody waits for it, requests cost
    /// nothing. Not while payloads go past the caches, nor if it is to be timed.
    #[inline]
    pub(crate) fn ask_ahead(&self, idle: bool) -> bool {
        (self.ask_ahead || idle) && !self.past_caches && !self.look_is_due()
    }

    /// The next copy had better be timed.
    pub(crate) fn look_now(&mut self) {
        self.until_look = 0;
    }

    /// True if the next copy had better be timed, for which its lines must not be asked for.
    pub(crate) fn look_is_due(&self) -> bool {
        self.until_look == 0 && !self.fixed
    }

    /// Copies a payload to where peers read it. `rested`: these lines have been written and read before, and nobody has asked for
    /// them since, so that the time that ordinary stores take says something.
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
        if self.by_string.takes(bytes) {
            // SAFETY: the caller's promise.
            unsafe { copy_string(to, from, bytes) }
        } else if self.past_caches {
            // SAFETY: the caller's promise.
            unsafe { copy_past_caches(to, from, bytes) }
        } else if self.ask_ahead {
            // SAFETY: the caller's promise.
            unsafe { copy_to_shared(to, from, bytes) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { copy(to, from, bytes) }
        }
    }

    /// # Safety
    /// As for [`copy`].
    #[inline(never)]
    #[allow(unsafe_code)] // passes its caller's promise on
    unsafe fn copy_timed(&mut self, to: *mut u8, from: *const u8, bytes: usize) {
        let start_ns = clock::now_ns();
        let since = |start_ns: u64| {
            // No pair: the stores have reached the cache, or memory, only behind a full fence.
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            clock::now_ns().saturating_sub(start_ns)
        };
        if std::mem::take(&mut self.asks_memory) {
            // SAFETY: the caller's promise.
            unsafe { copy_past_caches(to, from, bytes) };
            let written_ns = since(start_ns);
            let start_ns = clock::now_ns();
            // SAFETY: what was just written, which nobody else writes to.
            unsafe { read_lines(to, bytes) };
            return self.note_memory(bytes, written_ns.max(since(start_ns)));
        }
        if let Some(ordinary) = self.by_string.compares(bytes) {
            // SAFETY: the caller's promise.
            unsafe { copy_string(to, from, bytes) };
            self.until_look = self.by_string.judge(&ordinary, bytes, since(start_ns), self.limit_ns);
            return;
        }
        // Requests in advance would overlap the lines' ways, and hide how long these are.
        // SAFETY: the caller's promise.
        unsafe { copy(to, from, bytes) };
        let took_ns = since(start_ns);
        self.judge(bytes, took_ns);
        if self.until_look > 0 && self.by_string.is_due(bytes) {
            self.by_string.note(bytes, took_ns, std::mem::take(&mut self.until_look));
        }
    }

    /// Memory took so long to write to, or to read from again.
    fn note_memory(&mut self, bytes: usize, took_ns: u64) {
        let (least, most) = LINE_NS;
        self.limit_ns = (TIMES_MEMORY * line_ns(bytes, took_ns, MEMORY_START_NS)).clamp(least, most);
        (self.holds, self.until_look) = (MEMORY_HOLDS, 0);
    }

    /// Draws the conclusion from a copy by ordinary stores that took `took_ns`.
    fn judge(&mut self, bytes: usize, took_ns: u64) {
        self.ask_ahead = !self.own_cores || line_ns(bytes, took_ns, UNASKED_START_NS) > UNASKED_LINE_NS;
        if self.abroad {
            self.until_look = LOOK_ABROAD_EVERY;
            return;
        }
        let line_ns = line_ns(bytes, took_ns, START_NS);
        self.holds = self.holds.saturating_sub(1);
        if !self.past_caches && line_ns > LINE_NS.0 && self.holds == 0 {
            (self.asks_memory, self.until_look) = (true, 0);
            return;
        }
        let is_slow = line_ns > self.limit_ns;
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

/// Nanoseconds a line.
#[allow(clippy::cast_precision_loss)] // small
pub(super) fn line_ns(bytes: usize, took_ns: u64, start_ns: f64) -> f64 {
    (took_ns as f64 - start_ns).max(0.0) / (bytes as f64 / LINE as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 16 * 1024;
    const NEAR_NS: u64 = 400;
    /// On a machine with quick memory, and with slow memory.
    const FAR_NS: u64 = 2_400;
    const FARTHER_NS: u64 = 7_000;
    const QUICK_NS: u64 = 800;
    const SLOW_NS: u64 = 2_000;

    /// Times of ordinary stores, of which the first is followed by one of memory.
    fn judged(memory_ns: u64, ordinary: &[u64]) -> Stores {
        let mut stores = Stores::new(None, None, true);
        for &took_ns in ordinary {
            stores.judge(BYTES, took_ns);
            if std::mem::take(&mut stores.asks_memory) {
                stores.note_memory(BYTES, memory_ns);
                stores.judge(BYTES, took_ns);
            }
        }
        stores
    }

    #[test]
    fn lines_are_asked_for_while_ordinary_stores_are_not_quick() {
        let mut stores = Stores::new(None, None, true);
        stores.until_look = LOOK_EVERY;
        assert!(stores.ask_ahead(false), "until one has been timed");
        for (took_ns, ask_ahead) in [(NEAR_NS, false), (FAR_NS / 2, true), (NEAR_NS, false)] {
            stores.judge(BYTES, took_ns);
            assert_eq!(stores.ask_ahead(false), ask_ahead, "{took_ns} ns");
            assert!(stores.ask_ahead(true));
            let mut shared = Stores::new(None, None, false);
            shared.judge(BYTES, took_ns);
            assert!(shared.ask_ahead, "where ranks share cores it is always worth it");
        }
        stores.until_look = 0;
        assert!(!stores.ask_ahead(true), "not before the next is timed");
    }

    #[test]
    fn into_peers_vectors_slow_stores_stay_ordinary() {
        let mut abroad = Stores::abroad(None, None, true, 1);
        for (took_ns, ask_ahead) in [(FARTHER_NS, true), (FARTHER_NS, true), (NEAR_NS, false)] {
            abroad.judge(BYTES, took_ns);
            assert!(!abroad.past_caches && !abroad.asks_memory && abroad.until_look == LOOK_ABROAD_EVERY);
            assert_eq!(abroad.ask_ahead, ask_ahead, "{took_ns} ns");
        }
        assert!(!abroad.fixed && Stores::abroad(None, None, true, 2).fixed, "peers may be near and far");
        assert!(Stores::abroad(Some(true), None, true, 1).past_caches);
    }

    #[test]
    fn one_slow_copy_changes_nothing_two_do() {
        let stores = judged(QUICK_NS, &[FAR_NS]);
        assert!(!stores.past_caches);
        assert_eq!(stores.until_look, 0, "the next copy is timed as well");
        assert!(judged(QUICK_NS, &[FAR_NS; 2]).past_caches);
        assert!(!judged(QUICK_NS, &[NEAR_NS; 9]).past_caches);
    }

    #[test]
    fn memory_is_timed_before_ordinary_stores_are_given_up() {
        let mut stores = Stores::new(None, None, true);
        stores.judge(BYTES, NEAR_NS);
        assert!(!stores.asks_memory);
        stores.judge(BYTES, FAR_NS);
        assert!(stores.asks_memory && stores.until_look == 0);
        // Where memory is slow, too, it takes more.
        assert!(!judged(SLOW_NS, &[FAR_NS; 9]).past_caches);
        assert!(judged(SLOW_NS, &[FARTHER_NS; 2]).past_caches);
        // What it takes holds for some time.
        let timed = |copies| {
            let mut stores = judged(SLOW_NS, &vec![FAR_NS; copies]);
            stores.judge(BYTES, FAR_NS);
            stores.asks_memory
        };
        assert_eq!([1, MEMORY_HOLDS as usize - 2, MEMORY_HOLDS as usize - 1].map(timed), [false, false, true]);
    }

    #[test]
    fn trials_become_rarer_while_they_fail_and_two_that_succeed_end_it() {
        let mut stores = judged(QUICK_NS, &[FAR_NS]);
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

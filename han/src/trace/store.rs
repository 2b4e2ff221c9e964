//! Spans in bounded memory: the latest ones, how many older ones were dropped, and those still open.

use std::collections::VecDeque;

use super::span::{Ending, Label, Lane, Span, What};

/// Most different words; what comes later shows as the first, which is empty.
const MOST_LABELS: usize = 4096;

/// The spans of a rank.
#[derive(Debug)]
pub(super) struct Store {
    limit: usize,
    closed: VecDeque<Span>,
    dropped: u64,
    /// Spans under way, at the places that their tickets name.
    open: Vec<Option<Span>>,
    free: Vec<usize>,
    labels: Vec<String>,
}

/// A span that is under way.
#[derive(Debug)]
#[must_use = "a span ends when it is told to"]
pub(crate) struct Open(usize);

impl Store {
    /// Keeps at most `limit` spans that have ended.
    pub(super) fn new(limit: usize) -> Self {
        let (open, free) = (Vec::new(), Vec::new());
        Self { limit, closed: VecDeque::new(), dropped: 0, open, free, labels: vec![String::new()] }
    }

    pub(super) fn begin(&mut self, lane: Lane, what: What, begin_ns: u64) -> Open {
        let span = Some(Span { lane, what, begin_ns, end_ns: begin_ns, ending: Ending::Open });
        if let Some(place) = self.free.pop() {
            self.open[place] = span;
            return Open(place);
        }
        self.open.push(span);
        Open(self.open.len() - 1)
    }

    pub(super) fn end(&mut self, Open(place): Open, ending: Ending, end_ns: u64) {
        let Some(span) = self.open.get_mut(place).and_then(Option::take) else { return };
        self.free.push(place);
        self.push(Span { end_ns, ending, ..span });
    }

    pub(super) fn push(&mut self, span: Span) {
        if self.closed.len() >= self.limit {
            self.closed.pop_front();
            self.dropped += 1;
        }
        self.closed.push_back(span);
    }

    pub(super) fn label(&mut self, word: &str) -> Label {
        let place = self.labels.iter().position(|known| known == word).unwrap_or_else(|| {
            if self.labels.len() >= MOST_LABELS {
                return 0;
            }
            self.labels.push(word.to_owned());
            self.labels.len() - 1
        });
        Label(u16::try_from(place).unwrap_or(0))
    }

    pub(super) fn word(&self, Label(place): Label) -> &str {
        &self.labels[usize::from(place)]
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// All spans in the order in which they began, those that are open until `now_ns`; what lies within another span
    /// comes after it.
    pub(super) fn spans(&self, now_ns: u64) -> Vec<Span> {
        let open = self.open.iter().flatten().map(|span| Span { end_ns: now_ns.max(span.begin_ns), ..*span });
        let mut spans: Vec<Span> = self.closed.iter().copied().chain(open).collect();
        spans.sort_by_key(|span| (span.begin_ns, std::cmp::Reverse(span.end_ns)));
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(store: &Store) -> Vec<(&'static str, u64, u64)> {
        store.spans(100).iter().map(|span| (span.what.name, span.begin_ns, span.end_ns)).collect()
    }

    #[test]
    fn the_oldest_are_dropped_and_counted() {
        let mut store = Store::new(2);
        for (name, begin) in [("a", 1), ("b", 5), ("c", 9)] {
            let open = store.begin(Lane::Calls, What::named(name), begin);
            store.end(open, Ending::Well, begin + 3);
        }
        assert_eq!((named(&store), store.dropped()), (vec![("b", 5, 8), ("c", 9, 12)], 1));
    }

    #[test]
    fn what_is_open_is_shown_until_now() {
        let mut store = Store::new(9);
        let outer = store.begin(Lane::Calls, What::named("outer"), 1);
        let inner = store.begin(Lane::Calls, What::named("inner"), 1);
        let later = store.begin(Lane::Operations, What::named("later"), 2);
        store.end(inner, Ending::Well, 4);
        let reused = store.begin(Lane::Calls, What::named("reused"), 50);
        assert_eq!(named(&store), [("outer", 1, 100), ("inner", 1, 4), ("later", 2, 100), ("reused", 50, 100)]);
        store.end(outer, Ending::Well, 60);
        store.end(reused, Ending::Well, 55);
        store.end(later, Ending::Well, 61);
        assert_eq!(named(&store), [("outer", 1, 60), ("inner", 1, 4), ("later", 2, 61), ("reused", 50, 55)]);
    }

    #[test]
    fn words_are_stored_once_and_are_bounded() {
        let mut store = Store::new(1);
        let first = store.label("sm/flat");
        assert_eq!((store.label("sm/flat"), store.word(first)), (first, "sm/flat"));
        for number in 0..2 * MOST_LABELS {
            let _ = store.label(&number.to_string());
        }
        let late = store.label("late");
        assert_eq!((store.labels.len(), store.word(late), store.word(first)), (MOST_LABELS, "", "sm/flat"));
    }
}

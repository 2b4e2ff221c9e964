//! Spans of time on the rows of ranks, and what they add up to.

use std::collections::BTreeMap;

use super::Result;
use super::event::Event;
use super::file::Traced;

/// Something that was under way.
#[derive(Debug, Clone)]
pub(super) struct Span<'a> {
    pub(super) rank: usize,
    pub(super) row: usize,
    pub(super) begin_us: f64,
    pub(super) end_us: f64,
    pub(super) event: &'a Event,
}

/// A stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Window {
    pub(super) begin_us: f64,
    pub(super) end_us: f64,
}

/// What tells a call from all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallName {
    pub(super) communicator: u64,
    /// The lowest rank of its group, as nodes may give communicators of their own the same number.
    group: u64,
    pub(super) number: u64,
}

/// A call on all its ranks.
pub(super) struct Call {
    pub(super) name: CallName,
    pub(super) window: Window,
}

/// The spans of a trace, in order of rank, row and time.
pub(super) fn of(traced: &Traced) -> Vec<Span<'_>> {
    let mut spans: Vec<Span<'_>> = traced.events.iter().filter_map(Span::of).collect();
    spans.sort_by(|a, b| (a.rank, a.row).cmp(&(b.rank, b.row)).then(a.begin_us.total_cmp(&b.begin_us)));
    spans
}

/// The call that took longest, from the first rank that came to the last that left.
pub(super) fn longest_call(spans: &[Span<'_>]) -> Option<Call> {
    let mut calls = BTreeMap::<CallName, Vec<&Span<'_>>>::new();
    for span in spans.iter().filter(|span| span.is_call()) {
        if let Some(call) = span.call() {
            calls.entry(call).or_default().push(span);
        }
    }
    let calls = calls.into_iter().filter_map(|(name, spans)| Some(Call { name, window: Window::of(spans)? }));
    calls.max_by(|a, b| a.window.length_us().total_cmp(&b.window.length_us()))
}

impl<'a> Span<'a> {
    fn of(event: &'a Event) -> Option<Self> {
        let begin_us = event.ts.filter(|_| *event.ph == "X")?;
        let end_us = begin_us + event.dur?;
        Some(Self { rank: event.pid, row: event.tid, begin_us, end_us, event })
    }

    /// The call that it is or belongs to.
    pub(super) fn call(&self) -> Option<CallName> {
        let (communicator, number) = (self.number("communicator")?, self.number("number")?);
        Some(CallName { communicator, group: self.number("group").unwrap_or(0), number })
    }

    /// Whether it is or belongs to a call of this number on a communicator, of whichever group.
    pub(super) fn is_of(&self, (communicator, number): (u64, u64)) -> bool {
        self.call().is_some_and(|call| (call.communicator, call.number) == (communicator, number))
    }

    pub(super) fn is_call(&self) -> bool {
        self.event.cat.as_ref().is_some_and(|cat| **cat == "call")
    }

    pub(super) fn number(&self, key: &str) -> Option<u64> {
        self.event.arg(key)?.number()
    }

    pub(super) fn word(&self, key: &str) -> Option<&'a str> {
        self.event.arg(key)?.word()
    }

    pub(super) fn length_us(&self) -> f64 {
        self.end_us - self.begin_us
    }
}

impl Window {
    /// From the first beginning to the last end.
    pub(super) fn of<'a, 'b: 'a>(spans: impl IntoIterator<Item = &'a Span<'b>>) -> Option<Self> {
        let windows = spans.into_iter().map(|span| Self { begin_us: span.begin_us, end_us: span.end_us });
        windows.reduce(|a, b| Self { begin_us: a.begin_us.min(b.begin_us), end_us: a.end_us.max(b.end_us) })
    }

    pub(super) fn length_us(&self) -> f64 {
        self.end_us - self.begin_us
    }

    /// What of it lies between so many milliseconds after its beginning.
    pub(super) fn cut(self, from_ms: Option<f64>, to_ms: Option<f64>) -> Result<Self> {
        let at = |ms: f64| self.begin_us + ms * 1000.0;
        let cut = Self {
            begin_us: from_ms.map_or(self.begin_us, at).max(self.begin_us),
            end_us: to_ms.map_or(self.end_us, at).min(self.end_us),
        };
        if cut.begin_us >= cut.end_us && (from_ms.is_some() || to_ms.is_some()) {
            let length_ms = self.length_us() / 1000.0;
            return Err(format!("--from and --to leave nothing of {length_ms:.3} ms").into());
        }
        Ok(cut)
    }

    /// The parts of `spans` within it.
    pub(super) fn cut_out<'a>(&self, spans: &[Span<'a>]) -> Vec<Span<'a>> {
        let overlaps = |span: &&Span<'_>| span.end_us > self.begin_us && span.begin_us < self.end_us;
        let cut = |span: &Span<'a>| Span {
            begin_us: span.begin_us.max(self.begin_us),
            end_us: span.end_us.min(self.end_us),
            ..span.clone()
        };
        spans.iter().filter(overlaps).map(cut).collect()
    }
}

/// Time that any of some spans takes, overlapping ones counted once.
pub(super) fn busy_us<'a, 'b: 'a>(spans: impl IntoIterator<Item = &'a Span<'b>>) -> f64 {
    let mut times: Vec<(f64, f64)> = spans.into_iter().map(|span| (span.begin_us, span.end_us)).collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut sum, mut until) = (0.0, f64::NEG_INFINITY);
    for (begin, end) in times {
        sum += (end - begin.max(until)).max(0.0);
        until = until.max(end);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        let [name, ph] = ["x", "X"].map(|word| word.to_owned().into());
        Event { name, cat: None, ph, ts: None, dur: None, pid: 0, tid: 0, args: Box::default() }
    }

    fn spans<'a>(event: &'a Event, times: &[(f64, f64)]) -> Vec<Span<'a>> {
        times.iter().map(|&(begin_us, end_us)| Span { rank: 0, row: 0, begin_us, end_us, event }).collect()
    }

    #[test]
    fn overlapping_time_counts_once() {
        let event = event();
        let all = spans(&event, &[(4.0, 6.0), (0.0, 3.0), (1.0, 2.0), (2.0, 5.0), (9.0, 10.0)]);
        assert!((busy_us(&all) - 7.0).abs() < 1e-9);
        assert!(busy_us(&[]).abs() < 1e-9);
    }

    #[test]
    fn windows_cut_spans() {
        let event = event();
        let all = spans(&event, &[(100.0, 1100.0), (1200.0, 5100.0)]);
        let window = Window::of(&all).map(|window| window.cut(Some(0.5), Some(2.0)));
        let Some(Ok(window)) = window else { panic!("{window:?}") };
        assert_eq!(window, Window { begin_us: 600.0, end_us: 2100.0 });
        let cut: Vec<(f64, f64)> = window.cut_out(&all).iter().map(|span| (span.begin_us, span.end_us)).collect();
        assert_eq!(cut, [(600.0, 1100.0), (1200.0, 2100.0)]);
        assert!(window.cut(Some(2.0), Some(1.0)).is_err());
        // Before the first span and behind the last one there is nothing to have a share of.
        assert_eq!(window.cut(Some(-5.0), Some(100.0)).ok(), Some(window));
    }
}

//! The place of a step.

/// A step with its consecutive cells.
///
/// Two words, which the compiler hands on in registers: four fields of half a word would be written one by
/// one and read together, and a load that needs several stores waits until these have left for the cache,
/// behind the flag that a peer has not given back yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// The step, below it the first one that must not be overwritten.
    steps: u64,
    /// Where its cells begin in the ring, if it has any; below it what they were taken for.
    cells: u64,
}

impl Span {
    /// `step` without cells, whose slot may be written once all steps before `needed` are consumed.
    #[inline]
    pub(super) fn of_slot(step: u32, needed: u32) -> Self {
        Self { steps: pair(step, needed), cells: 0 }
    }

    /// `step` with room for `bytes` from cell `first_cell` on; its place may be written once all steps before
    /// `needed` are consumed.
    #[inline]
    pub(super) fn with_cells(step: u32, needed: u32, first_cell: u32, bytes: u32) -> Self {
        Self { steps: pair(step, needed), cells: pair(first_cell, bytes) }
    }

    #[inline]
    pub(crate) fn step(self) -> u32 {
        high(self.steps)
    }

    /// The first step after it.
    #[inline]
    pub(crate) fn end(self) -> u32 {
        self.step().wrapping_add(1)
    }

    /// Its place may be written once all steps before this one are consumed.
    #[inline]
    pub(super) fn needed(self) -> u32 {
        low(self.steps)
    }

    #[inline]
    pub(super) fn first_cell(self) -> u32 {
        high(self.cells)
    }

    /// What its cells were taken for; at most a chunk.
    #[inline]
    pub(super) fn bytes(self) -> u32 {
        low(self.cells)
    }
}

#[inline]
fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[inline]
fn high(word: u64) -> u32 {
    #[allow(clippy::cast_possible_truncation)] // half a word
    {
        (word >> 32) as u32
    }
}

#[inline]
fn low(word: u64) -> u32 {
    #[allow(clippy::cast_possible_truncation)] // the other half
    {
        word as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_gives_back_what_it_was_made_of() {
        let span = Span::with_cells(u32::MAX, 1 << 31, 1023, 4096);
        assert_eq!((span.step(), span.needed(), span.first_cell(), span.bytes()), (u32::MAX, 1 << 31, 1023, 4096));
        assert_eq!(span.end(), 0);
        let slot = Span::of_slot(7, u32::MAX);
        assert_eq!((slot.step(), slot.needed(), slot.bytes()), (7, u32::MAX, 0));
    }
}

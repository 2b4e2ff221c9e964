//! The free ranges of a region: first fit, neighbours joined when they are given back. Pure arithmetic;
//! nothing of it lies in the region itself, so a peer's wild store cannot break it.

use std::collections::BTreeMap;
use std::ops::Range;

/// What is free in `0..bytes`.
#[derive(Debug)]
pub(super) struct Ranges {
    /// Start and length of the free ranges; no two of them touch.
    free: BTreeMap<usize, usize>,
    bytes: usize,
    /// From here on nothing was ever given out.
    untouched_from: usize,
}

/// A range that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) offset: usize,
    /// So many bytes at its start may have been used before; the rest never was.
    pub(super) used_bytes: usize,
}

impl Ranges {
    pub(super) fn new(bytes: usize) -> Self {
        Self { free: BTreeMap::from([(0, bytes)]), bytes, untouched_from: 0 }
    }

    /// True if all is free.
    pub(super) fn is_free(&self) -> bool {
        self.free.get(&0) == Some(&self.bytes)
    }

    /// What is free of `within`.
    pub(super) fn free_within(&self, within: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let before = self.free.range(..within.start).next_back();
        let parts = before.into_iter().chain(self.free.range(within.clone()));
        let cut = |(&start, &length): (&usize, &usize)| start.max(within.start)..(start + length).min(within.end);
        parts.map(cut).filter(|part| !part.is_empty())
    }

    /// Takes the first range that has room for `bytes` at a multiple of `align`.
    pub(super) fn take(&mut self, bytes: usize, align: usize) -> Option<Taken> {
        let fits = |(&start, &length): (&usize, &usize)| {
            let offset = start.next_multiple_of(align);
            (offset.checked_add(bytes)? <= start + length).then_some((start, length, offset))
        };
        let (start, length, offset) = self.free.iter().find_map(fits)?;
        self.free.remove(&start);
        if offset > start {
            self.free.insert(start, offset - start);
        }
        let (end, rest) = (start + length, offset + bytes);
        if end > rest {
            self.free.insert(rest, end - rest);
        }
        let used_bytes = self.untouched_from.saturating_sub(offset).min(bytes);
        self.untouched_from = self.untouched_from.max(rest);
        Some(Taken { offset, used_bytes })
    }

    /// Gives back what was taken at `offset`.
    pub(super) fn give(&mut self, offset: usize, bytes: usize) {
        let (mut start, mut length) = (offset, bytes);
        if let Some((&before, &its_length)) = self.free.range(..offset).next_back()
            && before + its_length == offset
        {
            self.free.remove(&before);
            (start, length) = (before, its_length + length);
        }
        if let Some(behind) = self.free.remove(&(offset + bytes)) {
            length += behind;
        }
        self.free.insert(start, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_gap_that_fits_is_taken() {
        let mut ranges = Ranges::new(1000);
        let take = |ranges: &mut Ranges, bytes, align| ranges.take(bytes, align).map(|taken| taken.offset);
        assert_eq!(take(&mut ranges, 100, 1), Some(0));
        assert_eq!(take(&mut ranges, 100, 128), Some(128));
        assert_eq!(take(&mut ranges, 28, 1), Some(100), "the gap before the aligned one");
        assert_eq!(take(&mut ranges, 800, 1), None);
        assert_eq!(take(&mut ranges, usize::MAX, 128), None);
        ranges.give(0, 100);
        assert_eq!(take(&mut ranges, 101, 1), Some(228));
        assert_eq!(take(&mut ranges, 100, 1), Some(0));
        for (offset, bytes) in [(100, 28), (228, 101), (0, 100), (128, 100)] {
            assert!(!ranges.is_free());
            ranges.give(offset, bytes);
        }
        assert!(ranges.is_free());
    }

    #[test]
    fn what_was_used_before_is_known() {
        let mut ranges = Ranges::new(1024);
        assert_eq!(ranges.take(256, 128), Some(Taken { offset: 0, used_bytes: 0 }));
        ranges.give(0, 256);
        assert_eq!(ranges.take(512, 128), Some(Taken { offset: 0, used_bytes: 256 }));
        assert_eq!(ranges.take(512, 128), Some(Taken { offset: 512, used_bytes: 0 }));
    }

    /// Any series of takes and gives leaves no overlap and loses nothing.
    #[test]
    fn nothing_overlaps_and_nothing_is_lost() {
        const BYTES: usize = 1 << 16;
        let (mut ranges, mut live, mut state) = (Ranges::new(BYTES), Vec::<(usize, usize)>::new(), 1_u64);
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap_or(0) % below
        };
        for _ in 0..20_000 {
            let (bytes, align) = (1 + random(5000), 1 << random(13));
            if random(2) == 0
                && let Some(taken) = ranges.take(bytes, align)
            {
                assert!(taken.offset.is_multiple_of(align) && taken.offset + bytes <= BYTES);
                assert!(live.iter().all(|&(at, length)| at + length <= taken.offset || taken.offset + bytes <= at));
                live.push((taken.offset, bytes));
            } else if !live.is_empty() {
                let (offset, bytes) = live.swap_remove(random(live.len()));
                ranges.give(offset, bytes);
            }
            let free: usize = ranges.free.values().sum();
            assert_eq!(free + live.iter().map(|(_, bytes)| bytes).sum::<usize>(), BYTES);
        }
        for (offset, bytes) in live {
            ranges.give(offset, bytes);
        }
        assert!(ranges.is_free());
    }
}

//! Clocks of several machines on one time axis: that of rank 0.
//!
//! All ranks leave a barrier after each has entered it. So whatever two clocks show, the moment in which this rank left
//! a barrier was not before rank 0 entered it, and the other way round; each barrier thereby bounds the distance of the
//! clocks from both sides, and several of them bound it more narrowly. No message between just two ranks is needed.
//! As clocks drift, this is done at the start and at the end of a job; if the bounds then contradict each other, a
//! straight line joins their middles.

/// What a rank's clock showed around one barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// When the rank entered it, in nanoseconds.
    pub entered_ns: u64,
    /// When the rank left it.
    pub left_ns: u64,
}

/// How far a clock is ahead of that of rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// When it was so, by the clock in question.
    pub at_ns: u64,
    /// The middle of the bounds, in nanoseconds.
    pub ahead_ns: i64,
    /// How far the truth may be from that.
    pub error_ns: u64,
}

/// Turns times of one clock into those of rank 0's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    first: Offset,
    last: Offset,
}

impl Offset {
    /// From what a clock and that of rank 0 showed around the same barriers; `None` if there were none.
    #[must_use]
    pub fn between(own: &[Mark], of_rank_0: &[Mark]) -> Option<Self> {
        let pairs = || own.iter().zip(of_rank_0);
        let most = pairs().map(|(own, other)| own.left_ns.wrapping_sub(other.entered_ns).cast_signed()).min()?;
        let least = pairs().map(|(own, other)| own.entered_ns.wrapping_sub(other.left_ns).cast_signed()).max()?;
        let at_ns = own[own.len().min(of_rank_0.len()) / 2].entered_ns;
        Some(Self { at_ns, ahead_ns: least.midpoint(most), error_ns: most.abs_diff(least).div_ceil(2) })
    }
}

impl Alignment {
    /// Of a clock that is rank 0's own.
    pub const SAME: Self = {
        let none = Offset { at_ns: 0, ahead_ns: 0, error_ns: 0 };
        Self { first: none, last: none }
    };

    /// From what was measured at one or two moments.
    #[must_use]
    pub fn new(first: Offset, last: Option<Offset>) -> Self {
        let last = last.unwrap_or(first);
        let bounds = |offset: Offset| {
            (
                offset.ahead_ns.saturating_sub_unsigned(offset.error_ns),
                offset.ahead_ns.saturating_add_unsigned(offset.error_ns),
            )
        };
        let ((least, most), (also_least, also_most)) = (bounds(first), bounds(last));
        let (least, most) = (least.max(also_least), most.min(also_most));
        if least > most {
            return Self { first, last };
        }
        // One distance explains all: a line would follow the errors of measurement.
        let both = Offset { ahead_ns: least.midpoint(most), error_ns: most.abs_diff(least).div_ceil(2), ..first };
        Self { first: both, last: both }
    }

    /// What rank 0's clock shows when this one shows `ns`.
    #[must_use]
    pub fn aligned(&self, ns: u64) -> u64 {
        let (first, last) = (self.first, self.last);
        let span = i128::from(last.at_ns.saturating_sub(first.at_ns));
        let mut ahead = i128::from(first.ahead_ns);
        if span > 0 {
            let gone = i128::from(ns) - i128::from(first.at_ns);
            ahead += (i128::from(last.ahead_ns) - i128::from(first.ahead_ns)) * gone / span;
        }
        u64::try_from(i128::from(ns) - ahead).unwrap_or(0)
    }

    /// How far the truth may be from that, at the moments of measurement.
    #[must_use]
    pub fn error_ns(&self) -> u64 {
        self.first.error_ns.max(self.last.error_ns)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_come_from_both_sides() {
        // The other clock is 1000 ahead; rank 0 comes later the first time, the other one the second.
        let of_rank_0 = [Mark { entered_ns: 50, left_ns: 60 }, Mark { entered_ns: 100, left_ns: 140 }];
        let own = [Mark { entered_ns: 1010, left_ns: 1065 }, Mark { entered_ns: 1130, left_ns: 1145 }];
        let offset = Offset::between(&own, &of_rank_0).unwrap();
        // At most 1065 - 50 and 1145 - 100; at least 1010 - 60 and 1130 - 140.
        assert_eq!((offset.ahead_ns, offset.error_ns), ((990 + 1015) / 2, 13));
        assert_eq!(Alignment::new(offset, None).aligned(1130), 1130 - 1002);
        assert_eq!(Offset::between(&own, &[]), None);
        assert_eq!(Alignment::SAME.aligned(77), 77);
    }

    #[test]
    fn drift_is_a_straight_line() {
        let first = Offset { at_ns: 1_000, ahead_ns: -500, error_ns: 3 };
        let last = Offset { at_ns: 2_001_000, ahead_ns: 1_500, error_ns: 7 };
        let alignment = Alignment::new(first, Some(last));
        assert_eq!(alignment.aligned(1_000), 1_500);
        assert_eq!(alignment.aligned(1_001_000), 1_001_000 - 500);
        assert_eq!(alignment.aligned(2_001_000), 2_001_000 - 1_500);
        assert_eq!(alignment.error_ns(), 7);
    }

    #[test]
    fn bounds_that_agree_are_joined() {
        let first = Offset { at_ns: 1_000, ahead_ns: 500, error_ns: 10 };
        let last = Offset { at_ns: 2_000, ahead_ns: 508, error_ns: 4 };
        let alignment = Alignment::new(first, Some(last));
        // From 504 to 510.
        assert_eq!((alignment.aligned(1_000), alignment.aligned(9_000)), (1_000 - 507, 9_000 - 507));
        assert_eq!(alignment.error_ns(), 3);
    }

    proptest! {
        #[test]
        fn the_truth_is_within_the_bounds(
            ahead in -1_000_000_000_000_i64..1_000_000_000_000,
            barriers in prop::collection::vec((0_u64..10_000, 0_u64..10_000, 1_u64..5_000, 1_u64..5_000), 1..20),
        ) {
            let mut now = 2_000_000_000_000_u64;
            let (mut own, mut of_rank_0) = (Vec::new(), Vec::new());
            for (late, late_0, after, after_0) in barriers {
                let full = now + late.max(late_0);
                let moved = |ns: u64| ns.checked_add_signed(ahead).unwrap();
                own.push(Mark { entered_ns: moved(now + late), left_ns: moved(full + after) });
                of_rank_0.push(Mark { entered_ns: now + late_0, left_ns: full + after_0 });
                now = full + after.max(after_0);
            }
            let offset = Offset::between(&own, &of_rank_0).unwrap();
            prop_assert!(offset.ahead_ns.abs_diff(ahead) <= offset.error_ns, "{offset:?}");
        }
    }
}

//! Times in which a rank's processor does something else, as the dissertation injects them (section 3.4).
//!
//! Everything follows from a seed, the rank and the number of the period, so nothing is remembered.

use super::machine::Seconds;
use crate::error::{Error, Result};

/// Delays of two ranks that may follow each other before neither sleeps.
const MOST_DELAYS: usize = 100_000;

/// Who is delayed, when and for how long. A delayed rank neither begins nor notices anything and does not
/// compute; messages that are already moving go on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise {
    /// Nobody.
    None,
    /// One rank, once.
    Once {
        /// The rank.
        rank: usize,
        /// When it begins.
        start_s: Seconds,
        /// How long it lasts.
        length_s: Seconds,
    },
    /// One rank, or all, once in each period, at a time of the rank's own that is drawn once.
    Periodic {
        /// The rank; all if none.
        rank: Option<usize>,
        /// Least length.
        low_s: Seconds,
        /// Most length; each is drawn uniformly between the two.
        high_s: Seconds,
        /// From one to the next.
        period_s: Seconds,
        /// Of all that is drawn.
        seed: u64,
    },
}

impl Noise {
    /// Refuses ranks that are not there, and lengths and periods that make no sense.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] with what would be right.
    pub fn check(self, ranks: usize) -> Result<()> {
        let wrong = |text: String| Err(Error::InvalidArgument(text));
        if let Self::Once { rank, .. } | Self::Periodic { rank: Some(rank), .. } = self
            && rank >= ranks
        {
            return wrong(format!("noise on rank {rank}: there are {ranks} ranks"));
        }
        match self {
            Self::Once { start_s, length_s, .. } if !(start_s >= 0.0 && (0.0..f64::INFINITY).contains(&length_s)) => {
                wrong("noise begins and lasts a time from 0 up".to_owned())
            }
            Self::Periodic { low_s, high_s, period_s, .. }
                if !(0.0 <= low_s && low_s <= high_s && high_s < period_s && period_s.is_finite()) =>
            {
                wrong(format!(
                    "noise of {low_s} to {high_s} s every {period_s} s: the first is at most the second, and both are \
                     shorter than the period"
                ))
            }
            _ => Ok(()),
        }
    }

    /// The delays of a rank: when each begins, and how long it lasts. Those of periodic noise never end, and the first
    /// may have begun before time 0.
    pub fn delays(self, rank: usize) -> impl Iterator<Item = (Seconds, Seconds)> {
        let (once, periodic) = match self {
            Self::Once { rank: noisy, start_s, length_s } if noisy == rank => (Some((start_s, length_s)), None),
            Self::Periodic { rank: noisy, low_s, high_s, period_s, seed }
                if noisy.is_none_or(|noisy| noisy == rank) =>
            {
                let first = period_s * draw(seed, rank, u64::MAX) - period_s;
                let length = move |number| low_s + (high_s - low_s) * draw(seed, rank, number);
                let starts = std::iter::successors(Some(first), move |start| Some(start + period_s));
                (None, Some(starts.zip((0..).map(length))))
            }
            _ => (None, None),
        };
        once.into_iter().chain(periodic.into_iter().flatten())
    }

    /// The first moment from `at` on in which the rank runs.
    pub(super) fn awake(&self, rank: usize, at: Seconds) -> Seconds {
        self.around(rank, at).0
    }

    /// The first moment from `at` on in which both ranks run: one may fall asleep while the other still does. None if
    /// they do not meet in so many delays that they hardly ever would.
    pub(super) fn both_awake(&self, one: usize, other: usize, at: Seconds) -> Option<Seconds> {
        let mut at = at;
        for _ in 0..MOST_DELAYS {
            let later = self.awake(other, self.awake(one, at));
            if self.awake(one, later) <= later {
                return Some(later);
            }
            at = later;
        }
        None
    }

    /// When work of that length ends that the rank begins at `at`.
    pub(super) fn worked(&self, rank: usize, at: Seconds, work: Seconds) -> Seconds {
        let (mut at, mut left) = (at, work);
        loop {
            let (awake, until) = self.around(rank, at);
            if awake + left <= until {
                return awake + left;
            }
            left -= until - awake;
            at = until;
        }
    }

    /// From when on after `at` the rank runs, and until when.
    fn around(&self, rank: usize, at: Seconds) -> (Seconds, Seconds) {
        match *self {
            Self::Once { rank: noisy, start_s, length_s } if noisy == rank => {
                let end = start_s + length_s;
                if at < start_s { (at, start_s) } else { (at.max(end), Seconds::INFINITY) }
            }
            Self::Periodic { rank: noisy, low_s, high_s, period_s, seed }
                if noisy.is_none_or(|noisy| noisy == rank) =>
            {
                let first = period_s * draw(seed, rank, u64::MAX);
                let period = ((at - first) / period_s).floor();
                let start = first + period * period_s;
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from -1 up, and few
                let number = (period + 1.0) as u64;
                let end = start + low_s + (high_s - low_s) * draw(seed, rank, number);
                let next = start + period_s;
                // Rounding may put `at` a hair after `next`.
                if at < end { (end, next) } else { (at, next.max(at + period_s * 1e-9)) }
            }
            _ => (at, Seconds::INFINITY),
        }
    }
}

/// A number from 0 up to 1 that follows from its arguments (the mixing function of SplitMix64).
fn draw(seed: u64, rank: usize, number: u64) -> f64 {
    let mixed = mix(mix(mix(seed) ^ rank as u64) ^ number);
    #[allow(clippy::cast_precision_loss)] // 53 bits
    let fraction = (mixed >> 11) as f64;
    fraction / (1_u64 << 53) as f64
}

fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-9, "{one} and {other}");
    }

    #[test]
    fn one_delay_stops_one_rank_once() {
        let noise = Noise::Once { rank: 2, start_s: 1.0, length_s: 0.5 };
        close(noise.awake(2, 0.9), 0.9);
        close(noise.awake(2, 1.2), 1.5);
        close(noise.awake(1, 1.2), 1.2);
        close(noise.worked(2, 0.8, 0.4), 1.7);
        close(noise.worked(2, 0.2, 0.4), 0.6);
        close(noise.worked(2, 1.1, 0.4), 1.9);
    }

    #[test]
    fn two_ranks_meet_when_neither_sleeps() {
        let noise = Noise::Periodic { rank: None, low_s: 0.0, high_s: 0.8, period_s: 1.0, seed: 3 };
        let mut again = 0;
        for tenth in 0..2000 {
            let at = f64::from(tenth) / 10.0;
            let meet = noise.both_awake(0, 1, at).expect("they meet");
            close(noise.awake(0, meet), meet);
            close(noise.awake(1, meet), meet);
            // No moment before it would do.
            let mut before = at;
            while before < meet - 1e-9 {
                assert!(noise.awake(0, before) > before || noise.awake(1, before) > before, "{before} of {meet}");
                before += 0.01;
            }
            again += usize::from(meet > noise.awake(0, at).max(noise.awake(1, at)));
        }
        assert!(again > 0, "none falls asleep while it waits");
    }

    #[test]
    fn ranks_that_sleep_in_turns_never_meet() {
        // For 0.9 of each second; a rank alone runs in the rest.
        let noise = |rank| Noise::Periodic { rank, low_s: 0.9, high_s: 0.9, period_s: 1.0, seed: 5 };
        assert!(noise(None).both_awake(0, 1, 0.0).is_none());
        assert!(noise(Some(0)).both_awake(0, 1, 0.0).is_some());
    }

    #[test]
    fn periodic_noise_takes_its_share_of_the_time() {
        let drawn = |seed| Noise::Periodic { rank: None, low_s: 0.0, high_s: 0.2, period_s: 1.0, seed };
        let (noise, other) = (drawn(5), drawn(6));
        for rank in 0..4 {
            let end = noise.worked(rank, 0.0, 900.0);
            assert!((990.0..1010.0).contains(&end), "900 s of work at 10 % noise took {end} s");
        }
        assert!((noise.worked(0, 0.0, 9.0) - noise.worked(1, 0.0, 9.0)).abs() > 1e-6, "ranks differ");
        assert!((noise.worked(0, 0.0, 9.0) - other.worked(0, 0.0, 9.0)).abs() > 1e-6, "seeds differ");
    }

    #[test]
    fn delays_are_those_that_are_simulated() {
        let noise = Noise::Periodic { rank: None, low_s: 0.1, high_s: 0.4, period_s: 1.0, seed: 7 };
        for (start, length) in noise.delays(3).skip(1).take(50) {
            close(noise.awake(3, start + length / 2.0), start + length);
            close(noise.awake(3, start + length + 1e-6), start + length + 1e-6);
        }
        let once = Noise::Once { rank: 2, start_s: 1.0, length_s: 0.5 };
        assert_eq!(once.delays(2).collect::<Vec<_>>(), [(1.0, 0.5)]);
        assert_eq!(once.delays(1).count() + Noise::None.delays(0).count(), 0);
    }

    #[test]
    fn impossible_noise_is_refused() {
        let once = |rank, length_s| Noise::Once { rank, start_s: 0.0, length_s };
        assert!(once(3, 1.0).check(4).is_ok());
        assert!(once(4, 1.0).check(4).is_err());
        assert!(once(0, f64::NAN).check(4).is_err());
        let periodic = |low_s, high_s| Noise::Periodic { rank: None, low_s, high_s, period_s: 1.0, seed: 0 };
        assert!(periodic(0.0, 0.9).check(1).is_ok());
        assert!(periodic(0.0, 1.0).check(1).is_err());
        assert!(periodic(0.5, 0.1).check(1).is_err());
    }
}

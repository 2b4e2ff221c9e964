//! The delays of `--noise`.

use net_fabric::transport::simulated::{Noise, Seconds};

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Spec {
    /// One rank, once; in the middle of the undisturbed operation if no time is given.
    Once { rank: usize, length_s: Seconds, start_s: Option<Seconds> },
    /// One rank, or all, in each period.
    Periodic { rank: Option<usize>, low_s: Seconds, high_s: Seconds, period_s: Seconds },
}

impl Spec {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut rank = None;
        let (mut length, mut start, mut range, mut hz) = (None, None, None, None);
        let mut keys = Vec::new();
        for item in text.split(',') {
            let (key, value) = item.split_once('=').ok_or_else(|| format!("`{item}` is no key=value; {USAGE}"))?;
            if keys.contains(&key) {
                return Err(format!("{key} comes twice; {USAGE}"));
            }
            keys.push(key);
            match key {
                "rank" => rank = Some(value.parse().map_err(|_| format!("`{value}` is no rank"))?),
                "ms" => length = Some(milliseconds(value)?),
                "at" => start = Some(milliseconds(value)?),
                "uniform" => {
                    let (low, high) =
                        value.split_once("..").ok_or_else(|| format!("`{value}` is no range; {USAGE}"))?;
                    range = Some((milliseconds(low)?, milliseconds(high)?));
                }
                "hz" => {
                    let rate = value.parse().ok().filter(|&rate: &f64| rate > 0.0 && rate <= MOST_HZ);
                    hz = Some(rate.ok_or_else(|| format!("`{value}` is no frequency above 0, up to {MOST_HZ} Hz"))?);
                }
                _ => return Err(format!("there is no `{key}`; {USAGE}")),
            }
        }
        match (rank, length, start, range, hz) {
            (Some(rank), Some(length_s), start_s, None, None) => Ok(Self::Once { rank, length_s, start_s }),
            (rank @ Some(_), Some(length), None, None, Some(hz)) => {
                Ok(Self::Periodic { rank, low_s: length, high_s: length, period_s: 1.0 / hz })
            }
            (rank, None, None, Some((low_s, high_s)), Some(hz)) => {
                Ok(Self::Periodic { rank, low_s, high_s, period_s: 1.0 / hz })
            }
            _ => Err(USAGE.to_owned()),
        }
    }

    /// The noise of an operation that would take `quiet_s` without it.
    pub(crate) fn noise(self, quiet_s: Seconds, seed: u64) -> Noise {
        match self {
            Self::Once { rank, length_s, start_s } => {
                Noise::Once { rank, length_s, start_s: start_s.unwrap_or(quiet_s / 2.0) }
            }
            Self::Periodic { rank, low_s, high_s, period_s } => Noise::Periodic { rank, low_s, high_s, period_s, seed },
        }
    }

    /// Whether one rank is delayed, once.
    pub(crate) fn is_once(self) -> bool {
        self.once_s().is_some()
    }

    /// How long that is.
    pub(crate) fn once_s(self) -> Option<Seconds> {
        if let Self::Once { length_s, .. } = self { Some(length_s) } else { None }
    }

    /// How many operations tell all that there is to tell.
    pub(crate) fn repeats(self, asked: u32) -> u32 {
        if matches!(self, Self::Once { .. }) { 1 } else { asked }
    }
}

const USAGE: &str =
    "give rank=R,ms=MS with at=MS or hz=HZ or neither, or uniform=LOW..HIGHms,hz=HZ with or without rank=R";

/// Delays that nobody waits for, and periods in which nothing is done, are mistakes.
const MOST_MS: f64 = 60_000.0;
/// See [`MOST_MS`].
const MOST_HZ: f64 = 1e6;

fn milliseconds(text: &str) -> Result<Seconds, String> {
    let value = text.trim_end_matches("ms").parse().ok().filter(|value: &f64| (0.0..=MOST_MS).contains(value));
    value.map(|value| value * 1e-3).ok_or_else(|| format!("`{text}` is no time of 0 to {MOST_MS} milliseconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_are_read() {
        assert_eq!(Spec::parse("rank=6,ms=1"), Ok(Spec::Once { rank: 6, length_s: 1e-3, start_s: None }));
        assert_eq!(
            Spec::parse("ms=1,rank=6,at=2.5"),
            Ok(Spec::Once { rank: 6, length_s: 1e-3, start_s: Some(2.5e-3) })
        );
        let periodic = |rank, low_s, high_s, period_s| Ok(Spec::Periodic { rank, low_s, high_s, period_s });
        assert_eq!(Spec::parse("rank=6,ms=1,hz=100"), periodic(Some(6), 1e-3, 1e-3, 0.01));
        assert_eq!(Spec::parse("uniform=0..10ms,hz=10"), periodic(None, 0.0, 1e-2, 0.1));
        assert_eq!(Spec::parse("uniform=0..10ms,hz=10,rank=1"), periodic(Some(1), 0.0, 1e-2, 0.1));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_form() {
        for text in [
            "",
            "rank=6",
            "rank=6,ms=1,rank=7",
            "ms=1",
            "uniform=0..10ms",
            "uniform=10,hz=1",
            "rank=6,ms=1,at=1,hz=1",
            "loud=1",
        ] {
            assert!(Spec::parse(text).is_err_and(|error| error.contains("rank=R,ms=MS")), "{text}");
        }
        for text in ["rank=-1,ms=1", "rank=1,ms=-1", "rank=1,ms=1,hz=0", "rank=1,ms=1e9", "rank=1,ms=0,hz=1e12"] {
            assert!(Spec::parse(text).is_err(), "{text}");
        }
    }
}

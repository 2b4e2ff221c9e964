//! The nodes of a job that runs over several, and what their network can do.

use std::cmp::max;
use std::fmt;
use std::str::FromStr;

use charts::as_f64;
use serde::{Deserialize, Serialize};

/// Nodes of a testbed (`benches/testbed`), joined by cables of one rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Network {
    /// How many nodes.
    pub nodes: usize,
    /// What each cable carries in each direction.
    pub rate: Rate,
}

/// Megabits in a second; none is no limit but what the machine can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate {
    megabits: Option<u32>,
}

impl Rate {
    /// As `tc` writes it.
    #[must_use]
    pub fn for_tc(self) -> Option<String> {
        self.megabits.map(|megabits| format!("{megabits}mbit"))
    }

    /// Microseconds in which a cable carries so many bytes in one direction.
    #[must_use]
    pub fn us(self, bytes: f64) -> Option<f64> {
        self.megabits.map(|megabits| bytes * 8.0 / f64::from(megabits))
    }
}

impl FromStr for Rate {
    type Err = String;

    /// `0` is no limit; otherwise a number and `gbit` or `mbit`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, factor) = match (text.strip_suffix("gbit"), text.strip_suffix("mbit")) {
            _ if text == "0" => return Ok(Self { megabits: None }),
            (Some(number), _) => (number, 1000),
            (_, Some(number)) => (number, 1),
            _ => ("", 1),
        };
        let megabits = number.parse().ok().and_then(|number: u32| number.checked_mul(factor));
        let megabits = megabits.filter(|&megabits| megabits > 0);
        let expected = || format!("`{text}` must be a rate like 10gbit or 500mbit, or 0 for no limit");
        Ok(Self { megabits: Some(megabits.ok_or_else(expected)?) })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.megabits {
            None => f.write_str("no limit"),
            Some(megabits) if megabits % 1000 == 0 => write!(f, "{} Gbit/s", megabits / 1000),
            Some(megabits) => write!(f, "{megabits} Mbit/s"),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} nodes, {}", self.nodes, self.rate)
    }
}

impl Network {
    /// The least time in microseconds that a collective of `bytes` keeps the busiest cable busy in one direction,
    /// where the rate is limited. For `n` nodes:
    ///
    /// - bcast: every node but the root's takes the message in: `bytes`;
    /// - reduce: every node but the root's gives its part of the result out: `bytes`;
    /// - allreduce: with every slice of the vector summed on one node, each of the `n` nodes gives the other slices
    ///   out, `(n-1)/n` of the vector, and its own sum once to each other: `2(n-1)/n` of `bytes`.
    #[must_use]
    pub fn bound_us(&self, coll: &str, bytes: usize) -> Option<f64> {
        let vector = as_f64(bytes);
        match coll {
            "bcast" | "reduce" => self.rate.us(vector),
            "allreduce" => self.rate.us(vector * 2.0 * as_f64(max(self.nodes, 1) - 1) / as_f64(max(self.nodes, 1))),
            _ => None,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// So many nodes at such a rate.
    pub(crate) fn network(nodes: usize, rate: &str) -> Network {
        Network { nodes, rate: rate.parse().expect("a rate") }
    }

    #[test]
    fn rates_are_read_shown_and_given_to_tc() {
        let shown = ["0", "10gbit", "250mbit"].map(|text| network(2, text).to_string());
        assert_eq!(shown, ["2 nodes, no limit", "2 nodes, 10 Gbit/s", "2 nodes, 250 Mbit/s"]);
        let for_tc = ["0", "10gbit", "250mbit"].map(|text| network(2, text).rate.for_tc());
        assert_eq!(for_tc, [None, Some("10000mbit".to_owned()), Some("250mbit".to_owned())]);
        for wrong in ["", "1", "gbit", "0gbit", "-1gbit", "1gb", "5000000gbit"] {
            assert!(wrong.parse::<Rate>().is_err_and(|error| error.contains("like 10gbit")), "{wrong}");
        }
        assert!(network(2, "0") < network(2, "1gbit") && network(2, "1gbit") < network(2, "10gbit"));
    }

    #[test]
    fn the_wire_bounds_what_is_limited() {
        let bound = |nodes, coll| network(nodes, "1gbit").bound_us(coll, 1_000_000);
        assert_eq!([bound(4, "bcast"), bound(4, "reduce")], [Some(8000.0), Some(8000.0)]);
        assert_eq!([bound(2, "allreduce"), bound(4, "allreduce")], [Some(8000.0), Some(12000.0)]);
        assert_eq!(bound(2, "barrier"), None);
        assert_eq!(network(2, "0").bound_us("bcast", 8), None);
    }
}

//! Names of collectives and algorithms, as command lines take them.

use std::fmt;
use std::str::FromStr;

use super::{Algorithm, Tree, Within};

/// Algorithms whose name says all.
const PLAIN: [(&str, Algorithm); 15] = [
    ("linear", Algorithm::Tree(Tree::Linear)),
    ("chain", Algorithm::Tree(Tree::Chain)),
    ("binary", Algorithm::Tree(Tree::Binary)),
    ("binomial", Algorithm::Tree(Tree::Binomial)),
    ("topology-linear", Algorithm::Tree(Tree::Topology(Within::Linear))),
    ("topology-chain", Algorithm::Tree(Tree::Topology(Within::Chain))),
    ("topology-binomial", Algorithm::Tree(Tree::Topology(Within::Binomial))),
    ("scatter-ring", Algorithm::ScatterRing),
    ("scatter-doubling", Algorithm::ScatterDoubling),
    ("recursive-doubling", Algorithm::RecursiveDoubling),
    ("smp", Algorithm::Smp),
    ("nap", Algorithm::Nap),
    ("ring", Algorithm::Ring),
    ("rabenseifner", Algorithm::Rabenseifner),
    ("dissemination", Algorithm::Dissemination),
];

/// Other names in the literature (*Heimlich*, sections 4.1 and 4.2): a minimum spanning tree has the rounds and the
/// lengths of a binomial one, and buckets go round a ring.
const SYNONYMS: [(&str, Algorithm); 2] = [("mst", Algorithm::Tree(Tree::Binomial)), ("bucket", Algorithm::Ring)];

const KNOMIAL: &str = "knomial-";
const LEADERS: &str = "leaders-";

impl Algorithm {
    /// All of them, of the k-nomial trees those for 4 and 8, and 2 and 4 leaders.
    pub fn all() -> impl Iterator<Item = Self> {
        let knomial = [4, 8].map(|k| Self::Tree(Tree::Knomial(k)));
        PLAIN.into_iter().map(|(_, algorithm)| algorithm).chain(knomial).chain([2, 4].map(Self::Leaders))
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self, PLAIN.iter().find(|(_, algorithm)| algorithm == self)) {
            (_, Some((name, _))) => f.pad(name),
            (Self::Tree(Tree::Knomial(k)), None) => f.pad(&format!("{KNOMIAL}{k}")),
            (Self::Leaders(count), None) => f.pad(&format!("{LEADERS}{count}")),
            (_, None) => unreachable!("each has a name"),
        }
    }
}

impl FromStr for Algorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some((_, algorithm)) = PLAIN.iter().chain(&SYNONYMS).find(|(name, _)| *name == text) {
            return Ok(*algorithm);
        }
        let number = |prefix, least| text.strip_prefix(prefix)?.parse().ok().filter(|&number: &u32| number >= least);
        let knomial = number(KNOMIAL, 2).map(|k| Self::Tree(Tree::Knomial(k)));
        knomial.or_else(|| number(LEADERS, 1).map(Self::Leaders)).ok_or_else(|| {
            let names = PLAIN.map(|(name, _)| name).join(", ");
            format!(
                "there is no algorithm `{text}`; there are {names}, {KNOMIAL}K with K from 2 on and {LEADERS}N with N \
                 from 1 on, and the names mst for binomial and bucket for ring"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for algorithm in Algorithm::all().chain([Algorithm::Tree(Tree::Knomial(17)), Algorithm::Leaders(1)]) {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        let named = |name: &str| name.parse::<Algorithm>().map(|algorithm| algorithm.to_string());
        assert_eq!((named("mst"), named("bucket")), (Ok("binomial".to_owned()), Ok("ring".to_owned())));
        for wrong in ["", "knomial-1", "knomial-", "leaders-0", "leaders-two", "Ring"] {
            assert!(wrong.parse::<Algorithm>().is_err_and(|reason| reason.contains("rabenseifner")), "{wrong}");
        }
    }
}

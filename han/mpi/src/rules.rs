//! What is passed on to the MPI library although it could be carried out here.
//!
//! A rule is a word such as `allreduce:ranks=2..4:bytes=..64:nodes=one:cores=own:mpi=openmpi`: a collective, or `all`, and
//! bounds, all of which must hold. [`MEASURED`] has those of the cases in which an MPI was measured to be faster;
//! `HAN_MPI_PASS` takes their place.

use std::env;
use std::fmt;
use std::ops::RangeInclusive;

use han::Collective;
use shm_core::settings::parse_bytes;

/// Where an MPI was measured to be faster than han: on 16 cores of an Intel Xeon, in one run of two, and in both where vectors are
/// written between calls (`benches/baselines`, `docs/never-worse.md`).
const MEASURED: &[&str] = &[
    "reduce:ranks=9..:bytes=262144..:nodes=one:cores=own:mpi=intel",
    "allreduce:ranks=9..:bytes=1048576..:nodes=one:cores=own:mpi=intel",
];

/// What calls come to that go on before a communicator is made here: about as many short ones save as much as it takes to
/// make one (`docs/never-worse.md`).
const AFTER: u64 = 1000;

/// What a call of so many bytes comes to: longer ones save more here, and less than in proportion, as the first ones of a new
/// communicator find its memory new.
pub(crate) fn weight(bytes: u64) -> u64 {
    1 + bytes.isqrt() / 10
}

/// Why a call goes on to the MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Why {
    /// Between two groups of ranks.
    Intercommunicator,
    /// Nobody to communicate with.
    OneRank,
    /// Some ranks are not in this program's `MPI_COMM_WORLD`.
    OtherWorld,
    /// The communicator has not had enough calls to be worth its start.
    Young,
    /// No shared memory or no network for this communicator.
    NoMemory,
    /// No data.
    Empty,
    /// Arguments that are no valid call: the MPI reports them.
    Arguments,
    /// A datatype that cannot be reduced here.
    Datatype,
    /// More bytes than the MPI can pack for a rank whose elements have gaps.
    Length,
    /// An operator that is not defined for the datatype here.
    Operator,
    /// The MPI is faster, as was measured, or the user says so.
    Rule,
    /// A function of an attribute calls it while its communicator is being freed.
    Ending,
    /// An operator of the program's, where another of its threads might have to apply it.
    Threads,
}

impl Why {
    /// All of them, with their words in the report.
    pub(crate) const ALL: [(Self, &'static str); 13] = [
        (Self::Intercommunicator, "intercommunicator"),
        (Self::OneRank, "one rank"),
        (Self::OtherWorld, "ranks of several worlds"),
        (Self::Young, "new communicator"),
        (Self::NoMemory, "no memory or network"),
        (Self::Empty, "no data"),
        (Self::Arguments, "arguments"),
        (Self::Datatype, "datatype"),
        (Self::Length, "length"),
        (Self::Operator, "operator"),
        (Self::Rule, "rule"),
        (Self::Ending, "communicator being freed"),
        (Self::Threads, "operator, and threads"),
    ];
}

/// What the user has set for this library alone, the same on all ranks.
#[derive(Debug)]
pub(crate) struct Rules {
    /// What calls of a communicator come to that are passed on before it is worth making one here; see [`weight`].
    pub(crate) after: u64,
    /// The user has set it.
    after_is_set: bool,
    /// A table of what was done is wanted at the end.
    pub(crate) report: bool,
    pass: Vec<String>,
    /// They are [`MEASURED`], not the user's.
    are_measured: bool,
    rules: Vec<Rule>,
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { after, report, pass, .. } = self;
        write!(f, "HAN_MPI_AFTER={after} HAN_MPI_PASS={} HAN_MPI_REPORT={}", pass.join(","), u8::from(*report))
    }
}

/// Calls that are passed on.
#[derive(Debug, PartialEq, Eq)]
struct Rule {
    /// All collectives, if none.
    collective: Option<Collective>,
    ranks: RangeInclusive<usize>,
    bytes: RangeInclusive<usize>,
    /// Any number of nodes, if none.
    several_nodes: Option<bool>,
    /// Any, if none; else of ranks on one node, which know it alike.
    own_cores: Option<bool>,
    /// Part of the MPI library's name in lower case; of any, if empty.
    mpi: String,
}

/// Ranks that communicate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) ranks: usize,
    pub(crate) several_nodes: bool,
    /// Every rank of this node has a core to itself.
    pub(crate) own_cores: bool,
}

/// By collective: lengths in bytes that are passed on.
pub(crate) type Passed = [Vec<RangeInclusive<usize>>; Collective::ALL.len()];

impl Rules {
    /// Reads `HAN_MPI_AFTER`, `HAN_MPI_PASS`, `HAN_MPI_REPORT` and `HAN_MPI`, and looks at `HAN_MPI_GPU`.
    pub(crate) fn from_environment() -> Result<Self, String> {
        let variable = |name: &str| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let rules = Self::read(variable("HAN_MPI_AFTER").as_deref(), variable("HAN_MPI_PASS").as_deref())?;
        let is_set = |name: &str| match variable(name).as_deref() {
            None | Some("" | "0") => Ok(false),
            Some("1") => Ok(true),
            Some(other) => Err(format!("{name}={other}: expected 0 or 1")),
        };
        let report = is_set("HAN_MPI_REPORT")?;
        // With `0` nobody comes here.
        is_set("HAN_MPI")?;
        match variable("HAN_MPI_GPU").as_deref() {
            None | Some("" | "0") => Ok(Self { report, ..rules }),
            Some(other) => Err(format!("HAN_MPI_GPU={other}: expected 0")),
        }
    }

    fn read(after: Option<&str>, pass: Option<&str>) -> Result<Self, String> {
        let after = after.map(|value| {
            value
                .parse()
                .map_err(|_| format!("HAN_MPI_AFTER={value}: expected a number of calls, for instance {AFTER}"))
        });
        let are_measured = pass.is_none();
        let words: Vec<&str> = pass.map_or(MEASURED.to_vec(), |words| words.split(',').map(str::trim).collect());
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let rules = words.iter().map(|word| Rule::parse(word)).collect::<Result<_, _>>()?;
        let pass = words.into_iter().map(str::to_owned).collect();
        let after_is_set = after.is_some();
        Ok(Self { after: after.unwrap_or(Ok(AFTER))?, after_is_set, report: false, pass, are_measured, rules })
    }

    /// Without what was measured to be faster elsewhere, unless the user has set it: the MPI does not fold in rank order.
    pub(crate) fn reproducible(mut self) -> Self {
        if !self.after_is_set {
            self.after = 0;
        }
        if self.are_measured {
            self.rules.clear();
        }
        self
    }

    /// What is passed on of a communicator's calls; `mpi` is the library's name.
    pub(crate) fn of(&self, group: Group, mpi: &str) -> Passed {
        let holds = |rule: &&Rule| {
            rule.ranks.contains(&group.ranks)
                && rule.several_nodes.is_none_or(|several| several == group.several_nodes)
                && rule.own_cores.is_none_or(|own| own == group.own_cores && !group.several_nodes)
                && mpi.to_lowercase().replace(' ', "").contains(&rule.mpi)
        };
        let rules: Vec<&Rule> = self.rules.iter().filter(holds).collect();
        Collective::ALL.map(|collective| {
            let of_it = rules.iter().filter(|rule| rule.collective.is_none_or(|only| only == collective));
            of_it.map(|rule| rule.bytes.clone()).collect()
        })
    }
}

impl Rule {
    fn parse(word: &str) -> Result<Self, String> {
        let bad = |part: &str, valid: &str| format!("HAN_MPI_PASS: {word}: {part:?} is not {valid}");
        let names = || Collective::ALL.map(Collective::name).join(", ");
        let mut parts = word.split(':');
        let name = parts.next().unwrap_or_default();
        let collective = Collective::from_name(name);
        if collective.is_none() && name != "all" {
            return Err(bad(name, &format!("a collective: all, {}", names())));
        }
        let mut rule = Self {
            collective,
            ranks: 0..=usize::MAX,
            bytes: 0..=usize::MAX,
            several_nodes: None,
            own_cores: None,
            mpi: String::new(),
        };
        for part in parts {
            match part.split_once('=') {
                Some(("ranks", value)) => rule.ranks = range(value, number).ok_or_else(|| bad(part, RANGES))?,
                Some(("bytes", value)) => rule.bytes = range(value, bytes).ok_or_else(|| bad(part, SIZES))?,
                Some(("nodes", "one")) => rule.several_nodes = Some(false),
                Some(("nodes", "several")) => rule.several_nodes = Some(true),
                Some(("cores", "own")) => rule.own_cores = Some(true),
                Some(("cores", "shared")) => rule.own_cores = Some(false),
                Some(("mpi", value)) => rule.mpi = value.to_lowercase(),
                _ => return Err(bad(part, BOUNDS)),
            }
        }
        Ok(rule)
    }
}

const BOUNDS: &str = "ranks=2..4, bytes=..64, nodes=one, nodes=several, cores=own, cores=shared or mpi=NAME";
const RANGES: &str = "a number or a range such as 2..4, ..64 or 16..";
const SIZES: &str = "a number of bytes or a range such as 64, ..4K or 1M..";

/// `7`, `2..4` (both included), `..4` or `2..`, of what `read` reads.
fn range(text: &str, read: fn(&str) -> Option<usize>) -> Option<RangeInclusive<usize>> {
    let Some((first, last)) = text.split_once("..") else {
        let only = read(text)?;
        return Some(only..=only);
    };
    let bound = |text: &str, open: usize| if text.is_empty() { Some(open) } else { read(text) };
    let range = bound(first, 0)?..=bound(last, usize::MAX)?;
    (!range.is_empty()).then_some(range)
}

fn number(text: &str) -> Option<usize> {
    text.parse().ok()
}

/// With K, M and G as everywhere.
fn bytes(text: &str) -> Option<usize> {
    parse_bytes(text).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_holds_where_it_was() {
        let rules = Rules::read(None, None).unwrap();
        let there = Group { ranks: 16, several_nodes: false, own_cores: true };
        let intel = "Intel(R) MPI Library 2021.19 for Linux* OS";
        let passed = [vec![], vec![], vec![1 << 18..=usize::MAX], vec![1 << 20..=usize::MAX]];
        assert_eq!(rules.of(there, intel), passed);
        assert_eq!(rules.of(there, "Open MPI v5.0.11"), Passed::default());
        assert_eq!(Rules::read(None, None).unwrap().reproducible().of(there, intel), Passed::default());
        let own = Rules::read(None, Some("barrier")).unwrap().reproducible();
        assert_eq!(own.of(there, intel)[0], [0..=usize::MAX], "the user's own rules hold");
        for elsewhere in
            [Group { ranks: 8, ..there }, Group { own_cores: false, ..there }, Group { several_nodes: true, ..there }]
        {
            assert_eq!(rules.of(elsewhere, intel), Passed::default());
        }
    }

    #[test]
    fn reproducible_results_come_from_the_first_call_on() {
        let after = |user| Rules::read(user, None).unwrap().reproducible().after;
        assert_eq!([None, Some("7")].map(after), [0, 7]);
    }

    #[test]
    fn longer_calls_count_for_more() {
        assert_eq!([0, 8, 99, 100, 4096, 1 << 20].map(weight), [1, 1, 1, 2, 7, 103]);
        assert!(weight(u64::MAX) < u64::MAX);
    }

    #[test]
    fn rules_hold_where_all_their_bounds_do() {
        let text = "allreduce:ranks=2..4:bytes=..64:nodes=several:mpi=openmpi, all:bytes=1000..,barrier:ranks=8";
        let rules = Rules::read(Some("7"), Some(text)).unwrap();
        assert_eq!(rules.after, 7);
        let all = 1000..=usize::MAX;
        let found = |ranks, several_nodes, mpi| rules.of(Group { ranks, several_nodes, own_cores: false }, mpi);
        assert_eq!(found(3, true, "Open MPI v5.0.11")[3], [0..=64, all.clone()]);
        for other in [found(5, true, "Open MPI"), found(3, false, "Open MPI"), found(3, true, "MPICH")] {
            assert_eq!(other, [const { Vec::new() }; 4].map(|_: Vec<()>| vec![all.clone()]));
        }
        assert_eq!(found(8, false, "MPICH")[0], [all, 0..=usize::MAX]);
        let two = Group { ranks: 2, several_nodes: false, own_cores: true };
        assert_eq!(Rules::read(None, Some("")).unwrap().of(two, "MPICH"), Passed::default());
        let shared = Rules::read(None, Some("barrier:cores=shared")).unwrap();
        assert_eq!(shared.of(two, "MPICH"), Passed::default());
        assert_eq!(shared.of(Group { own_cores: false, ..two }, "MPICH")[0], [0..=usize::MAX]);
    }

    #[test]
    fn sizes_take_k_m_and_g() {
        let rules = Rules::read(None, Some("bcast:bytes=..64K,reduce:bytes=1M..2M,allreduce:bytes=1G")).unwrap();
        let bytes: Vec<_> = rules.rules.into_iter().map(|rule| rule.bytes).collect();
        assert_eq!(bytes, [0..=64 << 10, 1 << 20..=2 << 20, 1 << 30..=1 << 30]);
    }

    #[test]
    fn mistakes_are_answered_with_what_is_valid() {
        for (text, expected) in [
            ("scan", "all, barrier, bcast, reduce, allreduce"),
            ("bcast:bytes=a", "1M.."),
            ("bcast:bytes=9..3", "1M.."),
            ("bcast:ranks=4K", "2..4"),
            ("bcast:ranks", "ranks=2..4"),
            ("bcast:nodes=2", "nodes=one"),
            ("bcast:cores=2", "cores=own"),
        ] {
            let error = Rules::read(None, Some(text)).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(Rules::read(Some("few"), None).unwrap_err().contains("HAN_MPI_AFTER=few"));
    }
}

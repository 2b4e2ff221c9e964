//! What can be set of collectives over several nodes (dissertation, table 6.2).

use std::fmt;

use net_fabric::Policy;
use net_fabric::algorithm::Algorithm;
use reduce_kernels::Collective;
use shm_core::settings::parse_bytes;

use super::NodesForm;

/// What can be set of it; what is `None` is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Inter {
    /// The algorithm of every collective that it can carry out.
    pub algorithm: Option<Algorithm>,
    /// That of bcast, reduce and allreduce alone.
    pub algorithms: [Option<Algorithm>; 3],
    /// Bytes of a chunk.
    pub chunk_bytes: Option<usize>,
    /// That of bcast, reduce and allreduce alone.
    pub chunks_bytes: [Option<usize>; 3],
    /// In which order steps are begun.
    pub policy: Option<Policy>,
    /// Whether both levels are used.
    pub form: Option<NodesForm>,
    /// Bytes of a chunk that goes through both levels.
    pub segment_bytes: Option<usize>,
    /// Ranks of a node that lead, each a slice of every chunk.
    pub leaders: Option<usize>,
    /// An allreduce across nodes is a reduction and a broadcast.
    pub splits: bool,
    /// Megabits a second that the slowest node's wire carries, whatever the systems say.
    pub wire_mbit_s: Option<usize>,
}

/// Name and meaning of every setting that [`Inter::set`] takes.
pub const KEYS: &[(&str, &str)] = &[
    (
        "inter_algorithm",
        "algorithm of collectives over several nodes where it does them: auto, or a name of `han model`",
    ),
    (
        "inter_bcast_algorithm",
        "that of broadcasts alone (ibalg), those of ir+ib among them: auto, or as inter_algorithm",
    ),
    (
        "inter_reduce_algorithm",
        "that of reductions to a root alone (iralg), those of ir+ib among them: auto, or as inter_algorithm",
    ),
    (
        "inter_allreduce_algorithm",
        "that of allreduces alone: auto, as inter_algorithm, or ir+ib, a reduction and a broadcast between leaders",
    ),
    ("inter_chunk_bytes", "bytes of a piece that is sent on before the next has come: auto or a number from 64 on"),
    ("inter_bcast_chunk_bytes", "the same of broadcasts alone (ibs), those of ir+ib among them"),
    ("inter_reduce_chunk_bytes", "the same of reductions to a root alone (irs), those of ir+ib among them"),
    ("inter_allreduce_chunk_bytes", "the same of allreduces alone that are not ir+ib"),
    ("inter_policy", "order of messages: auto, blocking, wait_all or event_driven"),
    ("inter_module", "the same by the names of the papers (imod): auto, nbc (wait_all) or adapt (event_driven)"),
    ("nodes_form", "how ranks on several nodes work together: auto, flat (all by the network) or hierarchical"),
    ("segment_bytes", "bytes of a chunk that goes through both levels (fs): auto or a number from 64 on"),
    ("leaders", "ranks of a node that lead, each a slice of every chunk: auto or a number from 1 on"),
    (
        "wire_mbit_s",
        "megabits a second that the slowest wire carries, whatever the systems say: auto or a number from 1 on",
    ),
];

/// Smallest chunk: less than this travels in a packet's head.
pub const LEAST_CHUNK_BYTES: usize = 64;

/// Names of the policies in settings.
pub const POLICIES: [(&str, Policy); 3] =
    [("blocking", Policy::Blocking), ("wait_all", Policy::WaitAll), ("event_driven", Policy::EVENT_DRIVEN)];

/// Names of policies in the papers.
const MODULES: [(&str, Policy); 2] = [("nbc", Policy::WaitAll), ("adapt", Policy::EVENT_DRIVEN)];

/// What stands for a reduction and a broadcast.
const IR_IB: &str = "ir+ib";

/// The place of a collective among those that have settings of their own.
fn place(collective: Collective) -> Option<usize> {
    match collective {
        Collective::Barrier => None,
        Collective::Bcast => Some(0),
        Collective::Reduce => Some(1),
        Collective::Allreduce => Some(2),
    }
}

/// The collective that a key such as `inter_bcast_algorithm` is of, and the key without it.
fn of_collective(key: &str) -> Option<(usize, &str)> {
    let (name, rest) = key.strip_prefix("inter_")?.split_once('_')?;
    let found = Collective::ALL.into_iter().find(|collective| collective.name() == name)?;
    Some((place(found)?, rest))
}

impl Inter {
    /// The algorithm that is set for a collective.
    #[must_use]
    pub fn algorithm_of(&self, collective: Collective) -> Option<Algorithm> {
        place(collective).and_then(|place| self.algorithms[place]).or(self.algorithm)
    }

    /// The bytes of a chunk that are set for a collective.
    #[must_use]
    pub fn chunk_bytes_of(&self, collective: Collective) -> Option<usize> {
        place(collective).and_then(|place| self.chunks_bytes[place]).or(self.chunk_bytes)
    }

    /// What is set for `collective` of what `key` sets, by its own key or by that of all, as [`set`](Self::set) would take it.
    pub(super) fn set_for(&self, key: &str, collective: Collective) -> Option<String> {
        if key.ends_with("_algorithm") {
            let splits = self.splits && collective == Collective::Allreduce;
            return if splits {
                Some(IR_IB.to_owned())
            } else {
                self.algorithm_of(collective).map(|set| set.to_string())
            };
        }
        if key.ends_with("_chunk_bytes") {
            return self.chunk_bytes_of(collective).map(|bytes| bytes.to_string());
        }
        self.get(key).filter(|value| value != "auto")
    }

    /// The key that decides what `key`, of all collectives, sets for `collective`: its own one, if that is set.
    pub(super) fn key_for(&self, key: &'static str, collective: Collective) -> &'static str {
        let (place, rest) = (place(collective), key.strip_prefix("inter_"));
        let is_own = |own: &str| of_collective(own).is_some_and(|(of, what)| (Some(of), Some(what)) == (place, rest));
        let is_set = |own: &str| self.get(own).is_some_and(|value| value != "auto");
        KEYS.iter().map(|(own, _)| *own).find(|own| is_own(own) && is_set(own)).unwrap_or(key)
    }

    /// A key that sets something for `collective` where `measured` says something else, with its value.
    pub(super) fn contradicts(&self, measured: &Self, collective: Collective) -> Option<(&'static str, String)> {
        let of: &[Collective] = match collective {
            Collective::Allreduce if self.splits || measured.splits => {
                &[collective, Collective::Reduce, Collective::Bcast]
            }
            _ => &[collective],
        };
        let keys = KEYS.iter().map(|(key, _)| *key).filter(|key| of_collective(key).is_none());
        keys.flat_map(|key| of.iter().map(move |&of| (key, of))).find_map(|(key, of)| {
            let value = self.set_for(key, of)?;
            let differs = measured.set_for(key, of).is_some_and(|measured| measured != value);
            differs.then(|| (self.key_for(key, of), value))
        })
    }

    /// Megabits a second that the slowest wire carries, where `told` is what the systems say.
    pub(super) fn wire_mbit_s(&self, told: Option<u64>) -> Option<u64> {
        self.wire_mbit_s.map(|set| set as u64).or(told)
    }

    /// What `others` set, and where they set nothing what these do.
    #[must_use]
    pub fn with(mut self, others: &Self) -> Self {
        for (key, value) in others.assignments() {
            let taken = self.set(key, &value);
            debug_assert!(taken.is_ok(), "{taken:?}");
        }
        self
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// A sentence with the values that the key takes, or with the keys.
    pub fn set(&mut self, key: &str, value: &str) -> std::result::Result<(), String> {
        match (key, of_collective(key)) {
            ("inter_allreduce_algorithm", Some((place, _))) => {
                self.splits = value == IR_IB;
                self.algorithms[place] = if self.splits { None } else { algorithm(key, value)? };
            }
            (_, Some((place, "algorithm"))) => self.algorithms[place] = algorithm(key, value)?,
            (_, Some((place, "chunk_bytes"))) => self.chunks_bytes[place] = number(key, value, LEAST_CHUNK_BYTES)?,
            ("inter_algorithm", _) => self.algorithm = algorithm(key, value)?,
            ("inter_chunk_bytes", _) => self.chunk_bytes = number(key, value, LEAST_CHUNK_BYTES)?,
            ("inter_policy", _) => self.policy = named(key, value, &POLICIES)?,
            ("inter_module", _) => self.policy = named(key, value, &MODULES)?,
            ("nodes_form", _) => self.form = named(key, value, &NodesForm::NAMES)?,
            ("segment_bytes", _) => self.segment_bytes = number(key, value, LEAST_CHUNK_BYTES)?,
            ("leaders", _) => self.leaders = number(key, value, 1)?,
            ("wire_mbit_s", _) => self.wire_mbit_s = number(key, value, 1)?,
            _ => {
                let keys: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
                return Err(format!("unknown key {key:?}: valid keys are {}", keys.join(", ")));
            }
        }
        Ok(())
    }

    /// Checks what choices rely on, since fields can be set directly: each value is one that [`set`](Self::set) takes.
    ///
    /// # Errors
    /// A sentence with the values that the key takes.
    pub fn validate(&self) -> std::result::Result<(), String> {
        let mut taken = *self;
        KEYS.iter().try_for_each(|(key, _)| taken.set(key, &self.get(key).unwrap_or_default()))
    }

    /// Refuses a `key` that says nothing of `collective`: one of another, or an algorithm that does not do it.
    ///
    /// # Errors
    /// A sentence with what would.
    pub(crate) fn check_for(&self, collective: Collective, key: &str) -> std::result::Result<(), String> {
        // Those whose settings matter.
        let parts: &[Collective] = match collective {
            Collective::Allreduce if self.splits => &[Collective::Allreduce, Collective::Reduce, Collective::Bcast],
            _ => &[collective],
        };
        let own = of_collective(key).map(|(own, _)| own);
        let about: Vec<Collective> =
            parts.iter().copied().filter(|&part| own.is_none() || own == place(part)).collect();
        let name = collective.name();
        if about.is_empty() {
            return Err(format!("{key} says nothing of {name}: expected keys of {name}, or of all collectives"));
        }
        let set = match (own, key) {
            (Some(own), _) if key.ends_with("_algorithm") => self.algorithms[own],
            (_, "inter_algorithm") => self.algorithm,
            _ => None,
        };
        let does = |algorithm: Algorithm| about.iter().any(|&part| algorithm.is_for(part));
        match set.filter(|&set| !does(set)) {
            Some(set) => {
                let fitting: Vec<String> =
                    Algorithm::all().filter(|&known| does(known)).map(|known| known.to_string()).collect();
                Err(format!("{key}={set} does no {}: expected auto, {}", about[0].name(), fitting.join(", ")))
            }
            None => Ok(()),
        }
    }

    /// The value of `key` as [`set`](Self::set) would take it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<String> {
        fn auto(value: Option<impl ToString>) -> String {
            value.map_or_else(|| "auto".to_owned(), |value| value.to_string())
        }
        Some(match (key, of_collective(key)) {
            ("inter_allreduce_algorithm", _) if self.splits => IR_IB.to_owned(),
            (_, Some((place, "algorithm"))) => auto(self.algorithms[place]),
            (_, Some((place, "chunk_bytes"))) => auto(self.chunks_bytes[place]),
            ("inter_algorithm", _) => auto(self.algorithm),
            ("inter_chunk_bytes", _) => auto(self.chunk_bytes),
            ("inter_policy", _) => auto(self.policy.map(policy_name)),
            ("inter_module", _) => {
                auto(MODULES.iter().find(|(_, policy)| Some(*policy) == self.policy).map(|(name, _)| name))
            }
            ("nodes_form", _) => auto(self.form),
            ("segment_bytes", _) => auto(self.segment_bytes),
            ("leaders", _) => auto(self.leaders),
            ("wire_mbit_s", _) => auto(self.wire_mbit_s),
            _ => return None,
        })
    }
}

impl Inter {
    /// The keys that are set, and to what; of several keys for the same the first.
    pub fn assignments(&self) -> impl Iterator<Item = (&'static str, String)> {
        let mut known = Self::default();
        let values = KEYS.iter().map(|(key, _)| (*key, self.get(key).unwrap_or_default()));
        values.filter(move |(key, value)| {
            let is_news = known.get(key).as_ref() != Some(value);
            is_news && known.set(key, value).is_ok()
        })
    }

    /// What is set as `HAN_SET` takes it, or `auto` if there is nothing.
    #[must_use]
    pub fn to_text(&self) -> String {
        let pairs: Vec<String> = self.assignments().map(|(key, value)| format!("{key}={value}")).collect();
        if pairs.is_empty() { "auto".to_owned() } else { pairs.join(",") }
    }
}

/// Whether configurations that are searched differ in `key`.
#[must_use]
pub fn is_searched(key: &str) -> bool {
    KEYS.iter().any(|(known, _)| *known == key) && key != "wire_mbit_s"
}

impl fmt::Display for Inter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (key, _)) in KEYS.iter().enumerate() {
            let space = if place == 0 { "" } else { " " };
            write!(f, "{space}{key}={}", self.get(key).unwrap_or_default())?;
        }
        Ok(())
    }
}

fn algorithm(key: &str, value: &str) -> Result<Option<Algorithm>, String> {
    if value == "auto" {
        return Ok(None);
    }
    let of_allreduce = if key.contains("allreduce") { format!(" {IR_IB},") } else { String::new() };
    value.parse().map(Some).map_err(|e| format!("{key}={value}: expected auto,{of_allreduce} or an algorithm: {e}"))
}

/// A number from `least` on, of bytes also with K, M or G, or `auto`.
fn number(key: &str, value: &str, least: usize) -> Result<Option<usize>, String> {
    if value == "auto" {
        return Ok(None);
    }
    let number = if key.ends_with("_bytes") { parse_bytes(value).ok() } else { value.parse().ok() };
    let number = number.filter(|&number| number >= least);
    number.map(Some).ok_or_else(|| format!("{key}={value}: expected auto, or a whole number of at least {least}"))
}

/// One of `names`, or `auto`.
fn named<T: Copy>(key: &str, value: &str, names: &[(&str, T)]) -> Result<Option<T>, String> {
    if value == "auto" {
        return Ok(None);
    }
    let found = names.iter().find(|(name, _)| *name == value).map(|(_, meaning)| *meaning);
    let all: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    found.map(Some).ok_or_else(|| format!("{key}={value}: expected auto, {}", all.join(", ")))
}

/// What the papers call the module of a policy, or its own name.
pub(crate) fn module_name(policy: Policy) -> &'static str {
    name_among(&MODULES, policy).unwrap_or_else(|| policy_name(policy))
}

pub(super) fn policy_name(policy: Policy) -> &'static str {
    name_among(&POLICIES, policy).unwrap_or_default()
}

/// However many messages are under way at once.
fn name_among(names: &[(&'static str, Policy)], policy: Policy) -> Option<&'static str> {
    let is_same = |known: &Policy| std::mem::discriminant(known) == std::mem::discriminant(&policy);
    names.iter().find(|(_, known)| is_same(known)).map(|(name, _)| *name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use net_fabric::algorithm::Tree;

    use super::*;

    #[test]
    fn a_collective_s_own_setting_goes_before_that_of_all() {
        let mut inter = Inter::default();
        inter.set("inter_algorithm", "ring").unwrap();
        inter.set("inter_bcast_algorithm", "binomial").unwrap();
        inter.set("inter_reduce_chunk_bytes", "4096").unwrap();
        assert_eq!(inter.algorithm_of(Collective::Bcast), Some(Algorithm::Tree(Tree::Binomial)));
        assert_eq!(inter.algorithm_of(Collective::Allreduce), Some(Algorithm::Ring));
        assert_eq!([Collective::Reduce, Collective::Bcast].map(|of| inter.chunk_bytes_of(of)), [Some(4096), None]);
    }

    #[test]
    fn the_key_in_force_is_the_collective_s_own_if_that_is_set() {
        let mut inter = Inter::default();
        let keys =
            |inter: &Inter| [Collective::Bcast, Collective::Reduce].map(|of| inter.key_for("inter_algorithm", of));
        assert_eq!(keys(&inter), ["inter_algorithm"; 2]);
        inter.set("inter_algorithm", "binary").unwrap();
        assert_eq!(keys(&inter), ["inter_algorithm"; 2]);
        inter.set("inter_bcast_algorithm", "chain").unwrap();
        assert_eq!(keys(&inter), ["inter_bcast_algorithm", "inter_algorithm"]);
        inter.set("inter_bcast_chunk_bytes", "64").unwrap();
        let chunk_key = |of| inter.key_for("inter_chunk_bytes", of);
        assert_eq!(
            [Collective::Bcast, Collective::Barrier].map(chunk_key),
            ["inter_bcast_chunk_bytes", "inter_chunk_bytes"]
        );
        assert_eq!(inter.key_for("leaders", Collective::Bcast), "leaders");
    }

    #[test]
    fn what_others_leave_open_stays() {
        let settings = |pairs: &[(&str, &str)]| {
            let mut inter = Inter::default();
            pairs.iter().for_each(|(key, value)| inter.set(key, value).unwrap());
            inter
        };
        let own = settings(&[("wire_mbit_s", "1000"), ("inter_policy", "wait_all")]);
        let others = settings(&[("inter_policy", "event_driven"), ("leaders", "2")]);
        let both = settings(&[("wire_mbit_s", "1000"), ("inter_policy", "event_driven"), ("leaders", "2")]);
        assert_eq!((own.with(&others), own.with(&Inter::default())), (both, own));
    }

    #[test]
    fn fields_have_the_limits_of_their_keys() {
        let wrong = |change: &dyn Fn(&mut Inter)| {
            let mut inter = Inter::default();
            change(&mut inter);
            inter.validate().unwrap_err()
        };
        for (error, key) in [
            (wrong(&|inter| inter.leaders = Some(0)), "leaders=0: "),
            (wrong(&|inter| inter.segment_bytes = Some(63)), "segment_bytes=63: "),
            (wrong(&|inter| inter.chunk_bytes = Some(0)), "inter_chunk_bytes=0: "),
            (wrong(&|inter| inter.chunks_bytes[1] = Some(0)), "inter_reduce_chunk_bytes=0: "),
            (wrong(&|inter| inter.wire_mbit_s = Some(0)), "wire_mbit_s=0: "),
            (wrong(&|inter| inter.algorithms[0] = Some(Algorithm::Leaders(0))), "inter_bcast_algorithm=leaders-0: "),
        ] {
            assert!(error.starts_with(key), "{error}");
        }
        for (policy, splits) in [(None, true), (Some(Policy::Blocking), false), (Some(Policy::EVENT_DRIVEN), true)] {
            let form = Some(NodesForm::Flat);
            let inter = Inter { policy, splits, form, leaders: Some(1), segment_bytes: Some(64), ..Inter::default() };
            assert_eq!(inter.validate(), Ok(()));
        }
    }

    #[test]
    fn modules_are_policies_and_ir_ib_is_no_algorithm() {
        let mut inter = Inter::default();
        inter.set("inter_module", "nbc").unwrap();
        assert_eq!((inter.policy, inter.get("inter_policy").unwrap().as_str()), (Some(Policy::WaitAll), "wait_all"));
        inter.set("inter_allreduce_algorithm", "ir+ib").unwrap();
        assert!(inter.splits && inter.get("inter_allreduce_algorithm").unwrap() == "ir+ib");
        inter.set("inter_allreduce_algorithm", "ring").unwrap();
        assert!(!inter.splits && inter.algorithm_of(Collective::Allreduce) == Some(Algorithm::Ring));
        for (key, value, says) in [
            ("inter_module", "wait_all", "nbc, adapt"),
            ("inter_allreduce_algorithm", "bubble", "ir+ib"),
            ("nodes_form", "round", "flat, hierarchical"),
            ("leaders", "0", "at least 1"),
        ] {
            let error = inter.set(key, value).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}

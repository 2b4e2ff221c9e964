//! Everything about the engine that can be set. Read once.

use std::fmt;

use crate::coll::choice::{Form, MOST_SET_BYTES};
use crate::copy::MethodSet;
use crate::segment::Backing;
use crate::topo::Topology;

/// The settings of the intra-node engine.
///
/// What has a key, and `reproducible`, must agree on all ranks, as it decides how a collective runs; start-up checks that. The
/// rest is a rank's own.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// The only kind of segment to try; `None` tries memfd, then `/dev/shm`.
    pub backing: Option<Backing>,
    /// Ways in which a peer's memory may be reached.
    pub methods: MethodSet,
    /// The form of every collective that it can carry, others taking the next that can; `None` chooses.
    pub form: Option<Form>,
    /// Largest pipelined piece of a message; `None` chooses by its length.
    pub chunk_bytes: Option<usize>,
    /// Reductions of vectors of more than a cell are shared out by slices from this length on; `None` takes
    /// what was measured.
    pub slice_min_bytes: Option<usize>,
    /// When a collective works on the ranks' own buffers in place of cells.
    pub single_copy: Single,
    /// Smaller vectors always go through cells; `None` takes what was measured.
    pub single_copy_min_bytes: Option<usize>,
    /// Longest vector of an allreduce of which each rank writes its slice's result to all ranks' vectors, if these are
    /// mapped; `None` takes what was measured.
    pub for_all_max_bytes: Option<usize>,
    /// Whether payloads enter cells by non-temporal stores; `None` times ordinary ones now and then. `Some(true)` also for peers'
    /// mapped vectors, which else pass the caches only where these do not hold all vectors.
    pub past_caches: Option<bool>,
    /// Whether long payloads enter cells and peers' mapped vectors, and in bcasts leave cells, by the processor's string instruction;
    /// `None` compares it with vector copies now and then.
    pub string_stores: Option<bool>,
    /// Size of the last cache, past which results of larger vectors are stored; `None` asks the machine.
    pub last_cache_bytes: Option<usize>,
    /// From this many ranks on, small messages travel along trees, if every rank has a core; `None` takes 32, or
    /// 16 where the machine has several levels.
    pub tree_min_ranks: Option<usize>,
    /// The result must not depend on the algorithm: no partial sums in trees.
    pub reproducible: bool,
    /// Whether every rank has a core to itself; `None` finds out.
    pub assume_own_cores: Option<bool>,
    /// Polls before the core is first given away; `None` chooses from ranks and cores.
    pub spins: Option<u32>,
    /// Times that the core is given away before sleeping; `None` chooses.
    pub yields: Option<u32>,
    /// Longest single sleep in microseconds, for tests: with a long one a lost wake-up shows. `None` takes a short one.
    pub sleep_us: Option<u32>,
    /// After this many seconds of waiting, say who is missing; 0 is never.
    pub watchdog_s: f64,
    /// After this many seconds of waiting, end the job with an error; 0 is never.
    pub timeout_s: f64,
    /// Something else depends on what this rank does while it waits, so it looks up soon and does not sleep for long.
    pub attentive: bool,
    /// Processes that may run on this rank's cores and are no strangers, beside those of this node's ranks.
    pub neighbours: Vec<u32>,
    /// A synthetic description of the machine to use in place of this one's, for tests: ranks are
    /// taken to be bound to one core of it after the other.
    pub topology: Option<String>,
}

/// When a collective works on the ranks' own buffers in place of cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Single {
    /// On those that peers have mapped, and on others where ranks have a core each and trials say that it is faster.
    Auto,
    /// On those that peers have mapped.
    IfShared,
    /// On all of them, copied by the kernel where they are not mapped.
    ByKernel,
    /// On none.
    Never,
}

impl Single {
    const ALL: [Self; 4] = [Self::Auto, Self::IfShared, Self::ByKernel, Self::Never];
    /// Those that are modules of the papers.
    const MODULES: [Self; 3] = [Self::Auto, Self::ByKernel, Self::Never];

    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::IfShared => "if_shared",
            Self::ByKernel => "by_kernel",
            Self::Never => "never",
        }
    }

    /// The name of the module that works so.
    const fn module(self) -> &'static str {
        match self {
            Self::Auto | Self::IfShared => "auto",
            Self::ByKernel => "solo",
            Self::Never => "sm",
        }
    }

    fn of_module(value: &str) -> Result<Self, String> {
        let found = Self::MODULES.into_iter().find(|single| single.module() == value);
        found.ok_or_else(|| format!("intra_module={value}: expected {}", Self::MODULES.map(Self::module).join(", ")))
    }

    fn parse(value: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|single| single.name() == value);
        found.ok_or_else(|| format!("single_copy={value}: expected {}", Self::ALL.map(Self::name).join(", ")))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            backing: None,
            methods: MethodSet::default(),
            form: None,
            chunk_bytes: None,
            slice_min_bytes: None,
            single_copy: Single::Auto,
            single_copy_min_bytes: None,
            for_all_max_bytes: None,
            past_caches: None,
            string_stores: None,
            last_cache_bytes: None,
            tree_min_ranks: None,
            reproducible: false,
            assume_own_cores: None,
            spins: None,
            yields: None,
            sleep_us: None,
            watchdog_s: 30.0,
            timeout_s: 0.0,
            attentive: false,
            neighbours: Vec::new(),
            topology: None,
        }
    }
}

/// More polls than this without a look at the job would hide a death for too long.
const MAX_SPINS: u32 = 1_000_000;

/// Name and meaning of every setting that [`Settings::set`] takes.
pub const KEYS: &[(&str, &str)] = &[
    ("backing", "kind of shared memory: auto, memfd, dev_shm"),
    ("methods", "(or method) how peers' memory may be reached: shared, cma, cico, joined by +; cico is always there"),
    (
        "form",
        "how collectives are carried out where the form can carry them: auto, flat, tree, direct, slice, ring, chain, joint",
    ),
    ("chunk_bytes", "largest pipelined piece of a message: auto, or a power of two from 4096 to 131072"),
    ("slice_min_bytes", "from this size on, reductions are shared out by slices: auto (as measured) or a number"),
    (
        "single_copy",
        "when ranks work on each other's own buffers: auto (where it proves faster), if_shared, by_kernel (always, by cma) or never",
    ),
    ("intra_module", "the same by the names of the papers (smod): auto, sm (never) or solo (by_kernel)"),
    ("single_copy_min_bytes", "smaller vectors always go through cells: auto (as measured) or a number"),
    (
        "for_all_max_bytes",
        "up to this size ranks write allreduce's results to all mapped vectors: auto (as measured) or a number",
    ),
    (
        "past_caches",
        "whether payloads enter cells by non-temporal stores: auto (measured as it goes), 0 or 1; 1 also for what enters peers' vectors",
    ),
    (
        "string_stores",
        "whether long payloads enter them, and in bcasts leave cells, by the processor's string instruction: auto (measured as it goes), 0 or 1",
    ),
    ("last_cache_bytes", "size of the last cache, past which longer results are stored: auto or a number"),
    (
        "tree_min_ranks",
        "from this many ranks on, messages travel along trees: auto (32; 16 on several levels) or a number",
    ),
    ("assume_own_cores", "whether every rank has a core to itself: auto, 0 or 1"),
    ("spins", "polls before the core is first given away: auto or a number"),
    ("yields", "times that the core is given away before sleeping: auto or a number"),
    ("timeout_s", "seconds of waiting after which the job ends with an error; 0 is never"),
    ("topology", "machine to place ranks on, for tests: auto, or as \"pack:2 l3:4 core:8\""),
];

impl Settings {
    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// A sentence that names the valid keys, or the values that the key takes.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        match key {
            "backing" => self.backing = parse_backing(value)?,
            "methods" => self.methods = MethodSet::parse(value)?,
            "form" => self.form = parse_form(value)?,
            "chunk_bytes" => self.chunk_bytes = auto_or_bytes(key, value)?,
            "slice_min_bytes" => self.slice_min_bytes = auto_or_bytes(key, value)?,
            "tree_min_ranks" => self.tree_min_ranks = auto_or_number(key, value)?,
            "single_copy" => self.single_copy = Single::parse(value)?,
            "intra_module" => self.single_copy = Single::of_module(value)?,
            "single_copy_min_bytes" => self.single_copy_min_bytes = auto_or_bytes(key, value)?,
            "last_cache_bytes" => self.last_cache_bytes = auto_or_bytes(key, value)?,
            "for_all_max_bytes" => self.for_all_max_bytes = auto_or_bytes(key, value)?,
            "past_caches" => self.past_caches = auto_or_flag(key, value)?,
            "string_stores" => self.string_stores = auto_or_flag(key, value)?,
            "assume_own_cores" => self.assume_own_cores = auto_or_flag(key, value)?,
            "spins" => self.spins = auto_or_number(key, value)?,
            "yields" => self.yields = auto_or_number(key, value)?,
            "timeout_s" => self.timeout_s = seconds(key, value)?,
            "topology" => self.topology = (value != "auto").then(|| value.to_owned()),
            _ => {
                let keys: Vec<&str> = KEYS.iter().map(|(key, _)| *key).collect();
                return Err(format!("unknown key {key:?}: valid keys are {}", keys.join(", ")));
            }
        }
        self.validate()
    }

    /// Checks what the engine relies on, since fields can be set directly.
    ///
    /// # Errors
    /// A sentence with the values that the field takes.
    pub fn validate(&self) -> Result<(), String> {
        if let Some(chunk) = self.chunk_bytes
            && (!chunk.is_power_of_two() || !(4096..=MOST_SET_BYTES).contains(&chunk))
        {
            return Err(no_number("chunk_bytes", chunk));
        }
        if self.form == Some(Form::Alone) {
            return Err(format!("form=alone: expected auto, {}", Form::SETTABLE.map(Form::name).join(", ")));
        }
        if let Some(least @ ..2) = self.tree_min_ranks {
            return Err(no_number("tree_min_ranks", least));
        }
        if let Some(description) = &self.topology {
            Topology::check_synthetic(description).map_err(|error| format!("topology: {error}"))?;
        }
        for (key, set) in [("watchdog_s", self.watchdog_s), ("timeout_s", self.timeout_s)] {
            seconds(key, &set.to_string())?;
        }
        match self.spins {
            Some(spins) if spins > MAX_SPINS => Err(no_number("spins", spins)),
            _ => Ok(()),
        }
    }

    /// The value of `key` as [`set`](Self::set) would take it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<String> {
        Some(match key {
            "backing" => self.backing.map_or_else(|| "auto".to_owned(), |b| b.to_string()),
            "methods" => self.methods.to_string(),
            "form" => auto(self.form),
            "chunk_bytes" => auto(self.chunk_bytes),
            "slice_min_bytes" => auto(self.slice_min_bytes),
            "single_copy" => self.single_copy.name().to_owned(),
            "intra_module" => self.single_copy.module().to_owned(),
            "single_copy_min_bytes" => auto(self.single_copy_min_bytes),
            "last_cache_bytes" => auto(self.last_cache_bytes),
            "for_all_max_bytes" => auto(self.for_all_max_bytes),
            "past_caches" => auto(self.past_caches.map(u32::from)),
            "string_stores" => auto(self.string_stores.map(u32::from)),
            "tree_min_ranks" => auto(self.tree_min_ranks),
            "assume_own_cores" => auto(self.assume_own_cores.map(u32::from)),
            "spins" => auto(self.spins),
            "yields" => auto(self.yields),
            "timeout_s" => self.timeout_s.to_string(),
            "topology" => self.topology.clone().unwrap_or_else(|| "auto".to_owned()),
            _ => return None,
        })
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (key, _) in KEYS {
            write!(f, "{key}={} ", self.get(key).unwrap_or_default())?;
        }
        write!(f, "reproducible={}", self.reproducible)
    }
}

/// What `first` and `other`, settings as words, do not have in common; all of both if that is nothing of one of them.
#[must_use]
pub fn differences(first: &str, other: &str) -> (String, String) {
    let only = |of: &str, not: &str| {
        let words: Vec<_> = of.split(' ').filter(|word| !not.split(' ').any(|other| other == *word)).collect();
        words.join(" ")
    };
    let (in_first, in_other) = (only(first, other), only(other, first));
    let is_clear = !in_first.is_empty() && !in_other.is_empty();
    if is_clear { (in_first, in_other) } else { (first.to_owned(), other.to_owned()) }
}

fn auto<T: fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "auto".to_owned(), |value| value.to_string())
}

fn auto_or_number<T: std::str::FromStr>(key: &str, value: &str) -> Result<Option<T>, String> {
    if value == "auto" { Ok(None) } else { value.parse().map(Some).map_err(|_| no_number(key, value)) }
}

fn auto_or_bytes(key: &str, value: &str) -> Result<Option<usize>, String> {
    if value == "auto" { Ok(None) } else { parse_bytes(value).map(Some).map_err(|_| no_number(key, value)) }
}

/// What is said of a value that `key` does not take.
fn no_number(key: &str, value: impl fmt::Display) -> String {
    match key {
        "chunk_bytes" => format!("chunk_bytes={value}: expected auto, or a power of two from 4096 to 131072"),
        "tree_min_ranks" => format!("tree_min_ranks={value}: expected auto or a number of at least 2"),
        "spins" => format!("spins={value}: expected auto or at most {MAX_SPINS}"),
        _ if key.ends_with("_bytes") => format!("{key}={value}: expected auto, or bytes, such as 4096 or 64K"),
        _ => format!("{key}={value}: expected auto, or a whole number"),
    }
}

fn auto_or_flag(key: &str, value: &str) -> Result<Option<bool>, String> {
    match value {
        "auto" => Ok(None),
        "0" => Ok(Some(false)),
        "1" => Ok(Some(true)),
        _ => Err(format!("{key}={value}: expected auto, 0 or 1")),
    }
}

/// The size that `text` names: bytes, or with K, M or G powers of 1024.
///
/// # Errors
/// What it lacks.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        other => return Err(format!("`{other}` is no unit: give bytes, or K, M, G (powers of 1024)")),
    };
    let number: usize = digits.parse().map_err(|_| format!("`{digits}` is no size: give a whole number"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("`{text}` is more than this machine can address"))
}

/// A finite number of seconds that is not negative.
///
/// # Errors
/// A sentence that says so.
pub fn seconds(key: &str, value: &str) -> Result<f64, String> {
    match value.parse::<f64>() {
        Ok(s) if (0.0..=1e9).contains(&s) => Ok(s),
        _ => Err(format!("{key}={value}: expected a number of seconds, 0 to 1e9")),
    }
}

fn parse_form(value: &str) -> Result<Option<Form>, String> {
    let found = Form::SETTABLE.into_iter().find(|form| form.name() == value);
    if found.is_none() && value != "auto" {
        return Err(format!("form={value}: expected auto, {}", Form::SETTABLE.map(Form::name).join(", ")));
    }
    Ok(found)
}

fn parse_backing(value: &str) -> Result<Option<Backing>, String> {
    match value {
        "auto" => Ok(None),
        "memfd" => Ok(Some(Backing::Memfd)),
        "dev_shm" => Ok(Some(Backing::DevShm)),
        _ => Err(format!("backing={value}: expected auto, memfd or dev_shm")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_takes_what_it_shows() {
        let mut settings = Settings::default();
        for (key, _) in KEYS {
            let value = settings.get(key).expect("every key has a value");
            settings.set(key, &value).expect("a shown value is a valid one");
        }
        assert_eq!(settings, Settings::default());
    }

    #[test]
    fn only_what_differs_is_shown() {
        let differ = |first, other| differences(first, other);
        assert_eq!(differ("a=1 b=2 c=3", "a=1 b=4 c=3"), ("b=2".into(), "b=4".into()));
        assert_eq!(differ("t=x:1 y:2", "t=x:1"), ("t=x:1 y:2".into(), "t=x:1".into()));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let mut settings = Settings::default();
        let unknown = settings.set("chunk", "1").expect_err("unknown key");
        assert!(unknown.contains("chunk_bytes") && unknown.contains("tree_min_ranks"), "{unknown}");
        let wrong = [
            ("chunk_bytes", "5000"),
            ("chunk_bytes", "x"),
            ("timeout_s", "-1"),
            ("timeout_s", "1e20"),
            ("backing", "file"),
            ("backing", "heap"),
            ("form", "alone"),
            ("methods", "shared+dma"),
            ("methods", ""),
        ];
        for (key, value) in wrong {
            let error = settings.set(key, value).expect_err("a bad value");
            assert!(error.contains("expected"), "{error}");
        }
        for (key, value, expected) in [
            ("slice_min_bytes", "-1", "slice_min_bytes=-1: expected auto, or bytes, such as 4096 or 64K"),
            ("chunk_bytes", "3K", "chunk_bytes=3072: expected auto, or a power of two from 4096 to 131072"),
            ("tree_min_ranks", "", "tree_min_ranks=: expected auto or a number of at least 2"),
            ("spins", "99999999999", "spins=99999999999: expected auto or at most 1000000"),
        ] {
            assert_eq!(settings.set(key, value).expect_err("a bad value"), expected);
        }
        let error = Settings::default().set("topology", "pack:2 cores").expect_err("a bad value");
        assert!(error.contains("\"cores\"") && error.contains("pack:2 l3:4 core:8"), "{error}");
    }
}

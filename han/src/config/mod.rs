//! Everything that can be configured, read from the environment once, at start-up.

mod agreement;
mod pairs;

pub(crate) use agreement::{BUILD, ChoosesBy, hash_of};

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use net_fabric::transport::ofi::{self, Interface};
use shm_core::settings::{KEYS, Settings, seconds};

use crate::error::{Error, Result};
use crate::misspelled;
use crate::select::is_searched;
use crate::select::{self, Inter};
use crate::tune::Source;
use pairs::{is_same, pairs};

/// How much is said on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing, since errors are returned; and the watchdog's messages if `HAN_WATCHDOG` is set.
    Error,
    /// The watchdog's messages. The default.
    Warn,
    /// What start-up found and chose, by rank 0.
    Info,
    /// Every operation of every rank.
    Debug,
}

impl LogLevel {
    const ALL: [(&'static str, Self); 4] =
        [("error", Self::Error), ("warn", Self::Warn), ("info", Self::Info), ("debug", Self::Debug)];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, level)| *level == self).map_or("", |(name, _)| name)
    }
}

/// The configuration of a job. [`Context::with`](crate::Context::with) refuses fields that have other values than their
/// variables and keys take.
///
/// ```
/// let mut config = han::Config::from_environment()?;
/// config.settings.single_copy = han::Single::IfShared;
/// config.inter.policy = Some(han::select::Policy::WaitAll);
/// let context = han::Context::with(han::bootstrap::connect(&config)?, config)?;
/// context.finalize()?;
/// # Ok::<(), han::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Config {
    /// `HAN_LOG`.
    pub log: LogLevel,
    /// Settings of the intra-node engine, with `HAN_WATCHDOG`, `HAN_REPRODUCIBLE` and `HAN_SET`.
    pub settings: Settings,
    /// How collectives over several nodes are carried out: keys of `HAN_SET`, too.
    pub inter: Inter,
    /// `HAN_PROVIDER`: libfabric's providers that may be taken, the best first; empty is all.
    pub providers: Vec<String>,
    /// `HAN_INTERFACE`: the network interface by which this rank reaches other nodes; `None` takes the first that fits.
    pub interface: Option<Interface>,
    /// `HAN_TRACE`: the file that tells what every rank had under way and when; `None` records nothing.
    pub trace: Option<PathBuf>,
    /// Most spans that a rank keeps of it, the latest ones.
    pub trace_spans: usize,
    /// `HAN_TUNING`: a file of measured choices for collectives over several nodes.
    pub tuning: Option<Arc<Source>>,
    /// A sentence for each variable that is almost one of those above.
    misspelled: Vec<String>,
    /// Where each value comes from, by variable or key; what is not here is a default.
    origins: Vec<(String, String)>,
}

/// A setting as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What `HAN_SET` calls it, or an error that is about it.
    pub key: &'static str,
    /// Its value, as it would be set.
    pub value: String,
    /// The variable that has set it, or `default`.
    pub origin: String,
    /// The variable that sets it.
    pub variable: &'static str,
    /// What it means, and which values it takes.
    pub meaning: &'static str,
}

/// Key, variable and meaning of what is not set by `HAN_SET`.
const VARIABLES: &[(&str, &str, &str)] = &[
    ("log", "HAN_LOG", "how much is said on standard error: error, warn, info or debug"),
    (
        "watchdog_s",
        "HAN_WATCHDOG",
        "seconds of waiting after which a rank says who is missing; 0 is never; with HAN_LOG=error only if it is set",
    ),
    (
        "reproducible",
        "HAN_REPRODUCIBLE",
        "1: bit-identical results for any algorithm and placement, but for 16-bit floats over nodes and the bits of NaNs",
    ),
    ("providers", "HAN_PROVIDER", "providers of libfabric that may be taken between nodes, the best first"),
    (
        "interface",
        "HAN_INTERFACE",
        "the interface to other nodes: its name (eth0, mlx5_0), or a network that its address is in (192.0.2.0/24)",
    ),
    ("trace", "HAN_TRACE", "the file that tells what every rank had under way, and when"),
    ("tuning", "HAN_TUNING", "the file of measured choices that `han tune` has written"),
];

/// Name and meaning of the keys of `HAN_SET` that belong to neither level.
const OWN_KEYS: &[(&str, &str)] = &[(TRACE_SPANS, "most spans that a rank keeps for HAN_TRACE: a number from 1 on")];
const TRACE_SPANS: &str = "trace_spans";

impl Default for Config {
    fn default() -> Self {
        Self {
            log: LogLevel::Warn,
            settings: Settings::default(),
            inter: Inter::default(),
            providers: Vec::new(),
            interface: None,
            trace: None,
            trace_spans: 1 << 16,
            tuning: None,
            misspelled: Vec::new(),
            origins: Vec::new(),
        }
    }
}

impl Config {
    /// Reads `HAN_LOG`, `HAN_WATCHDOG`, `HAN_REPRODUCIBLE`, `HAN_PROVIDER`, `HAN_INTERFACE`, `HAN_TRACE`, `HAN_TUNING`
    /// and `HAN_SET`.
    ///
    /// # Errors
    /// A bad value or an unknown key; the message lists the valid ones. A tuning file that cannot be read; the message
    /// names the line.
    pub fn from_environment() -> Result<Self> {
        let mut config = Self::read(|name| env::var_os(name))?;
        config.misspelled = misspelled::sentences(env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()));
        Ok(config)
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let mut config = Self::default();
        let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let set = |name: &str| path(name).map(|value| value.to_string_lossy().into_owned());
        if let Some(value) = set("HAN_LOG") {
            let level = LogLevel::ALL.iter().find(|(name, _)| *name == value);
            let names = LogLevel::ALL.map(|(name, _)| name).join(", ");
            config.log = level.ok_or_else(|| bad("HAN_LOG", &value, &names))?.1;
            config.note("log", "HAN_LOG");
        }
        if config.log < LogLevel::Warn {
            config.settings.watchdog_s = 0.0;
            config.note("watchdog_s", "HAN_LOG");
        }
        // Who asks for it hears it, however little else.
        if let Some(value) = set("HAN_WATCHDOG") {
            config.settings.watchdog_s = seconds("HAN_WATCHDOG", &value).map_err(Error::Config)?;
            config.note("watchdog_s", "HAN_WATCHDOG");
        }
        if let Some(value) = set("HAN_REPRODUCIBLE") {
            config.settings.reproducible = match value.as_str() {
                "0" => false,
                "1" => true,
                _ => return Err(bad("HAN_REPRODUCIBLE", &value, "0, 1")),
            };
            config.note("reproducible", "HAN_REPRODUCIBLE");
        }
        if let Some(value) = set("HAN_PROVIDER") {
            if value != "auto" {
                let list =
                    ofi::Config::provider_list(&value).and_then(|names| ofi::check_names(&names).map(|()| names));
                config.providers = list.map_err(|e| Error::Config(format!("HAN_PROVIDER={value}: {e}")))?;
            }
            config.note("providers", "HAN_PROVIDER");
        }
        if let Some(value) = set("HAN_INTERFACE") {
            if value != "auto" {
                let interface = value.parse().map_err(|e| Error::Config(format!("HAN_INTERFACE={value}: {e}")))?;
                config.interface = Some(interface);
            }
            config.note("interface", "HAN_INTERFACE");
        }
        config.trace = path("HAN_TRACE");
        if config.trace.is_some() {
            config.note("trace", "HAN_TRACE");
        }
        if let Some(path) = path("HAN_TUNING") {
            let source = Source::read(&path).map_err(|e| Error::Config(format!("HAN_TUNING: {e}")))?;
            config.tuning = Some(Arc::new(source));
            config.note("tuning", "HAN_TUNING");
        }
        if let Some(value) = set("HAN_SET") {
            config.set_all(&value)?;
        }
        Ok(config)
    }

    /// What may not be meant, a sentence each: variables of the environment that are almost one of this library's, and
    /// have no effect; a tuning file of another machine, or of jobs with other settings.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let of_file = |source: &Arc<Source>| [source.foreign(), source.under_others()];
        let of_file = self.tuning.as_ref().map(of_file).into_iter().flatten().flatten();
        self.misspelled.iter().cloned().chain(of_file).collect()
    }

    /// What is set of what `han tune` does not search, as `HAN_SET` takes it: the same text for the same settings. Measurements
    /// hold under it.
    #[must_use]
    pub fn untuned(&self) -> String {
        let built_in = Settings::default();
        let is_set = |key: &str| self.settings.get(key) != built_in.get(key);
        // The module's name says it all; how long ranks wait at most does not matter to speed.
        let is_other = |key: &str| key == "timeout_s" || (key == "single_copy" && is_set("intra_module"));
        let of_node = KEYS.iter().map(|(key, _)| *key).filter(|key| is_set(key) && !is_other(key));
        let of_node = of_node.map(|key| (key, self.settings.get(key).unwrap_or_default()));
        let between_nodes = self.inter.assignments().filter(|(key, _)| !is_searched(key));
        let pairs = of_node.chain(between_nodes).map(|(key, value)| format!("{key}={value}"));
        pairs.collect::<Vec<_>>().join(",")
    }

    /// Applies `key=value,...`, as in `HAN_SET` and `--set`.
    ///
    /// # Errors
    /// A pair without `=`, a key that comes twice, if only by another name, an unknown key or a bad value; the message lists
    /// the valid ones.
    pub fn set_all(&mut self, text: &str) -> Result<()> {
        let pairs = pairs(text);
        for (place, (key, value)) in pairs.iter().enumerate() {
            let Some(value) = value else {
                let valid = self.set(key, "").err().unwrap_or_default();
                return Err(Error::Config(format!("HAN_SET: {key:?} has no value, as in key=value: {valid}")));
            };
            if let Some((known, Some(before))) = pairs[..place].iter().find(|(known, _)| is_same(known, key)) {
                let name = if known == key { (*key).to_owned() } else { format!("{known}, or {key},") };
                let why = format!("HAN_SET: {name} is set to {before} and to {value}: leave one out");
                return Err(Error::Config(why));
            }
            self.set(key, value).map_err(|e| Error::Config(format!("HAN_SET: {e}")))?;
            self.note(key, "HAN_SET");
        }
        let untuned = self.untuned();
        if let Some(source) = &mut self.tuning {
            Arc::make_mut(source).set = untuned;
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> std::result::Result<(), String> {
        if select::KEYS.iter().any(|(known, _)| *known == key) {
            return self.inter.set(key, value);
        }
        if KEYS.iter().any(|(known, _)| *known == key) {
            return self.settings.set(key, value);
        }
        if key == TRACE_SPANS {
            let spans = value.parse().ok().filter(|&spans: &usize| spans > 0);
            self.trace_spans = spans.ok_or_else(|| format!("{key}={value}: expected a number from 1 on"))?;
            return Ok(());
        }
        let keys: Vec<&str> = KEYS.iter().chain(select::KEYS).chain(OWN_KEYS).map(|(key, _)| *key).collect();
        Err(format!("unknown key {key:?}: valid keys are {}", keys.join(", ")))
    }

    /// Refuses values of fields that were set directly, and that no variable or key would take.
    pub(crate) fn check(&self) -> Result<()> {
        self.settings.validate().and_then(|()| self.inter.validate()).map_err(Error::Config)
    }

    fn note(&mut self, key: &str, origin: &str) {
        self.origins.retain(|(known, _)| known != key);
        self.origins.push((key.to_owned(), origin.to_owned()));
    }

    /// Every setting.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        let keys = KEYS.iter().chain(select::KEYS).chain(OWN_KEYS);
        let all = VARIABLES.iter().copied().chain(keys.map(|&(key, meaning)| (key, "HAN_SET", meaning)));
        let entry = |(key, variable, meaning)| {
            let origin = self.origins.iter().find(|(known, _)| known == key).map(|(_, origin)| origin.clone());
            let origin = origin.unwrap_or_else(|| "default".to_owned());
            Entry { key, value: self.get(key), origin, variable, meaning }
        };
        all.map(entry).collect()
    }

    fn get(&self, key: &str) -> String {
        match key {
            "log" => self.log.name().to_owned(),
            "watchdog_s" => self.settings.watchdog_s.to_string(),
            "reproducible" => u8::from(self.settings.reproducible).to_string(),
            "providers" if self.providers.is_empty() => "auto".to_owned(),
            "providers" => self.providers.join(","),
            "interface" => self.interface.as_ref().map_or_else(|| "auto".to_owned(), ToString::to_string),
            "trace" => self.trace.as_ref().map_or("off".to_owned(), |path| path.display().to_string()),
            "tuning" => self.tuning.as_ref().map_or_else(|| "none".to_owned(), |source| source.identity()),
            TRACE_SPANS => self.trace_spans.to_string(),
            _ => self.settings.get(key).or_else(|| self.inter.get(key)).unwrap_or_default(),
        }
    }
}

fn bad(name: &str, value: &str, valid: &str) -> Error {
    Error::Config(format!("{name}={value}: expected one of {valid}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use shm_core::exchange::Alone;

    use super::*;
    use crate::Context;
    use crate::tune::Tuning;

    fn read(variables: &[(&str, &str)]) -> Result<Config> {
        Config::read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn paths_keep_their_bytes() {
        let path = OsString::from_vec(b"/no/such\xff".to_vec());
        let of = |variable: &'static str| Config::read(|name| (name == variable).then(|| path.clone()));
        assert_eq!(of("HAN_TRACE").unwrap().trace.unwrap(), path);
        let error = of("HAN_TUNING").unwrap_err().to_string();
        assert!(error.contains("No such file"), "{error}");
    }

    #[test]
    fn values_and_their_origins_are_known() {
        let config = read(&[("HAN_SET", "chunk_bytes=8192, spins=7"), ("HAN_WATCHDOG", "2.5")]).unwrap();
        assert_eq!((config.settings.chunk_bytes, config.settings.spins), (Some(8192), Some(7)));
        for methods in ["methods=cma+cico,spins=7", "methods=cma, cico, spins=7", "spins=7,method=cma"] {
            let config = read(&[("HAN_SET", methods)]).unwrap();
            assert_eq!((config.settings.methods.to_string().as_str(), config.settings.spins), ("cma+cico", Some(7)));
        }
        let entries = config.entries();
        let entry = |key: &str| entries.iter().find(|entry| entry.key == key).unwrap();
        assert_eq!((&*entry("watchdog_s").value, &*entry("watchdog_s").origin), ("2.5", "HAN_WATCHDOG"));
        assert_eq!((&*entry("chunk_bytes").value, &*entry("chunk_bytes").origin), ("8192", "HAN_SET"));
        assert_eq!((&*entry("log").value, &*entry("log").origin), ("warn", "default"));
        assert!(entries.iter().all(|entry| !entry.value.is_empty() && !entry.meaning.is_empty()), "{entries:?}");
        // What is shown as a default can be set.
        assert_eq!(read(&[("HAN_PROVIDER", &entry("providers").value)]).unwrap().providers, config.providers);
        assert_eq!(read(&[("HAN_INTERFACE", &entry("interface").value)]).unwrap().interface, config.interface);
        let entries = read(&[("HAN_INTERFACE", "10.1.0.0/16")]).unwrap().entries();
        let interface = entries.iter().find(|entry| entry.key == "interface").unwrap();
        assert_eq!((&*interface.value, &*interface.origin), ("10.1.0.0/16", "HAN_INTERFACE"));
    }

    #[test]
    fn a_file_of_other_settings_is_doubted() {
        let shape = |set: &str, collective: &str| {
            format!(
                "[[shape]]\nnodes = 2\nranks_per_node = 2\nprovider = \"net\"\n{set}date = \"2026-01-31\"\nmethod = \"task\"\n\
                 {collective} = [{{ bytes = 8, us = 1.0, settings = {{}} }}]\n"
            )
        };
        let solo = "set = \"intra_module=solo\"\n";
        let doubts = |shapes: &str, set: &str| {
            let head = format!("version = 1\nmachine = {:?}\n", crate::machine::in_words());
            let tuning = Tuning::parse(&(head + shapes)).unwrap();
            let source = Source { path: "mine.toml".into(), tuning, set: String::new(), hash: 1 };
            let mut config = Config { tuning: Some(Arc::new(source)), ..Config::default() };
            config.set_all(set).unwrap();
            config.doubts()
        };
        let (plain, under_solo, reduce) = (shape("", "bcast"), shape(solo, "bcast"), shape("", "reduce"));
        let both = format!("{plain}{under_solo}");
        for (shapes, set, words) in [
            (plain.as_str(), "", None),
            (&plain, "timeout_s=9,trace_spans=9,segment_bytes=64K", None),
            (&plain, "intra_module=solo", Some("under no settings, and this job runs under intra_module=solo: ")),
            (&under_solo, "", Some("under intra_module=solo, and this job runs under no settings: ")),
            (&under_solo, "single_copy=by_kernel", None),
            (&both, "", None),
            (&both, "spins=7", Some("under no settings, and this job runs under spins=7: ")),
            (&format!("{under_solo}{reduce}"), "", Some("under intra_module=solo, and")),
            ("", "intra_module=solo", None),
        ] {
            let doubts = doubts(shapes, set);
            assert_eq!(doubts.len(), usize::from(words.is_some()), "{set}: {doubts:?}");
            assert!(words.is_none_or(|words| doubts[0].contains(words)), "{set}: {doubts:?}");
        }
    }

    #[test]
    fn fields_are_checked_before_a_job_is_joined() {
        let refused = |change: &dyn Fn(&mut Config), expected: &str| {
            let mut config = Config::default();
            change(&mut config);
            let error = Context::with(Box::new(Alone), config).err().unwrap().to_string();
            assert!(error.contains(expected), "{error}");
        };
        refused(&|config| config.inter.leaders = Some(0), "leaders=0: expected auto, or a whole number of at least 1");
        refused(&|config| config.inter.segment_bytes = Some(0), "segment_bytes=0: expected auto, or a whole number of");
        refused(&|config| config.settings.watchdog_s = f64::INFINITY, "watchdog_s=inf: expected a number of seconds");
        refused(
            &|config| config.settings.timeout_s = f64::NAN,
            "timeout_s=NaN: expected a number of seconds, 0 to 1e9",
        );
        refused(&|config| config.settings.chunk_bytes = Some(5000), "chunk_bytes=5000: expected auto, or a power of");
    }

    #[test]
    fn the_watchdog_is_silent_with_all_warnings_unless_it_is_asked_for() {
        let watchdog_s = |variables: &[_]| read(variables).unwrap().settings.watchdog_s;
        assert_eq!(watchdog_s(&[("HAN_LOG", "error")]), 0.0);
        assert_eq!(watchdog_s(&[("HAN_LOG", "error"), ("HAN_WATCHDOG", "5")]), 5.0);
    }

    #[test]
    fn mistakes_are_answered_with_what_is_valid() {
        for (variables, expected) in [
            (("HAN_LOG", "loud"), "error, warn, info, debug"),
            (("HAN_REPRODUCIBLE", "yes"), "0, 1"),
            (("HAN_WATCHDOG", "-3"), "0 to 1e9"),
            (("HAN_WATCHDOG", "1e300"), "0 to 1e9"),
            (("HAN_SET", "chunk=1"), "chunk_bytes"),
            (("HAN_SET", "chunk=1"), "inter_algorithm"),
            (("HAN_SET", "chunk=1"), "trace_spans"),
            (("HAN_SET", "trace_spans=0"), "from 1 on"),
            (("HAN_SET", "inter_algorithm=bubble"), "rabenseifner"),
            (("HAN_SET", "inter_chunk_bytes=3"), "at least 64"),
            (("HAN_SET", "inter_policy=eager"), "wait_all"),
            (
                ("HAN_SET", "inter_algorithm=bubble"),
                "inter_algorithm=bubble: expected auto, or an algorithm: there is no",
            ),
            (("HAN_SET", "inter_allreduce_algorithm=bubble"), ": expected auto, ir+ib, or an algorithm: there is no"),
            (("HAN_PROVIDER", ", ,"), ": expected auto, or names with commas between: cxi, opx, "),
            (("HAN_PROVIDER", "tcp,carrier-pigeon"), "no provider carrier-pigeon"),
            (("HAN_PROVIDER", "tpc"), "or cxi, opx, efa, verbs;ofi_rxm, "),
            (("HAN_INTERFACE", "10.0.0.0/33"), "HAN_INTERFACE=10.0.0.0/33: "),
            (("HAN_INTERFACE", "10.0.0.0/33"), "is 0 to 32 here"),
            (
                ("HAN_SET", "chunk_bytes"),
                "\"chunk_bytes\" has no value, as in key=value: chunk_bytes=: expected auto, or",
            ),
            (("HAN_SET", "form"), "\"form\" has no value, as in key=value: form=: expected auto, flat, "),
            (("HAN_SET", "reproducible"), "unknown key \"reproducible\": valid keys are backing, "),
            (("HAN_TUNING", "/no/such/file"), "HAN_TUNING: /no/such/file: No such file"),
            (("HAN_SET", "chunk_bytes=4096,cma"), "key=value"),
            (("HAN_SET", "methods=cma,xpmem"), "shared, cma, cico"),
            (("HAN_SET", "method=xpmem"), "shared, cma, cico"),
            (("HAN_SET", "chunk_bytes=3"), "power of two"),
            (("HAN_SET", "spins=7, leaders=2,spins=8"), "HAN_SET: spins is set to 7 and to 8: leave one out"),
            (("HAN_SET", "methods=cma,cico,method=cma"), "methods is set to cma+cico and to cma: leave one out"),
            (
                ("HAN_SET", "inter_module=nbc,inter_policy=event_driven"),
                "HAN_SET: inter_module, or inter_policy, is set to nbc and to event_driven: leave one out",
            ),
            (
                ("HAN_SET", "single_copy=never,intra_module=solo"),
                "single_copy, or intra_module, is set to never and to solo: leave one out",
            ),
        ] {
            let error = read(&[variables]).err().unwrap().to_string();
            assert!(error.contains(expected), "{variables:?}: {error}");
        }
        for (key, _) in KEYS.iter().chain(select::KEYS).chain(OWN_KEYS) {
            let error = read(&[("HAN_SET", key)]).err().unwrap().to_string();
            assert!(error.contains(&format!("as in key=value: {key}")), "{key}: {error}");
        }
    }

    #[test]
    fn lists_may_end_in_a_comma() {
        let config = read(&[("HAN_PROVIDER", "tcp, net,"), ("HAN_SET", "spins=7,")]).unwrap();
        assert_eq!((config.providers, config.settings.spins), (vec!["tcp".to_owned(), "net".to_owned()], Some(7)));
    }
}

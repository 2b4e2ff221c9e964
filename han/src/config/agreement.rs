//! What must be the same on all ranks, and how they compare it.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::Config;
use crate::error::{Error, Result};

/// Changes with the sources of the library: who decides, and by what.
pub(crate) const BUILD: &str = env!("HAN_BUILD");

/// All that collectives are chosen by, in short: what must be the same on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChoosesBy {
    pub(crate) hash: u64,
    /// For people.
    pub(crate) name: String,
}

impl ChoosesBy {
    /// Refuses ranks that would choose differently.
    pub(crate) fn compare<'a>(all: impl IntoIterator<Item = &'a Self>) -> Result<()> {
        let mut all = all.into_iter();
        let Some(first) = all.next() else { return Ok(()) };
        match all.enumerate().find(|(_, other)| other.hash != first.hash) {
            Some((index, other)) => Err(Error::Config(format!(
                "ranks would choose differently: rank 0 by {}; rank {} by {}: give all the same build of han, HAN_SET, \
                 HAN_REPRODUCIBLE and HAN_TUNING",
                first.name,
                index + 1,
                other.name
            ))),
            None => Ok(()),
        }
    }

    pub(crate) fn to_text(&self) -> String {
        // Lines are what separates one from the next.
        format!("{:x} {}", self.hash, self.name.replace('\n', " "))
    }

    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let (hash, name) = text.split_once(' ')?;
        Some(Self { hash: u64::from_str_radix(hash, 16).ok()?, name: name.to_owned() })
    }
}

impl Config {
    /// What must be the same on all nodes, in one line.
    pub(crate) fn agreed(&self) -> String {
        let trace = if self.trace.is_some() { "on" } else { "off" };
        format!("{} {} trace={trace}", self.settings, self.inter)
    }

    /// All that collectives are chosen by.
    pub(crate) fn chooses_by(&self) -> ChoosesBy {
        self.chooses_in(BUILD)
    }

    /// All that collectives are chosen by in this build of the library.
    fn chooses_in(&self, build: &str) -> ChoosesBy {
        let contents = self.tuning.as_ref().map_or(0, |source| source.hash);
        let settings = hash_of(&self.agreed());
        let file = self.tuning.as_ref().map_or_else(|| "no tuning file".to_owned(), |source| source.identity());
        let name = format!("build {build}, settings {settings:016x}, {file}");
        ChoosesBy { hash: hash_of(&format!("{build} {settings:x} {contents:x}")), name }
    }
}

/// The same on all machines.
pub(crate) fn hash_of(text: &str) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_two_builds_are_told_apart() {
        let config = Config::read(|_| None).expect("nothing is set");
        let [own, other] = ["1", "2"].map(|build| config.chooses_in(build));
        assert!(ChoosesBy::compare([&own, &own]).is_ok());
        let error = ChoosesBy::compare([&own, &own, &other]).expect_err("two builds").to_string();
        assert!(error.contains("rank 0 by build 1,") && error.contains("rank 2 by build 2,"), "{error}");
        assert_eq!(config.chooses_by(), config.chooses_in(BUILD));
    }
}

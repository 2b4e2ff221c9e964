//! Names among arguments.

use han::Collective;

/// What `text` names, of all that are `known`.
pub(crate) fn find<T: Copy>(known: &[(&str, T)], text: &str, what: &str) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text).map(|&(_, value)| value);
    let names: Vec<_> = known.iter().map(|&(name, _)| name).collect();
    found.ok_or_else(|| format!("there is no {what} `{text}`: choose {}", names.join(", ")))
}

/// The collective that `text` names.
pub(crate) fn collective(text: &str) -> Result<Collective, String> {
    find(&Collective::ALL.map(|collective| (collective.name(), collective)), text, "collective")
}

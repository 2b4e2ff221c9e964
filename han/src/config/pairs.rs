//! The text of `HAN_SET`: pairs of a key and a value.

use super::Config;

impl Config {
    /// Several texts of `HAN_SET` as one: what a later one sets takes the place of what an earlier one does.
    #[must_use]
    pub fn joined<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
        let mut all: Vec<(&str, Option<String>)> = Vec::new();
        for text in texts {
            let later = pairs(text);
            all.retain(|(key, _)| later.iter().all(|(other, _)| !is_same(key, other)));
            all.extend(later);
        }
        let words = all.into_iter().map(|(key, value)| value.map_or(key.to_owned(), |value| format!("{key}={value}")));
        words.collect::<Vec<_>>().join(",")
    }
}

/// Whether two keys set the same.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let plain = |key| match key {
        "intra_module" => "single_copy",
        "inter_module" => "inter_policy",
        own => own,
    };
    plain(one) == plain(other)
}

/// The pairs of `key=value,...`; what is none has no value.
pub(super) fn pairs(text: &str) -> Vec<(&str, Option<String>)> {
    let mut words = text.split(',').map(str::trim).filter(|word| !word.is_empty()).peekable();
    let mut pairs = Vec::new();
    while let Some(word) = words.next() {
        let Some((key, value)) = word.split_once('=') else {
            pairs.push((word, None));
            continue;
        };
        let key = if key.trim() == "method" { "methods" } else { key.trim() };
        let mut value = value.trim().to_owned();
        // The one value that is a list may have commas as well.
        while key == "methods"
            && let Some(more) = words.next_if(|word| !word.contains('='))
        {
            value = format!("{value}+{more}");
        }
        pairs.push((key, Some(value)));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_texts_go_before_earlier_ones_but_none_contradicts_itself() {
        let texts = ["spins=7,methods=cma, cico", "", "form=flat,spins=8", "odd,method=cma"];
        let joined = Config::joined(texts);
        assert_eq!(joined, "form=flat,spins=8,odd,methods=cma");
        assert_eq!(Config::joined(["spins=7,spins=8"]), "spins=7,spins=8");
        let modules = ["inter_module=nbc,single_copy=never", "intra_module=solo,inter_policy=event_driven"];
        assert_eq!(Config::joined(modules), modules[1]);
    }
}

//! hwloc's synthetic descriptions, checked before hwloc sees them: it refuses without a reason, and it
//! would build a machine of any size.

/// More processors than this are a mistake.
const MAX_PROCESSORS: usize = 4096;
/// What a description looks like.
const EXAMPLE: &str = "\"pack:2 l3:4 core:8\"";

/// `description` as hwloc takes it: with single spaces, and with processors at its end.
///
/// # Errors
/// A sentence that says what is wrong, and shows a right description.
pub(super) fn normalized(description: &str) -> Result<String, String> {
    let wrong = |what: String| {
        format!(
            "{description:?} describes no machine: {what}; a right description is, for instance, {EXAMPLE}: \
             how many of what, from the outermost to the innermost, of pack, numa, l3, l2, l1, core, pu"
        )
    };
    let mut words = words(description).map_err(wrong)?;
    let mut processors: usize = 1;
    let mut last = None;
    for word in words.iter().filter(|word| !word.starts_with('[')) {
        let (kind, count) = part(word).map_err(wrong)?;
        processors = processors.saturating_mul(count);
        last = Some(kind);
    }
    match last {
        None => return Err(wrong("it is empty".to_owned())),
        Some(kind) if !kind.eq_ignore_ascii_case("pu") => words.push("pu:1".to_owned()),
        Some(_) => {}
    }
    if processors > MAX_PROCESSORS {
        return Err(wrong(format!("it has more than {MAX_PROCESSORS} processors")));
    }
    Ok(words.join(" "))
}

/// What hwloc's refusal of a checked description means.
pub(super) fn refused(description: &str) -> String {
    format!(
        "{description:?} describes no machine: hwloc refuses it (a kind that comes twice, or an attribute that is \
         wrong); a right description is, for instance, {EXAMPLE}"
    )
}

/// Cuts at white space outside of parentheses.
fn words(description: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut open = false;
    for c in description.chars() {
        match c {
            '(' if open => return Err("it has a parenthesis within parentheses".to_owned()),
            ')' if !open => return Err("it closes a parenthesis that it does not open".to_owned()),
            c if c.is_whitespace() && !open => words.push(std::mem::take(&mut word)),
            c if c.is_control() => return Err(format!("it has a {c:?}")),
            c => word.push(c),
        }
        open = (open || c == '(') && c != ')';
    }
    if open {
        return Err("it does not close a parenthesis".to_owned());
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    Ok(words)
}

/// Kind and count of `KIND:COUNT(ATTRIBUTES)`.
fn part(word: &str) -> Result<(&str, usize), String> {
    let plain = word.split('(').next().unwrap_or_default();
    let Some((kind, count)) = plain.split_once(':') else {
        return Err(format!("{word:?} is not of the form KIND:COUNT"));
    };
    if !is_kind(&kind.to_ascii_lowercase()) {
        return Err(format!("{kind:?} is not a part of a machine"));
    }
    match count.parse() {
        Ok(count) if count > 0 => Ok((kind, count)),
        _ => Err(format!("{word:?} does not say how many, 1 or more")),
    }
}

/// The names that hwloc knows, as far as processors are concerned.
fn is_kind(name: &str) -> bool {
    let cache = |rest: &str| {
        let kind = rest.strip_prefix(|level: char| ('1'..='5').contains(&level));
        kind.is_some_and(|kind| matches!(kind, "" | "d" | "i" | "u" | "cache" | "dcache" | "icache" | "ucache"))
    };
    matches!(name, "pack" | "package" | "socket" | "die" | "group" | "numa" | "numanode" | "node" | "core" | "pu")
        || name.strip_prefix('l').is_some_and(cache)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn right_descriptions_end_in_processors() {
        for (given, expected) in [
            ("pack:2 l3:4 core:8", "pack:2 l3:4 core:8 pu:1"),
            (
                "  pack:2\tL3Cache:4(size=32MB  indexes=0,1) Core:8 PU:2 ",
                "pack:2 L3Cache:4(size=32MB  indexes=0,1) Core:8 PU:2",
            ),
            ("pack:2 [numa(memory=1GB)] core:2", "pack:2 [numa(memory=1GB)] core:2 pu:1"),
            ("pu:4096", "pu:4096"),
        ] {
            assert_eq!(normalized(given).unwrap(), expected);
        }
    }

    #[test]
    fn wrong_descriptions_are_answered_with_a_right_one() {
        for (given, expected) in [
            ("", "empty"),
            ("[numa]", "empty"),
            ("2 4 8", "KIND:COUNT"),
            ("pack", "KIND:COUNT"),
            ("pack:2,core:4", "how many"),
            ("pack:0 core:2", "how many"),
            ("pack:two", "how many"),
            ("pack:-1", "how many"),
            ("bag:2 core:2", "\"bag\" is not a part"),
            ("l9:2 core:2", "\"l9\" is not a part"),
            ("pu:4097", "more than 4096"),
            ("pack:9999999999 core:9999999999 pu:9999999999", "more than 4096"),
            ("numa:2(memory=1GB core:2", "does not close"),
            ("numa:2) core:2", "does not open"),
            ("numa:2((memory=1GB) core:2", "within"),
            ("pack:2\u{0}core:2", "it has a"),
        ] {
            let error = normalized(given).unwrap_err();
            assert!(error.contains(expected) && error.contains(EXAMPLE), "{given:?}: {error}");
        }
    }
}

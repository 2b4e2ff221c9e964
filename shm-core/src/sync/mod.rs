//! The lock-free protocols, each small enough to be model-checked whole.
//!
//! Every release is labelled and names the acquire that it pairs with; `README.md` beside this file
//! holds the table of pairs and the argument for each protocol. The flags that operations wait for,
//! [`Slot`] and [`Watermark`], have one writer and only move forward, so nothing is reset between operations.

mod bell;
mod latch;
mod primitive;
mod reaching;
mod record;
mod slot;
#[cfg(not(loom))]
mod wait;
mod watermark;

pub use bell::{Bell, Sleeper, Sources, Wakers};
pub use latch::Latch;
#[cfg(not(loom))]
pub(crate) use primitive::{AtomicU32, AtomicU64, Ordering};
pub use reaching::Reaching;
pub use record::OpRecord;
pub use slot::Slot;
#[cfg(not(loom))]
pub(crate) use wait::breathe;
#[cfg(not(loom))]
pub use wait::{Patience, Waiter};
pub use watermark::Watermark;

/// True if step `a` comes before step `b` on the 32-bit circle.
///
/// Steps in use at one time lie within one ring of each other, so half the circle is plenty.
#[must_use]
pub const fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::before;

    /// The files of code at `path` and below.
    fn files(path: &Path) -> Vec<PathBuf> {
        if path.is_dir() {
            let entries = fs::read_dir(path).expect("a folder").flatten();
            return entries.flat_map(|entry| files(&entry.path())).collect();
        }
        if path.extension().is_some_and(|kind| kind == "rs") { vec![path.to_owned()] } else { Vec::new() }
    }

    fn text(file: &PathBuf) -> String {
        fs::read_to_string(file).expect("a file")
    }

    fn words(text: &str) -> impl Iterator<Item = &str> {
        text.split(|c: char| !c.is_alphanumeric() && c != '_')
    }

    fn letters(text: &str) -> BTreeSet<&str> {
        words(text).filter(|word| matches!(word.as_bytes(), [b'A'..=b'Z', b'0'..=b'9'])).collect()
    }

    /// Every ordering that has a letter in the code is in README.md, in a row with the test that it names, and the other
    /// way round; and there are all these tests.
    #[test]
    fn the_table_of_pairs_is_that_of_the_code() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let source = |folder| files(&root.join(folder)).iter().map(text).collect::<String>();
        let (code, models) = (source("src"), source("tests/loom"));
        let readme = include_str!("README.md");
        let rows = || readme.lines().filter(|line| line.starts_with("| "));
        let comments = code.lines().map(|line| line.trim_start().strip_prefix("// ").unwrap_or_default());
        let (mut labelled, mut ordering, mut latest) = (BTreeSet::new(), BTreeSet::new(), "");
        for comment in comments {
            let (label, rest) = comment.split_once([' ', ':']).unwrap_or_default();
            latest = if letters(label).contains(label) {
                label
            } else if comment.is_empty() {
                ""
            } else {
                latest
            };
            labelled.insert(latest);
            ordering.extend(
                ["(Release", "(Acquire", "(SeqCst"].iter().any(|kind| rest.starts_with(kind)).then_some(latest),
            );
            let test = comment.split_once("Test: ").and_then(|(_, test)| words(test).next());
            if let (Some(test), false) = (test, latest.is_empty()) {
                // What orders nothing by itself has no row of its own.
                let is_its =
                    |row: &str| row.contains(test) && (letters(row).contains(latest) || !ordering.contains(latest));
                assert!(rows().any(is_its), "{latest} names {test}, which is not in its row");
            }
        }
        labelled.remove("");
        assert_eq!(labelled, letters(readme));
        assert_eq!(ordering, rows().flat_map(|row| row.split('|').skip(1).take(2)).flat_map(letters).collect());
        for test in words(readme).filter(|word| word.matches('_').count() > 1) {
            assert!(models.contains(&format!("fn {test}(")), "there is no test {test}");
        }
    }

    /// What orders more than itself has a letter in the comment above it, which is at most three lines away.
    #[test]
    fn every_ordering_has_a_letter() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        for file in files(&src).iter().filter(|file| !file.starts_with(src.join("copy/processes"))) {
            let text = text(file);
            let (mut has_letter, mut lines_since) = (false, 0);
            for line in text.split("\nmod tests {").next().unwrap_or_default().lines() {
                if let Some(comment) = line.trim_start().strip_prefix("// ") {
                    let goes_on = has_letter && lines_since == 0;
                    has_letter = goes_on || comment.starts_with("No pair: ") || !letters(comment).is_empty();
                    lines_since = 0;
                    continue;
                }
                lines_since += 1;
                let kinds = ["Release", "Acquire", "AcqRel", "SeqCst"].map(|kind| format!("Ordering::{kind}"));
                let orders = kinds.iter().any(|kind| line.contains(kind)) && !line.contains("compiler_fence");
                assert!(!orders || has_letter && lines_since <= 4, "{}: {line}", file.display());
            }
        }
    }

    #[test]
    fn steps_are_ordered_across_the_wrap() {
        assert!(before(1, 2));
        assert!(!before(2, 2));
        assert!(before(u32::MAX, 0));
        assert!(before(u32::MAX - 5, 58));
        assert!(!before(58, u32::MAX - 5));
    }
}

//! `han/docs/user/messages.md` explains every message: those that the crates' sources can print and those on the page are
//! the same. Sources are read as text: a message is a string literal of at least three words in a statement that
//! makes or prints an error, or the text of `#[error("...")]`. What stands in braces is `…` on the page.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where a user's messages come from. The rest of `han-cli` prints reports, and its errors are about its arguments.
const SOURCES: [&str; 15] = [
    "shm-core/src",
    "shm-core/reduce-kernels/src",
    "net-fabric/src",
    "net-fabric/libfabric-sys/src",
    "han/src",
    "han/pmix-client/src",
    "han/capi/src",
    "han/cli/src/run",
    "han/cli/src/trace",
    "han/cli/src/tune",
    "han/cli/src/limits",
    "han/cli/src/bench",
    "han/cli/src/output.rs",
    "han/cli/src/whole.rs",
    "han/mpi/src",
];

/// Proofs, simulations, tests, what `han explain` says, and arguments of `han bench`.
const NOT_SHOWN: [&str; 14] = [
    "/verify",
    "/model",
    "/algorithm",
    "/schedule",
    "/simulated",
    "/loopback.rs",
    "/tests",
    "/check",
    "_test.rs",
    "copy/processes",
    "bench/args.rs",
    "bench/noise",
    "src/task/",
    "/explain",
];

/// What statements that make errors have in them.
const SIGNS: [&str; 16] = [
    "#[error(",
    "Err(",
    "ok_or",
    "Error::",
    "InvalidArgument(",
    "Startup(",
    "Failure::new(",
    "CallError(",
    "say(",
    "speak(",
    "fail(",
    "bad(",
    "invalid(",
    "let why",
    "let reason",
    "reason:",
];

/// Reasons of choices, what only the authors can meet, and what ends a program quietly: none is a message.
const NO_MESSAGES: [&str; 8] = [
    "the reader of standard output has left",
    "timed now and then; non-temporal for a while when …",
    "operators that commute were measured, and this one does not",
    "the result may not depend on what was measured",
    "…=… is set, and something else was measured to be best",
    "a node has one rank alone, which cannot exchange with several other nodes at once",
    "an error stays one",
    "a version of Cargo consists of numbers",
];

/// A string literal with `…` for what is filled in, and the code of its statement before it.
struct Literal {
    text: String,
    statement: String,
}

impl Literal {
    fn is_message(&self) -> bool {
        if self.statement.trim_end().ends_with("#[error(") {
            return true;
        }
        let words = self.text.split_whitespace().filter(|word| *word != "…").count();
        words >= 3 && SIGNS.iter().any(|sign| self.statement.contains(sign))
    }
}

/// All string literals of a source file before its tests.
fn literals(source: &str) -> Vec<Literal> {
    let source = source.split("#[cfg(test)]").next().unwrap();
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n").replace("'\"'", "' '");
    let (mut found, mut statement, mut rest) = (Vec::new(), String::new(), code.as_str());
    while let Some((before, after)) = rest.split_once('"') {
        for line in before.split_inclusive('\n') {
            statement.push_str(line);
            if line.ends_with('\n') && line.trim_end().ends_with([';', '{', '}']) {
                statement.clear();
            }
        }
        let end = end_of_literal(after);
        found.push(Literal { text: filled_in(&after[..end]), statement: statement.clone() });
        rest = &after[end + 1..];
    }
    found
}

/// Where the quotation mark is that ends a literal.
fn end_of_literal(text: &str) -> usize {
    let mut escaped = false;
    let is_end = |letter: char| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    };
    text.find(is_end).expect("a literal has an end")
}

/// The literal as it is written on the page.
fn filled_in(literal: &str) -> String {
    let lines: Vec<&str> = literal.split("\\\n").collect();
    let (first, more) = lines.split_first().unwrap();
    let joined = more.iter().fold((*first).to_owned(), |text, line| text + line.trim_start());
    let (mut text, mut depth) = (String::new(), 0);
    for letter in joined.replace("\\\"", "\"").replace("{{", "(").replace("}}", ")").chars() {
        match letter {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                text.push('…');
            }
            '`' => {}
            _ if depth == 0 => text.push(letter),
            _ => {}
        }
    }
    text
}

/// The sources below a folder of the project, which itself may lie in a folder of any name; or a file.
fn files_below(project: &Path, folder: &Path, found: &mut Vec<PathBuf>) {
    if folder.is_file() {
        return found.push(folder.to_owned());
    }
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.strip_prefix(project).unwrap().display().to_string();
        if entry.is_dir() {
            files_below(project, &entry, found);
        } else if name.ends_with(".rs") && !NOT_SHOWN.iter().any(|part| name.contains(part)) {
            found.push(entry);
        }
    }
}

/// The first cells of the page's tables, message by message.
fn on_the_page(page: &str) -> BTreeSet<String> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    let messages = rows.filter(|cell| *cell != "message").flat_map(|cell| cell.split("<br>"));
    messages.map(|message| message.trim().replace('`', "").replace("\\|", "|")).collect()
}

#[test]
fn every_message_is_explained_and_no_other() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    SOURCES.iter().for_each(|folder| files_below(&root, &root.join(folder), &mut files));
    let literals: Vec<Literal> = files.iter().flat_map(|file| literals(&fs::read_to_string(file).unwrap())).collect();
    let messages: BTreeSet<&str> =
        literals.iter().filter(|one| one.is_message()).map(|one| one.text.as_str()).collect();
    assert!(messages.len() > 200, "the scan finds messages: {messages:?}");

    let transparent = ["transparent", "…"];
    let page = on_the_page(&fs::read_to_string(root.join("han/docs/user/messages.md")).unwrap());
    let is_known = |message: &&str| page.contains(*message) || NO_MESSAGES.contains(message);
    let missing: Vec<&str> = messages.into_iter().filter(|one| !transparent.contains(one) && !is_known(one)).collect();
    assert!(missing.is_empty(), "han/docs/user/messages.md has no entry for:\n{}", missing.join("\n"));

    let all: BTreeSet<&str> = literals.iter().map(|literal| literal.text.as_str()).collect();
    let gone: Vec<&String> = page.iter().filter(|message| !all.contains(message.as_str())).collect();
    assert!(gone.is_empty(), "han/docs/user/messages.md explains what nothing says any more: {gone:#?}");
}

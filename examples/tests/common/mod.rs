//! Runs programs under the launcher that was built beside them.
#![allow(dead_code)] // each test file uses a part

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) const RANKS: std::ops::RangeInclusive<usize> = 1..=5;

/// A file of the build folder, where the programs lie.
pub(crate) fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_hello")).with_file_name(name);
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    assert!(path.exists(), "{} is missing: run `cargo build --workspace{release}` first", path.display());
    path
}

/// `han run -n ranks -- program arguments`, to be started.
pub(crate) fn han_run(ranks: usize, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(built("han"));
    command.args(["run", "--timeout", "300", "-n", &ranks.to_string(), "--"]);
    command.arg(program).args(arguments);
    command
}

/// What the program prints on nodes that the network of this machine connects.
pub(crate) fn stdout_over_nodes(ranks: usize, nodes: usize, program: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(built("han"));
    command.args(["run", "--timeout", "300", "-n", &ranks.to_string(), "--nodes", &nodes.to_string(), "--"]);
    output(command.arg(program).args(arguments))
}

/// What the program prints; it must succeed.
pub(crate) fn stdout(ranks: usize, program: &Path, arguments: &[&str]) -> String {
    output(&mut han_run(ranks, program, arguments))
}

fn output(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("han run starts");
    let stdout = String::from_utf8(stdout).expect("the programs print UTF-8");
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout
}

/// The lines that do not hold times.
pub(crate) fn without_times(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.contains("communicating")).collect()
}

/// The word behind `label` in `text`.
pub(crate) fn word_after<'a>(text: &'a str, label: &str) -> &'a str {
    let rest = text.split_once(label).unwrap_or_else(|| panic!("no `{label}` in:\n{text}")).1;
    rest.split_whitespace().next().unwrap_or_else(|| panic!("nothing behind `{label}`"))
}

//! The machine in words.

use std::fs;

/// The model of the processors.
#[must_use]
pub fn processor() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}

/// Processors and their cores, as tuning files name the machine that they are of.
#[must_use]
pub fn in_words() -> String {
    // All of them: a rank may be bound to one.
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!("{}, {cores} cores", processor())
}

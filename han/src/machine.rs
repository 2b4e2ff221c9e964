//! The machine in words.

use std::fs;

/// What the system tells of the processors, of all: a rank may be bound to one.
fn cpuinfo() -> String {
    fs::read_to_string("/proc/cpuinfo").unwrap_or_default()
}

/// The model of the processors.
#[must_use]
pub fn processor() -> String {
    model_in(&cpuinfo())
}

fn model_in(cpuinfo: &str) -> String {
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or(std::env::consts::ARCH, |(_, name)| name.trim()).to_owned()
}

/// Processors and their cores, as tuning files name the machine that they are of.
#[must_use]
pub fn in_words() -> String {
    let cpuinfo = cpuinfo();
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    format!("{}, {cores} cores", model_in(&cpuinfo))
}

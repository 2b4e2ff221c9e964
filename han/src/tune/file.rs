//! The tuning file: what was measured to be best, for one machine and any number of job shapes.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use shm_core::Collective;

use super::text;
use crate::config::hash_of;
use crate::files::{read_text, replaceable};
use crate::machine;
use crate::select::Inter;

/// What is measured for one shape of jobs.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// Nodes.
    pub nodes: usize,
    /// Ranks of each node, of the fullest one if they differ.
    pub ranks_per_node: usize,
    /// libfabric's provider between the nodes.
    pub provider: String,
    /// What was set, of what is not searched: [`Config::untuned`](crate::Config::untuned).
    pub set: String,
    /// When, as `2026-01-31`.
    pub date: String,
    /// The search, and how it was done.
    pub method: String,
    /// By collective, the bytes of each ascending.
    pub points: Vec<Point>,
}

/// The best configuration for a vector of so many bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// The collective.
    pub collective: Collective,
    /// Bytes of a rank's vector.
    pub bytes: usize,
    /// Microseconds that it takes.
    pub us: f64,
    /// They follow from what its tasks took: it was not measured whole.
    pub estimated: bool,
    /// What was set; what is `auto` was chosen by the built-in rules.
    pub settings: Inter,
}

/// The contents of a tuning file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tuning {
    /// The machine that was measured, in words.
    pub machine: String,
    /// One for each shape of jobs.
    pub shapes: Vec<Measured>,
}

/// A tuning file in use.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its path, as it was given.
    pub path: PathBuf,
    /// Its contents.
    pub tuning: Tuning,
    /// What is set of what is not searched, in the job that uses it.
    pub set: String,
    /// Of its bytes: ranks with other ones would choose otherwise.
    pub hash: u64,
}

impl Source {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A sentence with the line that is wrong, and what would be right.
    pub fn read(path: &Path) -> Result<Self, String> {
        let name = path.display();
        // Every rank reads it, which a pipe allows to one of them.
        let text = replaceable(path).and_then(|_| read_text(path)).map_err(|e| format!("{name}: {e}"))?;
        let tuning = Tuning::parse(&text).map_err(|e| format!("{name}: {e}"))?;
        Ok(Self { path: path.to_owned(), tuning, set: String::new(), hash: hash_of(&text) })
    }

    /// Where it is, and what was measured, in words.
    #[must_use]
    pub fn describe(&self) -> String {
        let shape = |of: &Measured| format!("{} x {} over {}", of.nodes, of.ranks_per_node, of.way());
        let shapes: Vec<String> = self.tuning.shapes.iter().map(shape).collect();
        let shapes = if shapes.is_empty() { "nothing".to_owned() } else { shapes.join(", ") };
        format!("{}, measured on {}: {shapes}", self.identity(), self.tuning.machine)
    }

    /// A sentence, if another machine than this one was measured.
    #[must_use]
    pub fn foreign(&self) -> Option<String> {
        let (path, measured, own) = (self.path.display(), &self.tuning.machine, machine::in_words());
        let why =
            || format!("{path} was measured on {measured:?}, and this is {own:?}: other choices may be best here");
        (*measured != own).then(why)
    }

    /// A sentence, if something was measured under other settings alone than this job has.
    #[must_use]
    pub fn under_others(&self) -> Option<String> {
        let shapes = &self.tuning.shapes;
        let own = |of: Collective| shapes.iter().any(|shape| shape.set == self.set && shape.has(of));
        let lacks = |shape: &&Measured| Collective::ALL.iter().any(|&of| shape.has(of) && !own(of));
        let (path, set) = (self.path.display(), &shapes.iter().find(lacks)?.set);
        let (measured, own) = (under(set), under(&self.set));
        Some(format!(
            "{path} was measured under {measured}, and this job runs under {own}: other choices may be best here"
        ))
    }

    /// Path and hash, for ranks to compare.
    #[must_use]
    pub fn identity(&self) -> String {
        format!("{} (contents {:016x})", self.path.display(), self.hash)
    }
}

/// Settings in words.
pub(crate) fn under(set: &str) -> &str {
    if set.is_empty() { "no settings" } else { set }
}

impl Measured {
    /// The jobs that it is for.
    pub(super) fn key(&self) -> (usize, usize, &str, &str) {
        (self.nodes, self.ranks_per_node, &self.provider, &self.set)
    }

    pub(crate) fn has(&self, collective: Collective) -> bool {
        self.points.iter().any(|point| point.collective == collective)
    }

    /// By what, beside nodes and ranks, in words.
    pub(crate) fn way(&self) -> String {
        let set = if self.set.is_empty() { String::new() } else { format!(" under {}", self.set) };
        format!("{}{set}", self.provider)
    }
}

impl Tuning {
    /// Reads the contents of a tuning file.
    ///
    /// # Errors
    /// A sentence with the line that is wrong, and what would be right.
    pub fn parse(text: &str) -> Result<Self, String> {
        text::parse(text)
    }

    /// Puts what was measured for a shape in the place of what was known for it and these collectives under these settings.
    pub fn put(&mut self, mut measured: Measured) {
        let known: Vec<_> = self.shapes.extract_if(.., |known| known.key() == measured.key()).collect();
        let mut others: Vec<_> = known.into_iter().flat_map(|known| known.points).collect();
        others.retain(|other| measured.points.iter().all(|point| point.collective != other.collective));
        measured.points.append(&mut others);
        self.shapes.push(measured);
        self.shapes.sort_by(|one, other| one.key().cmp(&other.key()));
    }

    /// The contents as text, which [`parse`](Self::parse) reads.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "# Measured choices for collectives over several nodes: written by `han tune`, used with HAN_TUNING=FILE.\n\
             # Settings are those of HAN_SET; what is not named is chosen by the built-in rules.\n\
             version = {}\nmachine = {}\n",
            text::VERSION,
            quoted(&self.machine)
        );
        for shape in &self.shapes {
            let Measured { nodes, ranks_per_node, provider, set, date, method, points } = shape;
            let set = if set.is_empty() { String::new() } else { format!("set = {}\n", quoted(set)) };
            let _ = write!(
                text,
                "\n[[shape]]\nnodes = {nodes}\nranks_per_node = {ranks_per_node}\nprovider = {}\n{set}date = {}\nmethod = {}\n",
                quoted(provider),
                quoted(date),
                quoted(method)
            );
            for collective in Collective::ALL {
                let mut of = points.iter().filter(|point| point.collective == collective).peekable();
                if of.peek().is_none() {
                    continue;
                }
                let _ = writeln!(text, "{} = [", collective.name());
                for Point { bytes, us, estimated, settings, .. } in of {
                    let set = settings.assignments().map(|(key, value)| format!("{key} = {}", plain(&value)));
                    let set: Vec<String> = set.collect();
                    let estimated = if *estimated { ", estimated = true" } else { "" };
                    let _ = writeln!(
                        text,
                        "    {{ bytes = {bytes}, us = {us:.3}{estimated}, settings = {{ {} }} }},",
                        set.join(", ")
                    );
                }
                text.push_str("]\n");
            }
        }
        text
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Numbers as numbers.
fn plain(value: &str) -> String {
    if value.parse::<u32>().is_ok() { value.to_owned() } else { quoted(value) }
}

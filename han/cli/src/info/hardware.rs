//! Sockets, NUMA nodes and caches, as hwloc finds them, and what this process may use of them.

use std::fs;
use std::io::Write;

use serde::Serialize;
use shm_core::sys::affinity;
use shm_core::sys::hwloc::{Kind, Object, Source, objects};
use shm_core::topo::{Hierarchy, Topology};

use super::placement::Ranks;
use super::{Result, bytes_text, ranges_text};
use crate::tables;

#[derive(Serialize)]
pub(super) struct Hardware {
    online: String,
    allowed: Vec<usize>,
    cgroup_quota: Option<f64>,
    sockets: usize,
    numa_nodes: Vec<Node>,
    caches: Vec<Cache>,
    /// The groups of as many ranks as there are cores to use.
    hierarchy: String,
}

#[derive(Serialize)]
struct Node {
    node: usize,
    cores: String,
}

/// One cache and the cores behind it.
#[derive(Serialize)]
struct Cache {
    level: u8,
    kind: &'static str,
    cores: String,
    bytes: u64,
}

impl Hardware {
    /// # Errors
    /// The affinity mask cannot be read, or hwloc fails.
    pub(super) fn read() -> Result<Self> {
        let caches = (1..=3).flat_map(|level| [Kind::Cache(level), Kind::InstructionCache(level)]);
        let caches = caches.chain([Kind::Cache(4), Kind::Cache(5)]);
        let kinds: Vec<Kind> = [Kind::Processor, Kind::Socket, Kind::Numa].into_iter().chain(caches).collect();
        let found = objects(Source::ThisMachine, &kinds)?;
        let allowed = affinity::allowed_cores()?;
        let of = |kind: Kind| found.iter().filter(move |object| object.kind == kind);
        let usable = |object: &&Object| object.processors.iter().any(|processor| allowed.contains(processor));
        let mut online: Vec<usize> = of(Kind::Processor).map(|processor| processor.number).collect();
        online.sort_unstable();
        let node = |node: &Object| Node { node: node.number, cores: ranges_text(&node.processors) };
        let topology = Topology::of_this_machine()?.restricted_to(&allowed);
        let hierarchy = Ranks::bound(&topology, &topology.one_per_core(), None)?;
        Ok(Self {
            online: ranges_text(&online),
            cgroup_quota: affinity::cgroup_quota(),
            sockets: of(Kind::Socket).filter(usable).count(),
            numa_nodes: of(Kind::Numa).map(node).collect(),
            caches: found.iter().filter(usable).filter_map(Cache::of).collect(),
            hierarchy: Hierarchy::to_string(hierarchy.hierarchy()),
            allowed,
        })
    }

    pub(super) fn print(&self, out: &mut impl Write) -> Result<()> {
        writeln!(out, "Cores online: {}; this process may use {}", self.online, ranges_text(&self.allowed))?;
        match self.cgroup_quota {
            Some(cores) => writeln!(out, "Control group: at most {cores} cores' worth of time")?,
            None => writeln!(out, "Control group: no limit of time")?,
        }
        write!(out, "Sockets: {}; NUMA nodes:", self.sockets)?;
        for node in &self.numa_nodes {
            write!(out, " node {} (cores {})", node.node, node.cores)?;
        }
        writeln!(out, "\nHierarchy of one rank per core: {} (its tree: `han info --root 0`)", self.hierarchy)?;
        let mut table = tables::plain(["cache", "size", "shared by cores"]);
        for cache in &self.caches {
            let name = format!("L{} {}", cache.level, cache.kind);
            let bytes = usize::try_from(cache.bytes).unwrap_or(usize::MAX);
            table.add_row([&name, &bytes_text(bytes), &cache.cores]);
        }
        Ok(writeln!(out, "{table}")?)
    }
}

impl Cache {
    fn of(object: &Object) -> Option<Self> {
        let (level, kind) = match object.kind {
            Kind::Cache(1) => (1, "data"),
            Kind::Cache(level) => (level, "unified"),
            Kind::InstructionCache(level) => (level, "instruction"),
            _ => return None,
        };
        Some(Self { level, kind, cores: ranges_text(&object.processors), bytes: object.bytes })
    }
}

/// The machine in a few words: processor and kernel.
pub(crate) fn machine() -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{}, Linux {}", han::machine::processor(), kernel.trim())
}

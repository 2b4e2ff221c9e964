//! Cores, caches and NUMA nodes, as the kernel describes them under `/sys`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;
use shm_core::sys::affinity;

use super::{Result, bytes_text, plain_table, ranges_text};

/// Where the kernel describes the cores.
const CORES: &str = "/sys/devices/system/cpu";
/// Where it describes the NUMA nodes.
const NODES: &str = "/sys/devices/system/node";

#[derive(Serialize)]
pub(super) struct Hardware {
    online: String,
    allowed: Vec<usize>,
    cgroup_quota: Option<f64>,
    sockets: usize,
    numa_nodes: Vec<Node>,
    caches: Vec<Cache>,
}

#[derive(Serialize)]
struct Node {
    node: usize,
    cores: String,
}

/// One cache and the cores behind it.
#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Cache {
    level: u32,
    kind: String,
    cores: String,
    bytes: usize,
}

impl Hardware {
    /// # Errors
    /// The affinity mask cannot be read; what is missing under `/sys` is left out.
    pub(super) fn read() -> Result<Self> {
        let allowed = affinity::allowed_cores()?;
        let core_dir = |core: &usize| Path::new(CORES).join(format!("cpu{core}"));
        let sockets: BTreeSet<_> =
            allowed.iter().filter_map(|core| text(&core_dir(core).join("topology/physical_package_id"))).collect();
        let caches: BTreeSet<_> = allowed.iter().flat_map(|core| caches(&core_dir(core).join("cache"))).collect();
        Ok(Self {
            online: text(&Path::new(CORES).join("online")).unwrap_or_default(),
            cgroup_quota: affinity::cgroup_quota(),
            sockets: sockets.len(),
            numa_nodes: numbered(Path::new(NODES), "node")
                .into_iter()
                .filter_map(|(node, path)| Some(Node { node, cores: text(&path.join("cpulist"))? }))
                .collect(),
            caches: caches.into_iter().collect(),
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
            write!(out, " {} (cores {})", node.node, node.cores)?;
        }
        writeln!(out)?;
        let mut table = plain_table(&["cache", "size", "shared by cores"]);
        for cache in &self.caches {
            let name = format!("L{} {}", cache.level, cache.kind.to_lowercase());
            table.add_row([&name, &bytes_text(cache.bytes), &cache.cores]);
        }
        Ok(writeln!(out, "{table}")?)
    }
}

/// The machine in a few words: processor and kernel.
pub(crate) fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or(std::env::consts::ARCH, |(_, name)| name.trim());
    let kernel = text(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    format!("{model}, Linux {kernel}")
}

/// The caches that one core's directory lists.
fn caches(dir: &Path) -> Vec<Cache> {
    let cache = |(_, path): (usize, PathBuf)| {
        Some(Cache {
            level: text(&path.join("level"))?.parse().ok()?,
            kind: text(&path.join("type"))?,
            cores: text(&path.join("shared_cpu_list"))?,
            bytes: crate::bench::stats::parse_bytes(&text(&path.join("size"))?).ok()?,
        })
    };
    numbered(dir, "index").into_iter().filter_map(cache).collect()
}

/// Entries of `dir` called `prefix` and a number, by number.
fn numbered(dir: &Path, prefix: &str) -> Vec<(usize, PathBuf)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name();
        Some((name.to_str()?.strip_prefix(prefix)?.parse().ok()?, entry.path()))
    };
    let mut found: Vec<_> = entries.flatten().filter_map(number).collect();
    found.sort();
    found
}

fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_entries_come_in_order_and_alone() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for name in ["node10", "node2", "node", "nodes", "online", "node-1"] {
            fs::create_dir(dir.path().join(name)).expect("writable");
        }
        let numbers: Vec<_> = numbered(dir.path(), "node").into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, [2, 10]);
    }
}

//! What every rank tells the others at start-up, and what all must have said alike.

use std::{fs, io};

use crate::copy::probe::{Offer, Offered};
use crate::error::{Error, Result};
use crate::settings::{Settings, differences};
use crate::sys::{affinity, cache, futex};

/// What every rank tells the others at start-up.
pub(super) struct Introduction {
    pub(super) node: String,
    pub(super) pid: u32,
    pub(super) settings: String,
    pub(super) cores: Vec<usize>,
    /// Cores' worth of time that its control groups allow.
    pub(super) quota: Option<f64>,
    /// Whether the kernel lets it take part in `membarrier`.
    pub(super) membarrier: bool,
    /// Size of the last cache of its machine.
    pub(super) last_cache_bytes: usize,
    /// What its peers may try to reach.
    pub(super) offered: Offered,
    /// The topology, in rank 0's.
    pub(super) topology: String,
}

impl Introduction {
    pub(super) fn own(settings: &Settings, offer: &Offer, topology: String) -> Result<Self> {
        let cores = affinity::allowed_cores()?;
        Ok(Self {
            node: node_identity()?,
            pid: std::process::id(),
            settings: settings.to_string(),
            cores,
            quota: affinity::cgroup_quota(),
            membarrier: futex::register_barrier(),
            last_cache_bytes: cache::last_level_bytes(),
            offered: offer.offered(),
            topology,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let cores: Vec<String> = self.cores.iter().map(ToString::to_string).collect();
        let quota = self.quota.map_or_else(|| "max".to_owned(), |quota| quota.to_string());
        let cores = cores.join(",");
        let Self { node, pid, settings, membarrier, last_cache_bytes, offered, topology, .. } = self;
        let offered = offered.to_text();
        format!("{node}\n{pid}\n{settings}\n{cores}\n{quota}\n{membarrier} {last_cache_bytes}\n{topology}\n{offered}")
    }

    pub(super) fn from_text(bytes: &[u8]) -> Result<Self> {
        let text = String::from_utf8_lossy(bytes);
        let lines: Vec<&str> = text.split('\n').collect();
        let parsed = match lines[..] {
            [node, pid, settings, cores, quota, features, topology, offered] => {
                let (membarrier, last_cache_bytes) = features.split_once(' ').unwrap_or((features, ""));
                pid.parse().ok().zip(Offered::from_text(offered)).map(|(pid, offered)| Self {
                    node: node.to_owned(),
                    pid,
                    settings: settings.to_owned(),
                    cores: cores.split(',').filter_map(|core| core.parse().ok()).collect(),
                    quota: quota.parse().ok(),
                    membarrier: membarrier == "true",
                    last_cache_bytes: last_cache_bytes.parse().unwrap_or(0),
                    topology: topology.to_owned(),
                    offered,
                })
            }
            _ => None,
        };
        parsed.ok_or_else(|| Error::Startup(format!("a rank introduced itself with {text:?}: another build of han?")))
    }
}

/// All on one node, all with the same settings.
pub(super) fn agree(peers: &[Introduction], numbers: &[usize]) -> Result<()> {
    for (peer, number) in peers.iter().zip(numbers) {
        if peer.node != peers[0].node {
            return Err(Error::Startup(format!(
                "ranks {} and {number} were to be on one node, but do not run on the same machine, or not in the same \
                 process namespace",
                numbers[0]
            )));
        }
        if peer.settings != peers[0].settings {
            let (first, other) = differences(&peers[0].settings, &peer.settings);
            return Err(Error::Startup(format!(
                "settings differ: rank {} has {first}, rank {number} has {other}: set HAN_SET and HAN_REPRODUCIBLE alike \
                 on all ranks",
                numbers[0]
            )));
        }
    }
    Ok(())
}

const PROC_IS_MISSING: &str = "; /proc must be mounted, with all that it has (without subset=pid)";

/// What tells this machine, as this process sees it, from others: ranks where it differs cannot share memory.
///
/// # Errors
/// `/proc` does not tell: it is not mounted whole, or this process may have no descriptor left.
pub fn node_identity() -> Result<String> {
    let failed = |path: &str, error: &io::Error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        let advice = if is_missing { PROC_IS_MISSING } else { "" };
        Error::System { api: "open", reason: format!("{path}: {error}{advice}") }
    };
    let [boot, pids] = ["/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"];
    let boot = fs::read_to_string(boot).map_err(|error| failed(boot, &error))?;
    let pids = fs::read_link(pids).map_err(|error| failed(pids, &error))?;
    Ok(format!("{}/{}", boot.trim(), pids.display()))
}

/// The name of the machine, or of the container, for messages.
#[must_use]
pub fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.split_whitespace().next().unwrap_or("?").to_owned()
}

/// What tells the network that this process sees from those of other containers of the same machine.
#[must_use]
pub fn network_identity() -> String {
    fs::read_link("/proc/self/ns/net").map(|p| p.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::job) fn peer(cores: &[usize]) -> Introduction {
        Introduction {
            node: "n".into(),
            pid: 1,
            settings: "s".into(),
            cores: cores.to_vec(),
            quota: None,
            membarrier: true,
            last_cache_bytes: 32 << 20,
            offered: Offered::from_text("1 2 3:4").expect("well formed"),
            topology: String::new(),
        }
    }

    #[test]
    fn introductions_survive_their_text() {
        let offer = Offer::make(Settings::default().methods, 7);
        let own = Introduction::own(&Settings::default(), &offer, "0:0.0.0.0".into());
        let own = own.expect("this process has an affinity mask");
        let again = Introduction::from_text(own.to_text().as_bytes()).expect("what was written can be read");
        let told = |words: &Introduction| (words.pid, words.cores.clone(), words.node.clone(), words.topology.clone());
        assert_eq!(told(&again), told(&own));
        assert_eq!(again.offered, own.offered);
        assert!(Introduction::from_text(b"something else").is_err());
    }

    #[test]
    fn differing_settings_are_named() {
        let mut other = peer(&[0]);
        other.settings = "t".into();
        let error = agree(&[peer(&[0]), other], &[4, 7]).expect_err("they differ");
        assert!(error.to_string().contains("rank 7"), "{error}");
    }
}

//! Interfaces that may lead nowhere: bridges between containers or virtual machines of this host, and tunnels.

use std::fs;
use std::path::Path;

/// Where the system describes interfaces.
const SYSTEM: &str = "/sys/class/net";

/// What begins the names that container engines, virtual machines and private networks give to theirs.
const NAMES: [&str; 16] = [
    "docker",
    "podman",
    "virbr",
    "cni",
    "flannel",
    "lxcbr",
    "lxdbr",
    "br-",
    "cali",
    "cilium",
    "vmnet",
    "zt",
    "tailscale",
    "wg",
    "tun",
    "tap",
];

/// Kinds of interfaces (`ARPHRD_...`) that have no link of their own.
const TUNNELS: [&str; 6] = ["65534", "768", "769", "776", "778", "823"];

/// Levels of interfaces below another one: a bridge over a virtual network over bundled ones.
const LEVELS: u32 = 4;

/// Whether an interface is better not taken while there is another.
pub(super) fn is_doubtful(name: &str) -> bool {
    is_doubtful_in(Path::new(SYSTEM), name)
}

fn is_doubtful_in(system: &Path, name: &str) -> bool {
    let own = system.join(name);
    if own.join("bridge").exists() {
        // Over hardware it is how this host, too, reaches others.
        return !has_hardware(system, name, LEVELS);
    }
    let kind = fs::read_to_string(own.join("type")).unwrap_or_default();
    TUNNELS.contains(&kind.trim()) || NAMES.iter().any(|start| name.starts_with(start))
}

/// Whether an interface is a device of this machine, or is over one.
fn has_hardware(system: &Path, name: &str, levels: u32) -> bool {
    let own = system.join(name);
    let below = || fs::read_dir(&own).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_over_hardware =
        |file: &str| file.strip_prefix("lower_").is_some_and(|name| has_hardware(system, name, levels - 1));
    own.join("device").exists() || levels > 0 && below().any(|file| file.to_str().is_some_and(is_over_hardware))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{env, process};

    use super::*;

    #[test]
    fn bridges_and_tunnels_are_told_from_what_leads_out() {
        let system = env::temp_dir().join(format!("han-interfaces-{}", process::id()));
        let make = |name: &str, kind: &str, parts: &[&str]| {
            let own = system.join(name);
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("type"), format!("{kind}\n")).unwrap();
            parts.iter().for_each(|part| fs::create_dir(own.join(part)).unwrap());
        };
        make("eth0", "1", &["device"]);
        make("eth1", "1", &[]);
        make("bond0", "1", &["bonding", "lower_eth0"]);
        make("vlan7", "1", &["lower_bond0"]);
        make("veth9", "1", &[]);
        make("lan0", "1", &["bridge", "lower_veth9"]);
        make("br-0123", "1", &["bridge", "lower_veth9", "lower_vlan7"]);
        make("virbr0", "1", &["bridge"]);
        make("vpn", "65534", &[]);
        make("flannel.1", "1", &["lower_eth0"]);
        for (name, is_doubtful) in [
            ("eth0", false),
            ("eth1", false),
            ("vlan7", false),
            ("lan0", true),
            ("br-0123", false),
            ("virbr0", true),
            ("vpn", true),
            ("flannel.1", true),
            // Not described there.
            ("eth5", false),
            ("br-12ab", true),
        ] {
            assert_eq!(is_doubtful_in(&system, name), is_doubtful, "{name}");
        }
        fs::remove_dir_all(system).unwrap();
    }
}

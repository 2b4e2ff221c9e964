//! Which provider is taken, on which interface, and why: the same list is gone through and shown to people.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;

use super::config::{Config, Reach};
use super::{interfaces, wire};
use crate::error::{Error, Result};
use crate::fabric::{self, Info, Wanted};

/// The providers that are known, the best first, with what stands behind each.
///
/// Hardware that matches tags and moves data by itself comes before what is driven by the processor. `tcp` is the
/// native reliable-datagram provider of libfabric 1.18 and later; in 1.17 the same code is named `net`. It needs
/// less copying and fewer wake-ups than the same endpoint emulated by `ofi_rxm`. `udp;ofi_rxd` acknowledges and
/// resends in the caller's own calls, which is slowest.
pub const PREFERENCE: &[(&str, &str)] = &[
    ("cxi", "Slingshot"),
    ("opx", "Omni-Path"),
    ("efa", "Elastic Fabric Adapter"),
    ("verbs;ofi_rxm", "InfiniBand and RoCE"),
    ("psm3", "Ethernet by PSM3"),
    ("psm2", "Omni-Path by PSM2"),
    ("tcp", "sockets, reliable datagrams of its own"),
    ("net", "sockets, reliable datagrams of its own"),
    ("tcp;ofi_rxm", "sockets, datagrams emulated over connections"),
    ("sockets", "sockets, with threads of its own"),
    ("udp;ofi_rxd", "datagram sockets, made reliable; a death is not noticed"),
];

/// One way to reach the peers, with what was decided about it.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The provider, such as `tcp;ofi_rxm`.
    pub provider: String,
    /// Its version.
    pub version: (u32, u32),
    /// The fabric: for IP the network.
    pub fabric: String,
    /// The domain: for IP the interface.
    pub domain: String,
    /// The address there, if it is one of IP.
    pub ip: Option<IpAddr>,
    /// What the wire carries, in megabits a second, as far as the system says.
    pub wire_mbit_s: Option<u64>,
    /// `mr_mode` in libfabric's words.
    pub registration: String,
    /// Whether it may be taken.
    pub fits: bool,
    /// Why it is taken, would be if those before it failed, or is not.
    pub reason: String,
}

/// All ways of this machine, the one that is taken first, then the others that fit, then those that do not.
///
/// # Errors
/// The library is missing, or fails.
pub fn candidates(config: &Config) -> Result<Vec<Candidate>> {
    let (fitting, others) = sorted(config)?;
    let taken = fitting.into_iter().enumerate().map(|(place, (info, reason))| {
        let words = if place == 0 { "taken" } else { "next" };
        describe(&info, true, format!("{words}: {reason}"))
    });
    let mut all: Vec<_> =
        taken.chain(others.into_iter().map(|(info, reason)| describe(&info, false, reason))).collect();
    // Layers over layers are found several times, with different descriptions of the same way.
    let mut seen = HashSet::new();
    all.retain(|way| seen.insert((way.provider.clone(), way.fabric.clone(), way.domain.clone(), way.ip)));
    Ok(all)
}

/// Refuses names that are neither in [`PREFERENCE`] nor those of providers that libfabric has on this machine. Where it cannot
/// be asked, every name may be one.
///
/// # Errors
/// A name that nobody knows; the message has those that are known.
pub fn check_names(names: &[String]) -> Result<()> {
    let known: Vec<_> = PREFERENCE.iter().map(|(name, _)| *name).collect();
    let is_known = |name: &&String| known.iter().any(|known| stands_for(name, known));
    if names.iter().all(|name| is_known(&name)) {
        return Ok(());
    }
    let (Ok(tagged), Ok(any)) = (fabric::query(Wanted::TaggedMessages), fabric::query(Wanted::Any)) else {
        return Ok(());
    };
    let here: BTreeSet<_> = tagged.iter().chain(&any).map(Info::provider).collect();
    match names.iter().find(|name| !is_known(name) && !here.contains(*name)) {
        Some(name) => {
            let elsewhere: Vec<_> = known.iter().filter(|known| !here.contains(**known)).copied().collect();
            let (here, known) = (here.into_iter().collect::<Vec<_>>().join(", "), elsewhere.join(", "));
            let reason = format!("no provider {name} is here or known: name some of {here}, or {known}");
            Err(Error::InvalidArgument(reason))
        }
        None => Ok(()),
    }
}

/// Those that fit, the best first.
pub(super) fn fitting(config: &Config) -> Result<Vec<(Info, String)>> {
    let (fitting, others) = sorted(config)?;
    if !fitting.is_empty() {
        return Ok(fitting);
    }
    let reason = if others.is_empty() {
        "libfabric knows no provider of reliable datagrams on this machine".to_owned()
    } else {
        let refused = others.iter().map(|(info, reason)| (reason.clone(), info.provider()));
        format!("no provider fits: {}; `han info` lists them with their interfaces", by_reason(refused))
    };
    Err(Error::Fabric { call: "fi_getinfo", reason })
}

/// Each reason once, behind the names of all that it is for.
fn by_reason(refused: impl Iterator<Item = (String, String)>) -> String {
    let mut reasons = BTreeMap::<String, BTreeSet<String>>::new();
    for (reason, provider) in refused {
        reasons.entry(reason).or_default().insert(provider);
    }
    let text = |(reason, providers): (String, BTreeSet<String>)| {
        let names: Vec<_> = providers.into_iter().collect();
        format!("{} ({reason})", names.join(", "))
    };
    reasons.into_iter().map(text).collect::<Vec<_>>().join("; ")
}

type Judged = Vec<(Info, String)>;

fn sorted(config: &Config) -> Result<(Judged, Judged)> {
    let mut fitting = Vec::new();
    let mut others = Vec::new();
    let is_cut = config.neighbours && loopback_is_down();
    for info in fabric::query(Wanted::TaggedMessages)? {
        let cut = if is_cut && info.ip().is_some() { Err(CUT.to_owned()) } else { Ok(()) };
        match cut.and_then(|()| judge(&info, config)) {
            Ok((rank, reason)) => fitting.push((rank, info, reason)),
            Err(reason) => others.push((info, reason)),
        }
    }
    // Stable: among equals the library's order holds.
    fitting.sort_by_key(|(rank, ..)| *rank);
    let found: Vec<_> = fitting
        .iter()
        .map(|(_, info, _)| info)
        .chain(others.iter().map(|(info, _)| info))
        .map(Info::provider)
        .collect();
    for info in fabric::query(Wanted::Any)? {
        if !found.contains(&info.provider()) {
            let reason = "lacks tagged messages in order, or receives from a named sender".to_owned();
            others.push((info, reason));
        }
    }
    Ok((fitting.into_iter().map(|(_, info, reason)| (info, reason)).collect(), others))
}

/// Why no address of IP fits, where the interface is down by which a host reaches itself.
const CUT: &str = "other ranks of this host are reached by the interface lo, which is down: ip link set lo up";

fn loopback_is_down() -> bool {
    let all: Vec<_> = getifaddrs().into_iter().flatten().map(|one| one.flags).collect();
    let mut loopback = all.iter().filter(|flags| flags.contains(InterfaceFlags::IFF_LOOPBACK)).peekable();
    loopback.peek().is_some() && !loopback.any(|flags| flags.contains(InterfaceFlags::IFF_UP))
}

/// Its rank, lower is better, with the reason; or why it does not fit.
type Verdict = std::result::Result<((usize, usize), String), String>;

fn judge(info: &Info, config: &Config) -> Verdict {
    let provider = info.provider();
    let (place, reason) = place_of(&provider, config)?;
    if let Some(interface) = &config.interface
        && !interface.holds(&info.domain(), &info.fabric(), info.ip())
    {
        return Err(format!("is not on {interface}, as HAN_INTERFACE demands"));
    }
    if info.tag_bits() < TAG_BITS {
        return Err(format!("has tags of {} bits, {TAG_BITS} are needed", info.tag_bits()));
    }
    if info.word_bytes() < 8 && info.pieces() < 2 {
        return Err("carries no word of 64 bits, and messages of one piece only".to_owned());
    }
    let (distance, remark) = distance_of(&info.domain(), info.ip(), config)?;
    Ok(((place, distance), if remark.is_empty() { reason } else { format!("{reason}, {remark}") }))
}

/// Bits of a [`Tag`](crate::transport::Tag).
const TAG_BITS: u32 = 48;

fn place_of(provider: &str, config: &Config) -> std::result::Result<(usize, String), String> {
    let known = PREFERENCE.iter().position(|(name, _)| *name == provider);
    if config.providers.is_empty() {
        return match known {
            Some(place) => Ok((place, PREFERENCE[place].1.to_owned())),
            None if matches!(provider, "shm" | "sm2") => Err("shared memory: not between nodes".to_owned()),
            None => Err("is not known to serve; naming it in the setting of providers takes it".to_owned()),
        };
    }
    let asked = config.providers.iter().position(|name| stands_for(name, provider));
    match asked {
        // Among several that one name stands for, the usual order.
        Some(place) => Ok((place * (PREFERENCE.len() + 1) + known.unwrap_or(PREFERENCE.len()), "asked for".to_owned())),
        None => Err(format!("not among the providers that may be taken ({})", config.providers.join(", "))),
    }
}

/// Whether a name in the settings stands for this provider: its own; that of the core below the layer with which it is known,
/// as in libfabric's `FI_PROVIDER`; `tcp` for the same code's earlier name.
fn stands_for(name: &str, provider: &str) -> bool {
    let is_core = |known: &str| known.split_once(';').is_some_and(|(core, _)| core == name);
    name == provider
        || (name == "tcp" && provider == "net")
        || PREFERENCE.iter().any(|&(known, _)| known == provider && is_core(known))
}

/// How far an address is from being the right one, with a remark; or why it is not.
fn distance_of(domain: &str, ip: Option<IpAddr>, config: &Config) -> std::result::Result<(usize, String), String> {
    let Some(ip) = ip else { return Ok((0, String::new())) };
    let named = config.interface.is_some();
    let link_local = match ip {
        // A cable between two hosts may have nothing else.
        IpAddr::V4(ip) => ip.is_link_local() && !named,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let family = usize::from(ip.is_ipv6());
    match config.reach {
        _ if link_local => Err("is link-local: the address means something else on another host".to_owned()),
        Reach::Host if ip.is_loopback() => Ok((family, "this host alone: loopback".to_owned())),
        Reach::Host => Ok((2 + family, String::new())),
        Reach::Network if ip.is_loopback() => Err("is loopback: other hosts do not reach it".to_owned()),
        Reach::Network if !named && interfaces::is_doubtful(domain) => {
            Ok((2 + family, "the interface looks like a bridge inside this host, or like a tunnel".to_owned()))
        }
        Reach::Network => Ok((family, String::new())),
    }
}

fn describe(info: &Info, fits: bool, reason: String) -> Candidate {
    Candidate {
        provider: info.provider(),
        version: info.version(),
        fabric: info.fabric(),
        domain: info.domain(),
        ip: info.ip(),
        wire_mbit_s: wire::mbit_s(info),
        registration: info.registration_mode(),
        fits,
        reason,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{by_reason, check_names, distance_of, stands_for};
    use crate::transport::ofi::{Config, Reach};

    #[test]
    fn link_local_addresses_are_taken_only_by_name() {
        let far = Config { reach: Reach::Network, ..Config::default() };
        let named = Config { interface: Some("usb0".parse().unwrap()), ..far.clone() };
        let of = |ip: &str, config: &Config| distance_of("usb0", Some(ip.parse().unwrap()), config);
        for (ip, config, is_taken) in [
            ("192.0.2.1", &far, true),
            ("2001:db8::1", &far, true),
            ("169.254.3.1", &far, false),
            ("169.254.3.1", &Config::default(), false),
            ("169.254.3.1", &named, true),
            ("fe80::1", &named, false),
        ] {
            assert_eq!(of(ip, config).is_ok(), is_taken, "{ip}");
        }
    }

    #[test]
    fn a_name_of_a_core_stands_for_it_with_its_layer() {
        for (name, provider, expected) in [
            ("verbs", "verbs;ofi_rxm", true),
            ("udp", "udp;ofi_rxd", true),
            ("tcp", "net", true),
            ("tcp", "tcp;ofi_rxm", true),
            ("tcp;ofi_rxm", "tcp", false),
            ("udp;ofi_rxd", "udp;ofi_rxd", true),
            ("verbs", "verbs;ofi_rxd", false),
            ("net", "tcp", false),
            ("ver", "verbs;ofi_rxm", false),
        ] {
            assert_eq!(stands_for(name, provider), expected, "{name} {provider}");
        }
        assert!(check_names(&["verbs".to_owned(), "udp".to_owned()]).is_ok());
    }

    #[test]
    fn a_reason_is_given_once() {
        let refused = [("slow", "tcp"), ("odd", "shm"), ("slow", "net"), ("slow", "tcp")];
        let refused = refused.into_iter().map(|(reason, provider)| (reason.to_owned(), provider.to_owned()));
        assert_eq!(by_reason(refused), "shm (odd); net, tcp (slow)");
    }
}

//! What can be asked of the fabric.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};

/// Which peers have to be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reach {
    /// Ranks of this host alone: loopback is preferred.
    #[default]
    Host,
    /// Other hosts: loopback and link-local addresses are not taken.
    Network,
}

/// Where an endpoint shall be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Interface {
    /// A domain or a fabric of libfabric: `eth0`, `mlx5_0`, `192.0.2.0/24`.
    Named(String),
    /// An address of this network.
    Network(IpAddr, u8),
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Network(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

impl FromStr for Interface {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.is_empty() {
            let reason = "an interface is a name (eth0, mlx5_0) or a network (192.0.2.0/24), not nothing";
            return Err(Error::InvalidArgument(reason.to_owned()));
        }
        let Some((address, bits)) = text.split_once('/') else { return Ok(Self::Named(text.to_owned())) };
        let Ok(address) = address.parse::<IpAddr>() else { return Ok(Self::Named(text.to_owned())) };
        let most = if address.is_ipv4() { 32 } else { 128 };
        match bits.parse::<u8>() {
            Ok(bits) if bits <= most => Ok(Self::Network(address, bits)),
            _ => {
                let reason = format!("network {text}: the number of bits after / is 0 to {most} here");
                Err(Error::InvalidArgument(reason))
            }
        }
    }
}

impl Interface {
    /// Whether an endpoint in this domain, of this fabric, with this address, would be there.
    pub(super) fn holds(&self, domain: &str, fabric: &str, ip: Option<IpAddr>) -> bool {
        match self {
            Self::Named(name) => name == domain || name == fabric,
            Self::Network(network, bits) => ip.is_some_and(|ip| within(ip, *network, *bits)),
        }
    }
}

/// Whether the first `bits` of both addresses are equal.
fn within(ip: IpAddr, network: IpAddr, bits: u8) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let differ = u32::from(ip) ^ u32::from(network);
            differ.leading_zeros() >= u32::from(bits)
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let differ = u128::from(ip) ^ u128::from(network);
            differ.leading_zeros() >= u32::from(bits)
        }
        _ => false,
    }
}

/// How the fabric is used. All ranks of a world have the same.
#[derive(Debug, Clone)]
pub struct Config {
    /// Providers that may be taken, the best first; empty: all that are known, in the order of
    /// [`PREFERENCE`](super::PREFERENCE). `tcp` also stands for `net` and for `tcp;ofi_rxm`.
    pub providers: Vec<String>,
    /// Where the endpoint shall be; none: wherever the peers are reached.
    pub interface: Option<Interface>,
    /// Which peers have to be reached.
    pub reach: Reach,
    /// Other ranks are on this host, which an address of IP reaches by the loopback interface, whichever its own is.
    pub neighbours: bool,
    /// Registers all memory, even where the provider does not demand it.
    pub register: bool,
    /// Puts the word before the message's bytes, even where the provider carries it beside them.
    pub word_in_message: bool,
    /// Opens the completion queue so that it can be waited for; else [`sleep`](crate::transport::Transport::sleep)
    /// sleeps for short times.
    pub wait: bool,
    /// How often the queue is read in vain before [`progress`](crate::transport::Transport::progress) returns; at least
    /// once. For a rank that has nothing else to do, and a core for it, more often is quicker.
    pub reads: u32,
    /// The most messages under way in each direction, but for notes; the provider may take fewer.
    pub outstanding: usize,
    /// Bytes of messages that nobody has asked for yet which are taken to let others past, for providers that do not do
    /// so themselves. Beyond it they are taken only from peers whose message a receive awaits.
    pub unexpected_bytes: usize,
    /// How long nothing comes from peers that are awaited before they are asked whether they live, where the provider does
    /// not tell.
    pub silence: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            providers: Vec::new(),
            interface: None,
            reach: Reach::default(),
            neighbours: false,
            register: false,
            word_in_message: false,
            wait: true,
            reads: 1,
            outstanding: 1024,
            unexpected_bytes: 256 << 20,
            silence: Duration::from_secs(1),
        }
    }
}

impl Config {
    /// The list in a setting such as `tcp,sockets`, commas between names (a `;` is part of a provider's name).
    ///
    /// # Errors
    /// No name.
    pub fn provider_list(text: &str) -> Result<Vec<String>> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        let names: Vec<_> = names.map(str::to_owned).collect();
        if names.is_empty() {
            let known = super::PREFERENCE.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
            let reason = format!("expected auto, or names with commas between: {known}");
            return Err(Error::InvalidArgument(reason));
        }
        Ok(names)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_names_or_networks() {
        let network: Interface = "10.1.0.0/16".parse().unwrap();
        assert!(network.holds("eth3", "10.1.2.0/24", Some("10.1.2.3".parse().unwrap())));
        assert!(!network.holds("eth3", "10.2.0.0/16", Some("10.2.0.1".parse().unwrap())));
        assert!(!network.holds("mlx5_0", "IB", None));
        let all: Interface = "0.0.0.0/0".parse().unwrap();
        assert!(all.holds("eth0", "", Some("192.0.2.1".parse().unwrap())));
        assert!(!all.holds("eth0", "", Some("::1".parse().unwrap())));
        let six: Interface = "2001:db8::/32".parse().unwrap();
        assert!(six.holds("eth0", "", Some("2001:db8:1::5".parse().unwrap())));
        let name: Interface = "mlx5_0".parse().unwrap();
        assert!(name.holds("mlx5_0", "IB-0xfe80", None));
        for text in ["10.1.0.0/16", "2001:db8::/32", "mlx5_0"] {
            assert_eq!(text.parse::<Interface>().unwrap().to_string(), text);
        }
        for wrong in ["", "10.0.0.0/33", "::/129", "10.0.0.0/x"] {
            assert!(wrong.parse::<Interface>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn provider_lists_keep_layers_together() {
        assert_eq!(Config::provider_list("tcp;ofi_rxm, net").unwrap(), ["tcp;ofi_rxm", "net"]);
        assert_eq!(Config::provider_list("tcp,, net,").unwrap(), ["tcp", "net"]);
        for wrong in ["", ","] {
            assert!(Config::provider_list(wrong).is_err(), "{wrong:?}");
        }
    }
}

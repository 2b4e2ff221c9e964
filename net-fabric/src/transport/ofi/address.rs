//! What a rank tells the others about its endpoint, and what these check before they believe it.

use std::net::IpAddr;

use crate::error::{Error, Result};
use crate::fabric::{Info, ip_of};

/// A rank's endpoint: all that must agree, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) provider: String,
    /// For people: ranks may be in different networks, if these are routed.
    pub(super) fabric: String,
    pub(super) format: u32,
    pub(super) word_in_message: bool,
    pub(super) name: Vec<u8>,
}

/// Begins each address: what it is, and the version of its form.
const MAGIC: [u8; 4] = *b"ofi1";

impl Address {
    pub(super) fn of(info: &Info, word_in_message: bool, name: Vec<u8>) -> Self {
        Self { provider: info.provider(), fabric: info.fabric(), format: info.address_format(), word_in_message, name }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for part in [self.provider.as_bytes(), self.fabric.as_bytes(), &self.name] {
            let part = &part[..part.len().min(255)];
            bytes.push(part.len().to_le_bytes()[0]);
            bytes.extend_from_slice(part);
        }
        bytes.extend_from_slice(&self.format.to_le_bytes());
        bytes.push(u8::from(self.word_in_message));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&MAGIC)?;
        let mut part = || {
            let (&bytes, tail) = rest.split_first()?;
            let (part, tail) = tail.split_at_checked(usize::from(bytes))?;
            rest = tail;
            Some(part)
        };
        let provider = String::from_utf8(part()?.to_vec()).ok()?;
        let fabric = String::from_utf8(part()?.to_vec()).ok()?;
        let name = part()?.to_vec();
        let (format, rest) = rest.split_first_chunk()?;
        let format = u32::from_le_bytes(*format);
        match rest {
            [word @ 0..=1] => Some(Self { provider, fabric, format, word_in_message: *word == 1, name }),
            _ => None,
        }
    }

    /// The address of `rank`, if an endpoint with our own can talk to it.
    pub(super) fn of_peer(&self, rank: usize, bytes: &[u8]) -> Result<Self> {
        let refuse = |reason: String| Error::Unreachable { rank, reason };
        let peer = Self::decode(bytes).ok_or_else(|| {
            refuse("what it sent is no address of an endpoint: all ranks need the same version of han".to_owned())
        })?;
        if peer.provider != self.provider {
            return Err(refuse(format!(
                "it has taken the provider {} and this rank {}: name one that all nodes have (HAN_PROVIDER)",
                peer.provider, self.provider
            )));
        }
        if peer.format != self.format || peer.name.len() != self.name.len() {
            return Err(refuse(format!(
                "its address is of another kind ({} on {}, here {}): name a network that all nodes are in \
                 (HAN_INTERFACE)",
                peer.provider, peer.fabric, self.fabric
            )));
        }
        if peer.word_in_message != self.word_in_message {
            return Err(refuse("it puts the word elsewhere: all ranks need the same settings".to_owned()));
        }
        Ok(peer)
    }
}

/// Where the endpoint is whose [address](super::Unconnected::address) this is, if it is at one of IP.
pub fn ip_of_address(bytes: &[u8]) -> Option<IpAddr> {
    let Address { format, name, .. } = Address::decode(bytes)?;
    ip_of(format, &name)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn address() -> Address {
        Address {
            provider: "tcp".to_owned(),
            fabric: "10.0.0.0/8".to_owned(),
            format: 2,
            word_in_message: false,
            name: vec![7; 16],
        }
    }

    #[test]
    fn addresses_come_back_and_everything_else_is_refused() {
        let bytes = address().encode();
        assert_eq!(address().of_peer(3, &bytes).unwrap(), address());
        for shorter in 0..bytes.len() {
            let error = address().of_peer(3, &bytes[..shorter]).unwrap_err();
            assert!(matches!(error, Error::Unreachable { rank: 3, .. }), "{shorter}: {error}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(address().of_peer(3, &longer).is_err());
    }

    #[test]
    fn what_differs_is_named() {
        let differing = [
            (Address { provider: "verbs;ofi_rxm".to_owned(), ..address() }, "verbs;ofi_rxm"),
            (Address { format: 3, ..address() }, "another kind"),
            (Address { name: vec![0; 28], ..address() }, "(HAN_INTERFACE)"),
            (Address { word_in_message: true, ..address() }, "the word"),
        ];
        for (peer, words) in differing {
            let error = address().of_peer(1, &peer.encode()).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("rank 1"), "{error}");
        }
    }
}

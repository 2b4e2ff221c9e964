//! From a configuration to a world: each rank opens an endpoint, all exchange its address, each connects.

use std::rc::Rc;

use super::OfiTransport;
use super::address::Address;
use super::choice;
use super::config::Config;
use super::congestion;
use super::limits::Limits;
use super::listener::Listener;
use super::slots::Slots;
use super::unexpected::{Unexpected, barred_by_messages};
use super::watch::{Watch, listening_at, listens};
use super::wire;
use crate::error::{Error, Result};
use crate::fabric::{AddressVector, CompletionQueue, Domain, Endpoint, Info, Registrations, ip_of};

/// An endpoint that knows no peers yet.
pub struct Unconnected {
    parts: Parts,
    own: Address,
    config: Config,
    description: String,
    wire: Option<u64>,
    listener: Option<Listener>,
}

/// What belongs to an endpoint, in the order in which it is closed.
struct Parts {
    endpoint: Endpoint,
    queue: Rc<CompletionQueue>,
    addresses: Rc<AddressVector>,
    domain: Rc<Domain>,
    info: Info,
    limits: Limits,
}

// SAFETY of moving it between threads: see `OfiTransport`.
#[allow(unsafe_code)]
// SAFETY: this value owns all objects of its domain; no reference count is shared with anything outside of it.
unsafe impl Send for Unconnected {}

/// Opens an endpoint with the best provider that can be opened.
///
/// The peers need [`Unconnected::address`]; when all ranks' addresses are known, [`Unconnected::connect`] makes the
/// transport of them.
///
/// # Errors
/// libfabric is missing; nothing fits the configuration; what fits cannot be opened.
pub fn open(config: &Config) -> Result<Unconnected> {
    let mut failures = Vec::new();
    let fitting = choice::fitting(config)?;
    for (info, reason) in fitting {
        let way = format!("{} on {}", info.provider(), info.domain());
        let relieved = congestion::relieve(&info.provider());
        match open_info(info, config) {
            Ok(parts) => return unconnected(parts, config, &reason, &failures, relieved),
            Err(error) => failures.push(format!("{way}: {error}")),
        }
    }
    failures.dedup();
    Err(Error::Fabric { call: "fi_enable", reason: format!("no endpoint can be opened ({})", failures.join("; ")) })
}

/// A world of `size` ranks in this process, as tests and measurements need it.
///
/// # Errors
/// As [`open`] and [`Unconnected::connect`].
pub fn world_here(config: &Config, size: usize) -> Result<Vec<OfiTransport>> {
    let unconnected = (0..size).map(|_| open(config)).collect::<Result<Vec<_>>>()?;
    let addresses: Vec<_> = unconnected.iter().map(Unconnected::address).collect();
    unconnected.into_iter().enumerate().map(|(rank, own)| own.connect(rank, &addresses)).collect()
}

fn open_info(info: Info, config: &Config) -> Result<Parts> {
    let limits = Limits::of(&info, config);
    let domain = Domain::open(&info)?;
    let size = limits.completions();
    // Not every provider can wait, which only costs the time until a sleeper looks again.
    let waiting = config.wait.then(|| CompletionQueue::open(&domain, size, true).ok()).flatten();
    let queue = waiting.map_or_else(|| CompletionQueue::open(&domain, size, false), Ok)?;
    let addresses = AddressVector::open(&domain, 0)?;
    let endpoint = Endpoint::open(&domain, &info, &queue, &addresses)?;
    Ok(Parts { endpoint, queue, addresses, domain, info, limits })
}

fn unconnected(
    parts: Parts,
    config: &Config,
    reason: &str,
    failures: &[String],
    relieved: bool,
) -> Result<Unconnected> {
    let (info, limits) = (&parts.info, &parts.limits);
    let (major, minor) = info.version();
    let mut description = format!("{} {major}.{minor} on {}", info.provider(), info.domain());
    if !info.fabric().is_empty() {
        description.push_str(&format!(" ({})", info.fabric()));
    }
    description.push_str(&format!(": {reason}"));
    if limits.registers {
        description.push_str("; memory is registered while messages use it");
    }
    if limits.word_in_message {
        description.push_str("; the word travels before the bytes");
    }
    if !failures.is_empty() {
        description.push_str(&format!("; could not be opened: {}", failures.join("; ")));
    }
    let own = Address::of(info, limits.word_in_message, parts.endpoint.name()?);
    let listens = listens(&info.provider());
    if relieved && listens {
        description.push_str("; its connections take reno in place of bbr");
    }
    let wire = wire::mbit_s(info);
    let address = listens.then(|| listening_at(ip_of(own.format, &own.name), &own.name)).flatten();
    let listener = address.and_then(Listener::at);
    Ok(Unconnected { parts, own, config: config.clone(), description, wire, listener })
}

impl Unconnected {
    /// What peers need to reach this endpoint: at most a kilobyte, opaque.
    pub fn address(&self) -> Vec<u8> {
        self.own.encode()
    }

    /// libfabric's name of the provider.
    pub fn provider(&self) -> String {
        self.parts.info.provider()
    }

    /// What the wire behind it carries, in megabits a second, as far as the system says.
    pub fn wire_mbit_s(&self) -> Option<u64> {
        self.wire
    }

    /// What was opened, and why, in words.
    pub fn describe(&self) -> &str {
        &self.description
    }

    /// Connects the endpoint of `rank` to those of all ranks, whose addresses stand in the order of ranks.
    ///
    /// # Errors
    /// An address is not of a like endpoint: the rank and the difference are named.
    pub fn connect(self, rank: usize, addresses: &[Vec<u8>]) -> Result<OfiTransport> {
        let Self { parts, own, config, description, listener, .. } = self;
        if addresses.get(rank) != Some(&own.encode()) {
            let reason = format!("rank {rank} of {}: its own address has to stand in its place", addresses.len());
            return Err(Error::InvalidArgument(reason));
        }
        let mut handles = Vec::with_capacity(addresses.len());
        let mut ports = Vec::new();
        for (peer, address) in addresses.iter().enumerate() {
            let address = own.of_peer(peer, address)?;
            ports.extend(listening_at(ip_of(address.format, &address.name), &address.name));
            handles.push(parts.addresses.insert(&address.name).map_err(|error| Error::Unreachable {
                rank: peer,
                reason: format!("its address on {}: {error}", address.fabric),
            })?);
        }
        let Parts { endpoint, queue, addresses: _, domain, info, limits } = parts;
        let slots = Slots::new(limits.slots());
        let registrations = limits.registers.then(|| {
            let mut registrations = Registrations::new(&domain);
            if info.binds_registrations() {
                endpoint.own(&mut registrations);
            }
            registrations
        });
        let unexpected = Unexpected::new(barred_by_messages(&info.provider()), config.unexpected_bytes);
        let watched = listens(&info.provider()) && ports.len() == addresses.len();
        let watch = watched.then(|| Watch::new(ports, config.silence));
        let watch = (watch, listener);
        OfiTransport::new(rank, handles, endpoint, queue, slots, registrations, limits, unexpected, watch, description)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_of_every_provider_that_has_one_is_known() {
        let ways = choice::candidates(&Config::default()).unwrap();
        let mut known = 0;
        for way in ways.into_iter().filter(|way| way.fits && listens(&way.provider)) {
            let own = open(&Config { providers: vec![way.provider.clone()], ..Config::default() }).unwrap();
            assert!(own.listener.is_some(), "{}", way.provider);
            known += 1;
        }
        assert_ne!(known, 0);
    }
}

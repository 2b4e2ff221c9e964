//! The providers of libfabric on this machine: which would be taken between nodes, and why not the others.

use crate::tables;
use comfy_table::Table;
use han::Config;
use net_fabric::transport::ofi::{self, Candidate};
use serde::Serialize;

/// One way to other nodes.
#[derive(Serialize)]
pub(super) struct Provider {
    provider: String,
    version: String,
    domain: String,
    fabric: String,
    address: Option<String>,
    wire_mbit_s: Option<u64>,
    memory_registration: String,
    fits: bool,
    reason: String,
}

/// The providers, the one that would be taken first; or none, and why.
pub(super) fn find(config: &Config) -> (Vec<Provider>, Option<String>) {
    let (providers, interface) = (config.providers.clone(), config.interface.clone());
    let reach = ofi::Reach::Network;
    match ofi::candidates(&ofi::Config { providers, interface, reach, ..ofi::Config::default() }) {
        Ok(candidates) => (candidates.into_iter().map(Provider::of).collect(), None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    }
}

/// The providers as rows.
pub(super) fn table(providers: &[Provider]) -> Table {
    let mut table = tables::plain(["provider", "version", "domain", "address", "Mbit/s", "registration", "verdict"]);
    for row in providers {
        let address = row.address.as_deref().unwrap_or(&row.fabric);
        let wire = &row.wire_mbit_s.map_or_else(String::new, |mbit_s| mbit_s.to_string());
        let columns = [&row.provider, &row.version, &row.domain, address, wire, &row.memory_registration, &row.reason];
        table.add_row(columns);
    }
    table
}

impl Provider {
    fn of(candidate: Candidate) -> Self {
        let (major, minor) = candidate.version;
        Self {
            provider: candidate.provider,
            version: format!("{major}.{minor}"),
            domain: candidate.domain,
            fabric: candidate.fabric,
            address: candidate.ip.map(|ip| ip.to_string()),
            wire_mbit_s: candidate.wire_mbit_s,
            memory_registration: candidate.registration,
            fits: candidate.fits,
            reason: candidate.reason,
        }
    }
}

//! The providers of libfabric on this machine: which would be taken between nodes, and why not the others.

use comfy_table::Table;
use han::Config;
use net_fabric::transport::ofi::{self, Candidate};
use serde::Serialize;

use super::plain_table;

/// One way to other nodes.
#[derive(Serialize)]
pub(super) struct Provider {
    provider: String,
    version: String,
    domain: String,
    fabric: String,
    address: Option<String>,
    memory_registration: String,
    fits: bool,
    reason: String,
}

/// The providers, the one that would be taken first; or none, and why.
pub(super) fn find(config: &Config) -> (Vec<Provider>, Option<String>) {
    let providers = config.providers.clone();
    match ofi::candidates(&ofi::Config { providers, reach: ofi::Reach::Network, ..ofi::Config::default() }) {
        Ok(candidates) => (candidates.into_iter().map(Provider::of).collect(), None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    }
}

/// The providers as rows.
pub(super) fn table(providers: &[Provider]) -> Table {
    let mut table = plain_table(&["provider", "version", "domain", "address", "registration", "verdict"]);
    for row in providers {
        let address = row.address.as_deref().unwrap_or(&row.fabric);
        let columns = [&row.provider, &row.version, &row.domain, address, &row.memory_registration, &row.reason];
        table.add_row(columns);
    }
    table
}

impl Provider {
    fn of(candidate: Candidate) -> Self {
        let Candidate { provider, version: (major, minor), fabric, domain, ip, registration, fits, reason } = candidate;
        let (version, address) = (format!("{major}.{minor}"), ip.map(|ip| ip.to_string()));
        Self { provider, version, domain, fabric, address, memory_registration: registration, fits, reason }
    }
}

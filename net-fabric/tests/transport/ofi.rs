//! The transport over libfabric, on loopback: each provider that is installed with it, and what some demand elsewhere.

use net_fabric::transport::ofi::{Config, OfiTransport, world_here};

use crate::rig::Features;

/// Providers give a send back only with their endpoint.
const OVER_SOCKETS: Features =
    Features { data: true, notices_death: true, parts_with_sends: false, forgives_lengths: true };
/// libfabric 1.17 closes a connection over a message that is too long.
const OVER_CONNECTIONS: Features = Features { forgives_lengths: false, ..OVER_SOCKETS };

fn over(provider: &str, ranks: usize) -> Vec<OfiTransport> {
    world_here(&Config { providers: vec![provider.to_owned()], ..Config::default() }, ranks).unwrap()
}

/// `tcp`, or `net` in libfabric 1.17.
mod native {
    crate::conformance!(|ranks| super::over("tcp", ranks), super::OVER_CONNECTIONS);
}

/// As InfiniBand demands it (registered memory), and as others carry the word.
mod registered_with_words {
    use net_fabric::transport::ofi::{Config, world_here};

    crate::conformance!(
        |ranks| world_here(&Config { register: true, word_in_message: true, ..Config::default() }, ranks).unwrap(),
        super::OVER_CONNECTIONS
    );
}

mod emulated {
    crate::conformance!(|ranks| super::over("tcp;ofi_rxm", ranks), super::OVER_CONNECTIONS);
}

mod sockets {
    crate::conformance!(|ranks| super::over("sockets", ranks), super::OVER_SOCKETS);
}

/// Datagrams tell nothing of their receivers.
mod datagrams {
    use crate::rig::Features;

    crate::conformance!(
        |ranks| super::over("udp;ofi_rxd", ranks),
        Features { notices_death: false, ..super::OVER_SOCKETS }
    );
}

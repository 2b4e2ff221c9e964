//! The simulated world under each cost model, with ranks of one node and of several.

use net_fabric::transport::simulated::{Layout, Machine, Model, Simulated};

use crate::rig::Features;

const ALL: Features = Features { data: true, notices_death: true, parts_with_sends: true, forgives_lengths: true };

fn world(model: Model, nodes: usize, ranks_per_node: usize) -> Vec<Simulated> {
    let machine = Machine::shipped("generic").and_then(|machine| machine.under(model)).unwrap();
    Simulated::world(machine, Layout::new(nodes, ranks_per_node).unwrap()).unwrap()
}

mod postal {
    crate::conformance!(|ranks| super::world(super::Model::Postal, ranks, 1), super::ALL);
}

mod loggp {
    crate::conformance!(|ranks| super::world(super::Model::Loggp, 1, ranks), super::ALL);
}

mod max_rate {
    crate::conformance!(|ranks| super::world(super::Model::MaxRate, ranks, 1), super::ALL);
}

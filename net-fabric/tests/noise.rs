//! What delays of ranks cost under each policy (Luo's dissertation, section 3.4), by simulation.

use net_fabric::algorithm::{Algorithm, Collective, Tree};
use net_fabric::engine::Policy;
use net_fabric::model::{Case, simulate};
use net_fabric::transport::simulated::{Layout, Machine, Noise, Seconds};

/// Seconds that a bcast of 4 MiB along a tree loses in the mean of 50 operations, all ranks being delayed for
/// 0 to 1 ms in each 10 ms.
fn loss(tree: Tree, nodes: usize, policy: Policy) -> Seconds {
    let machine = Machine::shipped("generic").expect("shipped");
    let quiet = Case {
        layout: Layout::new(nodes, 1).expect("a layout"),
        collective: Collective::Bcast,
        algorithm: Algorithm::Tree(tree),
        root: 0,
        bytes: 4 << 20,
        chunk_bytes: 64 << 10,
        policy,
        noise: Noise::None,
    };
    let seconds = |noise| simulate(&machine, &Case { noise, ..quiet }).expect("it can be simulated").seconds();
    let noisy = |seed| seconds(Noise::Periodic { rank: None, low_s: 0.0, high_s: 1e-3, period_s: 1e-2, seed });
    (0..50).map(noisy).sum::<Seconds>() / 50.0 - seconds(Noise::None)
}

#[test]
fn event_driven_loses_at_most_half_of_what_wait_all_loses() {
    for (tree, nodes) in [(Tree::Binary, 16), (Tree::Binary, 32), (Tree::Binomial, 16), (Tree::Binomial, 32)] {
        let [blocking, wait_all, event_driven] =
            [Policy::Blocking, Policy::WaitAll, Policy::default()].map(|policy| loss(tree, nodes, policy));
        assert!(
            event_driven <= wait_all / 2.0 && wait_all < blocking,
            "{tree:?}, {nodes} nodes: {blocking}, {wait_all}, {event_driven}"
        );
    }
}

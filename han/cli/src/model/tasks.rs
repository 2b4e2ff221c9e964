//! What both levels would take together: the tasks of all ranks on a clock, each with what its own simulation takes.

use std::collections::HashMap;

use han::task::simulate::{self as play, Cost};
use han::task::{Kind, Layout, Shape, Task};
use net_fabric::algorithm::{Algorithm, Collective, Tree};
use net_fabric::model::{self, Case, Prediction};
use net_fabric::transport::simulated::{self, Machine};

/// The case on both levels, its algorithm that of the leaders; with `back` an allreduce across nodes is a reduction and a
/// broadcast. On a node ranks go by a binomial tree.
pub(super) fn simulate(
    machine: &Machine,
    case: &Case,
    back: Option<Algorithm>,
    segment: usize,
) -> Result<Prediction, String> {
    let (nodes, ranks) = (case.layout.nodes, case.layout.ranks());
    let places: Vec<usize> = (0..ranks).map(|rank| case.layout.node(rank)).collect();
    let element_bytes = if case.bytes.is_multiple_of(8) { 8 } else { 1 };
    let shape = Shape {
        collective: case.collective,
        count: case.bytes / element_bytes,
        element_bytes,
        chunk_bytes: segment.max(element_bytes),
        leaders: 1,
        splits: back.is_some(),
        root: case.root,
    };
    let mut messages = 0;
    let mut known: HashMap<(Kind, usize, usize, usize), (Cost, u64)> = HashMap::new();
    let cost = |task: &Task, members: usize| {
        let bytes = task.range.len() * element_bytes;
        let key = (task.kind, bytes, members, task.root);
        let (cost, sent) = match known.get(&key) {
            Some(known) => *known,
            None => {
                let part = part(case, back, task.kind, (nodes, members))?;
                let part = Case { root: task.root, bytes, ..part };
                let take = |bytes| {
                    let prediction = model::simulate(machine, &Case { bytes, ..part });
                    prediction.map_err(|error| format!("{}: {error}", task.kind))
                };
                let (one, two) = (take(bytes)?, take(2 * bytes)?);
                let latency_s = one.seconds();
                let busy_s = (two.seconds() - latency_s).clamp(0.0, latency_s);
                *known.entry(key).or_insert((Cost { latency_s, busy_s }, one.messages))
            }
        };
        messages += sent;
        Ok(cost)
    };
    let rank_s = play::simulate(&Layout::new(&places), &shape, cost)?;
    Ok(Prediction { rank_s, messages, events: 0 })
}

/// The part of `kind` in the case: on one node of so many ranks, or among so many leaders.
fn part(case: &Case, back: Option<Algorithm>, kind: Kind, (nodes, members): (usize, usize)) -> Result<Case, String> {
    let tree = Algorithm::Tree(Tree::Binomial);
    let (collective, algorithm, shape) = match kind {
        Kind::Sr => (Collective::Reduce, tree, (1, members)),
        Kind::Sb => (Collective::Bcast, tree, (1, members)),
        Kind::Ir => (Collective::Reduce, case.algorithm, (nodes, 1)),
        Kind::Ib => (Collective::Bcast, back.unwrap_or(case.algorithm), (nodes, 1)),
        Kind::Ia if case.collective == Collective::Barrier => (Collective::Barrier, case.algorithm, (nodes, 1)),
        Kind::Ia => (Collective::Allreduce, case.algorithm, (nodes, 1)),
    };
    let layout = simulated::Layout::new(shape.0, shape.1).map_err(|error| error.to_string())?;
    Ok(Case { layout, collective, algorithm, ..*case })
}

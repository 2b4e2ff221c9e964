//! What both levels would take together: the tasks of all ranks on a clock, each with what its own simulation takes.

use std::collections::HashMap;

use han::select::Inter;
use han::select::NodesForm;
use han::select::form::{self, OverNodes};
use han::task::simulate::{self as play, Cost};
use han::task::{Across, Kind, Layout, Stream, Task, TaskShape, slices};
use net_fabric::algorithm::{Algorithm, Collective, Tree};
use net_fabric::model::{self, Case, Prediction};
use net_fabric::transport::simulated::{self, Machine};

use super::choice::Tasks;

/// The case on both levels, its algorithm that of the leaders. On a node ranks go by a binomial tree. Leaders of a node share
/// its door to the network, each slice by each other's side.
pub(super) fn simulate(machine: &Machine, case: &Case, tasks: Tasks, segment: usize) -> Result<Prediction, String> {
    let back = tasks.back;
    let (nodes, ranks) = (case.layout.nodes, case.layout.ranks());
    let places: Vec<usize> = (0..ranks).map(|rank| case.layout.node(rank)).collect();
    let layout = Layout::new(&places);
    let shape = shape(case, tasks, segment, &layout)?;
    let element_bytes = shape.element_bytes;
    let senders = senders(&shape, nodes, ranks / nodes);
    let door = machine.injection_bytes_per_s.map(|whole| whole / f64::from(senders));
    let shared = Machine { injection_bytes_per_s: door, ..machine.clone() };
    let mut messages = 0;
    let mut known: HashMap<(Kind, usize, usize, usize), (Cost, u64)> = HashMap::new();
    let cost = |task: &Task, members: usize| {
        let bytes = task.range.len() * element_bytes;
        let key = (task.kind, bytes, members, task.root);
        let (cost, sent) = match known.get(&key) {
            Some(known) => *known,
            None => {
                let across = if let Stream::Pair(_) = task.stream { 2 } else { nodes };
                let part = part(case, back, task.kind, (across, members))?;
                let part = Case { root: task.root, bytes, ..part };
                let take = |bytes| {
                    let machine = if task.stream.is_in_memory() { machine } else { &shared };
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
    let rank_s = play::simulate(&layout, &shape, cost)?;
    Ok(Prediction { rank_s, messages })
}

/// What a job's tasks would be that was told to take these algorithms among its leaders, or why it would take others.
fn shape(case: &Case, tasks: Tasks, segment: usize, layout: &Layout) -> Result<TaskShape, String> {
    let back = tasks.back;
    let element_bytes = if case.bytes.is_multiple_of(8) { 8 } else { 1 };
    let over = OverNodes {
        collective: case.collective,
        count: case.bytes / element_bytes,
        element_bytes,
        commutative: true,
        reproducible: false,
        root: case.root,
        shares_cores: false,
        wire_mbit_s: None,
        layout,
        topology: None,
    };
    let choice = form::choose(&over, &settings(tasks, segment.max(element_bytes)));
    let asked = (case.algorithm, back.unwrap_or(choice.back.algorithm));
    if (choice.inter.algorithm, choice.back.algorithm) == asked {
        let across = if back.is_some() { Across::Split } else { choice.shape.across };
        return Ok(TaskShape { across, ..choice.shape });
    }
    let why = choice.refused.map_or(String::new(), |not| format!(": {not}"));
    Err(format!("the tasks of both levels do not have it among leaders, so no job does this{why}"))
}

/// What a job would be told.
fn settings(tasks: Tasks, segment: usize) -> Inter {
    let Tasks { across, back, leaders } = tasks;
    let form = Some(NodesForm::Hierarchical);
    let both = Inter { form, leaders: Some(leaders), segment_bytes: Some(segment), ..Inter::default() };
    match back {
        None => Inter { algorithm: Some(across), ..both },
        Some(_) => Inter { splits: true, algorithms: [back, Some(across), None], ..both },
    }
}

/// How many ranks of a node send to other nodes at once.
fn senders(shape: &TaskShape, nodes: usize, ranks_per_node: usize) -> u32 {
    let chunk = shape.count.min(shape.chunk_bytes / shape.element_bytes);
    let senders = match (shape.collective, shape.across) {
        // Each to a node of another group, of which there is one that is its own.
        (Collective::Allreduce, Across::NodeAware) => ranks_per_node.min(nodes).saturating_sub(1).max(1),
        _ => slices::number(chunk, shape.element_bytes, shape.leaders.min(ranks_per_node)),
    };
    u32::try_from(senders).unwrap_or(u32::MAX)
}

/// The part of `kind` in the case: on one node of so many ranks, or among so many leaders, or two ranks of a pair.
fn part(case: &Case, back: Option<Algorithm>, kind: Kind, (nodes, members): (usize, usize)) -> Result<Case, String> {
    let tree = Algorithm::Tree(Tree::Binomial);
    let (collective, algorithm, shape) = match kind {
        Kind::Sr => (Collective::Reduce, tree, (1, members)),
        Kind::Sb => (Collective::Bcast, tree, (1, members)),
        Kind::Ir => (Collective::Reduce, case.algorithm, (nodes, 1)),
        Kind::Sa => (Collective::Allreduce, Algorithm::RecursiveDoubling, (1, members)),
        Kind::Ib if case.algorithm == Algorithm::Nap => (Collective::Bcast, tree, (nodes, 1)),
        Kind::Ib => (Collective::Bcast, back.unwrap_or(case.algorithm), (nodes, 1)),
        Kind::Ia if case.collective == Collective::Barrier => (Collective::Barrier, case.algorithm, (nodes, 1)),
        Kind::Ia => (Collective::Allreduce, case.algorithm, (nodes, 1)),
    };
    let layout = simulated::Layout::new(shape.0, shape.1).map_err(|error| error.to_string())?;
    Ok(Case { layout, collective, algorithm, ..*case })
}

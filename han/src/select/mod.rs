//! How a collective over several nodes is carried out: algorithm, chunks and policy, with the reasons.
//!
//! Pure functions of what all ranks know alike, so that all choose the same.

pub mod form;
mod node_aware;
mod settings;
pub mod tuned;

use net_fabric::algorithm::Shape;
pub use net_fabric::algorithm::{Algorithm, Topology, Tree, Within};
pub use net_fabric::{Plan, Policy};
use shm_core::Collective;
pub use shm_core::explain::Point;

pub use form::NodesForm;
pub(crate) use settings::module_name;
use settings::policy_name;
pub use settings::{Inter, KEYS, LEAST_CHUNK_BYTES, POLICIES, is_searched};

/// What is to be done, as far as the choice depends on it.
#[derive(Debug, Clone, Copy)]
pub struct NetworkQuestion<'a> {
    /// The collective.
    pub collective: Collective,
    /// Ranks, each of which has the network to itself.
    pub ranks: usize,
    /// Bytes of a rank's vector.
    pub bytes: usize,
    /// Bytes of an element.
    pub element_bytes: usize,
    /// Whether the operator commutes.
    pub commutative: bool,
    /// The root.
    pub root: usize,
    /// Whether ranks share cores somewhere: then it counts how many messages there are, and how often a rank has to
    /// wait for its turn, more than how many steps they take.
    pub shares_cores: bool,
    /// Megabits a second that the slowest rank's wire carries, if anybody says.
    pub wire_mbit_s: Option<u64>,
    /// Where the ranks are, for algorithms that follow it.
    pub topology: Option<&'a Topology>,
}

/// A choice with its reasons.
#[derive(Debug, Clone)]
pub struct Selection {
    /// What is done.
    pub plan: Plan,
    /// Why.
    pub points: Vec<Point>,
    /// Why the algorithm that is set is not taken, if it is not.
    pub refused: Option<&'static str>,
}

// The numbers are from measurements, which `net-fabric/docs/selection.md` shows.

/// What the wires carried with which they were measured, or more. On a slower one a length counts for as many times itself.
const MEASURED_MBIT_S: u64 = 10_000;
/// Up to here a message's latency counts and not its length: fewest steps.
const SHORT_BYTES: usize = 8 << 10;
/// The same for allreduce, whose other algorithms take at least twice as many steps; and where ranks have a core each, so that it is
/// steps that take the time.
const SHORT_ALLREDUCE_BYTES: usize = 16 << 10;
const SHORT_OWN_ALLREDUCE_BYTES: usize = 32 << 10;
/// On whatever wire these steps cost more than what they save up to here.
const LEAST_HALVED_BYTES: usize = 6 << 10;
/// Up to here two ranks do one step after the other.
const SIMPLE_BYTES: usize = 64 << 10;
/// Up to here two ranks exchange whole vectors, in one step; beyond it each sums a half.
const LONG_EXCHANGE_BYTES: usize = 4 << 20;
/// The same where they share cores with others, who wait while both sum up everything.
const LONG_SHARED_EXCHANGE_BYTES: usize = 256 << 10;
/// Up to here halving and doubling, in fewer steps, is quicker than a ring, whose messages are all between neighbours.
const LONG_HALVING_BYTES: usize = 128 << 10;
/// Chunks are at least so long: a message's own cost is small beside them.
const LEAST_CHOSEN_CHUNK_BYTES: usize = 64 << 10;
/// The same on the slowest wire.
const LEAST_SLOW_CHUNK_BYTES: usize = 4 << 10;
/// Chunks need not be longer: a message's own cost has vanished, and the next chunk is sent while one is summed.
const MOST_CHOSEN_CHUNK_BYTES: usize = 256 << 10;
/// Chunks of two ranks: each message interrupts a stream that the kernel could deliver in larger pieces.
const LINK_CHUNK_BYTES: usize = 4 << 20;
/// The same where chunks are summed: what has come should still be in a cache.
const SUMMED_CHUNK_BYTES: usize = 512 << 10;
/// Filling a pipeline may take one part in so many of the vector's own time.
const FILLING: usize = 8;
/// So many ranks that share cores send short operands to one of them, which sums them up.
const FEW_RANKS: usize = 8;
/// Operands up to here are short in that.
const GATHERED_BYTES: usize = 32 << 10;
/// Longer ones that stay with the root are summed on their way, up to here in few steps.
const SUMMED_IN_PAIRS_BYTES: usize = 128 << 10;
/// From this many ranks on a pipeline along all of them takes too long to fill.
const MANY_RANKS: usize = 32;

/// Chooses for `question` under the settings, with the reasons.
#[must_use]
pub fn choose(question: &NetworkQuestion<'_>, inter: &Inter) -> Selection {
    let wire_mbit_s = inter.wire_mbit_s(question.wire_mbit_s);
    let question = &NetworkQuestion { wire_mbit_s, ..*question };
    let Decision { plan, why, chunk_why, not } = decide(question, inter);
    let set = |is_set: bool, otherwise: &str| if is_set { "the setting says so" } else { otherwise }.to_owned();
    let (set_algorithm, collective) = (inter.algorithm_of(question.collective), question.collective);
    let why = match (set_algorithm, not) {
        (Some(forced), Some(not)) => format!("{why} ({forced} is set, but {not})"),
        (forced, _) => set(forced.is_some(), why),
    };
    let policy_why = match plan.policy {
        Policy::Blocking => "with one short message each way it takes the least work",
        Policy::WaitAll | Policy::EventDriven { .. } => "a step that could go on never waits for another one",
    };
    let chunk_why = set(inter.chunk_bytes_of(collective).is_some(), chunk_why);
    let policy_why = set(inter.policy.is_some(), policy_why);
    let mut points = vec![
        Point::new("algorithm", plan.algorithm.to_string(), why, inter.key_for("inter_algorithm", collective)),
        Point::new(
            "chunk_bytes",
            plan.chunk_bytes.to_string(),
            chunk_why,
            inter.key_for("inter_chunk_bytes", collective),
        ),
        Point::new("policy", policy_name(plan.policy), policy_why, "inter_policy"),
    ];
    if let (Some(mbit_s), times @ 2..) = (wire_mbit_s, slowness(wire_mbit_s)) {
        let because = format!("each byte counts for {times} at the lengths that decide");
        points.push(Point::new("wire", format!("{mbit_s} Mbit/s"), because, "wire_mbit_s"));
    }
    Selection { plan, points, refused: not }
}

/// How many times as long as with what was measured a byte takes on the wire.
fn slowness(wire_mbit_s: Option<u64>) -> usize {
    let times = wire_mbit_s.map_or(1, |mbit_s| MEASURED_MBIT_S / mbit_s.max(1));
    usize::try_from(times).unwrap_or(usize::MAX).max(1)
}

impl NetworkQuestion<'_> {
    /// Bytes of the shortest chunk whose own cost is small beside its time on the wire.
    fn least_chunk_bytes(&self) -> usize {
        (LEAST_CHOSEN_CHUNK_BYTES / slowness(self.wire_mbit_s).next_power_of_two()).max(LEAST_SLOW_CHUNK_BYTES)
    }
}

/// A choice.
struct Decision {
    plan: Plan,
    /// Why this algorithm, where none is set.
    why: &'static str,
    /// Why such chunks, where they are not set.
    chunk_why: &'static str,
    /// Why not the one that is set.
    not: Option<&'static str>,
}

fn decide(question: &NetworkQuestion<'_>, inter: &Inter) -> Decision {
    let (chosen, why) = algorithm(question);
    let set = inter
        .algorithm_of(question.collective)
        .map(|set| set.applies(question.collective, &shape(question)).map(|()| set));
    let (algorithm, not) = match set {
        Some(Ok(set)) => (set, None),
        Some(Err(not)) => (chosen, Some(not)),
        None => (chosen, None),
    };
    let (chosen_bytes, chunk_why) = chunk_bytes(algorithm, question);
    let chunk_bytes = inter.chunk_bytes_of(question.collective).unwrap_or(chosen_bytes);
    // Two ranks, one message each way: there is no order to keep books on.
    let is_simple = question.ranks == 2 && question.bytes <= SIMPLE_BYTES && question.bytes <= chunk_bytes;
    let policy = inter.policy.unwrap_or(if is_simple { Policy::Blocking } else { Policy::EVENT_DRIVEN });
    let plan = Plan { algorithm, chunk_bytes, policy };
    Decision { plan, why, chunk_why, not }
}

/// Bytes of a chunk, and why.
fn chunk_bytes(algorithm: Algorithm, question: &NetworkQuestion) -> (usize, &'static str) {
    let is_tree = matches!(algorithm, Algorithm::Tree(_));
    if question.ranks == 2 && (is_tree || algorithm == Algorithm::RecursiveDoubling) {
        return match question.collective {
            Collective::Bcast => (LINK_CHUNK_BYTES, "over a single link there is no pipeline to fill"),
            _ => (SUMMED_CHUNK_BYTES, "over a single link one chunk is summed while the next one comes"),
        };
    }
    // Along a chain of n ranks the last chunk comes n - 2 chunks after it would have come over one link.
    let fills = if is_tree { question.ranks.saturating_sub(2) } else { 0 };
    if fills == 0 {
        return (MOST_CHOSEN_CHUNK_BYTES, "nobody waits for a pipeline to fill, and a message's own cost has vanished");
    }
    let bytes = (question.bytes / (FILLING * fills)).clamp(question.least_chunk_bytes(), MOST_CHOSEN_CHUNK_BYTES);
    (bytes, "a message's own cost is small beside it, and the pipeline fills in a small part of the vector's time")
}

/// The algorithm, and why.
fn algorithm(question: &NetworkQuestion<'_>) -> (Algorithm, &'static str) {
    let NetworkQuestion { collective, ranks, bytes, shares_cores, .. } = *question;
    let slowness = slowness(question.wire_mbit_s);
    let is_short = bytes
        <= match collective {
            Collective::Allreduce => {
                let bytes = if shares_cores { SHORT_ALLREDUCE_BYTES } else { SHORT_OWN_ALLREDUCE_BYTES };
                (bytes / slowness).max(LEAST_HALVED_BYTES)
            }
            _ => SHORT_BYTES / slowness,
        };
    let ring = Algorithm::Ring.applies(collective, &shape(question)).is_ok();
    let longest_exchange = if shares_cores { LONG_SHARED_EXCHANGE_BYTES } else { LONG_EXCHANGE_BYTES };
    let exchanges = is_short || (ranks == 2 && (bytes <= longest_exchange || !ring));
    let crowded = shares_cores && (3..=FEW_RANKS).contains(&ranks);
    let gathers = crowded
        && match collective {
            Collective::Reduce | Collective::Allreduce => bytes <= GATHERED_BYTES / slowness,
            Collective::Barrier | Collective::Bcast => is_short,
        };
    match collective {
        Collective::Barrier if gathers => {
            (Algorithm::Tree(Tree::Binomial), "ranks share cores, and a tree takes the fewest messages")
        }
        Collective::Reduce | Collective::Allreduce if gathers => (
            Algorithm::Tree(Tree::Linear),
            "ranks share cores: by way of one rank it takes the fewest messages, and nobody else waits for a turn",
        ),
        Collective::Reduce if crowded && slowness == 1 && bytes <= SUMMED_IN_PAIRS_BYTES => (
            Algorithm::Tree(Tree::Binary),
            "ranks share cores: in a binary tree few wait for one that waits, and no rank sums up all",
        ),
        Collective::Barrier => (Algorithm::Dissemination, "it takes the fewest steps"),
        Collective::Bcast | Collective::Reduce
            if is_short || bytes < pipeline_from(ranks, question.least_chunk_bytes()) =>
        {
            (
                Algorithm::Tree(Tree::Binomial),
                "a binomial tree takes the fewest steps, and a pipeline would take longer to fill",
            )
        }
        Collective::Bcast | Collective::Reduce if ranks < MANY_RANKS => {
            (Algorithm::Tree(Tree::Chain), "every rank sends the long vector only once, chunk by chunk")
        }
        Collective::Bcast | Collective::Reduce => {
            (Algorithm::Tree(Tree::Binary), "a chain of so many ranks fills slowly; a binary tree sends chunks twice")
        }
        Collective::Allreduce if exchanges => {
            (Algorithm::RecursiveDoubling, "partial results over doubling distances take the fewest steps")
        }
        Collective::Allreduce if ring && ranks <= FEW_RANKS && ranks.is_power_of_two() => {
            (Algorithm::Rabenseifner, "halving and doubling sends less than two vectors in the fewest messages")
        }
        Collective::Allreduce if ring && ranks < MANY_RANKS && bytes > LONG_HALVING_BYTES / slowness => {
            (Algorithm::Ring, "in a ring every rank sends the long vector less than twice")
        }
        Collective::Allreduce if ring => {
            (Algorithm::Rabenseifner, "halving and doubling sends less than two vectors in few steps")
        }
        Collective::Allreduce => {
            (Algorithm::Tree(Tree::Binary), "the operator does not commute: along a tree operands stay in order")
        }
    }
}

/// The length from which on a pipeline is taken in place of a binomial tree.
///
/// The tree's last rank has the vector after `steps`, the binary logarithm of the number of ranks, rounded up. Counted in times
/// of a chunk over a link, of which the vector has `m`, a chain takes `m + ranks - 2` and the tree `m * steps`; a binary tree,
/// each rank of which sends twice, `2 (m + steps - 1)`. So the pipeline pays from a length on; from half of it, because back to
/// back its root sends each vector once or twice, and that of the binomial tree in each step.
fn pipeline_from(ranks: usize, chunk_bytes: usize) -> usize {
    let steps = ranks.next_power_of_two().trailing_zeros() as usize;
    let (fills, saved) = if ranks < MANY_RANKS { (ranks.saturating_sub(2), 1) } else { (2 * (steps - 1), 2) };
    chunk_bytes * fills / steps.saturating_sub(saved).max(1) / 2
}

fn shape<'a>(question: &NetworkQuestion<'a>) -> Shape<'a> {
    let NetworkQuestion { ranks, bytes, element_bytes, commutative, root, topology, .. } = *question;
    Shape { size: ranks, bytes, element_bytes, commutative, root, topology, ..Shape::default() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

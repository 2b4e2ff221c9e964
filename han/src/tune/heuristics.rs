//! What is known to be no good, so that it need not be measured (dissertation, section 6.2).
//!
//! Each rule narrows the search by an assumption; where one is wrong the search finds less than the best.

use net_fabric::Policy;
use net_fabric::algorithm::{Algorithm, Tree};
use shm_core::Collective;

use super::space::{Candidate, Case, Space, has_tasks, is_node_aware};
use crate::select::Inter;

/// Longest vector that goes through the network as one chunk: longer ones should keep both levels at work.
const LONGEST_SINGLE: usize = 2 << 20;
/// Shortest chunk: a message's own cost counts below.
const SHORTEST_SEGMENT: usize = 32 << 10;
/// Longest vector for which all ranks may use the network.
const FLAT_BYTES: usize = 8 << 10;
/// Chunks of a vector: more only cost.
const CHUNKS: std::ops::RangeInclusive<usize> = 2..=32;
/// Longest vector that all ranks of a node may send to other nodes.
const NODE_AWARE_BYTES: usize = 16 << 10;
/// Shortest chunk for algorithms that send little in many steps.
const LONG_BYTES: usize = 32 << 10;
/// Longest chunk for those that send much in few steps.
const SHORT_BYTES: usize = 256 << 10;

/// Why a candidate is left out, if it is.
pub(super) fn against(space: &Space, case: Case, candidate: &Candidate) -> Option<&'static str> {
    let Candidate { family, segment } = candidate;
    if case.collective == Collective::Barrier {
        return None;
    }
    let chunk = segment.unwrap_or(case.bytes);
    let chunks = case.bytes / chunk.max(1);
    let is = |algorithm| family.algorithm == Some(algorithm);
    let is_long = family.algorithm.is_some_and(Algorithm::deals_out);
    let scatters = is(Algorithm::ScatterRing) || is(Algorithm::ScatterDoubling);
    let network = [
        (family.policy == Some(Policy::WaitAll), "who need not wait for a round is never slower"),
        (is_long && chunk < LONG_BYTES, "steps count more than bytes"),
        (is(Algorithm::RecursiveDoubling) && space.nodes > 2 && chunk > SHORT_BYTES, "bytes count more than steps"),
        (space.nodes == 2 && is(Algorithm::Ring), "between two nodes it takes the steps of Rabenseifner's"),
        (space.nodes == 2 && scatters, "between two nodes a half of it travels back"),
    ];
    let first = |rules: &[(bool, &'static str)]| rules.iter().find(|(applies, _)| *applies).map(|(_, why)| *why);
    if !has_tasks(family) {
        let is_built_in = *family == Inter::default();
        let within = [
            (is_built_in, "what the rules choose is tried by its parts"),
            (case.bytes > FLAT_BYTES, "long vectors should not travel within a node"),
        ];
        return first(if space.ranks_per_node > 1 { &within } else { &network });
    }
    let rules = [
        (is_node_aware(family) && case.bytes > NODE_AWARE_BYTES, "bytes count more than steps"),
        (segment.is_none() && chunk > LONGEST_SINGLE, "the levels should overlap"),
        (segment.is_some_and(|bytes| bytes < SHORTEST_SEGMENT), "a message's own cost counts"),
        (segment.is_some() && !CHUNKS.contains(&chunks), "few chunks do not overlap, many only cost"),
        // As the dissertation has it: a chain has to be filled.
        (is(Algorithm::Tree(Tree::Chain)) && space.nodes > 2 && chunks <= 8, "a chain needs more than eight chunks"),
        (family.chunk_bytes.is_some(), "chunks are pieces enough"),
        (family.splits && chunks < *CHUNKS.start(), "both ways are used at once only with several chunks"),
        (family.splits && family.leaders != Some(1), "slices of several leaders go both ways at once, too"),
        (
            family.leaders.is_some_and(|leaders| leaders > 1 && leaders < space.ranks_per_node),
            "either one leader keeps the network busy, or all are needed",
        ),
    ];
    first(&network).or_else(|| first(&rules))
}

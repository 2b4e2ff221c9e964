//! Sets the cost model's estimates beside measurements.

use shm_core::Collective;

use super::{Bench, Method, Search};
use crate::select::Inter;
use crate::tune::space::{Case, Space, has_tasks};

/// An estimate beside a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Check {
    /// The configuration but for the length of chunks.
    pub family: Inter,
    /// Bytes of a chunk.
    pub segment: usize,
    /// Microseconds by the cost model.
    pub estimate: f64,
    /// Microseconds that were measured.
    pub us: f64,
}

/// What all ranks take by an algorithm of the network, which has no tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct Whole {
    /// The configuration.
    pub family: Inter,
    /// Microseconds that were measured.
    pub us: f64,
}

/// What was compared, and how much could not be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Validation {
    /// What has several chunks.
    pub checks: Vec<Check>,
    /// What has no tasks: the cost model of messages estimates it.
    pub wholes: Vec<Whole>,
    /// Configurations with one chunk, which a search measures whole.
    pub of_one_chunk: usize,
    /// What the built-in rules choose, on both levels and with all ranks on the network.
    pub built_in: usize,
}

/// Estimates and measures everything in the space that has several chunks, for its longest vectors, and measures all ranks on
/// the network by every algorithm.
///
/// # Errors
/// Those of the measurements.
pub fn validate<B: Bench>(bench: &mut B, space: &Space, collective: Collective) -> Result<Validation, B::Error> {
    let mut found = Validation::default();
    let Some(&bytes) = space.sizes.last() else { return Ok(found) };
    let case = Case { collective, bytes };
    let space = Space { sizes: vec![bytes], collectives: vec![collective], all_flat: true, ..space.clone() };
    let mut search = Search::new(bench, &space, Method::Task);
    for family in space.families(collective, false) {
        if !has_tasks(&family) {
            match family.algorithm {
                Some(_) => found.wholes.push(Whole { family, us: search.whole(case, family)? }),
                None => found.built_in += 1,
            }
            continue;
        }
        let known = search.family(collective, family)?;
        for candidate in space.of_family(case, family, false) {
            match (candidate.segment, known.estimate(case, candidate)) {
                (Some(segment), Some(estimate)) => {
                    let us = search.whole(case, candidate.settings(case))?;
                    found.checks.push(Check { family, segment, estimate: estimate.us, us });
                }
                _ => found.of_one_chunk += 1,
            }
        }
    }
    Ok(found)
}

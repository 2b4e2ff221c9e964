//! Sets the cost model's estimates beside measurements.

use shm_core::Collective;

use super::{Bench, Method, Search};
use crate::select::Inter;
use crate::tune::space::{Case, ELEMENT_BYTES, Space, has_tasks};

/// A single chunk is estimated from lengths that are such a part of its own, the first of which the configuration allows, and
/// so many times as long: together what a search leaves between two measurements.
const PARTS: [usize; 3] = [8, 4, 2];
const TIMES: usize = 8;
/// No longer vector is searched.
const LONGEST: usize = 16 << 20;

/// An estimate beside a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Check {
    /// The configuration but for the length of chunks.
    pub family: Inter,
    /// Bytes of a chunk, if there are several.
    pub segment: Option<usize>,
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
    /// What uses both levels.
    pub checks: Vec<Check>,
    /// What has no tasks: the cost model of messages estimates it.
    pub wholes: Vec<Whole>,
    /// What the built-in rules choose, on both levels and with all ranks on the network.
    pub built_in: usize,
}

/// Lengths of vectors from which [`validate`] estimates one of `bytes`, ascending: never its own.
#[must_use]
pub fn neighbours(bytes: usize) -> Vec<usize> {
    let shorter = PARTS.map(|part| bytes / part / ELEMENT_BYTES * ELEMENT_BYTES);
    let mut lengths: Vec<usize> = shorter.into_iter().filter(|&bytes| bytes > 0).collect();
    lengths.dedup();
    lengths.push(bytes.saturating_mul(TIMES).min(LONGEST.max(bytes.saturating_mul(2))));
    lengths
}

/// Estimates and measures everything in the space for its longest vectors: several chunks by their tasks, a single one as a
/// search does that measures other lengths. Measures all ranks on the network by every algorithm.
///
/// # Errors
/// Those of the measurements.
pub fn validate<B: Bench>(bench: &mut B, space: &Space, collective: Collective) -> Result<Validation, B::Error> {
    let mut found = Validation::default();
    let Some(&bytes) = space.sizes.last() else { return Ok(found) };
    let case = Case { collective, bytes };
    let own = Space { sizes: vec![bytes], collectives: vec![collective], all_flat: true, ..space.clone() };
    let others = Space { sizes: neighbours(bytes), segments: Vec::new(), ..own.clone() };
    let mut search = Search::new(bench, &own, Method::Task);
    for family in own.families(collective, false) {
        let members = own.of_family(case, family, false);
        if members.is_empty() {
            continue;
        }
        if !has_tasks(&family) {
            match family.algorithm {
                Some(_) => found.wholes.push(Whole { family, us: search.whole(case, family)? }),
                None => found.built_in += 1,
            }
            continue;
        }
        let by_tasks = search.family(collective, family)?;
        search.space = &others;
        let by_length = search.family(collective, family)?;
        search.space = &own;
        for candidate in members {
            let known = if candidate.segment.is_some() { &by_tasks } else { &by_length };
            if let Some(estimate) = known.estimate(case, candidate) {
                let us = search.whole(case, candidate.settings(case))?;
                found.checks.push(Check { family, segment: candidate.segment, estimate: estimate.us, us });
            }
        }
    }
    Ok(found)
}

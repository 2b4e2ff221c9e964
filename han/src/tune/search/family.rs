//! Families of configurations that differ in the length of chunks alone, and what is estimated of their members.

use shm_core::Collective;

use super::{Bench, Search, Work};
use crate::select::Inter;
use crate::tune::model::{Costs, Tasks, between, depth};
use crate::tune::space::{Candidate, Case};

/// Tasks of a run beside those while it fills and empties, at least: so many show what is stable.
const STABLE_TASKS: usize = 5;
/// Bytes of such a run, at least: what is sent first only fills the buffers of the network, which the kernel lets grow
/// to 4 MiB.
const STABLE_BYTES: usize = 4 << 20;
/// A single chunk is measured at lengths that are so many times each other.
const SINGLE_RATIO: usize = 64;
/// The same where rules are trusted.
const SINGLE_RATIO_BY_RULES: usize = 256;

/// What is known of a family without measuring its members whole.
pub(super) struct Family {
    settings: Inter,
    /// By length: one chunk, or everything if there are no tasks.
    single: Vec<(usize, f64)>,
    /// By what these were measured.
    by: Vec<Work>,
    piped: Vec<Piped>,
}

/// The tasks of chunks of a length, and by what they were measured.
struct Piped {
    segment: usize,
    work: Work,
    tasks: Tasks,
}

/// Microseconds that a candidate is estimated to take.
pub(super) struct Estimate<'f> {
    pub(super) us: f64,
    pub(super) candidate: Candidate,
    /// By what measurements.
    pub(super) by: &'f [Work],
}

impl<B: Bench> Search<'_, B> {
    pub(super) fn families(&mut self, collective: Collective) -> Result<Vec<Family>, B::Error> {
        let families = self.space.families(collective, self.method.has_rules());
        families.into_iter().map(|family| self.family(collective, family)).collect()
    }

    /// What is estimated of all candidates for a case, the best first.
    pub(super) fn estimates<'f>(&self, case: Case, families: &'f [Family]) -> Vec<Estimate<'f>> {
        let of_family = |family: &'f Family| {
            let candidates = self.space.of_family(case, family.settings, self.method.has_rules());
            candidates.into_iter().filter_map(move |candidate| family.estimate(case, candidate))
        };
        let mut estimates: Vec<Estimate<'f>> = families.iter().flat_map(of_family).collect();
        estimates.sort_by(|one, other| one.us.total_cmp(&other.us));
        estimates
    }

    /// Measures what the family's members are made of, as far as any case needs it.
    pub(super) fn family(&mut self, collective: Collective, family: Inter) -> Result<Family, B::Error> {
        let by_rules = self.method.has_rules();
        let members: Vec<(Case, Candidate)> = self
            .cases(collective)
            .into_iter()
            .flat_map(|case| {
                let candidates = self.space.of_family(case, family, by_rules);
                candidates.into_iter().map(move |candidate| (case, candidate))
            })
            .collect();
        let mut known = Family { settings: family, single: Vec::new(), by: Vec::new(), piped: Vec::new() };
        let single: Vec<Case> =
            members.iter().filter(|(_, candidate)| candidate.segment.is_none()).map(|(case, _)| *case).collect();
        for case in self.thinned(&single) {
            let settings = Candidate { family, segment: None }.settings(case);
            let us = self.whole(case, settings)?;
            known.single.push((case.bytes, us));
            known.by.push(self.whole_work(case, settings));
        }
        for &segment in &self.space.segments {
            let longest = members.iter().filter(|(_, candidate)| candidate.segment == Some(segment));
            if let Some(bytes) = longest.map(|(case, _)| case.bytes).max() {
                let mut piped = self.tasks(collective, family, segment, bytes)?;
                if let Some(us) = between(&known.single, segment) {
                    piped.tasks.single = vec![us];
                }
                known.piped.push(piped);
            }
        }
        Ok(known)
    }

    /// Lengths at which a single chunk is measured, the others being between.
    fn thinned(&self, cases: &[Case]) -> Vec<Case> {
        let ratio = if self.method.has_rules() { SINGLE_RATIO_BY_RULES } else { SINGLE_RATIO };
        let mut thinned: Vec<Case> = Vec::new();
        for &case in cases {
            if thinned.last().is_none_or(|last| case.bytes >= last.bytes.saturating_mul(ratio)) {
                thinned.push(case);
            }
        }
        // The longest one bounds what lies between, in place of one that is nearer to it than others are to each other.
        if let Some(longest) = cases.last().filter(|longest| thinned.last() != Some(longest)) {
            if thinned.len() > 1 {
                thinned.pop();
            }
            thinned.push(*longest);
        }
        thinned
    }

    /// Measures the tasks of chunks of `segment` bytes (algorithms 9 and 10): all of them in one run, up to where the
    /// longest vector ends.
    fn tasks(
        &mut self,
        collective: Collective,
        family: Inter,
        segment: usize,
        longest: usize,
    ) -> Result<Piped, B::Error> {
        let depth = depth(collective, family.splits);
        let stable = (depth + STABLE_TASKS).max(STABLE_BYTES.div_ceil(segment));
        let chunks = stable.min(longest.div_ceil(segment)).max(1);
        let bytes = chunks * segment;
        let settings = Candidate { family, segment: Some(segment) }.settings(Case { collective, bytes });
        let by = self.method.name();
        let work = Work { by, turn: 0, collective, bytes, chunks: Some(chunks), settings };
        let entry = self.measure(&work)?;
        let all = |tasks: &Vec<f64>| tasks.iter().sum();
        if chunks < 2 * depth {
            // Too few to tell tasks apart: the whole counts, and longer ones do not come.
            #[allow(clippy::cast_precision_loss)] // at most 5
            let each = entry.us.iter().map(all).fold(0.0, f64::max) / chunks as f64;
            let costs = Costs { head: Vec::new(), stable: each, tail: Vec::new() };
            return Ok(Piped { segment, work, tasks: Tasks { single: vec![each], piped: vec![costs] } });
        }
        let piped: Vec<Costs> = entry.us.iter().map(|tasks| Costs::of_tasks(tasks, depth)).collect();
        let single = piped.iter().map(|costs| costs.total(1.0)).collect();
        Ok(Piped { segment, work, tasks: Tasks { single, piped } })
    }
}

impl Family {
    /// What `candidate`, one of its members, takes for a case.
    pub(super) fn estimate(&self, case: Case, candidate: Candidate) -> Option<Estimate<'_>> {
        let Some(segment) = candidate.segment else {
            // The ends of the line that it lies on.
            let after = self.single.partition_point(|(bytes, _)| *bytes < case.bytes);
            let by = self.by.get(after.saturating_sub(1)..self.by.len().min(after + 1))?;
            return Some(Estimate { us: between(&self.single, case.bytes)?, candidate, by });
        };
        let Piped { work, tasks, .. } = self.piped.iter().find(|piped| piped.segment == segment)?;
        #[allow(clippy::cast_precision_loss)] // lengths of vectors
        Some(Estimate {
            us: tasks.estimate(case.bytes as f64 / segment as f64),
            candidate,
            by: std::slice::from_ref(work),
        })
    }
}

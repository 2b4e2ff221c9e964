//! The four searches of section 6.2: all configurations or those that rules leave, measured whole or by their tasks.

mod family;
mod validate;

use std::collections::{HashMap, HashSet};
use std::fmt;

use shm_core::Collective;

use super::journal::Entry;
use super::model::depth;
use super::space::{Candidate, Case, Listing, Space};
use crate::select::Inter;
use family::Estimate;
pub use validate::{Check, Validation, Whole, neighbours, validate};

/// Everything is measured so often, with everything else between, and the best counts: so no disturbance decides.
const TURNS: usize = 2;
/// What makes no estimate within so many times the best one is measured once.
const HOPELESS: f64 = 1.2;
/// What takes more than so many times the best of those that are listed is measured once.
const CLOSE: f64 = 1.05;
/// Estimates that are so many times the best one are not listed.
const NEAR: f64 = 1.4;

/// A way to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Method {
    /// Everything is measured whole.
    Exhaustive,
    /// What rules leave is measured whole.
    Heuristic,
    /// The tasks of everything are measured, and where estimates are near each other the best whole.
    Task,
    /// The tasks of what rules leave are measured.
    TaskHeuristic,
}

impl Method {
    /// All with their names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("exhaustive", Self::Exhaustive),
        ("heuristic", Self::Heuristic),
        ("task", Self::Task),
        ("task+heuristics", Self::TaskHeuristic),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, method)| *method == self).map_or("", |(name, _)| name)
    }

    /// Whether rules leave something out.
    #[must_use]
    pub fn has_rules(self) -> bool {
        matches!(self, Self::Heuristic | Self::TaskHeuristic)
    }

    fn has_tasks(self) -> bool {
        matches!(self, Self::Task | Self::TaskHeuristic)
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// On whose behalf: searches share no measurements, so that they can be compared.
    pub by: &'static str,
    /// Which of several measurements of the same.
    pub turn: usize,
    /// The collective.
    pub collective: Collective,
    /// Bytes of a rank's vector.
    pub bytes: usize,
    /// Chunks whose tasks are measured one by one, or none if only the whole counts.
    pub chunks: Option<usize>,
    /// The configuration.
    pub settings: Inter,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, turn, collective, bytes, chunks, settings } = self;
        write!(f, "{by} {turn} {} {bytes} in {} {}", collective.name(), chunks.unwrap_or(0), settings.to_text())
    }
}

/// Measures.
pub trait Bench {
    /// What can go wrong.
    type Error;

    /// Microseconds of one operation: of the slowest rank, as the only value; or by leader those of each task (see
    /// [`model`](super::model)), `chunks + depth` of them. The same on all ranks.
    ///
    /// # Errors
    /// Those of the collective.
    fn measure(&mut self, work: &Work) -> Result<Entry, Self::Error>;
}

/// The best that was found for a case.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Best {
    /// For what.
    pub case: Case,
    /// What is to be set.
    pub settings: Inter,
    /// Microseconds that it takes: as measured, or estimated where that decided.
    pub us: f64,
    /// Whether an estimate decided.
    pub estimated: bool,
    /// Microseconds that were estimated, if they were.
    pub estimate: Option<f64>,
}

/// The best configurations, and how long finding them took.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Outcome {
    /// By case.
    pub found: Vec<Best>,
    /// Seconds that were spent on measuring.
    pub spent_s: f64,
    /// Number of measurements.
    pub measured: usize,
}

/// Searches `space` by `method`.
///
/// # Errors
/// Those of the measurements.
pub fn search<B: Bench>(bench: &mut B, space: &Space, method: Method) -> Result<Outcome, B::Error> {
    let mut search = Search::new(bench, space, method);
    let mut foreseen = first_turns(space, method);
    for work in &foreseen {
        search.turn(work, 0)?;
    }
    let hopeful = search.hopeful()?;
    foreseen.retain(|work| !search.is_by_tasks(work.collective) || hopeful.contains(&work.to_string()));
    for turn in 1..TURNS {
        for work in &foreseen {
            search.turn(work, turn)?;
        }
    }
    for &collective in &space.collectives {
        search.collective(collective)?;
    }
    Ok(search.outcome)
}

/// Everything that `method` measures, but for what estimates leave open; of what is by tasks some have one turn only.
#[must_use]
pub fn works(space: &Space, method: Method) -> Vec<Work> {
    let first = first_turns(space, method);
    (0..TURNS).flat_map(|turn| first.iter().map(move |work| Work { turn, ..*work })).collect()
}

/// The first of all turns of what is known to be measured.
fn first_turns(space: &Space, method: Method) -> Vec<Work> {
    struct Listed(Vec<Work>);
    impl Bench for Listed {
        type Error = std::convert::Infallible;

        fn measure(&mut self, work: &Work) -> Result<Entry, Self::Error> {
            self.0.push(*work);
            let tasks = work.chunks.map_or(1, |chunks| chunks + depth(work.collective, work.settings.splits));
            Ok(Entry { us: vec![vec![1.0; tasks]], spent_s: 0.0 })
        }
    }
    let mut listed = Listed(Vec::new());
    let mut search = Search::new(&mut listed, space, method);
    for &collective in &space.collectives {
        // Which estimates are open is not known yet.
        let by_tasks = search.is_by_tasks(collective);
        let Ok(()) = if by_tasks { search.families(collective).map(drop) } else { search.by_whole(collective) };
    }
    listed.0.retain(|work| work.turn == 0);
    listed.0
}

struct Search<'a, B> {
    bench: &'a mut B,
    space: &'a Space,
    method: Method,
    /// What was measured, by its first turn: the best of all turns so far.
    known: HashMap<String, Entry>,
    outcome: Outcome,
}

impl<'a, B: Bench> Search<'a, B> {
    fn new(bench: &'a mut B, space: &'a Space, method: Method) -> Self {
        Self { bench, space, method, known: HashMap::new(), outcome: Outcome::default() }
    }

    fn is_by_tasks(&self, collective: Collective) -> bool {
        self.method.has_tasks() && collective != Collective::Barrier
    }

    fn listing(&self) -> Listing {
        if self.method.has_rules() { Listing::BY_RULES } else { self.space.listing }
    }

    /// Whether estimates for a case only make the [list](super::space::Listing) of what is measured whole.
    fn is_listed(&self, case: Case) -> bool {
        case.bytes >= self.listing().least_bytes
    }

    fn collective(&mut self, collective: Collective) -> Result<(), B::Error> {
        if self.is_by_tasks(collective) { self.by_tasks(collective) } else { self.by_whole(collective) }
    }

    /// One turn of a measurement; gives the microseconds of the slowest leader.
    fn turn(&mut self, work: &Work, turn: usize) -> Result<f64, B::Error> {
        let entry = self.bench.measure(&Work { turn, ..*work })?;
        self.outcome.spent_s += entry.spent_s;
        self.outcome.measured += 1;
        let known = self.known.entry(work.to_string()).or_insert_with(|| entry.clone());
        let total = |entry: &Entry| entry.us.iter().map(|tasks| tasks.iter().sum()).fold(0.0, f64::max);
        let us = total(&entry);
        if us < total(known) {
            *known = entry;
        }
        Ok(us)
    }

    /// The best of all turns; those of what was not foreseen come now.
    fn measure(&mut self, work: &Work) -> Result<Entry, B::Error> {
        let name = work.to_string();
        for turn in 0..if self.known.contains_key(&name) { 0 } else { TURNS } {
            self.turn(work, turn)?;
        }
        Ok(self.known.get(&name).cloned().unwrap_or_default())
    }

    fn whole(&mut self, case: Case, settings: Inter) -> Result<f64, B::Error> {
        let entry = self.measure(&self.whole_work(case, settings))?;
        Ok(entry.us.iter().flatten().copied().fold(0.0, f64::max))
    }

    fn whole_work(&self, case: Case, settings: Inter) -> Work {
        let Case { collective, bytes } = case;
        Work { by: self.method.name(), turn: 0, collective, bytes, chunks: None, settings }
    }

    fn cases(&self, collective: Collective) -> Vec<Case> {
        self.space.cases().filter(|case| case.collective == collective).collect()
    }

    /// Exhaustive search, or what the rules leave of it.
    fn by_whole(&mut self, collective: Collective) -> Result<(), B::Error> {
        for case in self.cases(collective) {
            let mut best: Option<Best> = None;
            for candidate in self.space.candidates(case, self.method.has_rules()) {
                let settings = candidate.settings(case);
                let us = self.whole(case, settings)?;
                if best.is_none_or(|best| us < best.us) {
                    best = Some(Best { case, settings, us, estimated: false, estimate: None });
                }
            }
            self.outcome.found.extend(best);
        }
        Ok(())
    }

    /// What estimates are made of that are not far from the best one, as far as the first turn tells.
    fn hopeful(&mut self) -> Result<HashSet<String>, B::Error> {
        let mut hopeful = HashSet::new();
        for &collective in &self.space.collectives {
            if !self.is_by_tasks(collective) {
                continue;
            }
            let families = self.families(collective)?;
            for case in self.cases(collective).into_iter().filter(|case| !self.is_listed(*case)) {
                let estimates = self.estimates(case, &families);
                let best = estimates.first().map_or(0.0, |estimate| estimate.us);
                let near = estimates.iter().take_while(|estimate| estimate.us <= best * HOPELESS);
                hopeful.extend(near.flat_map(|estimate| estimate.by).map(ToString::to_string));
            }
        }
        Ok(hopeful)
    }

    fn by_tasks(&mut self, collective: Collective) -> Result<(), B::Error> {
        let families = self.families(collective)?;
        for case in self.cases(collective) {
            let mut estimates = self.estimates(case, &families);
            if self.is_listed(case) {
                self.shorten(&mut estimates);
            } else {
                estimates.truncate(1);
            }
            let found = estimates.into_iter().map(|Estimate { us, candidate, .. }| {
                let settings = candidate.settings(case);
                Best { case, settings, us, estimated: true, estimate: Some(us) }
            });
            let mut found: Vec<Best> = found.collect();
            if found.len() > 1 {
                self.measure_whole(&mut found)?;
            }
            let best = found.into_iter().min_by(|one, other| one.us.total_cmp(&other.us));
            self.outcome.found.extend(best);
        }
        Ok(())
    }

    /// Leaves of estimates, the best first, those that are to be measured whole. Two that differ in the policy alone are
    /// estimated by the same messages, so that the better one is enough.
    fn shorten(&self, estimates: &mut Vec<Estimate<'_>>) {
        let best = estimates.first().map_or(0.0, |estimate| estimate.us);
        let mut listed: Vec<Candidate> = Vec::new();
        estimates.retain(|Estimate { us, candidate, .. }| {
            let way = Candidate { family: Inter { policy: None, ..candidate.family }, ..*candidate };
            let is_built_in = candidate.family == Inter::default();
            let has_room = *us <= best * NEAR && listed.len() < self.listing().estimates;
            let is_listed = is_built_in || (has_room && !listed.contains(&way));
            if is_listed && !is_built_in {
                listed.push(way);
            }
            is_listed
        });
    }

    /// Puts what is measured in place of what was estimated: the median of turns, since the best one, of a way that is
    /// now quick and now slow, would say too little. What has turned out slower has no further turn.
    fn measure_whole(&mut self, shortlist: &mut [Best]) -> Result<(), B::Error> {
        let mut measured: Vec<Vec<f64>> = vec![Vec::new(); shortlist.len()];
        for turn in TURNS..TURNS + self.listing().turns {
            let best = shortlist.iter().map(|found| found.us).fold(f64::INFINITY, f64::min);
            for (found, measured) in shortlist.iter_mut().zip(&mut measured) {
                if measured.is_empty() || found.us <= best * CLOSE {
                    measured.push(self.turn(&self.whole_work(found.case, found.settings), turn)?);
                    measured.sort_by(f64::total_cmp);
                    (found.us, found.estimated) = (measured[measured.len() / 2], false);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_precision_loss)]
mod tests;

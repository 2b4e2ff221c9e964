//! How good the searches are: what they found, measured again in turns, so that luck in a search does not count.

use std::ops::Range;

use super::journal::Entry;
use super::search::{Bench, Best, Method, Outcome, Work};
use super::space::Case;
use crate::select::{Inter, NodesForm};

/// On whose behalf comparisons are measured.
const BY: &str = "compare";

/// What was chosen for a case by each way, measured again.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// For what.
    pub case: Case,
    /// Microseconds of each method's choice, in their order.
    pub us: Vec<f64>,
    /// Microseconds of the built-in choice.
    pub built_in_us: f64,
    /// Microseconds where all ranks use the network.
    pub flat_us: f64,
    /// How much longer each method's choice takes than the first one's, as a part of that; the same for the built-in
    /// choice. The median of what each turn gives, so that a machine whose state changes between turns does not count.
    pub loss: Vec<f64>,
    /// The same for the built-in choice.
    pub built_in_loss: f64,
    /// How much longer the built-in choice takes than all ranks on the network.
    pub loss_to_flat: f64,
}

/// Measures for each of `cases`, in so many turns, what each of `outcomes` found, what is built in, and what all ranks on
/// the network take.
///
/// # Errors
/// Those of the measurements.
pub fn compare<B: Bench>(
    bench: &mut B,
    cases: &[Case],
    outcomes: &[(Method, Outcome)],
    turns: Range<usize>,
) -> Result<Vec<Row>, B::Error> {
    let flat = Inter { form: Some(NodesForm::Flat), ..Inter::default() };
    let mut rows = Vec::new();
    for &case in cases {
        let of = |found: &[Best]| found.iter().find(|found| found.case == case).map(|found| found.settings);
        let chosen: Vec<Inter> = outcomes.iter().map(|(_, outcome)| of(&outcome.found).unwrap_or_default()).collect();
        let mut distinct = Vec::new();
        for settings in chosen.iter().chain([&Inter::default(), &flat]) {
            if !distinct.contains(settings) {
                distinct.push(*settings);
            }
        }
        let mut times = vec![Vec::new(); distinct.len()];
        for turn in turns.clone() {
            for (settings, times) in distinct.iter().zip(&mut times) {
                let Case { collective, bytes } = case;
                let work = Work { by: BY, turn, collective, bytes, chunks: None, settings: *settings };
                let Entry { us, .. } = bench.measure(&work)?;
                times.push(us.iter().flatten().copied().fold(0.0, f64::max));
            }
        }
        let of = |settings: &Inter| &times[distinct.iter().position(|known| known == settings).unwrap_or(0)];
        let loss = |settings: &Inter, other: &Inter| {
            let ratios = of(settings).iter().zip(of(other)).map(|(us, other)| us / other);
            median(&mut ratios.collect::<Vec<_>>()) - 1.0
        };
        let us = |settings: &Inter| median(&mut of(settings).clone());
        let built_in = Inter::default();
        let first = chosen.first().copied().unwrap_or_default();
        rows.push(Row {
            case,
            us: chosen.iter().map(us).collect(),
            built_in_us: us(&built_in),
            flat_us: us(&flat),
            loss: chosen.iter().map(|settings| loss(settings, &first)).collect(),
            built_in_loss: loss(&built_in, &first),
            loss_to_flat: loss(&built_in, &flat),
        });
    }
    Ok(rows)
}

/// The middle one, of two the greater one; 0 of none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use shm_core::Collective;

    use super::*;
    use crate::select::Policy;
    use crate::tune::Space;

    /// Gives 1, 2, 3, ... microseconds, ten times as many for all ranks on the network.
    struct Counter(f64);

    impl Bench for Counter {
        type Error = ();

        fn measure(&mut self, work: &Work) -> Result<Entry, ()> {
            self.0 += 1.0;
            let is_flat = work.settings.get("nodes_form").unwrap() == "flat";
            Ok(Entry { us: vec![vec![if is_flat { 10.0 * self.0 } else { self.0 }]], spent_s: 0.0 })
        }
    }

    #[test]
    fn choices_are_measured_in_turns() {
        let space = Space::new((2, 2), &[Collective::Bcast], (8, 8), true);
        let case = space.cases().next().unwrap();
        let found = |settings| Best { case, settings, us: 0.0, estimated: false, estimate: None };
        let outcome = |settings| Outcome { found: vec![found(settings)], ..Outcome::default() };
        let chosen = Inter { policy: Some(Policy::WaitAll), ..Inter::default() };
        let outcomes = [(Method::Exhaustive, outcome(chosen)), (Method::Task, outcome(Inter::default()))];
        let rows = compare(&mut Counter(0.0), &[case], &outcomes, 0..3).unwrap();
        // Three configurations in turns: 1 4 7, 2 5 8, 3 6 9.
        let [Row { us, built_in_us, flat_us, loss, built_in_loss, loss_to_flat, .. }] = &rows[..] else {
            panic!("{rows:?}")
        };
        assert_eq!((&us[..], *built_in_us, *flat_us), (&[4.0, 5.0][..], 5.0, 60.0));
        // Of 2/1, 5/4 and 8/7 the middle one; of 2/30, 5/60 and 8/90 too.
        assert!(loss[0].abs() < 1e-9 && (loss[1] - 0.25).abs() < 1e-9 && (built_in_loss - 0.25).abs() < 1e-9);
        assert!((loss_to_flat - (5.0 / 60.0 - 1.0)).abs() < 1e-9);
    }
}

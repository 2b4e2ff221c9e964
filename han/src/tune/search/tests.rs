//! Searches on a machine that is given by formulas.

use super::*;
use crate::tune::space::has_tasks;

/// A machine in formulas: a network with a cost of its own for each message, memory that is quicker, a pipeline whose
/// tasks cost what the slower of both takes, and nothing random.
struct Formulas {
    leaders: usize,
    works: Vec<Work>,
}

/// Microseconds of a chunk across nodes and on them.
fn stages(settings: &Inter, collective: Collective, chunk: f64) -> Vec<f64> {
    let policy = if settings.get("inter_policy").unwrap() == "wait_all" { 1.5 } else { 1.0 };
    let algorithm = settings.get("inter_algorithm").unwrap();
    let (steps, factor) = match algorithm.as_str() {
        "linear" | "recursive-doubling" => (1.0, 1.0),
        "ring" | "rabenseifner" => (3.0, 0.7),
        _ => (2.0, 1.1),
    };
    let inter = policy * (20.0 * steps + factor * chunk / 1000.0);
    let intra = 2.0 + chunk / 4000.0;
    match depth(collective, settings.splits) {
        1 => vec![inter, intra],
        2 => vec![intra, inter, intra],
        _ => vec![intra, inter * 0.6, inter * 0.6, intra],
    }
}

/// The tasks of a pipeline: each the longest of the stages that it has, and a bit of the others.
fn tasks(stages: &[f64], chunks: usize) -> Vec<f64> {
    let task = |task: usize| {
        let at_work = stages.iter().enumerate().filter(|(stage, _)| (*stage..*stage + chunks).contains(&task));
        let (sum, most) = at_work.fold((0.0, 0.0_f64), |(sum, most), (_, us)| (sum + us, most.max(*us)));
        most + 0.1 * (sum - most)
    };
    (0..chunks + stages.len() - 1).map(task).collect()
}

impl Bench for Formulas {
    type Error = ();

    fn measure(&mut self, work: &Work) -> Result<Entry, ()> {
        self.works.push(*work);
        let bytes = work.bytes as f64;
        if !has_tasks(&work.settings) || work.collective == Collective::Barrier {
            return Ok(Entry { us: vec![vec![60.0 + bytes / 300.0]], spent_s: 1.0 });
        }
        let chunk = work.settings.segment_bytes.unwrap().min(work.bytes);
        let chunks = work.bytes.div_ceil(chunk);
        let tasks = tasks(&stages(&work.settings, work.collective, chunk as f64), chunks);
        let whole: f64 = tasks.iter().sum();
        let us = match work.chunks {
            None => vec![vec![whole]],
            Some(wanted) => {
                assert_eq!(wanted, chunks);
                // Later leaders are a little quicker.
                (0..self.leaders).map(|late| tasks.iter().map(|us| us * (1.0 - 0.01 * late as f64)).collect()).collect()
            }
        };
        Ok(Entry { us, spent_s: whole })
    }
}

fn run(space: &Space, method: Method) -> (Outcome, Vec<Work>) {
    let mut bench = Formulas { leaders: 3, works: Vec::new() };
    let outcome = search(&mut bench, space, method).unwrap();
    assert_eq!(outcome.measured, bench.works.len());
    (outcome, bench.works)
}

/// Microseconds of what was found, whatever was estimated.
fn really(found: &Best) -> f64 {
    let Best { case: Case { collective, bytes }, settings, .. } = *found;
    let work = Work { by: "test", turn: 0, collective, bytes, chunks: None, settings };
    Formulas { leaders: 1, works: Vec::new() }.measure(&work).unwrap().us[0][0]
}

#[test]
fn tasks_find_what_trying_everything_finds() {
    for (nodes, ranks_per_node, is_quick) in [(2, 2, false), (4, 2, false), (2, 2, true), (3, 1, true)] {
        let space = Space::new((nodes, ranks_per_node), &Collective::ALL, (4, 16 << 20), is_quick);
        let (best, _) = run(&space, Method::Exhaustive);
        assert_eq!(best.found.len(), space.cases().count());
        let (quick, works) = run(&space, Method::Task);
        for (best, found) in best.found.iter().zip(&quick.found) {
            assert_eq!(best.case, found.case);
            assert!(really(found) <= best.us * 1.05, "{best:?}: {} by {}", really(found), found.settings);
        }
        if ranks_per_node > 1 {
            assert!(quick.spent_s < best.spent_s * 0.25, "{} of {}", quick.spent_s, best.spent_s);
            assert!(works.iter().any(|work| work.chunks.is_some()));
        }
    }
}

#[test]
fn rules_cost_little_and_save_much() {
    let space = Space::new((4, 4), &[Collective::Bcast, Collective::Allreduce], (4, 16 << 20), false);
    let (best, _) = run(&space, Method::Exhaustive);
    let (fewer, _) = run(&space, Method::Heuristic);
    let (fewest, _) = run(&space, Method::TaskHeuristic);
    assert!(fewer.spent_s < best.spent_s * 0.3, "{} of {}", fewer.spent_s, best.spent_s);
    assert!(fewest.spent_s < best.spent_s * 0.06, "{} of {}", fewest.spent_s, best.spent_s);
    for found in [&fewer.found, &fewest.found] {
        for (best, found) in best.found.iter().zip(found) {
            assert!(really(found) <= best.us * 1.3, "{best:?}: {} by {}", really(found), found.settings);
        }
    }
}

#[test]
fn estimates_stand_beside_measurements() {
    for (collective, bytes) in [
        (Collective::Bcast, 4 << 20),
        (Collective::Allreduce, 4 << 20),
        (Collective::Allreduce, 64 << 10),
        (Collective::Reduce, 12),
        (Collective::Allreduce, 8),
        (Collective::Bcast, 4),
    ] {
        let space = Space::new((2, 4), &[collective], (bytes, bytes), true);
        let mut bench = Formulas { leaders: 2, works: Vec::new() };
        let Validation { checks, wholes, built_in } = validate(&mut bench, &space, collective).unwrap();
        let space = Space { all_flat: true, ..space };
        let case = Case { collective, bytes };
        let everything = space.candidates(case, false);
        assert_eq!(checks.len() + wholes.len() + built_in, everything.len(), "nothing goes without a word");
        assert!(built_in == 2 && !wholes.is_empty());
        let several = checks.iter().filter(|check| check.segment.is_some()).count();
        let segments = space.segments.iter().filter(|&&segment| segment < bytes).count();
        assert!(several >= 2 * segments && checks.len() > several, "{several} of {}", checks.len());
        for check in &checks {
            let error = (check.estimate / check.us - 1.0).abs();
            assert!(check.family.segment_bytes.is_none() && error < 0.1, "{case:?}: {check:?}");
        }
        // No estimate knows what it is compared with.
        let (own, others): (Vec<&Work>, Vec<&Work>) =
            bench.works.iter().partition(|work| work.bytes == bytes && work.chunks.is_none());
        assert_eq!(own.len(), TURNS * (checks.len() + wholes.len()), "{own:?}");
        let lengths = neighbours(bytes);
        assert!(others.iter().all(|work| work.chunks.is_some() || lengths.contains(&work.bytes)), "{others:?}");
    }
}

#[test]
fn single_chunks_are_estimated_from_both_sides() {
    for (bytes, lengths) in [
        (4, &[32][..]),
        (8, &[4, 64]),
        (12, &[4, 96]),
        (100, &[12, 24, 48, 800]),
        (64 << 10, &[8 << 10, 16 << 10, 32 << 10, 512 << 10]),
        (4 << 20, &[512 << 10, 1 << 20, 2 << 20, 16 << 20]),
        (32 << 20, &[4 << 20, 8 << 20, 16 << 20, 64 << 20]),
    ] {
        assert_eq!(neighbours(bytes), lengths);
    }
    // Two leaders have a slice each from 256 bytes on: an eighth of 512 is too short for them.
    let space = Space::new((2, 2), &[Collective::Allreduce], (512, 512), true);
    let mut bench = Formulas { leaders: 2, works: Vec::new() };
    validate(&mut bench, &space, Collective::Allreduce).unwrap();
    let lengths = |leaders: usize| {
        let of = bench.works.iter().filter(|work| work.settings.leaders == Some(leaders) && work.turn == 0);
        of.map(|work| work.bytes).collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!([lengths(1), lengths(2)], [[64, 512, 4096], [256, 512, 4096]]);
}

#[test]
fn what_the_rules_choose_is_measured_beside_the_best_estimates() {
    let space = Space::new((2, 2), &[Collective::Bcast], (4, 4 << 20), true);
    let (_, done) = run(&space, Method::Task);
    for case in space.cases().filter(|case| case.bytes >= space.listing.least_bytes) {
        let listed: Vec<&Work> = done.iter().filter(|work| work.bytes == case.bytes && work.turn >= TURNS).collect();
        assert!(listed.iter().any(|work| work.settings == Inter::default()), "{case:?}: {listed:?}");
        let ways = listed.iter().filter(|work| work.turn == TURNS).map(|work| Inter { policy: None, ..work.settings });
        let ways: Vec<Inter> = ways.collect();
        assert!(ways.len() <= space.listing.estimates + 1, "{case:?}: {ways:?}");
        assert!((1..ways.len()).all(|place| !ways[..place].contains(&ways[place])), "{case:?}: {ways:?}");
    }
}

#[test]
fn the_list_of_work_is_what_is_done() {
    let space = Space::new((2, 2), &Collective::ALL, (4, 4 << 20), true);
    for (_, method) in Method::NAMES {
        let listed = works(&space, method);
        let (_, done) = run(&space, method);
        let left_out = listed.iter().filter(|work| !done.contains(work));
        let may_be_left_out = |work: &Work| method.has_tasks() && work.turn > 0;
        assert!(left_out.copied().all(|work| may_be_left_out(&work)), "{method:?} leaves out what it has foreseen");
        let same = done.iter().filter(|work| listed.contains(work)).count();
        assert!(same * 2 > done.len(), "{method:?}: {same} of {}", done.len());
        let mut texts: Vec<String> = done.iter().map(ToString::to_string).collect();
        texts.sort();
        texts.dedup();
        assert_eq!(texts.len(), done.len(), "{method:?} does something twice");
    }
}

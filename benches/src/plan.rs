//! Who has a turn when. A turn is one contestant, one number of ranks, one style, and one collective
//! (the barrier goes with the next one); all contestants have theirs one after the other, so that what
//! is compared was measured within a minute or two, and every round repeats this in another order.

use std::collections::BTreeMap;

use crate::contestants::Contestant;
use crate::job::{Row, Style, Task};
use crate::machine::State;
use crate::record::Record;

/// Sizes are powers of this number.
const FACTOR: usize = 4;
/// The largest message, where each rank has a core and where it has not.
const LARGEST: (usize, usize) = (64 << 20, 16 << 20);
/// Above this size it matters little whether there is a barrier between operations.
const LARGEST_IN_LOOP: usize = 64 << 10;
/// Below this size a send buffer is never cold: rewriting it leaves it in the first cache.
const SMALLEST_COLD: usize = 16 << 10;

/// What a whole run consists of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of ranks.
    pub ranks: Vec<usize>,
    /// Names of collectives.
    pub collectives: Vec<String>,
    /// Sizes; those of the style if there are none.
    pub sizes: Option<Vec<usize>>,
    /// How iterations follow each other.
    pub styles: Vec<Style>,
    /// How often everybody has a turn.
    pub rounds: u32,
    /// Repeats of each size in one turn.
    pub repeats: u32,
    /// Length of a repeat in milliseconds.
    pub ms: u64,
    /// Further options of `collbench`.
    pub further: Vec<String>,
}

/// One turn of one contestant.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Its place in the list of contestants.
    pub contestant: usize,
    /// In which round.
    pub round: u32,
    /// How often it was tried.
    pub tries: u32,
    /// What is measured.
    pub task: Task,
}

impl Plan {
    /// All turns in their order.
    #[must_use]
    pub fn turns(&self, contestants: &[Contestant], cores: usize) -> Vec<Turn> {
        let mut turns = Vec::new();
        for round in 0..self.rounds {
            for task in self.tasks(cores) {
                let takes_part = |contestant: &Contestant| {
                    let concerned = contestant.only.is_none_or(|only| task.collectives.iter().any(|name| name == only));
                    contestant.takes_part(task.ranks, cores) && concerned
                };
                let mut everybody: Vec<usize> =
                    (0..contestants.len()).filter(|&index| takes_part(&contestants[index])).collect();
                if !everybody.is_empty() {
                    // Each round begins elsewhere, so that nobody is always first.
                    let start = everybody.len() * round as usize / self.rounds as usize;
                    everybody.rotate_left(start);
                }
                let turn = |contestant| Turn { contestant, round, tries: 1, task: task.clone() };
                turns.extend(everybody.into_iter().map(turn));
            }
        }
        turns
    }

    /// What everybody has a turn for in each round.
    fn tasks(&self, cores: usize) -> Vec<Task> {
        let mut tasks = Vec::new();
        for &ranks in &self.ranks {
            for &style in &self.styles {
                let sizes = self.sizes.clone().unwrap_or_else(|| sizes(style, ranks > cores));
                for collectives in groups(&self.collectives, style) {
                    let (repeats, ms, further) = (self.repeats, self.ms, self.further.clone());
                    tasks.push(Task { ranks, collectives, sizes: sizes.clone(), style, repeats, ms, further });
                }
            }
        }
        tasks
    }
}

/// The sizes of a style.
fn sizes(style: Style, crowded: bool) -> Vec<usize> {
    let largest = if crowded { LARGEST.1 } else { LARGEST.0 };
    let powers = std::iter::successors(Some(4), |bytes| Some(bytes * FACTOR)).take_while(|&bytes| bytes <= largest);
    let fits = |bytes: &usize| match style {
        Style::Osu => true,
        Style::Loop => *bytes <= LARGEST_IN_LOOP,
        Style::Cold => *bytes >= SMALLEST_COLD,
    };
    powers.filter(fits).collect()
}

/// The collectives of one turn each; there is nothing cold about a barrier.
fn groups(collectives: &[String], style: Style) -> Vec<Vec<String>> {
    let mut groups = Vec::new();
    let mut open = Vec::new();
    for name in collectives.iter().filter(|name| style != Style::Cold || *name != "barrier") {
        open.push(name.clone());
        if name != "barrier" {
            groups.push(std::mem::take(&mut open));
        }
    }
    groups.extend((!open.is_empty()).then_some(open));
    groups
}

impl Turn {
    /// Whether a row was measured in such a turn.
    fn has(&self, row: &Row) -> bool {
        let style = match (row.style.as_str(), row.cold) {
            ("loop", _) => Style::Loop,
            (_, true) => Style::Cold,
            _ => Style::Osu,
        };
        row.ranks == self.task.ranks && style == self.task.style && self.task.collectives.contains(&row.coll)
    }

    /// Whether `record` has it already, in a state that did not change meanwhile.
    #[must_use]
    pub fn is_in(&self, record: &Record, contestants: &[Contestant]) -> bool {
        let name = &contestants[self.contestant].name;
        let usable = |state| state != State::Changed || record.is_crowded(self.task.ranks);
        record.cells.iter().any(|cell| {
            cell.round == self.round && &cell.contestant == name && usable(cell.state) && self.has(&cell.row)
        })
    }
}

/// The turns that a table lacks: with each, the state in which most others were measured.
#[must_use]
pub fn missing(turns: &[Turn], record: &Record, contestants: &[Contestant]) -> Vec<(Turn, State)> {
    let first_round = turns.iter().filter(|turn| turn.round == 0 && !record.is_crowded(turn.task.ranks));
    // Where a contestant was measured: for each task the states of each contestant's cells.
    let mut tasks: BTreeMap<String, Vec<(&Turn, Vec<State>)>> = BTreeMap::new();
    for turn in first_round {
        let name = &contestants[turn.contestant].name;
        let own = record.cells.iter().filter(|cell| &cell.contestant == name && turn.has(&cell.row));
        let states = own.map(|cell| cell.state).collect();
        tasks.entry(format!("{:?}", turn.task)).or_default().push((turn, states));
    }
    let mut missing = Vec::new();
    for turns in tasks.values() {
        let count = |state| turns.iter().filter(|(_, states)| states.contains(&state)).count();
        let usual = if count(State::Far) > count(State::Near) { State::Far } else { State::Near };
        let lacking = turns.iter().filter(|(_, states)| !states.contains(&usual));
        missing.extend(lacking.map(|&(turn, _)| (turn.clone(), usual)));
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contestants::all;
    use crate::record::tests::cell;

    fn plan() -> Plan {
        Plan {
            ranks: vec![2, 4],
            collectives: ["barrier", "bcast", "allreduce"].map(str::to_owned).to_vec(),
            sizes: None,
            styles: vec![Style::Osu, Style::Cold],
            rounds: 2,
            repeats: 5,
            ms: 1,
            further: Vec::new(),
        }
    }

    fn installed() -> Vec<Contestant> {
        let words = ["installed".to_owned()];
        all(&["malloc".to_owned()]).into_iter().filter(|contestant| contestant.is_meant(&words)).collect()
    }

    #[test]
    fn sizes_follow_the_style() {
        assert_eq!(sizes(Style::Osu, false).len(), 13);
        assert_eq!(sizes(Style::Osu, false).last(), Some(&(64 << 20)));
        assert_eq!(sizes(Style::Osu, true).last(), Some(&(16 << 20)));
        assert_eq!(sizes(Style::Loop, false).last(), Some(&(64 << 10)));
        assert_eq!(sizes(Style::Cold, false).first(), Some(&(16 << 10)));
    }

    #[test]
    fn the_barrier_goes_with_the_next_collective() {
        let plan = plan();
        assert_eq!(groups(&plan.collectives, Style::Osu), [vec!["barrier", "bcast"], vec!["allreduce"]]);
        assert_eq!(groups(&plan.collectives, Style::Cold), [vec!["bcast"], vec!["allreduce"]]);
        assert_eq!(groups(&plan.collectives[..1], Style::Loop), [vec!["barrier"]]);
    }

    #[test]
    fn everybody_has_a_turn_in_every_round() {
        let (plan, contestants) = (plan(), installed());
        let turns = plan.turns(&contestants, 2);
        // han and three rivals on 2 ranks, han and two on 4; two styles, two groups, two rounds
        assert_eq!(turns.len(), (4 + 3) * 2 * 2 * 2);
        assert_eq!((turns[0].contestant, turns[28].contestant), (0, 2), "the second round begins elsewhere");
        let mut only_reduce = contestants[0].clone();
        only_reduce.only = Some("reduce");
        assert!(plan.turns(&[only_reduce], 2).is_empty());
    }

    #[test]
    fn a_table_lacks_who_was_measured_in_another_state() {
        let contestants = installed();
        let plan =
            Plan { ranks: vec![2], collectives: vec!["bcast".into()], styles: vec![Style::Osu], rounds: 1, ..plan() };
        let turns = plan.turns(&contestants, 2);
        let cells = vec![
            cell("han", "han", false, State::Far, 1.0),
            cell("openmpi", "Open MPI", true, State::Far, 1.0),
            cell("mpich", "MPICH", true, State::Near, 1.0),
            cell("intelmpi", "Intel MPI", true, State::Changed, 1.0),
        ];
        let record = Record { cores: 2, cells, ..Record::default() };
        let there: Vec<bool> = turns.iter().map(|turn| turn.is_in(&record, &contestants)).collect();
        assert_eq!(there, [true, true, true, false]);
        let missing = missing(&turns, &record, &contestants);
        let names: Vec<_> =
            missing.iter().map(|(turn, state)| (contestants[turn.contestant].name.as_str(), *state)).collect();
        assert_eq!(names, [("mpich", State::Far), ("intelmpi", State::Far)]);
    }
}

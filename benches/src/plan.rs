//! Who has a turn when. A turn is one contestant, one number of ranks, one style, and one collective
//! (the barrier goes with the next one); all contestants have theirs one after the other, so that what
//! is compared was measured within a minute or two, and every round repeats this in another order. Ranks are on this
//! machine alone, or on the nodes of a testbed.

use std::collections::BTreeMap;

use crate::contestants::Contestant;
use crate::job::{Style, Task};
use crate::machine::State;
use crate::network::Network;
use crate::record::{Cell, Record};

/// Sizes are powers of this number.
const FACTOR: usize = 4;
/// Sizes over nodes: the smallest, the largest, and the factor between one and the next.
const OVER_NODES: (usize, usize, usize) = (8, 16 << 20, 8);
/// The largest message, where each rank has a core and where it has not.
const LARGEST: (usize, usize) = (64 << 20, 16 << 20);
/// Above this size it matters little whether there is a barrier between operations.
const LARGEST_IN_LOOP: usize = 64 << 10;
/// Below this size a send buffer is never cold: rewriting it leaves it in the first cache.
const SMALLEST_COLD: usize = 16 << 10;

/// What a whole run consists of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Numbers of ranks, and the nodes that they are on.
    pub worlds: Vec<(usize, Option<Network>)>,
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
        for &(ranks, network) in &self.worlds {
            for &style in &self.styles {
                let usual = || if network.is_some() { sizes_over_nodes(style) } else { sizes(style, ranks > cores) };
                let sizes = self.sizes.clone().unwrap_or_else(usual);
                for collectives in groups(&self.collectives, style) {
                    let (repeats, ms, further) = (self.repeats, self.ms, self.further.clone());
                    let sizes = sizes.clone();
                    tasks.push(Task { ranks, network, collectives, sizes, style, repeats, ms, further });
                }
            }
        }
        tasks
    }
}

/// The sizes of a style.
fn sizes(style: Style, crowded: bool) -> Vec<usize> {
    let largest = if crowded { LARGEST.1 } else { LARGEST.0 };
    fitting(style, 4, largest, FACTOR)
}

/// The sizes of a style over nodes: fewer, because long messages take long there.
fn sizes_over_nodes(style: Style) -> Vec<usize> {
    let (smallest, largest, factor) = OVER_NODES;
    fitting(style, smallest, largest, factor)
}

fn fitting(style: Style, smallest: usize, largest: usize, factor: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(smallest), |bytes| Some(bytes * factor));
    let fits = |bytes: &usize| match style {
        Style::Osu => true,
        Style::Loop | Style::Pair => *bytes <= LARGEST_IN_LOOP,
        Style::Cold => *bytes >= SMALLEST_COLD,
    };
    powers.take_while(|&bytes| bytes <= largest).filter(fits).collect()
}

/// The collectives of one turn each; there is nothing cold about a barrier, and two of them are no pair.
fn groups(collectives: &[String], style: Style) -> Vec<Vec<String>> {
    let mut groups = Vec::new();
    let mut open = Vec::new();
    let has_barriers = !matches!(style, Style::Cold | Style::Pair);
    for name in collectives.iter().filter(|name| has_barriers || *name != "barrier") {
        open.push(name.clone());
        if name != "barrier" {
            groups.push(std::mem::take(&mut open));
        }
    }
    groups.extend((!open.is_empty()).then_some(open));
    groups
}

impl Turn {
    /// Whether a cell was measured in such a turn.
    fn has(&self, cell: &Cell) -> bool {
        let row = &cell.row;
        let style = match (row.style.as_str(), row.cold) {
            ("loop", _) => Style::Loop,
            ("pair", _) => Style::Pair,
            (_, true) => Style::Cold,
            _ => Style::Osu,
        };
        let same_world = row.ranks == self.task.ranks && cell.network == self.task.network;
        same_world && style == self.task.style && self.task.collectives.contains(&row.coll)
    }

    /// Whether `record` has it already, in a state that did not change meanwhile, from a machine that others left alone.
    #[must_use]
    pub fn is_in(&self, record: &Record, contestants: &[Contestant]) -> bool {
        let usable = |state| state != State::Changed || !self.depends_on_state(record);
        self.cells(record, contestants).any(|cell| usable(cell.state) && cell.quiet)
    }

    /// Whether `record` has it at all.
    #[must_use]
    pub fn was_had(&self, record: &Record, contestants: &[Contestant]) -> bool {
        self.cells(record, contestants).next().is_some()
    }

    /// What `record` has of it.
    fn cells<'a>(&'a self, record: &'a Record, contestants: &'a [Contestant]) -> impl Iterator<Item = &'a Cell> {
        let name = &contestants[self.contestant].name;
        let own = move |cell: &&Cell| cell.round == self.round && &cell.contestant == name && self.has(cell);
        record.cells.iter().filter(own)
    }

    /// Whether its times depend on how far apart the cores are.
    #[must_use]
    pub fn depends_on_state(&self, record: &Record) -> bool {
        record.depends_on_state(self.task.ranks, self.task.network.as_ref())
    }
}

/// The turns that a table lacks: with each, the state in which most others were measured.
#[must_use]
pub fn missing(turns: &[Turn], record: &Record, contestants: &[Contestant]) -> Vec<(Turn, State)> {
    let first_round = turns.iter().filter(|turn| turn.round == 0 && turn.depends_on_state(record));
    // Where a contestant was measured: for each task the states of each contestant's cells.
    let mut tasks: BTreeMap<String, Vec<(&Turn, Vec<State>)>> = BTreeMap::new();
    for turn in first_round {
        let name = &contestants[turn.contestant].name;
        let own = record.cells.iter().filter(|cell| &cell.contestant == name && turn.has(cell));
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
    use crate::contestants::{all, over_nodes};
    use crate::network::tests::network;
    use crate::record::tests::cell;

    fn plan() -> Plan {
        Plan {
            worlds: vec![(2, None), (4, None)],
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
        assert_eq!(groups(&plan.collectives, Style::Pair), groups(&plan.collectives, Style::Cold));
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
    fn over_nodes_every_rate_has_its_turns() {
        let worlds = ["0", "1gbit"].map(|rate| (2, Some(network(2, rate)))).to_vec();
        let plan = Plan { worlds, styles: vec![Style::Osu], ..plan() };
        let contestants: Vec<_> = over_nodes().into_iter().filter(|c| c.is_meant(&["best".to_owned()])).collect();
        let turns = plan.turns(&contestants, 2);
        // two rates, two groups, seven contestants that have a core for each rank; two rounds
        assert_eq!(turns.len(), 2 * 2 * 7 * 2);
        let (first, last) = (&turns[0].task, &turns[27].task);
        assert_eq!((first.network, last.network), (plan.worlds[0].1, plan.worlds[1].1));
        assert_eq!((first.sizes.first(), first.sizes.last(), first.sizes.len()), (Some(&8), Some(&(16 << 20)), 8));
        assert_eq!(last.world(), "2 ranks on 2 nodes, 1 Gbit/s");

        let mut measured = cell(&contestants[turns[0].contestant].name, "", true, State::Changed, 1.0);
        measured.network = plan.worlds[1].1;
        let mut record = Record { cores: 2, cells: vec![measured], ..Record::default() };
        assert!(!turns[0].is_in(&record, &contestants), "that was measured at another rate");
        record.cells[0].network = plan.worlds[0].1;
        assert!(turns[0].is_in(&record, &contestants), "the state of the machine does not count");
        record.cells[0].quiet = false;
        let had = (turns[0].is_in(&record, &contestants), turns[0].was_had(&record, &contestants));
        assert_eq!(had, (false, true), "others kept the machine busy");
        assert!(missing(&turns, &record, &contestants).is_empty());
    }

    #[test]
    fn a_table_lacks_who_was_measured_in_another_state() {
        let contestants = installed();
        let plan = Plan {
            worlds: vec![(2, None)],
            collectives: vec!["bcast".into()],
            styles: vec![Style::Osu],
            rounds: 1,
            ..plan()
        };
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

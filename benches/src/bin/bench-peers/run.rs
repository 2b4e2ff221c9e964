//! The turns, one after the other.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use benches::Result;
use benches::contestants::{Contestant, Places, Rank};
use benches::job;
use benches::machine::{self, State};
use benches::network::Network;
use benches::plan::{self, Turn};
use benches::record::{Cell, Failure, Record};
use benches::table::{bytes_text, us_text};
use benches::testbed::Testbed;

use crate::Args;

/// How often a turn is had in the hope that the machine stays in one state.
const TRIES: u32 = 3;
/// Failures after which a contestant no longer takes part with that number of ranks.
const FAILURES: u32 = 2;

/// A run under way.
pub(crate) struct Run<'a> {
    args: &'a Args,
    places: Places,
    contestants: Vec<Contestant>,
    file: PathBuf,
    pub(crate) record: Record,
    /// By contestant and world.
    failures: BTreeMap<(usize, String), u32>,
    testbed: Option<Testbed>,
    pub(crate) start: Instant,
}

impl<'a> Run<'a> {
    /// A run that has done nothing yet; `record` is kept in `file`.
    pub(crate) fn new(
        args: &'a Args,
        places: Places,
        contestants: Vec<Contestant>,
        file: PathBuf,
        record: Record,
    ) -> Self {
        let (failures, start) = (BTreeMap::new(), Instant::now());
        Self { args, places, contestants, file, record, failures, testbed: None, start }
    }

    /// Gives everybody a turn, round by round; after each round once more to those whom tables lack.
    pub(crate) fn measure(&mut self) -> Result<()> {
        let turns = self.args.plan().turns(&self.contestants, self.record.cores);
        let resumed = self.args.resume.is_some();
        let mut queue: VecDeque<Turn> = turns.clone().into();
        if resumed {
            queue.retain(|turn| !turn.is_in(&self.record, &self.contestants));
            // What was had on a busy machine is had again when all else is done.
            let (again, first): (Vec<_>, Vec<_>) =
                queue.into_iter().partition(|turn| turn.was_had(&self.record, &self.contestants));
            queue = first.into_iter().chain(again).collect();
        }
        while let Some(turn) = queue.pop_front() {
            if self.is_over() {
                eprintln!("bench-peers: the budget is spent: {} turns are left out", queue.len() + 1);
                return Ok(());
            }
            let state = self.play(&turn, queue.len())?;
            let round = turn.round;
            if state == Some(State::Changed) && turn.tries < TRIES && turn.depends_on_state(&self.record) {
                queue.push_front(Turn { tries: turn.tries + 1, ..turn });
            }
            if queue.front().is_none_or(|next| next.round != round) {
                self.fill(&turns)?;
            }
        }
        Ok(())
    }

    /// Turns for those who were measured in another state than the others, while the machine is in it.
    fn fill(&mut self, turns: &[Turn]) -> Result<()> {
        let missing = plan::missing(turns, &self.record, &self.contestants);
        for (left, (turn, wanted)) in missing.iter().rev().enumerate().rev() {
            if self.is_over() {
                break;
            }
            if State::of(machine::one_way_ns(&self.places.han)?) == *wanted {
                self.play(turn, left)?;
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.start.elapsed() > Duration::from_secs(self.args.budget)
    }

    /// One turn between two probes; gives the state in which it was had.
    fn play(&mut self, turn: &Turn, left: usize) -> Result<Option<State>> {
        let place = (turn.contestant, turn.task.world());
        if self.failures.get(&place).is_some_and(|&count| count >= FAILURES) {
            return Ok(None);
        }
        self.enter(turn.task.network)?;
        let quiet = machine::wait_for_quiet(Duration::from_secs(self.args.patience));
        let contestant = &self.contestants[turn.contestant];
        let before = machine::one_way_ns(&self.places.han)?;
        let known = self.record.limits.iter().any(|limit| limit.state == State::of(before));
        if turn.task.network.is_none() && !known {
            let limits = machine::limits(&self.places.han)?;
            self.record.limits.extend(limits.into_iter().filter(|limit| limit.state != State::Changed));
        }
        let mut command = contestant.command(&self.places, &turn.task, self.record.cores, self.args.timeout);
        if let Some(testbed) = &self.testbed {
            testbed.enter(&mut command);
        }
        let outcome = job::run(&mut command)?;
        let after = machine::one_way_ns(&self.places.han)?;
        let state = State::between(before, after);
        let cell = |row| Cell {
            contestant: contestant.name.clone(),
            library: contestant.library.name().to_owned(),
            installed: contestant.rank == Rank::Installed,
            round: turn.round,
            state,
            one_way_ns_before: before,
            one_way_ns_after: after,
            quiet,
            network: turn.task.network,
            row,
        };
        let cells: Vec<Cell> = outcome.rows.into_iter().map(cell).collect();
        let state_text = format!("{}{}", state.name(), if quiet { "" } else { ", busy" });
        progress(turn, &contestant.name, &state_text, &cells, left);
        if let Some(reason) = outcome.failure {
            *self.failures.entry(place).or_default() += 1;
            let task = format!("{} on {}, {:?}", turn.task.collectives.join(","), turn.task.world(), turn.task.style);
            eprintln!("bench-peers: {}, {task}: {reason}", contestant.name);
            self.record.failures.push(Failure { contestant: contestant.name.clone(), task, reason });
        }
        self.record.cells.extend(cells);
        self.record.save(&self.file)?;
        Ok(Some(state))
    }

    /// Brings up the nodes of `network`, and takes down those that are up if they are others.
    fn enter(&mut self, network: Option<Network>) -> Result<()> {
        if self.testbed.as_ref().map(|testbed| testbed.network) != network {
            self.testbed = None;
            let up = |network| Testbed::up_to_measure(&self.places.testbed, network);
            self.testbed = network.map(up).transpose()?;
        }
        Ok(())
    }
}

/// A line on stderr, so that a long run can be watched.
fn progress(turn: &Turn, name: &str, state: &str, cells: &[Cell], left: usize) {
    let text = |cell: &Cell| format!("{} {}", bytes_text(cell.row.bytes), us_text(Some(cell.row.us_median)));
    let ends = [cells.first(), cells.last()].map(|cell| cell.map_or_else(|| "-".to_owned(), text));
    eprintln!(
        "{left:>4} left | {}, {:?}, {}, round {} | {} | {name:<16} | {} us",
        turn.task.world(),
        turn.task.style,
        turn.task.collectives.join("+"),
        turn.round,
        state,
        ends.join(" .. ")
    );
}

//! From cells to comparisons: han beside the best rival, size by size, within one state.

use std::collections::{BTreeMap, BTreeSet};

use crate::contestants::Library;
use crate::job::world;
use crate::machine::State;
use crate::network::Network;
use crate::record::{Cell, Record};
use crate::table::median;

/// The collectives in the order of tables.
pub(crate) const COLLECTIVES: [&str; 4] = ["barrier", "bcast", "reduce", "allreduce"];

/// What may be compared with each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// The nodes, if they are not this machine alone; groups of one machine come first.
    pub network: Option<Network>,
    /// Number of ranks.
    pub ranks: usize,
    /// How it was measured: [`crate::job::Row::form`].
    pub form: String,
    /// The collective's place in tables.
    order: usize,
    /// The collective.
    pub coll: String,
    /// The state of the machine; none where times do not depend on it.
    pub state: Option<State>,
}

impl Group {
    fn of(cell: &Cell, record: &Record) -> Option<Self> {
        let state = record.depends_on_state(cell.row.ranks, cell.network.as_ref()).then_some(cell.state);
        if state == Some(State::Changed) || !cell.row.verified {
            return None;
        }
        let order = COLLECTIVES.iter().position(|&name| name == cell.row.coll)?;
        let (ranks, form, coll) = (cell.row.ranks, cell.row.form(), cell.row.coll.clone());
        Some(Self { network: cell.network, ranks, form, order, coll, state })
    }

    /// The words for headings.
    #[must_use]
    pub fn name(&self) -> String {
        let state = self.state.map_or("any state", State::name);
        format!("{}, {}, {}, {state}", self.coll, world(self.ranks, self.network.as_ref()), self.form)
    }

    /// Whether barriers were timed as well.
    #[must_use]
    pub fn is_pair(&self) -> bool {
        self.form.starts_with("pair")
    }

    /// Whether send buffers were rewritten.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.form.contains(" cold")
    }
}

/// One contestant's median times by size.
#[derive(Clone, Debug)]
pub struct Series {
    /// Who.
    pub contestant: String,
    /// The library's name in tables.
    pub library: String,
    /// Whether that is how the library comes.
    pub installed: bool,
    /// The memory of buffers.
    pub alloc: String,
    /// Microseconds by bytes: the median over turns of the median over repeats.
    pub us: BTreeMap<usize, f64>,
}

impl Series {
    /// Whether it is han's.
    #[must_use]
    pub fn is_han(&self) -> bool {
        self.library == Library::Han.name()
    }
}

/// All series of every group in which han was measured, han's first.
#[must_use]
pub fn groups(record: &Record) -> BTreeMap<Group, Vec<Series>> {
    let mut samples: BTreeMap<Group, BTreeMap<(bool, &str), Vec<&Cell>>> = BTreeMap::new();
    for cell in &record.cells {
        if let Some(group) = Group::of(cell, record) {
            let rival = cell.library != Library::Han.name();
            samples.entry(group).or_default().entry((rival, &cell.contestant)).or_default().push(cell);
        }
    }
    let groups = samples.into_iter().map(|(group, by_contestant)| {
        let series: Vec<Series> = by_contestant.into_values().filter_map(|cells| series(&cells)).collect();
        (group, series)
    });
    groups.filter(|(_, series)| series.iter().any(Series::is_han)).collect()
}

fn series(cells: &[&Cell]) -> Option<Series> {
    let first = cells.first()?;
    // Those had while others kept the machine busy count where there are no others.
    let mut times: BTreeMap<usize, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for cell in cells {
        let (quiet, busy) = times.entry(cell.row.bytes).or_default();
        if cell.quiet { quiet } else { busy }.push(cell.row.us_median);
    }
    let middle = |(quiet, busy): (Vec<f64>, Vec<f64>)| median(if quiet.is_empty() { busy } else { quiet });
    Some(Series {
        contestant: first.contestant.clone(),
        library: first.library.clone(),
        installed: first.installed,
        alloc: first.row.alloc.clone(),
        us: times.into_iter().filter_map(|(bytes, times)| Some((bytes, middle(times)?))).collect(),
    })
}

/// The fastest of some contestants.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// Its time in microseconds.
    pub us: f64,
    /// Its name.
    pub who: String,
}

/// One size: han in one kind of memory, and the rivals.
#[derive(Clone, Debug)]
pub struct Line {
    /// Size of the message.
    pub bytes: usize,
    /// han's time in microseconds.
    pub han: f64,
    /// The times of [`Library::COLUMNS`] as installed.
    pub installed: Vec<Option<f64>>,
    /// The best of them.
    pub best_installed: Option<Best>,
    /// The best of all settings.
    pub best: Option<Best>,
}

impl Line {
    /// How many times longer the best rival as installed takes.
    #[must_use]
    pub fn installed_ratio(&self) -> Option<f64> {
        self.best_installed.as_ref().map(|best| best.us / self.han)
    }

    /// How many times longer the best of all settings takes.
    #[must_use]
    pub fn best_ratio(&self) -> Option<f64> {
        self.best.as_ref().map(|best| best.us / self.han)
    }

    /// The ratio that overviews give: to rivals as installed on one machine, to the best of all settings over nodes.
    #[must_use]
    pub fn ratio(&self, over_nodes: bool) -> Option<f64> {
        if over_nodes { self.best_ratio() } else { self.installed_ratio() }
    }
}

/// han's own series `han` beside the rivals among `all`.
#[must_use]
pub fn lines(han: &Series, all: &[Series]) -> Vec<Line> {
    let line = |(&bytes, &us)| {
        let rivals = || all.iter().filter(|series| !series.is_han());
        let time = |series: &Series| series.us.get(&bytes).copied();
        let of_library = |library: Library| {
            rivals().filter(|series| series.installed && series.library == library.name()).find_map(time)
        };
        let best = |installed: bool| {
            let candidates = rivals().filter(|series| series.installed || !installed);
            let times =
                candidates.filter_map(|series| Some(Best { us: time(series)?, who: series.contestant.clone() }));
            times.min_by(|left, right| left.us.total_cmp(&right.us))
        };
        Line {
            bytes,
            han: us,
            installed: Library::COLUMNS.map(of_library).to_vec(),
            best_installed: best(true),
            best: best(false),
        }
    };
    han.us.iter().map(line).collect()
}

/// The results that were wrong: contestant, collective, bytes.
#[must_use]
pub fn wrong(record: &Record) -> BTreeSet<(&str, &str, usize)> {
    let wrong = record.cells.iter().filter(|cell| !cell.row.verified);
    wrong.map(|cell| (cell.contestant.as_str(), cell.row.coll.as_str(), cell.row.bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::network;
    use crate::record::tests::cell;

    #[test]
    fn the_best_of_each_kind_is_set_against_han() {
        let mut wrong_cell = cell("mpich-wrong", "MPICH", false, State::Near, 0.01);
        wrong_cell.row.verified = false;
        let cells = vec![
            cell("han", "han", false, State::Near, 0.3),
            cell("han", "han", false, State::Near, 0.1),
            cell("han", "han", false, State::Near, 0.05),
            cell("han", "han", false, State::Changed, 9.0),
            Cell { quiet: false, ..cell("han", "han", false, State::Near, 0.01) },
            Cell { quiet: false, ..cell("han", "han", false, State::Near, 0.02) },
            cell("openmpi", "Open MPI", true, State::Near, 0.3),
            cell("mpich", "MPICH", true, State::Near, 0.2),
            cell("mpich-rg", "MPICH", false, State::Near, 0.15),
            cell("mpich", "MPICH", true, State::Far, 0.001),
            wrong_cell,
        ];
        let record = Record { cores: 2, cells, ..Record::default() };
        let groups = groups(&record);
        assert_eq!(groups.keys().map(Group::name).collect::<Vec<_>>(), ["bcast, 2 ranks, osu, near"]);
        let series = groups.values().next().expect("one group");
        assert!(series[0].is_han());
        let lines = lines(&series[0], series);
        assert_eq!((lines.len(), lines[0].bytes, lines[0].han), (1, 8, 0.1));
        assert_eq!(lines[0].installed, [Some(0.3), Some(0.2), None]);
        assert_eq!(lines[0].best_installed, Some(Best { us: 0.2, who: "mpich".into() }));
        assert_eq!(lines[0].best, Some(Best { us: 0.15, who: "mpich-rg".into() }));
        assert_eq!(wrong(&record).into_iter().collect::<Vec<_>>(), [("mpich-wrong", "bcast", 8)]);
    }

    #[test]
    fn every_network_has_a_group() {
        let over = |rate, who: &str, library| Cell {
            network: Some(network(2, rate)),
            ..cell(who, library, true, State::Changed, 1.0)
        };
        let cells = ["0", "1gbit"].map(|rate| over(rate, "han", "han"));
        let cells =
            cells.into_iter().chain([over("10gbit", "mpich", "MPICH"), cell("han", "han", true, State::Near, 1.0)]);
        let record = Record { cores: 2, cells: cells.collect(), ..Record::default() };
        let names: Vec<_> = groups(&record).keys().map(Group::name).collect();
        let over = |rate| format!("bcast, 2 ranks on 2 nodes, {rate}, osu, any state");
        assert_eq!(names, ["bcast, 2 ranks, osu, near", &over("no limit"), &over("1 Gbit/s")]);
    }

    #[test]
    fn crowded_groups_have_no_state() {
        let cells = [State::Near, State::Changed].map(|state| {
            let mut cell = cell("han", "han", false, state, 1.0);
            cell.row.ranks = 4;
            cell
        });
        let record = Record { cores: 2, cells: cells.to_vec(), ..Record::default() };
        assert_eq!(groups(&record).into_keys().map(|group| group.state).collect::<Vec<_>>(), [None]);
    }
}

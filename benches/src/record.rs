//! What was measured, as it is kept in a file: one JSON document with a cell on each line.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::job::Row;
use crate::machine::{Limit, State};
use crate::network::Network;

/// One size of one collective in one turn of one contestant.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cell {
    /// Who.
    pub contestant: String,
    /// The library's name in tables.
    pub library: String,
    /// Whether that is how the library comes.
    pub installed: bool,
    /// In which round.
    pub round: u32,
    /// How far apart the cores were.
    pub state: State,
    /// The probe before the turn.
    pub one_way_ns_before: f64,
    /// The probe after it.
    pub one_way_ns_after: f64,
    /// Whether others left the machine alone when the turn began.
    pub quiet: bool,
    /// The nodes that it ran on, if not this machine alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// The times.
    #[serde(flatten)]
    pub row: Row,
}

/// A turn that ended with an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// Whose.
    pub contestant: String,
    /// What it was asked for.
    pub task: String,
    /// Why it failed.
    pub reason: String,
}

/// Everything that one run has measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// The day.
    pub date: String,
    /// The processor and the number of cores.
    pub machine: String,
    /// How many cores.
    pub cores: usize,
    /// Whether the scheduler's autogroups were off while nodes were up.
    #[serde(default)]
    pub groups_off: bool,
    /// What the machine can do.
    pub limits: Vec<Limit>,
    /// What went wrong.
    pub failures: Vec<Failure>,
    /// All times.
    pub cells: Vec<Cell>,
}

impl Record {
    /// Reads a file that [`Self::save`] has written.
    ///
    /// # Errors
    /// It cannot be read, or is something else.
    pub fn load(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: no measurements: {error}", path.display()).into())
    }

    /// Writes the file anew; whoever reads it meanwhile sees the old one.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        let text = format!(
            "{{\"date\":{},\"machine\":{},\"cores\":{},\"groups_off\":{},\n\"limits\":{},\n\"failures\":{},\n\"cells\":{}}}\n",
            serde_json::to_string(&self.date)?,
            serde_json::to_string(&self.machine)?,
            self.cores,
            self.groups_off,
            lines(&self.limits)?,
            lines(&self.failures)?,
            lines(&self.cells)?
        );
        let new = path.with_extension("json.new");
        fs::write(&new, text)?;
        Ok(fs::rename(new, path)?)
    }

    /// Whether times depend on how far apart the cores are: not where they have more ranks than there are of them, nor
    /// where ranks talk through a network.
    #[must_use]
    pub fn depends_on_state(&self, ranks: usize, network: Option<&Network>) -> bool {
        ranks <= self.cores && network.is_none()
    }
}

/// A JSON array with an item on each line.
fn lines<T: Serialize>(items: &[T]) -> Result<String> {
    let items = items.iter().map(serde_json::to_string).collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(format!("[\n{}\n]", items.join(",\n")))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::network::tests::network;

    /// A cell of an 8-byte bcast on two ranks.
    pub(crate) fn cell(contestant: &str, library: &str, installed: bool, state: State, us: f64) -> Cell {
        let row = Row {
            coll: "bcast".into(),
            bytes: 8,
            ranks: 2,
            dtype: "f32".into(),
            style: "osu".into(),
            cold: false,
            alloc: "malloc".into(),
            buffers: 1,
            rotate_roots: false,
            in_place: false,
            iters: 10,
            repeats: 5,
            us_min: us,
            us_median: us,
            us_max: us,
            verified: true,
        };
        let (contestant, library) = (contestant.to_owned(), library.to_owned());
        let (one_way_ns_before, one_way_ns_after) = (30.0, 30.0);
        let (round, quiet, network) = (0, true, None);
        Cell { contestant, library, installed, round, state, one_way_ns_before, one_way_ns_after, quiet, network, row }
    }

    #[test]
    fn what_is_saved_is_loaded() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("record.json");
        let limit =
            Limit { state: State::Near, limit: "memcpy".into(), bytes: Some(8), value: 1.5, unit: "GB/s".into() };
        let over_nodes = Cell { network: Some(network(2, "1gbit")), ..cell("mpich", "MPICH", true, State::Far, 1.0) };
        let record = Record {
            date: "2026-11-20".into(),
            cores: 2,
            limits: vec![limit],
            cells: vec![cell("han", "han", false, State::Near, 0.25), over_nodes],
            ..Record::default()
        };
        record.save(&path)?;
        let loaded = Record::load(&path)?;
        assert_eq!(serde_json::to_string(&loaded)?, serde_json::to_string(&record)?);
        assert!(loaded.depends_on_state(2, None) && !loaded.depends_on_state(4, None));
        assert!(!loaded.depends_on_state(2, Some(&network(2, "0"))));
        fs::write(&path, "{}")?;
        assert!(Record::load(&path).is_err_and(|error| error.to_string().contains("no measurements")));
        Ok(())
    }
}

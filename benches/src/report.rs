//! The page of tables, and where it and the plots are written: beside the file of measurements.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Result;
use crate::contestants::Library;
use crate::machine::State;
use crate::network::Network;
use crate::overview;
use crate::plot;
use crate::ratios::{self, Group, Line, Series};
use crate::record::Record;
use crate::table::{Table, bytes_text, us_text};
use crate::targets::{self, Bounds};
use crate::testbed;

/// Writes `FILE.md` and the plots in the directory `FILE/` for the measurements in `FILE.json`; gives the
/// page's path.
///
/// # Errors
/// Something cannot be written.
pub fn write(record: &Record, file: &Path) -> Result<PathBuf> {
    let groups = ratios::groups(record);
    let plots = file.with_extension("");
    let _ = fs::remove_dir_all(&plots); // of an earlier stage of the same measurements; it may not be there
    fs::create_dir_all(&plots)?;
    let mut drawn = Vec::new();
    for (group, series) in &groups {
        let bounds = group.state.map(|state| Bounds::new(&record.limits, state));
        let name = format!("{}.svg", slug(&group.name()));
        if plot::draw(&plots.join(&name), group, series, bounds.as_ref())? {
            drawn.push((group.clone(), name));
        }
    }
    let page = file.with_extension("md");
    let directory = plots.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let drawn = drawn.into_iter().map(|(group, name)| (group, format!("{directory}/{name}"))).collect();
    fs::write(&page, markdown(record, &groups, &drawn))?;
    Ok(page)
}

/// The misses and all tables.
#[must_use]
pub fn markdown(record: &Record, groups: &BTreeMap<Group, Vec<Series>>, plots: &BTreeMap<Group, String>) -> String {
    let mut text = format!("# {}, {}\n\n", record.date, record.machine);
    text += &format!("Microseconds an operation; `benches/README.md` says how to read this. {}.\n", states(record));
    if record.groups_off {
        text += &format!("{}.\n", testbed::GROUPS_OFF);
    }
    text += &misses(record, groups);
    text += &overview::markdown(groups);
    for (group, series) in groups {
        for han in series.iter().filter(|series| series.is_han()) {
            text += &format!("\n## {}, {}\n\n", group.name(), han.alloc);
            text += &match &group.network {
                Some(network) => table_over_nodes(network, group, han, series),
                None => table(record, group, han, series),
            }
            .markdown();
        }
        if let Some(plot) = plots.get(group) {
            text += &format!("\n![{}]({plot})\n", group.name());
        }
    }
    text
}

/// The targets that were missed, and what went wrong, as the page says it and the terminal shows it.
#[must_use]
pub fn misses(record: &Record, groups: &BTreeMap<Group, Vec<Series>>) -> String {
    let (mut cells, mut missed) = (0, Vec::new());
    for (group, series) in groups {
        let bounds = group.state.map(|state| Bounds::new(&record.limits, state));
        for han in series.iter().filter(|series| series.is_han()) {
            for line in ratios::lines(han, series).iter().filter(|line| line.best.is_some()) {
                cells += 1;
                let of_line = targets::missed(group, &han.alloc, line, bounds.as_ref());
                if !of_line.is_empty() {
                    missed.push(targets::missed_text(group, &han.alloc, line, &of_line));
                }
            }
        }
    }
    let mut text = format!("\n## Missed targets: {} of {cells} cells\n\n", missed.len());
    text.extend(missed.iter().map(|line| format!("- {line}\n")));
    let wrong = ratios::wrong(record);
    if !wrong.is_empty() {
        text += "\n## Wrong results\n\n";
        text.extend(wrong.iter().map(|(who, coll, bytes)| format!("- {who}: {coll} of {}\n", bytes_text(*bytes))));
    }
    if !record.failures.is_empty() {
        text += "\n## Failures\n\n";
        let line = |f: &crate::record::Failure| format!("- {}, {}: {}\n", f.contestant, f.task, f.reason);
        text.extend(record.failures.iter().map(line));
    }
    text
}

fn table(record: &Record, group: &Group, han: &Series, series: &[Series]) -> Table {
    let bounds = group.state.map(|state| Bounds::new(&record.limits, state));
    let heads = ["bytes", han.contestant.as_str()].into_iter().chain(Library::COLUMNS.map(Library::name));
    let heads = heads.chain(["best installed / han", "best of all", "whose", "best / han", "bound"]);
    let mut table = Table::new(heads);
    for line in ratios::lines(han, series) {
        let Line { bytes, han, .. } = line;
        let bound = bounds.as_ref().and_then(|b| b.group_us(group, bytes));
        // Small messages are bound by latency, of which this says nothing.
        let bound = bound.filter(|_| bytes >= 16 << 10);
        let mut cells = vec![bytes_text(bytes), us_text(Some(han))];
        cells.extend(line.installed.iter().map(|&us| us_text(us)));
        cells.push(ratio_text(line.installed_ratio()));
        cells.push(us_text(line.best.as_ref().map(|best| best.us)));
        cells.push(line.best.as_ref().map_or_else(|| "-".to_owned(), |best| best.who.clone()));
        cells.extend([ratio_text(line.best_ratio()), us_text(bound)]);
        table.add(cells);
    }
    table
}

/// All contestants, the best rival, and the wire where it is limited.
fn table_over_nodes(network: &Network, group: &Group, han: &Series, series: &[Series]) -> Table {
    let rivals = || series.iter().filter(|series| !series.is_han());
    let heads = ["bytes", han.contestant.as_str()].into_iter().chain(rivals().map(|rival| rival.contestant.as_str()));
    let mut table = Table::new(heads.chain(["best / han", "wire", "han / wire"]));
    for line in ratios::lines(han, series) {
        let mut cells = vec![bytes_text(line.bytes), us_text(Some(line.han))];
        cells.extend(rivals().map(|rival| us_text(rival.us.get(&line.bytes).copied())));
        // Small messages are bound by latency, of which this says nothing.
        let bound = network.bound_us(&group.coll, line.bytes).filter(|_| line.bytes >= 16 << 10);
        cells.extend([ratio_text(line.best_ratio()), us_text(bound)]);
        cells.push(ratio_text(bound.map(|bound| line.han / bound)));
        table.add(cells);
    }
    table
}

fn ratio_text(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
}

/// Words as a file name.
fn slug(words: &str) -> String {
    words.replace(", ", "-").replace([' ', '/'], "-")
}

/// In which states the machine was.
#[must_use]
pub fn states(record: &Record) -> String {
    let count = |state| record.cells.iter().filter(|cell| cell.state == state).count();
    let counts = [State::Near, State::Far, State::Changed].map(|state| format!("{} {}", count(state), state.name()));
    let busy = record.cells.iter().filter(|cell| !cell.quiet).count();
    format!("Cells: {}; {busy} while others kept the machine busy", counts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::network;
    use crate::record::tests::cell;
    use crate::record::{Cell, Failure};

    fn record() -> Record {
        let of = |bytes: usize, mut cell: Cell| {
            cell.row.bytes = bytes;
            cell
        };
        let sizes = [8, 65536];
        let cells = sizes.into_iter().flat_map(|bytes| {
            [
                of(bytes, cell("han", "han", false, State::Near, 0.1)),
                of(bytes, cell("openmpi", "Open MPI", true, State::Near, 0.3)),
                of(bytes, cell("mpich-rg", "MPICH", false, State::Near, 0.105)),
            ]
        });
        let failure = Failure { contestant: "mpich".into(), task: "bcast".into(), reason: "gone".into() };
        Record { cores: 2, cells: cells.collect(), failures: vec![failure], ..Record::default() }
    }

    #[test]
    fn a_page_has_misses_tables_and_failures() {
        let record = record();
        let page = markdown(&record, &ratios::groups(&record), &BTreeMap::new());
        assert!(page.contains("Missed targets: 2 of 2 cells"), "{page}");
        assert!(page.contains("- mpich, bcast: gone"), "{page}");
        assert!(page.contains("## bcast, 2 ranks, osu, near, malloc"), "{page}");
        let line = page.lines().rfind(|line| line.contains(" 64K ")).unwrap_or_default();
        let cells: Vec<&str> = line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["64K", "0.100", "0.300", "-", "-", "3.00", "0.105", "mpich-rg", "1.05", "-"]);
    }

    #[test]
    fn a_page_over_nodes_has_everybody_and_the_wire() {
        let over = |who: &str, library: &str, us| {
            let mut cell = cell(who, library, true, State::Far, us);
            (cell.row.bytes, cell.network) = (125_000, Some(network(4, "1gbit")));
            cell.row.ranks = 4;
            cell
        };
        let cells =
            vec![over("han", "han", 1100.0), over("mpich", "MPICH", 2200.0), over("openmpi", "Open MPI", 1650.0)];
        let record = Record { cores: 2, cells, ..Record::default() };
        let page = markdown(&record, &ratios::groups(&record), &BTreeMap::new());
        assert!(page.contains("## bcast, 4 ranks on 4 nodes, 1 Gbit/s, osu, any state, malloc"), "{page}");
        let (_, tables) = page.split_once("\n## bcast").expect("there is one");
        let rows = tables
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>());
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows[0], ["bytes", "han", "mpich", "openmpi", "best / han", "wire", "han / wire"]);
        assert_eq!(rows[2], ["125000", "1100", "2200", "1650", "1.50", "1000", "1.10"]);
    }

    #[test]
    fn tables_and_plots_stand_beside_the_measurements() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let page = write(&record(), &directory.path().join("today.json"))?;
        assert_eq!(page, directory.path().join("today.md"));
        assert!(fs::read_to_string(page)?.contains("(today/bcast-2-ranks-osu-near.svg)"));
        let plot = fs::read_to_string(directory.path().join("today/bcast-2-ranks-osu-near.svg"))?;
        assert!(plot.starts_with("<svg") && plot.contains("mpich-rg") && plot.contains("64K"));
        Ok(())
    }
}

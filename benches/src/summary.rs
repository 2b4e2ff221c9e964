//! Many runs at a glance: a row for each run and way of measuring, a column for each collective, which says in how many
//! cells han is behind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::ratios::{self, COLLECTIVES, Group};
use crate::record::Record;
use crate::table::{Table, median};

/// The table of the runs in `records`, each kept in the file beside it.
#[must_use]
pub fn markdown(records: &[(&Path, Record)]) -> String {
    let mut table = Table::new(["run", "ranks", "measured"].into_iter().chain(COLLECTIVES));
    for (file, record) in records {
        for (way, row) in rows(record) {
            let page = file.with_extension("md");
            let name = page.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let worlds: Vec<String> = row.worlds.into_iter().map(|(_, world)| world).collect();
            let mut cells = vec![format!("[{name}]({})", page.display()), worlds.join(", "), way];
            cells.extend(COLLECTIVES.map(|coll| row.ratios.get(coll).map_or_else(|| "-".to_owned(), |all| text(all))));
            table.add(cells);
        }
    }
    table.markdown()
}

#[derive(Default)]
struct Row {
    /// Numbers of ranks, or nodes x ranks of each, in the order of both.
    worlds: BTreeSet<((usize, usize), String)>,
    /// How many times as long the best rival took, by collective.
    ratios: BTreeMap<String, Vec<f64>>,
}

/// By way of measuring, and over nodes by their cables' rate.
fn rows(record: &Record) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for (group, series) in ratios::groups(record) {
        let lines = series.iter().filter(|series| series.is_han()).flat_map(|han| ratios::lines(han, &series));
        let found: Vec<f64> = lines.filter_map(|line| line.ratio(group.network.is_some())).collect();
        if !found.is_empty() {
            let rate = group.network.as_ref().map_or_else(String::new, |network| format!(", {}", network.rate));
            let row = rows.entry(format!("{}{rate}", group.form)).or_default();
            row.worlds.insert(world(&group));
            row.ratios.entry(group.coll).or_default().extend(found);
        }
    }
    rows
}

fn world(group: &Group) -> ((usize, usize), String) {
    match &group.network {
        None => ((1, group.ranks), group.ranks.to_string()),
        Some(network) => {
            let ppn = group.ranks / network.nodes;
            ((network.nodes, ppn), format!("{}x{ppn}", network.nodes))
        }
    }
}

/// `2/40: 0.94, 1.52`: behind in 2 of 40 cells, the least ratio, the middle one.
fn text(ratios: &[f64]) -> String {
    let behind = ratios.iter().filter(|&&ratio| ratio < 1.0).count();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let middle = median(ratios.to_vec()).unwrap_or(least);
    format!("{behind}/{}: {least:.2}, {middle:.2}", ratios.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::State;
    use crate::network::tests::network;
    use crate::record::Cell;
    use crate::record::tests::cell;

    #[test]
    fn a_row_says_where_han_is_behind() {
        let of = |bytes, us, rival| {
            [("han", "han", us), ("mpich", "MPICH", rival)].map(|(who, library, us)| {
                let mut cell = cell(who, library, true, State::Near, us);
                cell.row.bytes = bytes;
                cell
            })
        };
        let mut cells = [of(8, 2.0, 1.0), of(64, 1.0, 1.5), of(512, 1.0, 3.0)].concat();
        // Settings count over nodes only.
        cells.push(cell("mpich-ucx", "MPICH", false, State::Near, 0.5));
        let over = cells.iter().filter(|cell| cell.row.bytes == 8);
        let over: Vec<Cell> = over.map(|cell| Cell { network: Some(network(2, "0")), ..cell.clone() }).collect();
        let one = Record { cores: 2, cells, ..Record::default() };
        let nodes = Record { cores: 2, cells: over, ..Record::default() };
        let text = markdown(&[(Path::new("a/today.json"), one), (Path::new("a/nodes.json"), nodes)]);
        let rows: Vec<Vec<&str>> = text.lines().skip(2).map(|row| row.split('|').map(str::trim).collect()).collect();
        assert_eq!(rows[0][1..8], ["[today](a/today.md)", "2", "osu", "-", "1/3: 0.50, 1.50", "-", "-"]);
        assert_eq!(rows[1][1..8], ["[nodes](a/nodes.md)", "2x1", "osu, no limit", "-", "1/1: 0.25, 0.25", "-", "-"]);
    }
}

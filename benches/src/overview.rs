//! What a page says at a glance: a table for each way of measuring and kind of memory, a row for each size, a column for
//! each collective of each world.

use std::collections::{BTreeMap, BTreeSet};

use crate::machine::State;
use crate::ratios::{self, Group, Line, Series};
use crate::table::{Table, bytes_text, us_text};

/// The tables, below one heading; barriers, which have no size, are not in them.
#[must_use]
pub fn markdown(groups: &BTreeMap<Group, Vec<Series>>) -> String {
    let mut by_kind: BTreeMap<(&str, &str), Vec<Column>> = BTreeMap::new();
    for (group, series) in groups.iter().filter(|(group, _)| group.coll != "barrier") {
        for han in series.iter().filter(|series| series.is_han()) {
            by_kind.entry((&group.form, &han.alloc)).or_default().push(Column::new(group, han, series));
        }
    }
    let mut text = "\n## Overview\n\nhan's time and, in brackets, how many times as long the best rival takes: \
        as installed on one machine, with the best of all settings over nodes.\n"
        .to_owned();
    for ((form, alloc), columns) in by_kind {
        text += &format!("\n{form}, {alloc}:\n\n{}", table(&columns).markdown());
    }
    text
}

struct Column {
    head: String,
    cells: BTreeMap<usize, String>,
}

impl Column {
    fn new(group: &Group, han: &Series, all: &[Series]) -> Self {
        let cell = |line: &Line| {
            let ratio = line.ratio(group.network.is_some());
            us_text(Some(line.han)) + &ratio.map_or_else(String::new, |ratio| format!(" ({ratio:.2})"))
        };
        let cells = ratios::lines(han, all).iter().map(|line| (line.bytes, cell(line))).collect();
        Self { head: head(group), cells }
    }
}

/// `bcast, 2 ranks`; `bcast, 4x2, 10 Gbit/s` for nodes x ranks of each.
fn head(group: &Group) -> String {
    let Group { ranks, coll, .. } = group;
    let world = match &group.network {
        None => format!("{ranks} ranks"),
        Some(network) => {
            let shape = format!("{}x{}", network.nodes, ranks / network.nodes);
            if network.rate.for_tc().is_some() { format!("{shape}, {}", network.rate) } else { shape }
        }
    };
    let far = if group.state == Some(State::Far) { ", far" } else { "" };
    format!("{coll}, {world}{far}")
}

fn table(columns: &[Column]) -> Table {
    let mut table = Table::new(["bytes"].into_iter().chain(columns.iter().map(|column| column.head.as_str())));
    let sizes: BTreeSet<usize> = columns.iter().flat_map(|column| column.cells.keys().copied()).collect();
    for bytes in sizes {
        let cells = columns.iter().map(|column| column.cells.get(&bytes).map_or("-", String::as_str));
        table.add([bytes_text(bytes).as_str()].into_iter().chain(cells));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::network;
    use crate::record::tests::cell;
    use crate::record::{Cell, Record};

    #[test]
    fn every_world_has_a_column() {
        let over = |who: &str, library: &str, installed, us| Cell {
            network: Some(network(2, "10gbit")),
            ..cell(who, library, installed, State::Near, us)
        };
        let cells = vec![
            cell("han", "han", true, State::Near, 0.1),
            cell("mpich", "MPICH", true, State::Near, 0.2),
            cell("mpich-rg", "MPICH", false, State::Near, 0.05),
            over("han", "han", true, 10.0),
            over("mpich-ucx", "MPICH", false, 12.0),
        ];
        let record = Record { cores: 2, cells, ..Record::default() };
        let text = markdown(&ratios::groups(&record));
        let table = "osu, malloc:\n\n\
            | bytes | bcast, 2 ranks | bcast, 2x1, 10 Gbit/s |\n\
            |------:|---------------:|----------------------:|\n\
            |     8 |   0.100 (2.00) |           10.0 (1.20) |\n";
        assert!(text.ends_with(table), "{text}");
    }
}

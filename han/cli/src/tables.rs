//! Tables of text.

use comfy_table::{CellAlignment, Row, Table, presets::ASCII_MARKDOWN};

/// A table that has its header alone.
pub(crate) fn plain(header: impl Into<Row>) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(header);
    table
}

/// The table with those columns that are numbers moved to the right.
pub(crate) fn right(mut table: Table, is_number: impl Fn(usize) -> bool) -> Table {
    for (_, column) in table.column_iter_mut().enumerate().filter(|(index, _)| is_number(*index)) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

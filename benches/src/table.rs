//! Markdown tables and the few numbers that they are made of.

/// A table under construction.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    #[must_use]
    pub fn new<S: Into<String>>(heads: impl IntoIterator<Item = S>) -> Self {
        Self { rows: vec![heads.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row.
    pub fn add<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// The table as markdown, its columns aligned to the right.
    #[must_use]
    pub fn markdown(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &[String], column: usize| row.get(column).cloned().unwrap_or_default();
        let width = |column| self.rows.iter().map(|row| cell(row, column).chars().count()).max().unwrap_or(0).max(3);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            for (column, width) in widths.iter().enumerate() {
                text += &format!("| {:>width$} ", cell(row, column));
            }
            text += "|\n";
            if index == 0 {
                for width in &widths {
                    text += &format!("|{}:", "-".repeat(width + 1));
                }
                text += "|\n";
            }
        }
        text
    }
}

/// The middle value, if there is one; of two the lesser, because disturbances only lengthen times.
#[must_use]
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// Microseconds with the digits that matter; `-` for none.
#[must_use]
pub fn us_text(us: Option<f64>) -> String {
    match us {
        None => "-".to_owned(),
        Some(us) if us < 1.0 => format!("{us:.3}"),
        Some(us) if us < 10.0 => format!("{us:.2}"),
        Some(us) if us < 100.0 => format!("{us:.1}"),
        Some(us) => format!("{us:.0}"),
    }
}

/// A size: `64`, `4K`, `1M`.
#[must_use]
pub fn bytes_text(bytes: usize) -> String {
    match bytes {
        bytes if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        bytes if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{}K", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_aligned() {
        let mut table = Table::new(["bytes", "us"]);
        table.add(["8", "0.123"]);
        assert_eq!(table.markdown(), "| bytes |    us |\n|------:|------:|\n|     8 | 0.123 |\n");
    }

    #[test]
    fn numbers_have_the_digits_that_matter() {
        assert_eq!([us_text(Some(0.123)), us_text(Some(12.34)), us_text(None)], ["0.123", "12.3", "-"]);
        assert_eq!([bytes_text(8), bytes_text(4096), bytes_text(1 << 20)], ["8", "4K", "1M"]);
        assert_eq!([median(vec![3.0, 1.0, 2.0]), median(vec![3.0, 1.0])], [Some(2.0), Some(1.0)]);
        assert_eq!(median(vec![]), None);
    }
}

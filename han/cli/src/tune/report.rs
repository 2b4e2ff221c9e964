//! What searches have found, as tables.

use std::io::Write;
use std::path::Path;

use han::tune::compare::Row;
use han::tune::{Method, Outcome};

use super::Result;
use crate::numbers::{bytes_text, time_text};
use crate::output::stdout;
use crate::tables;

/// A choice that takes longer by this part is worth a word.
pub(super) const WORSE: f64 = 0.05;

/// The choices of one search, and where they are.
pub(super) fn found(out: &Path, (method, outcome): &(Method, Outcome)) -> Result<()> {
    let mut table = tables::plain(["collective", "bytes", "us", "estimate", "settings"]);
    for found in &outcome.found {
        let estimate = found.estimate.map_or_else(|| "-".to_owned(), time_text);
        table.add_row([
            found.case.collective.name().to_owned(),
            bytes_text(found.case.bytes),
            time_text(found.us),
            estimate,
            found.settings.to_text(),
        ]);
    }
    writeln!(stdout(), "{table}")?;
    let Outcome { measured, spent_s, .. } = outcome;
    let (name, out) = (method.name(), out.display());
    Ok(writeln!(stdout(), "{name}: {measured} measurements in {spent_s:.1} s; use HAN_TUNING={out}")?)
}

/// How good each search is beside the first.
pub(super) fn compared(outcomes: &[(Method, Outcome)], rows: &[Row]) -> Result<()> {
    let mut points = tables::plain([
        "collective",
        "bytes",
        "exhaustive us",
        "heuristic",
        "task",
        "task+heuristics",
        "built in",
        "flat",
    ]);
    for row in rows {
        let beside = |loss: f64| format!("{:+.1} %", loss * 100.0);
        let flat = row.flat_us / row.us[0] - 1.0;
        let mut cells = vec![row.case.collective.name().to_owned(), bytes_text(row.case.bytes), time_text(row.us[0])];
        cells.extend(row.loss.iter().skip(1).chain([&row.built_in_loss, &flat]).map(|loss| beside(*loss)));
        points.add_row(cells);
    }
    writeln!(stdout(), "\nEach choice measured again, in turns; longer than exhaustive search's by\n{points}")?;
    let mut table = tables::plain([
        "search",
        "measurements",
        "seconds",
        "of exhaustive",
        "mean loss",
        "worst loss",
        "points above 5 %",
    ]);
    let whole = outcomes.first().map_or(0.0, |(_, outcome)| outcome.spent_s);
    for (place, (method, outcome)) in outcomes.iter().enumerate() {
        let losses: Vec<f64> = rows.iter().map(|row| row.loss[place]).collect();
        let percent = |part: f64| format!("{:.1} %", part * 100.0);
        #[allow(clippy::cast_precision_loss)] // few
        let mean = losses.iter().sum::<f64>() / losses.len().max(1) as f64;
        table.add_row([
            method.name().to_owned(),
            outcome.measured.to_string(),
            format!("{:.1}", outcome.spent_s),
            percent(outcome.spent_s / whole),
            percent(mean),
            percent(losses.iter().copied().fold(0.0, f64::max)),
            format!("{} of {}", losses.iter().filter(|loss| **loss > WORSE).count(), losses.len()),
        ]);
    }
    writeln!(stdout(), "{table}")?;
    slower_than_flat(rows)
}

/// The built-in rules beside all ranks on the network.
pub(super) fn against_flat(rows: &[Row]) -> Result<()> {
    let mut table = tables::plain(["collective", "bytes", "built in us", "flat us", "slower by"]);
    for row in rows {
        table.add_row([
            row.case.collective.name().to_owned(),
            bytes_text(row.case.bytes),
            time_text(row.built_in_us),
            time_text(row.flat_us),
            format!("{:+.1} %", row.loss_to_flat * 100.0),
        ]);
    }
    writeln!(stdout(), "{table}")?;
    slower_than_flat(rows)
}

/// Where the built-in rules are slower than all ranks on the network.
fn slower_than_flat(rows: &[Row]) -> Result<()> {
    let slower: Vec<&Row> = rows.iter().filter(|row| row.loss_to_flat > WORSE).collect();
    writeln!(
        stdout(),
        "built-in rules: more than 5 % slower than all ranks on the network at {} of {} points",
        slower.len(),
        rows.len()
    )?;
    for row in slower {
        let (collective, bytes) = (row.case.collective.name(), bytes_text(row.case.bytes));
        writeln!(
            stdout(),
            "  {collective} of {bytes}: {} and {} us",
            time_text(row.built_in_us),
            time_text(row.flat_us)
        )?;
    }
    Ok(())
}

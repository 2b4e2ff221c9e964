//! Predictions on the screen and as JSON.

use std::io::Write;

use net_fabric::algorithm::Algorithm;
use net_fabric::engine::Policy;
use net_fabric::model::closed::Terms;
use net_fabric::model::{Case, Prediction};
use net_fabric::transport::simulated::{Machine, Seconds};
use serde::Serialize;

use super::{Args, Result, choice};
use crate::numbers::{bytes_text, time_text};
use crate::output::stdout;
use crate::tables;

/// A closed form that belongs to what was simulated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Equation {
    /// What it is in the paper.
    pub(super) name: &'static str,
    pub(crate) seconds: Seconds,
}

impl Equation {
    /// The equation for this case, if its assumptions hold but for the distances within a node.
    pub(crate) fn of(case: &Case, terms: &Terms) -> Option<Self> {
        let Case { layout, bytes, chunk_bytes, .. } = case;
        if !layout.nodes.is_power_of_two()
            || !layout.ranks_per_node.is_power_of_two()
            || *bytes == 0
            || bytes > chunk_bytes
        {
            return None;
        }
        match case.algorithm {
            Algorithm::RecursiveDoubling => Some(Self { name: "equation 4", seconds: terms.recursive_doubling() }),
            Algorithm::Smp => Some(Self { name: "equation 5 and bcast", seconds: terms.smp() + terms.local_bcast() }),
            Algorithm::Nap if layout.ranks_per_node > 1 => {
                Some(Self { name: "equation 6, whole steps", seconds: terms.node_aware() })
            }
            _ => None,
        }
    }
}

/// One prediction.
pub(super) struct Row {
    pub(super) nodes: usize,
    /// Ranks of each.
    pub(super) ppn: usize,
    pub(super) bytes: usize,
    pub(super) algorithm: String,
    pub(super) outcome: std::result::Result<Prediction, String>,
    pub(super) equation: Option<Equation>,
    /// How many times as long it takes as the algorithm of `--against`.
    pub(super) ratio: Option<f64>,
}

impl Row {
    /// Microseconds, if it could be simulated.
    pub(super) fn us(&self) -> Option<f64> {
        self.outcome.as_ref().ok().map(|prediction| prediction.seconds() * 1e6)
    }

    /// Under which names it is shown, and its values: of the simulation, and of the equation if there is one.
    pub(super) fn values(&self, args: &Args) -> Vec<(String, Option<f64>)> {
        if args.against.is_some() {
            return vec![(self.algorithm.clone(), self.ratio)];
        }
        let equation = self.equation.map(|equation| (equation.name.to_owned(), Some(equation.seconds * 1e6)));
        std::iter::once((self.algorithm.clone(), self.us())).chain(equation).collect()
    }
}

/// What the values are.
pub(super) fn unit(args: &Args) -> String {
    args.against.as_ref().map_or("microseconds".to_owned(), |algorithm| format!("times as long as {algorithm}"))
}

/// Compares each row with the one of algorithm `against` for the same nodes and bytes.
pub(super) fn compare(rows: &mut [Row], against: &str) {
    let key = |row: &Row| (row.nodes, row.ppn, row.bytes);
    for rows in rows.chunk_by_mut(|one, other| key(one) == key(other)) {
        let Some(us) = rows.iter().find(|row| row.algorithm == against).and_then(Row::us) else { continue };
        rows.iter_mut().for_each(|row| row.ratio = row.us().map(|own| own / us));
    }
}

/// What every line of JSON begins with.
#[derive(Serialize)]
pub(super) struct Head<'a> {
    coll: &'static str,
    bytes: usize,
    ranks: usize,
    nodes: usize,
    ppn: usize,
    algorithm: &'a str,
    policy: String,
    chunk: usize,
    parameters: &'a str,
    model: &'static str,
}

impl<'a> Head<'a> {
    pub(super) fn new(
        args: &Args,
        machine: &'a Machine,
        (nodes, ppn, bytes): (usize, usize, usize),
        algorithm: &'a str,
        policy: Policy,
    ) -> Self {
        Self {
            coll: args.collective.name(),
            bytes,
            ranks: nodes * ppn,
            nodes,
            ppn,
            algorithm,
            policy: choice::policy_text(policy),
            chunk: args.chunk(),
            parameters: &machine.name,
            model: machine.model.name(),
        }
    }
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    head: Head<'a>,
    us: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    messages: Option<u64>,
    equation: Option<&'static str>,
    equation_us: Option<f64>,
    error: Option<&'a str>,
}

/// One JSON object a line.
pub(super) fn print_json(args: &Args, machine: &Machine, rows: &[Row]) -> Result<()> {
    let mut out = stdout();
    for row in rows {
        let line = Line {
            head: Head::new(args, machine, (row.nodes, row.ppn, row.bytes), &row.algorithm, args.policy),
            us: row.us(),
            ratio: row.ratio,
            messages: row.outcome.as_ref().ok().map(|prediction| prediction.messages),
            equation: row.equation.map(|equation| equation.name),
            equation_us: row.equation.map(|equation| equation.seconds * 1e6),
            error: row.outcome.as_ref().err().map(String::as_str),
        };
        writeln!(out, "{}", serde_json::to_string(&line)?)?;
    }
    Ok(())
}

/// A table: a line for each number of nodes, ranks of each, and bytes, a column for each algorithm.
pub(super) fn print(args: &Args, machine: &Machine, rows: &[Row]) -> Result<()> {
    let mut out = stdout();
    writeln!(
        out,
        "{} on {} ({}), {} ranks a node, {}, chunks of {}: {}",
        args.collective.name(),
        machine.name,
        machine.model.name(),
        args.ppn.values().iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
        choice::policy_text(args.policy),
        bytes_text(args.chunk()),
        unit(args),
    )?;
    let has_several = args.ppn.values().len() > 1;
    let mut heads = vec!["nodes".to_owned()];
    heads.extend(has_several.then(|| "ranks each".to_owned()));
    heads.push("bytes".to_owned());
    let keys = heads.len();
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    for row in rows {
        let mut start = vec![row.nodes.to_string()];
        start.extend(has_several.then(|| row.ppn.to_string()));
        start.push(bytes_text(row.bytes));
        if lines.last().is_none_or(|line| line[..keys] != start) {
            lines.push(start);
        }
        if let Err(error) = &row.outcome {
            let note = format!("{}: {error}", row.algorithm);
            notes.extend((!notes.contains(&note)).then_some(note));
        }
        for (head, value) in row.values(args) {
            let column = heads.iter().position(|known| *known == head).unwrap_or_else(|| {
                heads.push(head);
                heads.len() - 1
            });
            if let Some(line) = lines.last_mut() {
                line.resize(line.len().max(column + 1), String::new());
                line[column] = value.map_or("-".to_owned(), time_text);
            }
        }
    }
    let mut table = tables::plain(heads);
    table.add_rows(lines);
    writeln!(out, "{}", tables::right(table, |_| true))?;
    for note in notes {
        writeln!(out, "- {note}")?;
    }
    Ok(())
}

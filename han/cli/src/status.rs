//! `han status`: what the ranks of this user's local jobs are doing, read from their segments.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use serde_json::json;
use shm_core::job::{self, JobStatus, RankReport};

use crate::output::stdout;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One JSON object a line, one line a job
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let jobs = job::list()?;
    let mut out = stdout();
    if args.json {
        for job in &jobs {
            writeln!(out, "{}", as_json(job))?;
        }
    } else if jobs.is_empty() {
        writeln!(out, "no jobs")?;
    } else {
        for job in &jobs {
            let worlds: Vec<_> = job.ranks.iter().map(|rank| place(rank.pid)).collect();
            match worlds.iter().flatten().map(|place| place.size).find(|size| *size > job.size) {
                None => writeln!(out, "job {:016x}, {} ranks\n{}\n", job.id, job.size, table(job, None))?,
                Some(size) => writeln!(
                    out,
                    "job {:016x}, {} ranks of this node, of a world of {size}\n{}\n{ELSEWHERE}\n",
                    job.id,
                    job.size,
                    table(job, Some(&worlds))
                )?,
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is not seen of a job over several nodes.
const ELSEWHERE: &str = "The other ranks are shown by `han status` on their nodes. Of those that a rank waits for over \
                         the network, at most four are named.";

/// Where a process is in its world, as its launcher has told it.
struct Place {
    rank: usize,
    size: usize,
}

fn place(pid: u32) -> Option<Place> {
    let variables = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = |name: &[u8]| {
        let find = |variable: &[u8]| std::str::from_utf8(variable.strip_prefix(name)?).ok()?.parse().ok();
        variables.split(|byte| *byte == 0).find_map(find)
    };
    Some(Place { rank: value(b"PMI_RANK=")?, size: value(b"PMI_SIZE=")? })
}

fn as_json(job: &JobStatus) -> serde_json::Value {
    let rank = |rank: &RankReport| {
        let place = place(rank.pid);
        json!({
            "rank": rank.rank,
            "world_rank": place.as_ref().map(|place| place.rank),
            "world_size": place.map(|place| place.size),
            "pid": rank.pid,
            "state": rank.state,
            "operation": rank.operation,
            "age_ms": rank.age_ms,
            "missing": rank.missing,
            "missing_in_world": rank.missing_in_world,
        })
    };
    let ranks: Vec<_> = job.ranks.iter().map(rank).collect();
    json!({ "id": format!("{:016x}", job.id), "size": job.size, "ranks": ranks })
}

/// With their ranks in the world, where that is larger.
fn table(job: &JobStatus, worlds: Option<&[Option<Place>]>) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(["rank", "pid", "state", "operation", "age", "waits for ranks"]);
    let in_world = |rank: usize| worlds.and_then(|worlds| worlds.get(rank)?.as_ref()).map_or(rank, |place| place.rank);
    for rank in &job.ranks {
        let here = rank.missing.iter().map(|rank| in_world(*rank));
        let missing: Vec<_> = here.chain(rank.missing_in_world.iter().copied()).collect();
        table.add_row([
            in_world(rank.rank).to_string(),
            rank.pid.to_string(),
            rank.state.to_owned(),
            rank.operation.clone().unwrap_or_else(|| "-".to_owned()),
            rank.age_ms.map_or_else(|| "-".to_owned(), age_text),
            if missing.is_empty() { "-".to_owned() } else { ranges_text(&missing) },
        ]);
    }
    for index in [0, 1, 4] {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn age_text(age_ms: u64) -> String {
    match age_ms {
        0..1_000 => format!("{age_ms} ms"),
        1_000..60_000 => format!("{}.{} s", age_ms / 1_000, age_ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", age_ms / 60_000, age_ms % 60_000 / 1_000),
        _ => format!("{} h {} min", age_ms / 3_600_000, age_ms % 3_600_000 / 60_000),
    }
}

/// `0, 2-5, 9`: many ranks in little room. The numbers come ascending.
pub(crate) fn ranges_text(numbers: &[usize]) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    let text = |&(first, last): &(usize, usize)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_become_ranges() {
        assert_eq!(ranges_text(&[0, 2, 3, 4, 5, 9, 10]), "0, 2-5, 9-10");
        assert_eq!(ranges_text(&[]), "");
    }

    #[test]
    fn ages_have_the_unit_that_fits() {
        assert_eq!(age_text(999), "999 ms");
        assert_eq!(age_text(61_500), "1 min 1 s");
        assert_eq!(age_text(1_250), "1.2 s");
        assert_eq!(age_text(7_260_000), "2 h 1 min");
    }
}

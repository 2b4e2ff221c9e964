//! `han status`: what the ranks of this user's local jobs are doing, read from their segments.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use comfy_table::Table;
use serde_json::json;
use shm_core::job::{self, JobStatus, Jobs, RankReport};

use crate::output::stdout;
use crate::tables;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// One JSON object a line, one line a job
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub(crate) fn main(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let Jobs { own, others } = job::list()?;
    let mut out = stdout();
    if args.json {
        for job in &own {
            writeln!(out, "{}", as_json(job))?;
        }
        for pid in others {
            writeln!(out, "{}", json!({ "other_build": true, "pid": pid }))?;
        }
    } else if own.is_empty() && others.is_empty() {
        writeln!(out, "no jobs of this user")?;
    } else {
        for job in &own {
            let JobStatus { id, size, world, .. } = job;
            if world > size {
                writeln!(out, "job {id:016x}, {size} ranks of this node, of a world of {world}")?;
                writeln!(out, "{}\n{ELSEWHERE}\n", table(job))?;
            } else {
                writeln!(out, "job {id:016x}, {size} ranks\n{}\n", table(job))?;
            }
        }
        for pid in others {
            writeln!(out, "process {pid} belongs to a job of another build of han, whose `han status` shows it")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What is not seen of a job over several nodes.
const ELSEWHERE: &str = "The other ranks are shown by `han status` on their nodes. Of those that a rank waits for over \
                         the network, at most four are named.";

fn as_json(job: &JobStatus) -> serde_json::Value {
    let rank = |rank: &RankReport| {
        json!({
            "rank": rank.rank,
            "world_rank": rank.world_rank,
            "world_size": job.world,
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

/// With their ranks in the world.
fn table(job: &JobStatus) -> Table {
    let mut table = tables::plain(["rank", "pid", "state", "operation", "age", "waits for ranks"]);
    for rank in &job.ranks {
        let here = rank.missing.iter().filter_map(|missing| Some(job.ranks.get(*missing)?.world_rank));
        let missing: Vec<_> = here.chain(rank.missing_in_world.iter().copied()).collect();
        table.add_row([
            rank.world_rank.to_string(),
            rank.pid.to_string(),
            rank.state.to_owned(),
            rank.operation.clone().unwrap_or_else(|| "-".to_owned()),
            rank.age_ms.map_or_else(|| "-".to_owned(), age_text),
            if missing.is_empty() { "-".to_owned() } else { ranges_text(&missing) },
        ]);
    }
    tables::right(table, |column| [0, 1, 4].contains(&column))
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

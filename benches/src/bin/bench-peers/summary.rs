//! From samples to tables: for each size the median of each contestant, and who is how much faster.

use std::collections::BTreeSet;

use benches::machine::State;
use benches::table::{Table, bytes_text, median, us_text};

use crate::{Compared, Sample, rival_names};

/// A table for each collective.
pub(crate) fn tables(
    samples: &[Sample],
    ranks: usize,
    style: &str,
    compared: Option<Compared>,
    collectives: &[String],
) -> String {
    let of_group = |sample: &&Sample| sample.row.ranks == ranks && sample.temperature == style;
    let group: Vec<&Sample> = samples.iter().filter(of_group).collect();
    let compared = compared.unwrap_or_else(|| usual_state(&group));
    let usable = |sample: &&&Sample| match compared {
        Compared::Any => true,
        Compared::Near => sample.state == State::Near,
        Compared::Far => sample.state == State::Far,
    };
    let group: Vec<&Sample> = group.iter().filter(usable).copied().collect();
    let state = match compared {
        Compared::Any => "any state",
        Compared::Near => "near",
        Compared::Far => "far",
    };
    let mut text = String::new();
    for collective in collectives {
        let series: Vec<&Sample> = group.iter().filter(|sample| &sample.row.coll == collective).copied().collect();
        if !series.is_empty() {
            text += &format!("\n### {collective}, {ranks} ranks, {style}, {state}, microseconds\n\n");
            text += &table(&series).markdown();
        }
    }
    text
}

/// The state in which han has most samples; where ranks share cores, the distance matters little.
fn usual_state(group: &[&Sample]) -> Compared {
    let count = |state| group.iter().filter(|sample| sample.contestant == "han" && sample.state == state).count();
    let crowded = group.first().is_some_and(|sample| sample.row.ranks > benches::machine::cores());
    if crowded {
        Compared::Any
    } else if count(State::Far) > count(State::Near) {
        Compared::Far
    } else {
        Compared::Near
    }
}

fn table(series: &[&Sample]) -> Table {
    let mut table = Table::new(["bytes", "han", "chosen"].into_iter().chain(rival_names()).chain([
        "best installed / han",
        "best of all settings",
        "whose",
        "best / han",
    ]));
    let sizes: BTreeSet<usize> = series.iter().map(|sample| sample.row.bytes).collect();
    for bytes in sizes {
        let here: Vec<&Sample> = series.iter().filter(|sample| sample.row.bytes == bytes).copied().collect();
        let han = time_of(&here, "han");
        let installed = rival_names().map(|rival| {
            let own = here.iter().find(|sample| sample.installed && sample.rival == Some(rival));
            own.and_then(|sample| time_of(&here, sample.contestant))
        });
        let best_installed = installed.into_iter().flatten().min_by(f64::total_cmp);
        let rivals: BTreeSet<&str> =
            here.iter().filter(|sample| sample.rival.is_some()).map(|sample| sample.contestant).collect();
        let times = rivals.into_iter().filter_map(|name| Some((time_of(&here, name)?, name)));
        let best = times.min_by(|left, right| left.0.total_cmp(&right.0));
        let choice = here.iter().find(|sample| sample.contestant == "han").map_or("-", |sample| &sample.row.choice);
        let mut cells = vec![bytes_text(bytes), us_text(han), choice.to_owned()];
        cells.extend(installed.map(us_text));
        cells.extend([
            ratio_text(best_installed, han),
            us_text(best.map(|(time, _)| time)),
            best.map_or("-", |(_, name)| name).to_owned(),
            ratio_text(best.map(|(time, _)| time), han),
        ]);
        table.add(cells);
    }
    table
}

/// The median over rounds of a contestant's medians.
fn time_of(here: &[&Sample], contestant: &str) -> Option<f64> {
    let own = here.iter().filter(|sample| sample.contestant == contestant);
    median(own.map(|sample| sample.row.us_median).collect())
}

/// How many times longer the rival takes.
fn ratio_text(rival: Option<f64>, han: Option<f64>) -> String {
    match (rival, han) {
        (Some(rival), Some(han)) if han > 0.0 => format!("{:.2}", rival / han),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use benches::job::Row;

    fn sample(contestant: &'static str, rival: Option<&'static str>, installed: bool, state: State, us: f64) -> Sample {
        let row = Row {
            coll: "bcast".into(),
            bytes: 8,
            ranks: 2,
            style: "osu".into(),
            choice: String::new(),
            iters: 10,
            repeats: 5,
            us_min: us,
            us_median: us,
            us_max: us,
            verified: true,
        };
        Sample {
            contestant,
            rival,
            installed,
            round: 0,
            state,
            one_way_ns_before: 30.0,
            one_way_ns_after: 30.0,
            temperature: "osu",
            row,
        }
    }

    #[test]
    fn the_best_of_each_kind_is_set_against_han() {
        let samples = [
            sample("han", None, false, State::Near, 0.1),
            sample("han", None, false, State::Far, 9.0),
            sample("openmpi", Some("Open MPI"), true, State::Near, 0.3),
            sample("mpich", Some("MPICH"), true, State::Near, 0.2),
            sample("mpich-rg", Some("MPICH"), false, State::Near, 0.15),
        ];
        let text = tables(&samples, 2, "osu", Some(Compared::Near), &["bcast".to_owned()]);
        let line = text.lines().last().unwrap_or_default();
        let cells: Vec<&str> = line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["8", "0.100", "0.300", "0.200", "-", "2.00", "0.150", "mpich-rg", "1.50"]);
        assert_eq!(tables(&samples, 4, "osu", None, &["bcast".to_owned()]), "");
    }
}

//! How much faster than the rivals han is to be, how near to what the machine can do, and where it is
//! not.

use charts::as_f64;

use crate::machine::{Limit, State};
use crate::network::Network;
use crate::ratios::{Group, Line};
use crate::table::{bytes_text, us_text};

/// Up to this size a message is small.
const SMALL: usize = 4 << 10;

/// Least ratios: the best rival as installed to han, the best of all settings to han.
#[must_use]
pub fn least_ratios(bytes: usize, crowded: bool, alloc: &str) -> (f64, f64) {
    match (crowded, bytes <= SMALL, alloc) {
        (true, _, _) => (1.5, 1.2),
        (false, true, _) => (1.5, 1.1),
        (false, false, "malloc") => (1.5, 1.15),
        (false, false, _) => (2.0, 1.4),
    }
}

/// From this size on a collective over nodes is to take little more than the wire does.
const LONG: usize = 256 << 10;

/// How many times the wire's bound it may take.
const MOST_WIRE_BOUNDS: f64 = 1.1;

/// How many times the bound a collective may take on memory that peers reach, if that is a target.
fn most_bounds(coll: &str, bytes: usize, alloc: &str) -> Option<f64> {
    match coll {
        _ if bytes <= SMALL || alloc == "malloc" => None,
        "bcast" => Some(1.15),
        "allreduce" => Some(1.3),
        _ => None,
    }
}

/// The machine's own bandwidths in one state.
#[derive(Clone, Debug)]
pub struct Bounds<'a> {
    limits: Vec<&'a Limit>,
}

impl<'a> Bounds<'a> {
    /// Those measured in `state`, the last ones if there are several.
    #[must_use]
    pub fn new(limits: &'a [Limit], state: State) -> Self {
        Self { limits: limits.iter().rev().filter(|limit| limit.state == state).collect() }
    }

    /// One-way latency of a cache line in microseconds.
    #[must_use]
    pub fn cache_line_us(&self) -> Option<f64> {
        let limit = self.limits.iter().find(|limit| limit.limit == "cache_line_one_way")?;
        Some(limit.value * 1e-3)
    }

    /// Microseconds that `bytes` take at the rate called `limit`, which is that of the nearest size.
    #[must_use]
    pub fn us(&self, limit: &str, bytes: usize) -> Option<f64> {
        let distance = |size: usize| (size.max(1).ilog2()).abs_diff(bytes.max(1).ilog2());
        let rates = self.limits.iter().filter(|candidate| candidate.limit == limit);
        let nearest = rates.filter_map(|rate| Some((distance(rate.bytes?), rate.value))).min_by_key(|&(far, _)| far)?;
        Some(as_f64(bytes) / nearest.1 * 1e-3)
    }

    /// The least time in microseconds of a group's operations of `bytes`; a pair's has a barrier in it, which has no bound here.
    #[must_use]
    pub fn group_us(&self, group: &Group, bytes: usize) -> Option<f64> {
        if group.is_pair() { None } else { self.collective_us(&group.coll, group.ranks, bytes, group.is_cold()) }
    }

    /// The least time in microseconds of a collective on `ranks` cores, from the bytes that it must move.
    ///
    /// - bcast: one copy of the message: from the reader's own cache when hot, from what the root's core
    ///   has just written when cold;
    /// - reduce, allreduce: each rank sums its slice (`bytes / ranks`) of all vectors, `ranks - 1` sums;
    ///   then the slices that others have summed are copied, fresh from their cores.
    fn collective_us(&self, coll: &str, ranks: usize, bytes: usize, cold: bool) -> Option<f64> {
        match coll {
            "bcast" => self.us(if cold { "memcpy_from_peer" } else { "memcpy" }, bytes),
            "reduce" | "allreduce" if ranks > 1 => {
                let slice = bytes / ranks;
                let sums = as_f64(ranks - 1) * self.us("reduce_f32_sum", slice)?;
                Some(sums + self.us("memcpy_from_peer", bytes - slice)?)
            }
            _ => None,
        }
    }
}

/// What a line of a table misses, in words; empty if it misses nothing.
#[must_use]
pub fn missed(group: &Group, alloc: &str, line: &Line, bounds: Option<&Bounds>) -> Vec<String> {
    if let Some(network) = &group.network {
        return missed_over_nodes(group, network, line);
    }
    let (installed, best) = least_ratios(line.bytes, group.state.is_none(), alloc);
    let mut missed = Vec::new();
    for (what, ratio, least, who) in [
        ("as installed", line.installed_ratio(), installed, &line.best_installed),
        ("of all settings", line.best_ratio(), best, &line.best),
    ] {
        if let (Some(ratio), Some(who)) = (ratio.filter(|&ratio| ratio < least), who) {
            missed.push(format!("best {what} {ratio:.2}, wanted {least} ({})", who.who));
        }
    }
    let bound = bounds.and_then(|bounds| bounds.group_us(group, line.bytes));
    if let (Some(most), Some(bound)) = (most_bounds(&group.coll, line.bytes, alloc), bound)
        && line.han > most * bound
    {
        missed.push(format!("{:.2} times the bound of {} us, wanted {most}", line.han / bound, us_text(Some(bound))));
    }
    missed
}

/// What a line of a table over nodes misses, in words: the best rival's time, and the wire's bound where it is limited.
fn missed_over_nodes(group: &Group, network: &Network, line: &Line) -> Vec<String> {
    let mut missed = Vec::new();
    if let (Some(ratio), Some(who)) = (line.best_ratio().filter(|&ratio| ratio < 1.0), &line.best) {
        missed.push(format!("best of all settings {ratio:.2}, wanted 1 ({})", who.who));
    }
    let bound = network.bound_us(&group.coll, line.bytes).filter(|_| line.bytes >= LONG);
    if let Some(bound) = bound.filter(|bound| line.han > MOST_WIRE_BOUNDS * bound) {
        let (times, bound) = (line.han / bound, us_text(Some(bound)));
        missed.push(format!("{times:.2} times the wire's {bound} us, wanted {MOST_WIRE_BOUNDS}"));
    }
    missed
}

/// [`missed`] with its place.
#[must_use]
pub fn missed_text(group: &Group, alloc: &str, line: &Line, missed: &[String]) -> String {
    format!("{}, {alloc}, {}: {}", group.name(), bytes_text(line.bytes), missed.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::tests::network;
    use crate::ratios::{groups, lines};
    use crate::record::Record;
    use crate::record::tests::cell;

    fn limit(limit: &str, bytes: usize, value: f64) -> Limit {
        Limit { state: State::Near, limit: limit.into(), bytes: Some(bytes), value, unit: "GB/s".into() }
    }

    #[test]
    fn targets_depend_on_size_ranks_and_memory() {
        assert_eq!(least_ratios(4096, false, "malloc"), (1.5, 1.1));
        assert_eq!(least_ratios(16384, false, "malloc"), (1.5, 1.15));
        assert_eq!(least_ratios(16384, false, "shared"), (2.0, 1.4));
        assert_eq!(least_ratios(16384, true, "shared"), (1.5, 1.2));
    }

    #[test]
    fn bounds_come_from_the_bytes_moved() {
        let limits = [
            limit("memcpy", 1 << 20, 50.0),
            limit("memcpy_from_peer", 1 << 20, 25.0),
            limit("reduce_f32_sum", 1 << 18, 40.0),
            limit("reduce_f32_sum", 1 << 20, 20.0),
        ];
        let bounds = Bounds::new(&limits, State::Near);
        let close = |us: Option<f64>, wanted: f64| us.is_some_and(|us| (us - wanted).abs() < 1e-9);
        assert!(close(bounds.collective_us("bcast", 2, 1_000_000, false), 20.0));
        assert!(close(bounds.collective_us("bcast", 2, 1_000_000, true), 40.0));
        // 4 ranks: three sums of 250 kB at 40 GB/s (its size is the nearest), then 750 kB at 25 GB/s
        assert!(close(bounds.collective_us("allreduce", 4, 1_000_000, false), 18.75 + 30.0));
        assert_eq!(bounds.collective_us("barrier", 2, 0, false), None);
        assert_eq!(Bounds::new(&limits, State::Far).collective_us("bcast", 2, 8, false), None);
    }

    #[test]
    fn over_nodes_the_best_rival_and_the_wire_count() {
        let over = |who: &str, library: &str, us| {
            let mut cell = cell(who, library, who != "mpich-ucx", State::Far, us);
            (cell.row.bytes, cell.network) = (1 << 20, Some(network(2, "1gbit")));
            cell
        };
        // The wire takes 8389 us.
        let missed = |han| {
            let cells =
                vec![over("han", "han", han), over("mpich", "MPICH", 9300.0), over("mpich-ucx", "MPICH", 9250.0)];
            let record = Record { cores: 2, cells, ..Record::default() };
            let groups = groups(&record);
            let (group, series) = groups.iter().next().expect("one group");
            missed(group, "malloc", &lines(&series[0], series)[0], None)
        };
        assert_eq!(missed(9200.0), Vec::<String>::new());
        let both = ["best of all settings 0.98, wanted 1 (mpich-ucx)", "1.12 times the wire's 8389 us, wanted 1.1"];
        assert_eq!(missed(9400.0), both);
    }

    #[test]
    fn what_is_missed_is_said() {
        let rival = |name: &str, installed, us| cell(name, "MPICH", installed, State::Near, us);
        let han = cell("han", "han", false, State::Near, 1.0);
        let cells = vec![han, rival("mpich", true, 1.4), rival("mpich-rg", false, 1.2)];
        let record = Record { cores: 2, cells, ..Record::default() };
        let groups = groups(&record);
        let (group, series) = groups.iter().next().expect("one group");
        let line = &lines(&series[0], series)[0];
        let missed = missed(group, "malloc", line, None);
        assert_eq!(missed, ["best as installed 1.40, wanted 1.5 (mpich)"]);
        let text = missed_text(group, "malloc", line, &missed);
        assert!(text.starts_with("bcast, 2 ranks, osu, near, malloc, 8: best"), "{text}");
    }
}

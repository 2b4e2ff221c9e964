//! What a collective of many chunks takes, from the costs of its tasks (dissertation, section 5.3).
//!
//! At the same step a leader works on several chunks, each at another stage: the step's work is a task, and a collective
//! of `u` chunks through `d + 1` stages is `u + d` tasks. Broadcasts have two stages, `ib` and `sb`, so their tasks are
//! `ib(0)`, `sbib(1)` to `sbib(u - 1)`, and `sb(u - 1)`; allreduces by `ir` and `ib` have four. The first `d` and the
//! last `d` tasks are partly filled; all others are the same task, whose cost is stable soon after the pipeline has
//! filled. A task's cost is what a leader takes from the end of the one before to its own end, with everything before
//! it done in the same run: so leaders that start late count as they are.

use shm_core::Collective;

use crate::task::Kind;

/// The costs of one leader's tasks, in microseconds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Costs {
    /// The tasks while the pipeline fills.
    pub head: Vec<f64>,
    /// A task when it is full.
    pub stable: f64,
    /// The tasks while it empties.
    pub tail: Vec<f64>,
}

/// Stages of a chunk but one: so many tasks it takes to fill the pipeline.
#[must_use]
pub fn depth(collective: Collective, splits: bool) -> usize {
    match collective {
        // ib, sb; sr, ir.
        Collective::Bcast | Collective::Reduce => 1,
        // sr, ir, ib, sb.
        Collective::Allreduce if splits => 3,
        // sr, ia, sb.
        Collective::Allreduce | Collective::Barrier => 2,
    }
}

/// The costs of this rank's tasks in a run of `chunks` chunks: to each step belongs all that is at its stage then, and it
/// costs what passes from the end of the one before to its own. `microseconds` from the call to the end of each.
#[must_use]
pub fn tasks(ends: &[(Kind, usize, f64)], chunks: usize, collective: Collective, splits: bool) -> Vec<f64> {
    let depth = depth(collective, splits);
    let mut until = vec![0.0_f64; chunks + depth];
    for &(kind, chunk, us) in ends {
        let stage = match (collective, kind) {
            (_, Kind::Sr) | (Collective::Bcast, Kind::Ib) => 0,
            (_, Kind::Ir | Kind::Ia) => 1,
            (_, Kind::Ib) => 2,
            // A node-aware one is not cut into chunks whose costs could be told apart.
            (_, Kind::Sb | Kind::Sa) => depth,
        };
        if let Some(end) = until.get_mut(chunk + stage) {
            *end = end.max(us);
        }
    }
    let mut before = 0.0_f64;
    let cost = |end: f64| {
        let end = end.max(before);
        end - std::mem::replace(&mut before, end)
    };
    until.into_iter().map(cost).collect()
}

impl Costs {
    /// From the costs of all tasks of a run in which the pipeline was filled, `depth` tasks at each end.
    ///
    /// The stable cost is the mean of the later half of those between: ranks that share cores do several in a burst.
    #[must_use]
    pub fn of_tasks(tasks: &[f64], depth: usize) -> Self {
        let depth = depth.min(tasks.len() / 2);
        let (head, rest) = tasks.split_at(depth);
        let (full, tail) = rest.split_at(rest.len() - depth);
        let later = &full[full.len() / 2..];
        #[allow(clippy::cast_precision_loss)] // at most as many as there are chunks
        let stable = later.iter().sum::<f64>() / later.len().max(1) as f64;
        Self { head: head.to_vec(), stable, tail: tail.to_vec() }
    }

    /// What this leader takes for `chunks` of them, at least as many as fill the pipeline; the last may be a part.
    #[must_use]
    pub fn total(&self, chunks: f64) -> f64 {
        let sum = |tasks: &[f64]| tasks.iter().sum::<f64>();
        #[allow(clippy::cast_precision_loss)] // at most 3
        let filling = self.head.len() as f64;
        sum(&self.head) + (chunks - filling).max(0.0) * self.stable + sum(&self.tail)
    }
}

/// What a configuration's tasks cost for chunks of one length: by leader.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tasks {
    /// A whole operation of one chunk, whose tasks follow one another.
    pub single: Vec<f64>,
    /// The tasks of many chunks.
    pub piped: Vec<Costs>,
}

impl Tasks {
    /// Microseconds for `chunks`, of the slowest leader: equations 5.4 and 5.5.
    ///
    /// Fewer chunks than fill the pipeline lie on a line between one chunk and so many.
    #[must_use]
    pub fn estimate(&self, chunks: f64) -> f64 {
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let single = most(&mut self.single.iter().copied());
        if chunks <= 1.0 || self.piped.is_empty() {
            return single;
        }
        #[allow(clippy::cast_precision_loss)] // at most 3
        let filled = self.piped.iter().map(|costs| costs.head.len()).max().unwrap_or(0).max(1) as f64;
        let piped = |chunks: f64| most(&mut self.piped.iter().map(|costs| costs.total(chunks)));
        if chunks >= filled {
            return piped(chunks);
        }
        single + (piped(filled) - single) * (chunks - 1.0) / (filled - 1.0)
    }
}

/// What lies between measured points, which ascend: on straight lines, as a message's time is that of a message and that of
/// its bytes. Beyond the points the time of the smallest stays, and that of the largest grows with the bytes.
#[must_use]
pub fn between(points: &[(usize, f64)], bytes: usize) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)] // lengths of vectors
    let number = |bytes: usize| bytes.max(1) as f64;
    let (first, last) = (points.first()?, points.last()?);
    if bytes <= first.0 {
        return Some(first.1);
    }
    if bytes >= last.0 {
        return Some(last.1 * number(bytes) / number(last.0));
    }
    let after = points.partition_point(|point| point.0 < bytes);
    let ((low, low_us), (high, high_us)) = (points[after - 1], points[after]);
    let part = (number(bytes) - number(low)) / (number(high) - number(low));
    Some(low_us + (high_us - low_us) * part)
}

/// The part of the shorter level's time that passes while the other works, if both do: equation 5.3.
#[must_use]
pub fn overlap(inter: f64, intra: f64, together: f64) -> Option<f64> {
    let shorter = inter.min(intra);
    (shorter > 0.0).then(|| ((inter + intra - together) / shorter).clamp(0.0, 1.0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-9 * other.abs().max(1.0), "{one} is not {other}");
    }

    #[test]
    fn a_broadcast_is_equation_5_4() {
        // ib(0), sbib(1) .. sbib(5), sb(5): the pipeline is not stable at once.
        let costs = Costs::of_tasks(&[10.0, 30.0, 14.0, 12.0, 12.0, 12.0, 4.0], depth(Collective::Bcast, false));
        assert_eq!(costs, Costs { head: vec![10.0], stable: 12.0, tail: vec![4.0] });
        near(costs.total(64.0), 10.0 + 63.0 * 12.0 + 4.0);
        // The slowest leader counts.
        let late = Costs { head: vec![100.0], stable: 11.0, tail: vec![4.0] };
        let tasks = Tasks { single: vec![14.0, 104.0], piped: vec![costs.clone(), late.clone()] };
        near(tasks.estimate(1.0), 104.0);
        near(tasks.estimate(10.0), late.total(10.0));
        near(tasks.estimate(1000.0), costs.total(1000.0));
    }

    #[test]
    fn steps_end_with_the_last_of_their_stages() {
        use Kind::{Ia, Ib, Sb, Sr};
        let ends = [(Ib, 0, 5.0), (Ib, 1, 9.0), (Sb, 0, 11.0), (Ib, 2, 10.5), (Sb, 1, 12.0), (Sb, 2, 15.0)];
        assert_eq!(tasks(&ends, 3, Collective::Bcast, false), [5.0, 6.0, 1.0, 3.0]);
        // A member has no tasks at the stages across nodes.
        let ends = [(Sr, 0, 1.0), (Sr, 1, 2.0), (Sb, 0, 7.0), (Sb, 1, 8.0)];
        assert_eq!(tasks(&ends, 2, Collective::Allreduce, false), [1.0, 1.0, 5.0, 1.0]);
        assert_eq!(tasks(&ends, 2, Collective::Allreduce, true), [1.0, 1.0, 0.0, 5.0, 1.0]);
        assert_eq!(tasks(&[(Ia, 0, 3.0)], 1, Collective::Barrier, false), [0.0, 3.0, 0.0]);
    }

    #[test]
    fn an_allreduce_is_equation_5_5() {
        let (sr, irsr, ibirsr, full, sbibir, sbib, sb) = (3.0, 8.0, 9.0, 11.0, 10.0, 7.0, 2.0);
        let run = [sr, irsr, ibirsr, 20.0, full, full, full, sbibir, sbib, sb];
        let costs = Costs::of_tasks(&run, depth(Collective::Allreduce, true));
        near(costs.total(20.0), sr + irsr + ibirsr + 17.0 * full + sbibir + sbib + sb);
        // One and two chunks do not fill it.
        let tasks = Tasks { single: vec![25.0], piped: vec![costs] };
        let three = sr + irsr + ibirsr + sbibir + sbib + sb;
        near(tasks.estimate(3.0), three);
        near(tasks.estimate(2.0), f64::midpoint(25.0, three));
        near(tasks.estimate(1.0), 25.0);
    }

    #[test]
    fn whatever_was_measured_gives_a_number() {
        for length in 0..9 {
            let tasks = vec![2.0; length];
            for depth in 0..5 {
                let costs = Costs::of_tasks(&tasks, depth);
                assert!(costs.total(1.0) <= 2.0 * 9.0 && costs.head.len() == costs.tail.len(), "{costs:?}");
            }
        }
        near(Tasks::default().estimate(5.0), 0.0);
        near(Tasks { single: vec![7.0], piped: Vec::new() }.estimate(5.0), 7.0);
    }

    #[test]
    fn points_are_joined_by_straight_lines() {
        let points = [(8, 10.0), (1 << 10, 10.0), (1 << 20, 320.0)];
        assert_eq!(between(&[], 8), None);
        for (bytes, us) in [(0, 10.0), (8, 10.0), (100, 10.0), (1 << 10, 10.0), (1 << 20, 320.0), (1 << 22, 1280.0)] {
            near(between(&points, bytes).unwrap(), us);
        }
        near(between(&points, (1 << 19) + (1 << 9)).unwrap(), 165.0);
    }

    #[test]
    fn overlap_is_between_none_and_all() {
        for (together, part) in [(16.0, 0.0), (10.0, 1.0), (13.0, 0.5), (30.0, 0.0), (5.0, 1.0)] {
            near(overlap(10.0, 6.0, together).unwrap(), part);
        }
        assert_eq!(overlap(0.0, 6.0, 6.0), None);
    }
}

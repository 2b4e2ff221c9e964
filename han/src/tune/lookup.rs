//! Finds what was measured nearest to a call.

use shm_core::Collective;

use super::file::{Measured, Point, Tuning};

/// What is asked: known to all ranks alike, so that all find the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The collective.
    pub collective: Collective,
    /// Nodes of the communicator.
    pub nodes: usize,
    /// Its ranks on the node that has most.
    pub ranks_per_node: usize,
    /// Bytes of a rank's vector.
    pub bytes: usize,
    /// The provider in use, if it is known.
    pub provider: Option<&'a str>,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found<'a> {
    /// The shape of the jobs that were measured.
    pub shape: &'a Measured,
    /// The point.
    pub point: &'a Point,
}

impl Tuning {
    /// The measured point that is nearest to what is wanted: first the shape, by the ratios of nodes and of ranks a node,
    /// where another provider counts more than any ratio; then the bytes, by their ratio. Of two that are as near the
    /// smaller one. `None` if nothing was measured for the collective.
    #[must_use]
    pub fn look_up(&self, wanted: &Wanted<'_>) -> Option<Found<'_>> {
        let has_points = |shape: &&Measured| shape.points.iter().any(|point| point.collective == wanted.collective);
        let far = |shape: &Measured| {
            let other = wanted.provider.is_some_and(|provider| provider != shape.provider);
            let ratios = ratio(shape.nodes, wanted.nodes) + ratio(shape.ranks_per_node, wanted.ranks_per_node);
            (other, ratios, shape.nodes, shape.ranks_per_node)
        };
        let nearer =
            |one: &&Measured, other: &&Measured| far(one).partial_cmp(&far(other)).unwrap_or(std::cmp::Ordering::Equal);
        let shape = self.shapes.iter().filter(has_points).min_by(nearer)?;
        let points = shape.points.iter().filter(|point| point.collective == wanted.collective);
        let point = points.min_by(|one, other| {
            let far = |point: &Point| (ratio(point.bytes, wanted.bytes), point.bytes);
            far(one).partial_cmp(&far(other)).unwrap_or(std::cmp::Ordering::Equal)
        })?;
        Some(Found { shape, point })
    }
}

/// How far apart two numbers are on a logarithmic scale.
fn ratio(one: usize, other: usize) -> f64 {
    #[allow(clippy::cast_precision_loss)] // lengths of vectors
    let log = |number: usize| (number.max(1) as f64).log2();
    (log(one) - log(other)).abs()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::select::Inter;

    fn measured(nodes: usize, ranks_per_node: usize, provider: &str, points: &[(Collective, usize)]) -> Measured {
        let point = |&(collective, bytes): &(Collective, usize)| Point {
            collective,
            bytes,
            us: 1.0,
            settings: Inter::default(),
        };
        let points = points.iter().map(point).collect();
        let (date, method) = ("2026-01-31".to_owned(), "task".to_owned());
        Measured { nodes, ranks_per_node, provider: provider.to_owned(), date, method, points }
    }

    #[test]
    fn the_nearest_shape_and_bytes_are_found() {
        use Collective::{Allreduce, Barrier, Bcast, Reduce};
        let tuning = Tuning {
            machine: String::new(),
            shapes: vec![
                measured(2, 2, "tcp", &[(Bcast, 8), (Bcast, 128), (Bcast, 2048), (Allreduce, 8)]),
                measured(16, 2, "tcp", &[(Bcast, 64)]),
                measured(16, 8, "tcp", &[(Bcast, 65)]),
                measured(4, 4, "verbs", &[(Bcast, 66), (Barrier, 0)]),
            ],
        };
        let find = |collective, nodes, ranks_per_node, bytes, provider| {
            let wanted = Wanted { collective, nodes, ranks_per_node, bytes, provider };
            tuning.look_up(&wanted).map(|found| (found.shape.nodes, found.shape.ranks_per_node, found.point.bytes))
        };
        let tcp = Some("tcp");
        // Between points the border is in the middle of their logarithms; beyond them the last counts.
        let bytes = [0, 1, 8, 32, 33, 512, 513, 1 << 30];
        let found = bytes.map(|bytes| find(Bcast, 2, 2, bytes, tcp).unwrap().2);
        assert_eq!(found, [8, 8, 8, 8, 128, 128, 2048, 2048]);
        // Between shapes too.
        let nodes = [1, 2, 5, 6, 1000].map(|nodes| find(Bcast, nodes, 2, 8, tcp).unwrap().0);
        assert_eq!(nodes, [2, 2, 2, 16, 16]);
        let ranks = [1, 4, 5, 64].map(|ranks| find(Bcast, 16, ranks, 8, tcp).unwrap().1);
        assert_eq!(ranks, [2, 2, 8, 8]);
        // A provider that was measured goes before any distance; one that was not, or is not known, means nothing.
        assert_eq!(find(Bcast, 2, 2, 8, Some("verbs")), Some((4, 4, 66)));
        assert_eq!(find(Bcast, 4, 4, 8, Some("psm3")), Some((4, 4, 66)));
        assert_eq!(find(Bcast, 4, 4, 8, None), Some((4, 4, 66)));
        // Only shapes that have the collective count.
        assert_eq!(find(Allreduce, 16, 8, 8, tcp), Some((2, 2, 8)));
        assert_eq!(find(Barrier, 2, 2, 0, tcp), Some((4, 4, 0)));
        assert_eq!(find(Reduce, 2, 2, 8, tcp), None);
    }
}

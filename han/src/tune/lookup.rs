//! Finds what was measured nearest to a call.

use std::cmp::Ordering;

use net_fabric::algorithm::Algorithm;
use shm_core::Collective;

use super::file::{Measured, Point, Tuning};
use crate::select::Inter;
use crate::select::NodesForm;

/// What was measured tells about vectors of up to so many times its length, and down to such a part of it.
const REACH: usize = 4;
/// An algorithm that is best for so many nodes, or ranks on the network, tells about up to so many times as many, and down to such a part.
const REACH_OF_ALGORITHMS: usize = 2;
/// With so many chunks the pipeline is full most of the time: what a chunk takes is stable (equations 5.4 and 5.5), and longer
/// vectors only have more of them.
const STABLE_CHUNKS: usize = 8;

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
    /// What is set of what is not searched.
    pub set: &'a str,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Found<'a> {
    /// The shape of the jobs that were measured.
    pub shape: &'a Measured,
    /// The point.
    pub point: &'a Point,
}

impl Point {
    /// What to set for a vector of `bytes`: a chunk stays as long as it was measured, and where the whole vector was one chunk it
    /// stays one. `None` if that says nothing about such a vector: it is more than 4 times longer or shorter, and if longer,
    /// fewer than 8 chunks were measured.
    #[must_use]
    pub fn settings_for(&self, bytes: usize) -> Option<Inter> {
        let (measured, wanted) = (self.bytes.max(1), bytes.max(1));
        let is_stable = self.settings.segment_bytes.is_some_and(|segment| measured / segment >= STABLE_CHUNKS);
        let is_near = wanted >= measured.div_ceil(REACH) && (is_stable || wanted <= measured.saturating_mul(REACH));
        let segment_bytes = match self.settings.segment_bytes {
            Some(segment) if self.is_one_chunk() => Some(segment.max(bytes)),
            other => other,
        };
        is_near.then_some(Inter { segment_bytes, ..self.settings })
    }

    /// Whether the whole vector was one chunk of both levels.
    #[must_use]
    pub fn is_one_chunk(&self) -> bool {
        self.settings.segment_bytes.is_some_and(|segment| segment >= self.bytes)
    }
}

impl Found<'_> {
    /// What the point says for `wanted`, as [`Point::settings_for`]. Algorithms are left open where those who used the network
    /// are others by far, or were two: between two all trees are the same, so the name of the one that was measured says
    /// nothing. These are the nodes, or all ranks where all used it, which is left open as well then. Ranks that had a node
    /// each could do nothing else: what they did is for the leaders of nodes with several.
    #[must_use]
    pub fn settings_for(&self, wanted: &Wanted<'_>) -> Option<Inter> {
        let settings = self.point.settings_for(wanted.bytes)?;
        let has_levels_only_now = self.shape.ranks_per_node == 1 && wanted.ranks_per_node > 1;
        let form = settings.form.filter(|_| !has_levels_only_now);
        let is_flat = form == Some(NodesForm::Flat);
        let members = |nodes: usize, ranks: usize| if is_flat { nodes.saturating_mul(ranks) } else { nodes };
        let (measured, asked) =
            (members(self.shape.nodes, self.shape.ranks_per_node), members(wanted.nodes, wanted.ranks_per_node));
        let (fewer, more) = (measured.min(asked), measured.max(asked));
        let is_alike = fewer == more || (fewer > 2 && more <= fewer.saturating_mul(REACH_OF_ALGORITHMS));
        let form = form.filter(|_| is_alike || !is_flat);
        // What goes by the nodes of all ranks is nothing for leaders.
        let is_of_all = settings.algorithm_of(wanted.collective).is_some_and(Algorithm::knows_nodes);
        if is_alike && !(has_levels_only_now && is_of_all) {
            return Some(Inter { form, ..settings });
        }
        Some(Inter { form, algorithm: None, algorithms: [None; 3], ..settings })
    }
}

impl Tuning {
    /// The measured point that is nearest to what is wanted: first the shape, by the ratios of nodes and of ranks a node,
    /// where other settings count more than another provider, and that more than any ratio; then the bytes, by their
    /// ratio. Of two that are as near the smaller one. `None` if nothing was measured for the collective. What the point
    /// says: [`Found::settings_for`].
    #[must_use]
    pub fn look_up(&self, wanted: &Wanted<'_>) -> Option<Found<'_>> {
        let far = |shape: &Measured| {
            let other = wanted.provider.is_some_and(|provider| provider != shape.provider);
            let ratio = Ratio::of([(shape.nodes, wanted.nodes), (shape.ranks_per_node, wanted.ranks_per_node)]);
            (shape.set != wanted.set, other, ratio, shape.nodes, shape.ranks_per_node)
        };
        let shape = self.shapes.iter().filter(|shape| shape.has(wanted.collective)).min_by_key(|shape| far(shape))?;
        let points = shape.points.iter().filter(|point| point.collective == wanted.collective);
        let point = points.min_by_key(|point| (Ratio::of([(point.bytes, wanted.bytes)]), point.bytes))?;
        Some(Found { shape, point })
    }
}

/// How far apart numbers are on a logarithmic scale: ratios of the greater to the smaller, one after the other. In whole
/// numbers, because all ranks must find the same to be nearest, and logarithms are rounded otherwise elsewhere.
struct Ratio {
    over: u128,
    under: u128,
}

impl Ratio {
    fn of<const N: usize>(pairs: [(usize, usize); N]) -> Self {
        let most = (1_u128 << (64 / N)) - 1; // products of two ratios fit
        let part = |number: usize| (number as u128).clamp(1, most);
        let (over, under) = (pairs.map(|(a, b)| part(a.max(b))), pairs.map(|(a, b)| part(a.min(b))));
        Self { over: over.iter().product(), under: under.iter().product() }
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.over * other.under).cmp(&(other.over * self.under))
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ratio {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ratio {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn measured(nodes: usize, ranks_per_node: usize, provider: &str, points: &[(Collective, usize)]) -> Measured {
        let point = |&(collective, bytes): &(Collective, usize)| Point {
            collective,
            bytes,
            us: 1.0,
            estimated: false,
            settings: Inter::default(),
        };
        let points = points.iter().map(point).collect();
        let (date, method) = ("2026-01-31".to_owned(), "task".to_owned());
        Measured { nodes, ranks_per_node, provider: provider.to_owned(), set: String::new(), date, method, points }
    }

    #[test]
    fn the_nearest_shape_and_bytes_are_found() {
        use Collective::{Allreduce, Barrier, Bcast, Reduce};
        let solo = "intra_module=solo";
        let tuning = Tuning {
            machine: String::new(),
            shapes: vec![
                measured(2, 2, "tcp", &[(Bcast, 8), (Bcast, 128), (Bcast, 2048), (Allreduce, 8)]),
                measured(16, 2, "tcp", &[(Bcast, 64)]),
                measured(16, 8, "tcp", &[(Bcast, 65)]),
                measured(4, 4, "verbs", &[(Bcast, 66), (Barrier, 0)]),
                Measured { set: solo.to_owned(), ..measured(64, 64, "verbs", &[(Bcast, 67)]) },
            ],
        };
        let find_under = |set, collective, nodes, ranks_per_node, bytes, provider| {
            let wanted = Wanted { collective, nodes, ranks_per_node, bytes, provider, set };
            tuning.look_up(&wanted).map(|found| (found.shape.nodes, found.shape.ranks_per_node, found.point.bytes))
        };
        let find = |collective, nodes, ranks_per_node, bytes, provider| {
            find_under("", collective, nodes, ranks_per_node, bytes, provider)
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
        // Settings go before that.
        assert_eq!(find_under(solo, Bcast, 2, 2, 8, tcp), Some((64, 64, 67)));
        assert_eq!(find_under("intra_module=sm", Bcast, 2, 2, 8, tcp), Some((2, 2, 8)));
        assert_eq!(find_under(solo, Allreduce, 2, 2, 8, tcp), Some((2, 2, 8)));
        // Only shapes that have the collective count.
        assert_eq!(find(Allreduce, 16, 8, 8, tcp), Some((2, 2, 8)));
        assert_eq!(find(Barrier, 2, 2, 0, tcp), Some((4, 4, 0)));
        assert_eq!(find(Reduce, 2, 2, 8, tcp), None);
    }

    #[test]
    fn algorithms_tell_about_as_many_nodes_as_were_measured() {
        let settings = Inter { algorithm: "ring".parse().ok(), leaders: Some(2), ..Inter::default() };
        let algorithm = |measured_nodes, nodes| {
            let mut shape = measured(measured_nodes, 2, "tcp", &[(Collective::Allreduce, 8)]);
            shape.points[0].settings = settings;
            let wanted = Wanted {
                collective: Collective::Allreduce,
                nodes,
                ranks_per_node: 2,
                bytes: 8,
                provider: None,
                set: "",
            };
            let found = Found { shape: &shape, point: &shape.points[0] }.settings_for(&wanted).unwrap();
            assert_eq!(found.leaders, Some(2));
            found.algorithm.is_some()
        };
        assert_eq!([2, 3, 64].map(|nodes| algorithm(2, nodes)), [true, false, false]);
        assert_eq!([2, 3, 4, 6, 12, 13].map(|nodes| algorithm(6, nodes)), [false, true, true, true, true, false]);
    }

    #[test]
    fn ranks_that_were_alone_on_their_nodes_or_few_send_no_others_all_over_the_network() {
        let settings_for = |of: (usize, usize), algorithm: &str, (nodes, ranks_per_node): (usize, usize)| {
            let mut shape = measured(of.0, of.1, "tcp", &[(Collective::Allreduce, 8)]);
            let form = Some(NodesForm::Flat);
            shape.points[0].settings = Inter { form, algorithm: algorithm.parse().ok(), ..Inter::default() };
            let collective = Collective::Allreduce;
            let wanted = Wanted { collective, nodes, ranks_per_node, bytes: 8, provider: None, set: "" };
            let found = Found { shape: &shape, point: &shape.points[0] }.settings_for(&wanted).unwrap();
            (found.form.is_some(), found.algorithm.is_some())
        };
        // One rank a node, as are leaders of nodes with more.
        assert_eq!(settings_for((4, 1), "ring", (4, 1)), (true, true));
        assert_eq!(settings_for((4, 1), "ring", (4, 8)), (false, true));
        assert_eq!(settings_for((4, 1), "smp", (4, 8)), (false, false));
        assert_eq!(settings_for((4, 1), "ring", (16, 8)), (false, false));
        // Few ranks on the network, and many.
        assert_eq!([2, 4].map(|ranks| settings_for((2, 2), "linear", (2, ranks))), [(true, true); 2]);
        assert_eq!(settings_for((2, 2), "linear", (2, 64)), (false, false));
        assert_eq!(settings_for((2, 2), "linear", (4, 1)), (true, true));
        assert_eq!(settings_for((2, 4), "linear", (16, 4)), (false, false));
    }

    #[test]
    fn a_point_tells_about_vectors_like_its_own() {
        let chunks_of = |bytes: usize, segment_bytes: Option<usize>| {
            let settings = Inter { segment_bytes, ..Inter::default() };
            let point = Point { collective: Collective::Bcast, bytes, us: 1.0, estimated: false, settings };
            move |wanted: usize| point.settings_for(wanted).map(|settings| settings.segment_bytes)
        };
        let (kilo, mega) = (1 << 10, 1 << 20);
        // One chunk stays one, whatever length older files give it.
        for segment in [2 * kilo, 8 * kilo] {
            let one = chunks_of(2 * kilo, Some(segment));
            assert_eq!([512, 2 * kilo].map(&one), [Some(Some(segment)); 2]);
            assert_eq!(one(8 * kilo), Some(Some(8 * kilo)));
            assert_eq!([511, 8 * kilo + 1, 64 * mega].map(one), [None; 3]);
        }
        // A few are as many as vectors of this length should have, many as good for longer ones.
        let few = chunks_of(256 * kilo, Some(64 * kilo));
        assert_eq!([64 * kilo, mega, mega + 1].map(few), [Some(Some(64 * kilo)), Some(Some(64 * kilo)), None]);
        let many = chunks_of(4 * mega, Some(512 * kilo));
        assert_eq!([mega - 1, mega, 1 << 40].map(many), [None, Some(Some(512 * kilo)), Some(Some(512 * kilo))]);
        // What has no chunks is an operation of the whole vector.
        assert_eq!([1, 8, 32, 33].map(chunks_of(8, None)), [None, Some(None), Some(None), None]);
        assert_eq!(chunks_of(0, None)(0), Some(None), "a barrier");
    }
}

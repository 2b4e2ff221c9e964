//! What can be chosen: the configurations of table 6.2, and the sizes to choose them for.

use net_fabric::Policy;
use net_fabric::algorithm::{Algorithm, Shape, Topology};
use shm_core::Collective;

use super::heuristics;
use crate::select::{Inter, LEAST_CHUNK_BYTES, NodesForm};
use crate::task::slices;

/// Bytes of an element.
pub(super) const ELEMENT_BYTES: usize = 4;
/// Policies that are tried: those of the modules `nbc` and `adapt`.
const POLICIES: [Policy; 2] = [Policy::WaitAll, Policy::EVENT_DRIVEN];
/// More ranks than this are not compared schedule by schedule.
const MOST_COMPARED: usize = 64;
/// Schedules are compared for a vector of so many bytes in chunks of so many.
const COMPARED_BYTES: (usize, usize) = (64 << 10, 16 << 10);

/// A collective of so many bytes, for which the best configuration is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Case {
    /// The collective.
    pub collective: Collective,
    /// Bytes of a rank's vector.
    pub bytes: usize,
}

/// What may be chosen for a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Everything but the length of chunks.
    pub family: Inter,
    /// Bytes of a chunk, if there are several.
    pub segment: Option<usize>,
}

/// What task-based search measures whole in the end: the best estimates, and what the built-in rules choose. Of short vectors
/// there are few, and each is one chunk, which was measured as such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listing {
    /// For vectors from this length on; below it the best estimate is believed.
    pub least_bytes: usize,
    /// So many estimates.
    pub estimates: usize,
    /// Turns of what is near the best, of which the median counts.
    pub turns: usize,
}

impl Listing {
    const QUICK: Self = Self { least_bytes: 64 << 10, estimates: 3, turns: 3 };
    /// Where rules are trusted, which leave little.
    pub(super) const BY_RULES: Self = Self { least_bytes: 1 << 20, estimates: 4, turns: 1 };
    /// Where exhaustive search takes ten times as long.
    const FULL: Self = Self { least_bytes: 0, estimates: 6, turns: 7 };
}

/// What is searched.
#[derive(Debug, Clone, PartialEq)]
pub struct Space {
    /// Nodes.
    pub nodes: usize,
    /// Ranks of each.
    pub ranks_per_node: usize,
    /// The collectives.
    pub collectives: Vec<Collective>,
    /// Lengths of vectors in bytes, ascending.
    pub sizes: Vec<usize>,
    /// Lengths of chunks that go through both levels (`fs`), ascending.
    pub segments: Vec<usize>,
    /// Lengths of pieces within the network's operations (`ibs`, `irs`), beside those of the built-in rules.
    pub pieces: Vec<usize>,
    /// Whether all algorithms are tried with all ranks on the network, or only the built-in choice.
    pub all_flat: bool,
    /// What is measured whole in the end.
    pub listing: Listing,
}

impl Space {
    /// The whole space, or a small one that shows the same in a minute, for vectors of `min` to `max` bytes.
    #[must_use]
    pub fn new(shape: (usize, usize), collectives: &[Collective], (min, max): (usize, usize), is_quick: bool) -> Self {
        let (nodes, ranks_per_node) = shape;
        let min = min.max(ELEMENT_BYTES);
        let powers = |from: usize, to: usize, shift: u32| {
            std::iter::successors(Some(from), move |bytes| bytes.checked_mul(1 << shift))
                .take_while(move |&bytes| bytes <= to)
        };
        let mut distinct: Vec<Collective> = Vec::new();
        collectives.iter().for_each(|one| distinct.extend((!distinct.contains(one)).then_some(one)));
        let (first, last, shift) = if is_quick { (32 << 10, 512 << 10, 2) } else { (16 << 10, 2 << 20, 1) };
        Self {
            nodes,
            ranks_per_node,
            collectives: distinct,
            sizes: powers(min.next_multiple_of(ELEMENT_BYTES), max.max(min), 1).collect(),
            segments: powers(first, last, shift).collect(),
            pieces: if is_quick { Vec::new() } else { vec![64 << 10] },
            all_flat: !is_quick,
            listing: if is_quick { Listing::QUICK } else { Listing::FULL },
        }
    }

    /// Everything that the best is wanted for.
    pub fn cases(&self) -> impl Iterator<Item = Case> {
        self.collectives.iter().flat_map(|&collective| {
            let sizes = if collective == Collective::Barrier { &[0][..] } else { &self.sizes };
            sizes.iter().map(move |&bytes| Case { collective, bytes })
        })
    }

    /// Number of ranks.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.nodes * self.ranks_per_node
    }

    /// Everything that may be chosen for `case`; `by_rules` leaves out what is known to be no good.
    #[must_use]
    pub fn candidates(&self, case: Case, by_rules: bool) -> Vec<Candidate> {
        let families = self.families(case.collective, by_rules);
        families.iter().flat_map(|family| self.of_family(case, *family, by_rules)).collect()
    }

    /// The candidates of one family.
    pub(super) fn of_family(&self, case: Case, family: Inter, by_rules: bool) -> Vec<Candidate> {
        let segments: &[usize] = if has_tasks(&family) && !is_node_aware(&family) { &self.segments } else { &[] };
        let lengths = segments.iter().filter(|&&segment| segment < case.bytes).copied().map(Some).chain([None]);
        let candidates = lengths.map(|segment| Candidate { family, segment });
        let network_ranks = if has_tasks(&family) { self.nodes } else { self.ranks() };
        let is_one = |candidate: &Candidate| {
            let chunk = candidate.segment.unwrap_or(case.bytes);
            // Each leader has a slice, and pieces are parts of that.
            let leaders = family.leaders.unwrap_or(1);
            let slices = slices::number(chunk / ELEMENT_BYTES, ELEMENT_BYTES, leaders);
            // Of fewer elements an algorithm that deals them out makes the schedule of another.
            let deals_out = family.algorithm.is_some_and(Algorithm::deals_out);
            slices == leaders
                && family.chunk_bytes.is_none_or(|piece| piece < chunk / slices)
                && (!deals_out || chunk / slices / ELEMENT_BYTES >= network_ranks)
        };
        let is_good = |candidate: &Candidate| !by_rules || heuristics::against(self, case, candidate).is_none();
        candidates.filter(is_one).filter(is_good).collect()
    }

    /// All configurations but for the length of chunks.
    pub(super) fn families(&self, collective: Collective, by_rules: bool) -> Vec<Inter> {
        let of_form = |form| Inter { form: Some(form), ..Inter::default() };
        let with_policy = |family: Inter, policy| Inter { policy: Some(policy), ..family };
        let in_pieces = |family: Inter, chunk_bytes| Inter { chunk_bytes, ..family };
        let flat = of_form(NodesForm::Flat);
        let nodes: Vec<usize> = (0..self.ranks()).map(|rank| rank / self.ranks_per_node).collect();
        let of_all_ranks = distinct(collective, self.ranks(), Some(&Topology::new(&[&nodes])));
        if self.ranks_per_node == 1 {
            // Nothing but the network: what is searched of the leaders elsewhere is searched of all ranks.
            let mut all = each_with(&[flat], &POLICIES, with_policy);
            all = each_with(&all, &self.pieces(collective), in_pieces);
            return std::iter::once(Inter::default()).chain(each_with(&all, &of_all_ranks, by)).collect();
        }
        let mut families = vec![Inter::default(), flat];
        if self.all_flat && collective != Collective::Barrier && !by_rules {
            families.extend(each_with(&[flat], &of_all_ranks, by));
        }
        let mut both = each_with(&[of_form(NodesForm::Hierarchical)], &POLICIES, with_policy);
        if collective.reduces() {
            both = each_with(&both, &self.leaders(), |family, leaders| Inter { leaders: Some(leaders), ..family });
        }
        if collective == Collective::Allreduce {
            both = each_with(&both, &[false, true], |family, splits| Inter { splits, ..family });
            families.push(by(of_form(NodesForm::Hierarchical), Algorithm::Nap));
        }
        for family in each_with(&both, &self.pieces(collective), in_pieces) {
            let across = if family.splits { Collective::Reduce } else { collective };
            families.extend(each_with(&[family], &distinct(across, self.nodes, None), by));
        }
        families
    }

    /// Lengths of pieces: that of the built-in rules first.
    fn pieces(&self, collective: Collective) -> Vec<Option<usize>> {
        let others: &[usize] = if collective == Collective::Barrier { &[] } else { &self.pieces };
        std::iter::once(None).chain(others.iter().copied().map(Some)).collect()
    }

    /// Numbers of leaders: doublings, and all.
    fn leaders(&self) -> Vec<usize> {
        let doublings = std::iter::successors(Some(1), |leaders| Some(leaders * 2));
        let mut leaders: Vec<usize> = doublings.take_while(|&leaders| leaders < self.ranks_per_node).collect();
        leaders.push(self.ranks_per_node);
        leaders
    }
}

impl Candidate {
    /// What is to be set; one chunk is as long as the vector.
    #[must_use]
    pub fn settings(&self, case: Case) -> Inter {
        if !has_tasks(&self.family) || case.collective == Collective::Barrier {
            return self.family;
        }
        let bytes = self.segment.unwrap_or(case.bytes).max(LEAST_CHUNK_BYTES);
        Inter { segment_bytes: Some(bytes), ..self.family }
    }
}

/// Each family once with each value.
fn each_with<V: Copy>(families: &[Inter], values: &[V], with: impl Fn(Inter, V) -> Inter) -> Vec<Inter> {
    families
        .iter()
        .flat_map(|&family| values.iter().map(move |&value| (family, value)))
        .map(|(f, v)| with(f, v))
        .collect()
}

fn by(family: Inter, algorithm: Algorithm) -> Inter {
    Inter { algorithm: Some(algorithm), ..family }
}

/// The algorithms that do `collective`, each schedule once: among two ranks all trees are the same.
fn distinct(collective: Collective, ranks: usize, topology: Option<&Topology>) -> Vec<Algorithm> {
    let (bytes, chunk_bytes) = COMPARED_BYTES;
    let shape = |rank| Shape {
        rank,
        size: ranks,
        bytes,
        element_bytes: ELEMENT_BYTES,
        chunk_bytes,
        topology,
        ..Shape::default()
    };
    let mut known = Vec::new();
    let mut algorithms = Vec::new();
    for algorithm in Algorithm::all().filter(|algorithm| algorithm.applies(collective, &shape(0)).is_ok()) {
        if ranks <= MOST_COMPARED {
            let schedules: Vec<_> = (0..ranks).map(|rank| algorithm.build(collective, &shape(rank))).collect();
            if known.contains(&schedules) {
                continue;
            }
            known.push(schedules);
        }
        algorithms.push(algorithm);
    }
    algorithms
}

/// Whether both levels are told to be used; else all ranks are on the network, or the built-in rules decide.
pub(super) fn has_tasks(settings: &Inter) -> bool {
    settings.form == Some(NodesForm::Hierarchical)
}

/// Whether all ranks exchange between nodes, which is for vectors of one chunk.
pub(super) fn is_node_aware(settings: &Inter) -> bool {
    has_tasks(settings) && settings.algorithm == Some(Algorithm::Nap)
}

#[cfg(test)]
mod tests {
    use net_fabric::algorithm::Tree;

    use super::*;
    use crate::select::form::{self, OverNodes};
    use crate::task::Layout;
    use crate::tune::Point;

    fn space(nodes: usize, ranks_per_node: usize, is_quick: bool) -> Space {
        Space::new((nodes, ranks_per_node), &Collective::ALL, (4, 16 << 20), is_quick)
    }

    #[test]
    fn a_collective_that_is_named_twice_is_searched_once() {
        let twice = Space::new((2, 2), &[Collective::Bcast, Collective::Bcast], (4, 8), true);
        assert_eq!(twice.cases().count(), 2);
    }

    #[test]
    fn every_candidate_is_another_configuration() {
        for (nodes, ranks_per_node, is_quick) in [(2, 2, true), (2, 2, false), (5, 3, false), (4, 1, false)] {
            let space = space(nodes, ranks_per_node, is_quick);
            for case in space.cases() {
                for by_rules in [false, true] {
                    let all: Vec<Inter> =
                        space.candidates(case, by_rules).iter().map(|candidate| candidate.settings(case)).collect();
                    assert!(!all.is_empty(), "nothing for {case:?}");
                    for (place, settings) in all.iter().enumerate() {
                        assert!(!all[..place].contains(settings), "{case:?}: {settings} twice");
                    }
                }
            }
        }
    }

    #[test]
    fn one_chunk_may_have_several_leaders() {
        let space = space(2, 4, false);
        let leaders = |bytes| {
            let case = Case { collective: Collective::Allreduce, bytes };
            let single = space.candidates(case, false).into_iter().filter(|candidate| candidate.segment.is_none());
            single.filter_map(|of| of.family.leaders).collect::<std::collections::BTreeSet<_>>()
        };
        let sets = [128, 256, 512, 4096].map(|bytes| leaders(bytes).into_iter().collect::<Vec<_>>());
        assert_eq!(sets, [vec![1], vec![1, 2], vec![1, 2, 4], vec![1, 2, 4]]);
        let case = Case { collective: Collective::Allreduce, bytes: 64 << 10 };
        let node_aware = |by_rules| {
            let all = space.candidates(case, by_rules).into_iter();
            all.filter(|candidate| is_node_aware(&candidate.family))
                .map(|candidate| candidate.segment)
                .collect::<Vec<_>>()
        };
        assert_eq!([node_aware(false), node_aware(true)], [vec![None], vec![]]);
    }

    #[test]
    fn what_is_tried_is_what_the_settings_name() {
        for shape in [(3, 3), (2, 5), (4, 6)] {
            let space = Space::new(shape, &Collective::ALL, (64, 1 << 20), false);
            let node_of: Vec<usize> = (0..space.ranks()).map(|rank| rank / shape.1).collect();
            let (layout, topology) = (Layout::new(&node_of), Topology::new(&[&node_of]));
            for case in space.cases() {
                let over = OverNodes {
                    collective: case.collective,
                    count: case.bytes / ELEMENT_BYTES,
                    element_bytes: ELEMENT_BYTES,
                    commutative: true,
                    reproducible: false,
                    root: 0,
                    shares_cores: false,
                    wire_mbit_s: None,
                    layout: &layout,
                    topology: Some(&topology),
                };
                for candidate in space.candidates(case, false) {
                    let choice = form::choose(&over, &candidate.settings(case));
                    let named = candidate.family.algorithm;
                    assert!(
                        named.is_none_or(|named| named == choice.inter.algorithm),
                        "{case:?} {candidate:?}: {choice}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_dealt_out_has_an_element_a_node() {
        let space = space(4, 2, false);
        let dealt_out = |bytes| {
            let case = Case { collective: Collective::Bcast, bytes };
            let candidates = space.candidates(case, false).into_iter();
            candidates.filter(|candidate| candidate.family.algorithm.is_some_and(Algorithm::deals_out)).count()
        };
        assert_eq!([dealt_out(4), dealt_out(8)], [0, 0]);
        // On all ranks the network has twice as many.
        assert!(0 < dealt_out(16) && dealt_out(16) < dealt_out(32), "{} {}", dealt_out(16), dealt_out(32));
    }

    #[test]
    fn nodes_of_one_rank_have_all_of_the_network_to_search() {
        let of = |is_quick, by_rules| {
            let space = space(4, 1, is_quick);
            let case = Case { collective: Collective::Allreduce, bytes: 1 << 20 };
            let candidates = space.candidates(case, by_rules).into_iter();
            candidates.map(|candidate| candidate.settings(case)).collect::<Vec<_>>()
        };
        let values = |candidates: &[Inter], key: &str| {
            let values = candidates.iter().filter_map(|settings| settings.get(key));
            values.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
        };
        let all = of(false, false);
        assert_eq!(values(&all, "inter_policy"), "auto event_driven wait_all");
        assert_eq!(values(&all, "inter_chunk_bytes"), "65536 auto");
        assert!(values(&all, "inter_algorithm").contains("rabenseifner") && values(&all, "nodes_form") == "auto flat");
        assert_eq!(values(&of(true, false), "inter_chunk_bytes"), "auto");
        let by_rules = of(false, true);
        assert_eq!(values(&by_rules, "inter_policy"), "auto event_driven");
        assert!(!values(&by_rules, "inter_algorithm").contains("recursive-doubling"));
    }

    #[test]
    fn one_chunk_is_written_as_one() {
        let family = Inter { form: Some(NodesForm::Hierarchical), ..Inter::default() };
        for (bytes, segment, expected) in [(8, None, 64), (2048, None, 2048), (2048, Some(512), 512)] {
            let case = Case { collective: Collective::Bcast, bytes };
            let settings = Candidate { family, segment }.settings(case);
            assert_eq!(settings.segment_bytes, Some(expected));
            let point = Point { collective: case.collective, bytes, us: 1.0, estimated: false, settings };
            assert_eq!(point.is_one_chunk(), segment.is_none());
        }
    }

    #[test]
    fn rules_only_leave_out() {
        let space = space(4, 4, false);
        let (mut all, mut left) = (0, 0);
        for case in space.cases() {
            let everything = space.candidates(case, false);
            let good = space.candidates(case, true);
            assert!(good.iter().all(|candidate| everything.contains(candidate)), "{case:?}");
            all += everything.len();
            left += good.len();
        }
        assert!(left * 5 < all, "{left} of {all}");
    }

    #[test]
    fn schedules_that_are_the_same_are_tried_once() {
        assert_eq!(distinct(Collective::Reduce, 2, None).len(), 1);
        assert_eq!(distinct(Collective::Bcast, 2, None)[0], Algorithm::Tree(Tree::Linear));
        assert!(distinct(Collective::Reduce, 7, None).len() >= 5);
        assert!(distinct(Collective::Barrier, 4, None).contains(&Algorithm::Dissemination));
    }

    #[test]
    fn sizes_are_powers_within_bounds() {
        let sizes = |min, max| Space::new((2, 2), &[Collective::Bcast], (min, max), true).sizes;
        assert_eq!(sizes(8, 100), [8, 16, 32, 64]);
        assert_eq!(sizes(0, 4), [4]);
        assert_eq!(sizes(4096, 4096), [4096]);
        let cases: Vec<Case> =
            space(2, 2, true).cases().filter(|case| case.collective == Collective::Barrier).collect();
        assert_eq!(cases, [Case { collective: Collective::Barrier, bytes: 0 }]);
    }
}

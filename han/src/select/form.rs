//! Whether both levels of a communicator over several nodes are used, and in which chunks.

use std::fmt;

use net_fabric::Plan;
use net_fabric::algorithm::{Algorithm, Tree};
use reduce_kernels::Collective;

use super::{Inter, Point, Question, explain as explain_inter, node_aware, slowness};
use crate::task::{Across, Layout, Shape, slices};

/// How ranks on several nodes do a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    /// All ranks talk through the network, whatever node they are on.
    Flat,
    /// The ranks of a node through its memory, and leaders of the nodes through the network.
    Hierarchical,
}

impl Form {
    /// Both, with their names.
    pub const NAMES: [(&'static str, Self); 2] = [("flat", Self::Flat), ("hierarchical", Self::Hierarchical)];
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Flat => "flat",
            Self::Hierarchical => "hierarchical",
        })
    }
}

/// What is to be done by ranks on several nodes.
#[derive(Debug, Clone, Copy)]
pub struct OverNodes<'a> {
    /// The collective.
    pub collective: Collective,
    /// Elements of a rank's vector.
    pub count: usize,
    /// Bytes of an element.
    pub element_bytes: usize,
    /// Whether the operator commutes.
    pub commutative: bool,
    /// Whether a result may not depend on where ranks are.
    pub reproducible: bool,
    /// The root.
    pub root: usize,
    /// Whether ranks share cores somewhere.
    pub shares_cores: bool,
    /// Megabits a second that the slowest node's wire carries, if anybody says.
    pub wire_mbit_s: Option<u64>,
    /// Where the ranks are.
    pub layout: &'a Layout,
    /// The same for algorithms of all ranks.
    pub topology: Option<&'a net_fabric::algorithm::Topology>,
}

/// How it is done.
#[derive(Debug, Clone)]
pub struct Choice {
    /// On both levels?
    pub form: Form,
    /// The tasks' shape, where it is.
    pub shape: Shape,
    /// What is done over the network: by all ranks, or by the leaders with a chunk.
    pub inter: Plan,
    /// What brings it back, where that is a task of its own; in a node-aware allreduce what is done by each pair of ranks.
    pub back: Plan,
    /// Why.
    pub points: Vec<Point>,
}

impl fmt::Display for Choice {
    /// For instance `net/ring` where all ranks use the network, else `nodes/ring`, with two leaders a node `nodes-2/ring`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.form == Form::Flat {
            return self.inter.fmt(f);
        }
        match self.shape.leaders {
            0 | 1 => write!(f, "nodes/{}", self.inter.algorithm)?,
            leaders => write!(f, "nodes-{leaders}/{}", self.inter.algorithm)?,
        }
        if self.shape.across == Across::Split { write!(f, "+{}", self.back.algorithm) } else { Ok(()) }
    }
}

/// Chunks are so long: long enough for a message's own cost to vanish, and short enough for both levels to overlap.
const SEGMENT_BYTES: usize = 256 << 10;
/// Those where ranks share cores, so that little overlaps and each chunk costs turns on the core. Not those of reductions to
/// a root, for which it makes no difference.
const SHARED_CORES_SEGMENT_BYTES: usize = 512 << 10;
/// Those of reductions to a root from another node, where no chain of nodes has to fill and ranks have a core each.
const LINK_SEGMENT_BYTES: usize = 512 << 10;
/// Those of allreduces, which go both ways at once, on a slow wire: acknowledgements stand there behind what is on its way.
const SLOW_SEGMENT_BYTES: usize = 64 << 10;
/// A wire is slow in that if it is so many times slower than those of the measurements: before, a chunk's own cost counts for more.
const SLOW_TIMES: usize = 4;

/// As many ranks of a node lead an allreduce as have so much of it each, where they have a core each: one keeps its core busy with
/// the network, and beside several so does what they sum up.
const LED_BYTES: usize = 256 << 10;
/// But no more of them.
const MOST_LEADERS: usize = 4;
/// The same of a reduction to a root, and of what ranks that share cores do.
const LED_LONG_BYTES: usize = 512 << 10;
/// But no more of these.
const MOST_SHARED_LEADERS: usize = 2;
/// Of an allreduce by two nodes of two such ranks each, which gain little by it.
const LED_BY_PAIRS_BYTES: usize = 4 << 20;
/// Up to so many ranks a node share sums and messages of a reduction if they share cores: of more ranks one leads as well.
const FEW_RANKS: usize = 3;

/// Chunks of one vector, at most: each takes some 300 bytes of every rank's memory for its tasks.
const MOST_SEGMENTS: usize = 1 << 14;

/// How long the chunks are that go through both levels, and why.
fn segment(over: &OverNodes<'_>, inter: &Inter) -> (usize, &'static str) {
    let (bytes, why) = wished_segment(over, inter);
    let least = (over.count * over.element_bytes).div_ceil(MOST_SEGMENTS);
    if bytes >= least { (bytes, why) } else { (least, "a vector has at most 16384 chunks, whose tasks take memory") }
}

/// How long they would be: with several leaders the part of each is as long as a chunk with one.
fn wished_segment(over: &OverNodes<'_>, inter: &Inter) -> (usize, &'static str) {
    if let Some(bytes) = inter.segment_bytes {
        return (bytes, "the setting says so");
    }
    let (bytes, why) = part(over, inter);
    (bytes * wished_leaders(over, inter).0.clamp(1, over.layout.rails().max(1)), why)
}

/// How long a leader's part of a chunk is, and why.
fn part(over: &OverNodes<'_>, inter: &Inter) -> (usize, &'static str) {
    let slow = || slowness(inter.wire_mbit_s(over.wire_mbit_s)) >= SLOW_TIMES;
    let turns = "each chunk costs its ranks turns on the core that they share";
    match over.collective {
        Collective::Allreduce if slow() => {
            (SLOW_SEGMENT_BYTES, "both ways at once the wire is slow: acknowledgements stand behind what is on its way")
        }
        Collective::Allreduce | Collective::Bcast if over.shares_cores => (SHARED_CORES_SEGMENT_BYTES, turns),
        Collective::Reduce if !over.shares_cores && over.layout.nodes() == 2 => {
            (LINK_SEGMENT_BYTES, "over a single link there is no pipeline to fill")
        }
        _ => (SEGMENT_BYTES, "a message's own cost has vanished, and one chunk travels while another is copied"),
    }
}

/// How many ranks of a node would lead, each a slice of every chunk, and why.
fn wished_leaders(over: &OverNodes<'_>, inter: &Inter) -> (usize, &'static str) {
    let one = (1, "one rank a node keeps the network busy");
    if over.collective == Collective::Barrier {
        return one;
    }
    if over.collective == Collective::Reduce && !over.commutative {
        return (1, "the operator does not commute, and leaders beside the root would not keep operands in order");
    }
    if let Some(set) = inter.leaders {
        return (set, "the setting says so");
    }
    let Some((part, most, why)) = led(over) else { return one };
    let wire_is_slow = slowness(inter.wire_mbit_s(over.wire_mbit_s)) > 1;
    let set_chunk_is_short = inter.segment_bytes.is_some_and(|bytes| bytes < MOST_LEADERS * LED_BYTES);
    let splits = inter.splits && over.collective == Collective::Allreduce;
    if wire_is_slow || set_chunk_is_short || splits || !over.layout.is_even() {
        return one;
    }
    match (over.count * over.element_bytes / part).min(most).min(over.layout.rails()) {
        0 | 1 => one,
        several => (several, why),
    }
}

/// How many bytes each of several leaders has at least, how many they are at most, and why.
fn led(over: &OverNodes<'_>) -> Option<(usize, usize, &'static str)> {
    let (nodes, ranks) = (over.layout.nodes(), over.layout.rails());
    let is_balanced = nodes.is_power_of_two() && ranks.is_power_of_two();
    let own = "each has a core for its part of a long vector";
    let shared = "ranks of a node share the messages of a long vector and its sums, as they share cores";
    match (over.collective, over.shares_cores) {
        (Collective::Allreduce, false) => Some((LED_BYTES, MOST_LEADERS, own)),
        (Collective::Reduce, false) => Some((LED_LONG_BYTES, MOST_LEADERS, own)),
        (Collective::Reduce, true) if ranks <= FEW_RANKS => Some((LED_LONG_BYTES, MOST_SHARED_LEADERS, shared)),
        (Collective::Allreduce, true) if !is_balanced => {
            Some((LED_LONG_BYTES, MOST_SHARED_LEADERS, "one leader a node would load some cores more than others"))
        }
        (Collective::Allreduce, true) if (nodes, ranks) == (2, 2) => {
            Some((LED_BY_PAIRS_BYTES, MOST_SHARED_LEADERS, shared))
        }
        _ => None,
    }
}

/// How many do, of so many elements a chunk, and why.
fn leaders(over: &OverNodes<'_>, inter: &Inter, elements: usize) -> (usize, &'static str) {
    let (wished, why) = wished_leaders(over, inter);
    let (ranks, slices) = (over.layout.rails(), slices::number(elements, over.element_bytes, wished));
    match () {
        () if wished > ranks.min(slices) && ranks <= slices => (ranks, "no node has more ranks"),
        () if wished > slices => (slices, "each leads a slice of whole lines, and a chunk has no more"),
        () => (wished, why),
    }
}

/// Chooses for `over` under the settings, with the reasons.
#[must_use]
pub fn explain(over: &OverNodes<'_>, inter: &Inter) -> Choice {
    let (form, why) = form(over, inter);
    let layout = over.layout;
    // Only so are operands combined in the order of the ranks, one after the other, as on one node.
    let in_order = over.reproducible && over.collective.reduces();
    let inter = &match in_order {
        true => Inter { algorithm: Some(Algorithm::Tree(Tree::Linear)), algorithms: Default::default(), ..*inter },
        false => *inter,
    };
    let nap = node_aware::is_set(over, inter, form);
    let nap_key = inter.key_for("inter_algorithm", over.collective);
    let inter = &if nap.is_some() { node_aware::without(inter) } else { *inter };
    let is_node_aware = nap == Some(Ok(()));
    let bytes = over.count * over.element_bytes;
    let question = |collective, ranks, bytes| Question {
        collective,
        ranks,
        bytes,
        element_bytes: over.element_bytes,
        commutative: over.commutative,
        root: 0,
        shares_cores: over.shares_cores,
        wire_mbit_s: over.wire_mbit_s,
        topology: None,
    };
    let leading = if is_node_aware { Inter { leaders: Some(1), ..*inter } } else { *inter };
    let (segment_bytes, segment_why) = segment(over, &leading);
    let elements = (segment_bytes / over.element_bytes.max(1)).max(1).min(over.count);
    let (leaders, leaders_why) = if is_node_aware { (1, "") } else { leaders(over, inter, elements) };
    // What leaders have to do at a time: whole elements, as the plan cuts them.
    let slice_bytes = slices::longest(elements, over.element_bytes, leaders) * over.element_bytes;
    let splits = inter.splits && over.collective == Collective::Allreduce && form == Form::Hierarchical;
    let across = match (is_node_aware, splits) {
        (true, _) => Across::NodeAware,
        (false, true) => Across::Split,
        (false, false) => Across::Whole,
    };
    let shape = Shape {
        collective: over.collective,
        count: over.count,
        element_bytes: over.element_bytes,
        chunk_bytes: segment_bytes,
        leaders,
        across,
        root: over.root,
    };
    let selection = match form {
        Form::Flat => explain_inter(
            &Question { root: over.root, topology: over.topology, ..question(over.collective, layout.size(), bytes) },
            inter,
        ),
        Form::Hierarchical if is_node_aware => {
            node_aware::selection(question(over.collective, layout.nodes(), slice_bytes), inter)
        }
        Form::Hierarchical => {
            let collective = if splits { Collective::Reduce } else { over.collective };
            explain_inter(&question(collective, layout.nodes(), slice_bytes), inter)
        }
    };
    // The same tree both ways: what goes up and what comes down use each wire in opposite directions (section 5.3.2).
    let same = Inter { algorithm: inter.algorithm.or(Some(selection.plan.algorithm)), ..*inter };
    let (plan, back) = match is_node_aware {
        true => (node_aware::shown(selection.plan), selection.plan),
        false => (selection.plan, explain_inter(&question(Collective::Bcast, layout.nodes(), slice_bytes), &same).plan),
    };
    let mut selection = selection;
    if let Some(algorithm) = selection.points.first_mut().filter(|_| in_order) {
        "only so are operands combined one after the other, wherever their ranks are"
            .clone_into(&mut algorithm.because);
    }
    if let (Some(can), Some(algorithm)) = (nap, selection.points.first_mut()) {
        nap_key.clone_into(&mut algorithm.change);
        if let Err(not) = can {
            algorithm.because = format!("{} ({} is set, but {not})", algorithm.because, Algorithm::Nap);
        }
    }
    let mut points = vec![Point::new("form", form.to_string(), why, "nodes_form")];
    if form == Form::Hierarchical {
        points.push(Point::new("segment_bytes", segment_bytes.to_string(), segment_why, "segment_bytes"));
        if over.collective != Collective::Barrier && !is_node_aware {
            points.push(Point::new("leaders", leaders.to_string(), leaders_why, "leaders"));
        }
    }
    points.extend(selection.points);
    Choice { form, shape, inter: plan, back, points }
}

/// The form, and why.
fn form(over: &OverNodes<'_>, inter: &Inter) -> (Form, &'static str) {
    let layout = over.layout;
    let reduces = over.collective.reduces();
    if layout.rails() == 1 {
        return (Form::Flat, "no node has two ranks");
    }
    if layout.nodes() == 1 {
        return (Form::Hierarchical, "all ranks are on one node");
    }
    if reduces && !over.commutative && !layout.keeps_order() {
        return (Form::Flat, "the operator does not commute, and the ranks are not numbered node by node");
    }
    if reduces && over.reproducible {
        return (Form::Flat, "sums of nodes would make the result depend on where ranks are");
    }
    let shape = net_fabric::algorithm::Shape {
        size: layout.size(),
        commutative: over.commutative,
        topology: over.topology,
        root: over.root,
        ..Default::default()
    };
    let set = inter.algorithm_of(over.collective);
    let knows_nodes = set.is_some_and(|set| set.knows_nodes() && set.applies(over.collective, &shape).is_ok());
    match inter.form {
        Some(form) => (form, "the setting says so"),
        None if set == Some(Algorithm::Nap) && over.collective == Collective::Allreduce && layout.has_pairs() => {
            (Form::Hierarchical, "the algorithm that is set combines in the memory of each node")
        }
        None if knows_nodes && set != Some(Algorithm::Nap) => {
            (Form::Flat, "the algorithm that is set goes by the nodes itself")
        }
        None => (Form::Hierarchical, "memory is quicker than the network, and a node's ranks share their part of it"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An allreduce of 8 MiB by ranks with a core each.
    fn over(layout: &Layout) -> OverNodes<'_> {
        OverNodes {
            collective: Collective::Allreduce,
            count: 1 << 20,
            element_bytes: 8,
            commutative: true,
            reproducible: false,
            root: 0,
            shares_cores: false,
            wire_mbit_s: None,
            layout,
            topology: None,
        }
    }

    #[test]
    fn what_comes_down_takes_the_tree_of_what_goes_up() {
        let layout = Layout::new(&[0, 0, 1, 1, 2, 2, 3, 3]);
        for (bytes, shares_cores) in [(8 << 10, true), (64 << 10, true), (128 << 10, false), (1 << 20, true)] {
            let over = OverNodes { count: 4 << 20, element_bytes: 1, shares_cores, ..over(&layout) };
            let choice = explain(&over, &Inter { segment_bytes: Some(bytes), splits: true, ..Inter::default() });
            assert_eq!(choice.inter.algorithm, choice.back.algorithm, "chunks of {bytes}");
            let set = Inter {
                splits: true,
                algorithms: [Some(Algorithm::Tree(Tree::Chain)), None, None],
                ..Inter::default()
            };
            assert_eq!(explain(&over, &set).back.algorithm, Algorithm::Tree(Tree::Chain));
        }
    }

    #[test]
    fn leaders_do_what_is_set_whatever_the_lengths_of_elements_and_slices() {
        let layout = Layout::new(&(0..32).map(|rank| rank / 8).collect::<Vec<_>>());
        for (element_bytes, leaders) in
            [4, 12, 24, 1000].into_iter().flat_map(|bytes| (1..=8).map(move |of| (bytes, of)))
        {
            let over = OverNodes { element_bytes, count: (1 << 20) / element_bytes, ..over(&layout) };
            for segment_bytes in [None, Some(64), Some(777), Some(65_537), Some(100_001)] {
                let inter = Inter { leaders: Some(leaders), segment_bytes, ..Inter::default() };
                let set = explain(&over, &Inter { algorithm: Some(Algorithm::Ring), ..inter });
                assert_eq!(set.inter.algorithm, Algorithm::Ring, "{:?}", set.points);
                let split = Inter { splits: true, algorithm: Some(Algorithm::Tree(Tree::Chain)), ..inter };
                assert_eq!(explain(&over, &split).back.algorithm, Algorithm::Tree(Tree::Chain));
                let chosen = explain(&over, &inter);
                let is_wrong =
                    |because: &str| because.contains("whole elements") || because.contains("does not commute");
                assert!(!chosen.points.iter().any(|point| is_wrong(&point.because)), "{:?}", chosen.points);
            }
        }
    }

    #[test]
    fn leaders_are_as_many_as_there_are_ranks_and_lines() {
        let layout = Layout::new(&[0, 0, 0, 1, 1]);
        let over = over(&layout);
        let of = |collective, count, set| {
            let over = OverNodes { collective, count, ..over };
            let choice = explain(&over, &Inter { leaders: set, ..Inter::default() });
            let point = choice.points.iter().find(|point| point.what == "leaders");
            (choice.shape.leaders, point.map_or(String::new(), |point| point.because.clone()), choice.to_string())
        };
        let allreduce = |count, set| of(Collective::Allreduce, count, set);
        assert_eq!(allreduce(1 << 20, None).0, 1);
        let chunk_bytes = |leaders, segment_bytes| {
            let set = Inter { leaders, segment_bytes, ..Inter::default() };
            explain(&OverNodes { count: 1 << 20, ..over }, &set).shape.chunk_bytes >> 10
        };
        assert_eq!([chunk_bytes(None, None), chunk_bytes(Some(2), None), chunk_bytes(Some(9), None)], [256, 512, 768]);
        assert_eq!(chunk_bytes(Some(2), Some(64 << 10)), 64, "what is set is the whole chunk");
        // 8 MiB, and 64 GiB.
        let longer =
            |count| explain(&OverNodes { count, ..over }, &Inter { segment_bytes: Some(64), ..Inter::default() });
        let longer = [1 << 20, 1 << 33].map(|count| longer(count).shape.chunk_bytes);
        assert_eq!(longer, [512, 4 << 20], "a plan has so many chunks at most");
        assert_eq!(allreduce(1 << 20, Some(2)), (2, "the setting says so".into(), "nodes-2/recursive-doubling".into()));
        assert_eq!(allreduce(1 << 20, Some(3)).1, "the setting says so");
        assert_eq!(
            allreduce(1 << 20, Some(4)),
            (3, "no node has more ranks".into(), "nodes-3/recursive-doubling".into())
        );
        let (leaders, because, name) = allreduce(1, Some(2));
        assert_eq!((leaders, name.as_str()), (1, "nodes/recursive-doubling"));
        assert!(because.contains("whole lines"), "{because}");
        assert_eq!((allreduce(32, Some(3)).0, allreduce(33, Some(3)).0), (2, 3));
        for collective in [Collective::Bcast, Collective::Reduce] {
            assert_eq!(of(collective, 1 << 20, Some(2)), (2, "the setting says so".into(), "nodes-2/chain".into()));
            assert_eq!(of(collective, 1 << 20, None).0, 1);
        }
        assert_eq!(of(Collective::Barrier, 0, Some(2)), (1, String::new(), "nodes/dissemination".into()));
        let in_order = OverNodes { collective: Collective::Reduce, commutative: false, ..over };
        let choice = explain(&in_order, &Inter { leaders: Some(2), ..Inter::default() });
        let why = choice.points.iter().find(|point| point.what == "leaders").map(|point| point.because.clone());
        assert_eq!(choice.shape.leaders, 1);
        assert!(why.is_some_and(|why| why.contains("does not commute")));
    }

    #[test]
    fn long_vectors_have_several_leaders_where_ranks_have_cores() {
        let even = Layout::new(&[0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
        let over = over(&even);
        let of = |over: &OverNodes<'_>| {
            let Shape { leaders, chunk_bytes, .. } = explain(over, &Inter::default()).shape;
            (leaders, chunk_bytes >> 10)
        };
        let of_kib = |kib: usize| of(&OverNodes { count: kib * 128, ..over });
        assert_eq!(
            [256, 511, 512, 900, 1024, 9000].map(of_kib),
            [(1, 256), (1, 256), (2, 512), (3, 768), (4, 1024), (4, 1024)]
        );
        let reduced = |kib: usize| of(&OverNodes { collective: Collective::Reduce, count: kib * 128, ..over });
        assert_eq!([1023, 1024, 1536, 9000].map(reduced), [(1, 512), (2, 1024), (3, 1536), (4, 2048)]);
        let uneven = Layout::new(&[0, 0, 0, 1, 1]);
        for one in [
            OverNodes { wire_mbit_s: Some(5000), ..over },
            OverNodes { layout: &uneven, ..over },
            OverNodes { collective: Collective::Bcast, ..over },
            OverNodes { collective: Collective::Reduce, commutative: false, ..over },
        ] {
            assert_eq!(of(&one).0, 1, "{one:?}");
        }
    }

    #[test]
    fn ranks_that_share_cores_lead_in_pairs_where_that_shares_the_work() {
        // From how many KiB on.
        let from = |nodes: usize, ranks: usize, collective| {
            let layout = Layout::new(&(0..nodes * ranks).map(|rank| rank / ranks).collect::<Vec<_>>());
            let leaders = |kib: usize| {
                let over = OverNodes { collective, count: kib * 128, shares_cores: true, ..over(&layout) };
                explain(&over, &Inter::default()).shape.leaders
            };
            assert!([1, 2].contains(&leaders(1 << 20)));
            (0..14).map(|shift| 1 << shift).find(|&kib| leaders(kib) == 2)
        };
        for (nodes, ranks, reduce, allreduce) in [
            (2, 2, Some(1024), Some(8192)),
            (4, 2, Some(1024), None),
            (2, 4, None, None),
            (2, 3, Some(1024), Some(1024)),
            (3, 2, Some(1024), Some(1024)),
            (3, 4, None, Some(1024)),
        ] {
            let found = [Collective::Reduce, Collective::Allreduce].map(|collective| from(nodes, ranks, collective));
            assert_eq!(found, [reduce, allreduce], "{nodes} nodes of {ranks}");
            assert_eq!(from(nodes, ranks, Collective::Bcast), None);
        }
    }

    #[test]
    fn chunks_follow_the_wire_and_the_cores() {
        let two = Layout::new(&[0, 0, 1, 1]);
        let three = Layout::new(&[0, 1, 2]);
        let segment_of = |layout, collective, shares_cores, wire_mbit_s, set| {
            let over = OverNodes { collective, element_bytes: 1, shares_cores, wire_mbit_s, ..over(layout) };
            explain(&over, &Inter { wire_mbit_s: set, ..Inter::default() }).shape.chunk_bytes
        };
        let segment_bytes = |collective, wire_mbit_s, set| segment_of(&two, collective, false, wire_mbit_s, set);
        let chosen = Collective::ALL
            .map(|collective| [None, Some(1000)].map(|wire| segment_bytes(collective, wire, None) >> 10));
        // By two leaders twice as long.
        assert_eq!(chosen, [[256, 256], [256, 256], [1024, 512], [512, 64]]);
        let of_allreduce = [2500, 5000].map(|wire| segment_bytes(Collective::Allreduce, Some(wire), None) >> 10);
        assert_eq!(of_allreduce, [64, 256]);
        assert_eq!(segment_bytes(Collective::Allreduce, Some(1000), Some(10_000)), 512 << 10, "what is set decides");
        let by_shared_cores = Collective::ALL
            .map(|collective| [&two, &three].map(|layout| segment_of(layout, collective, true, None, None) >> 10));
        assert_eq!(by_shared_cores, [[256, 256], [512, 512], [512, 256], [512, 512]]);
    }
}

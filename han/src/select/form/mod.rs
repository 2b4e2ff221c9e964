//! Whether both levels of a communicator over several nodes are used, and in which chunks.

use std::fmt;

use net_fabric::Plan;
use net_fabric::algorithm::{Algorithm, Tree};
use reduce_kernels::Collective;

use super::{Inter, NetworkQuestion, Point, node_aware, slowness};
use crate::task::{Across, Layout, TaskShape, slices};

/// How ranks on several nodes do a collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NodesForm {
    /// All ranks talk through the network, whatever node they are on.
    Flat,
    /// The ranks of a node through its memory, and leaders of the nodes through the network.
    Hierarchical,
}

impl NodesForm {
    /// Both, with their names.
    pub const NAMES: [(&'static str, Self); 2] = [("flat", Self::Flat), ("hierarchical", Self::Hierarchical)];
}

impl fmt::Display for NodesForm {
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
    pub form: NodesForm,
    /// The tasks' shape, where it is.
    pub shape: TaskShape,
    /// What is done over the network: by all ranks, or by the leaders with a chunk.
    pub inter: Plan,
    /// What brings it back, where that is a task of its own; in a node-aware allreduce what is done by each pair of ranks.
    pub back: Plan,
    /// Why.
    pub points: Vec<Point>,
    /// Why the algorithm that is set is not taken, if it is not.
    pub refused: Option<&'static str>,
}

impl fmt::Display for Choice {
    /// For instance `net/ring` where all ranks use the network, else `nodes/ring`, with two leaders a node `nodes-2/ring`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.form == NodesForm::Flat {
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
pub fn choose(over: &OverNodes<'_>, inter: &Inter) -> Choice {
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
    let question = |collective, ranks, bytes| NetworkQuestion {
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
    let splits = inter.splits && over.collective == Collective::Allreduce && form == NodesForm::Hierarchical;
    let across = match (is_node_aware, splits) {
        (true, _) => Across::NodeAware,
        (false, true) => Across::Split,
        (false, false) => Across::Whole,
    };
    let shape = TaskShape {
        collective: over.collective,
        count: over.count,
        element_bytes: over.element_bytes,
        chunk_bytes: segment_bytes,
        leaders,
        across,
        root: over.root,
    };
    let selection = match form {
        NodesForm::Flat => super::choose(
            &NetworkQuestion {
                root: over.root,
                topology: over.topology,
                ..question(over.collective, layout.size(), bytes)
            },
            inter,
        ),
        NodesForm::Hierarchical if is_node_aware => {
            node_aware::selection(question(over.collective, layout.nodes(), slice_bytes), inter)
        }
        NodesForm::Hierarchical => {
            let collective = if splits { Collective::Reduce } else { over.collective };
            super::choose(&question(collective, layout.nodes(), slice_bytes), inter)
        }
    };
    // The same tree both ways: what goes up and what comes down use each wire in opposite directions (section 5.3.2).
    let same = Inter { algorithm: inter.algorithm.or(Some(selection.plan.algorithm)), ..*inter };
    let (plan, back) = match is_node_aware {
        true => (node_aware::shown(selection.plan), selection.plan),
        false => (selection.plan, super::choose(&question(Collective::Bcast, layout.nodes(), slice_bytes), &same).plan),
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
            selection.refused = Some(not);
        }
    }
    let mut points = vec![Point::new("form", form.to_string(), why, "nodes_form")];
    if form == NodesForm::Hierarchical {
        points.push(Point::new("segment_bytes", segment_bytes.to_string(), segment_why, "segment_bytes"));
        if over.collective != Collective::Barrier && !is_node_aware {
            points.push(Point::new("leaders", leaders.to_string(), leaders_why, "leaders"));
        }
    }
    points.extend(selection.points);
    Choice { form, shape, inter: plan, back, points, refused: selection.refused }
}

/// The form, and why.
fn form(over: &OverNodes<'_>, inter: &Inter) -> (NodesForm, &'static str) {
    let layout = over.layout;
    let reduces = over.collective.reduces();
    if layout.rails() == 1 {
        return (NodesForm::Flat, "no node has two ranks");
    }
    if layout.nodes() == 1 {
        return (NodesForm::Hierarchical, "all ranks are on one node");
    }
    if reduces && !over.commutative && !layout.keeps_order() {
        return (NodesForm::Flat, "the operator does not commute, and the ranks are not numbered node by node");
    }
    if reduces && over.reproducible {
        return (NodesForm::Flat, "sums of nodes would make the result depend on where ranks are");
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
            (NodesForm::Hierarchical, "the algorithm that is set combines in the memory of each node")
        }
        None if knows_nodes && set != Some(Algorithm::Nap) => {
            (NodesForm::Flat, "the algorithm that is set goes by the nodes itself")
        }
        None => {
            (NodesForm::Hierarchical, "memory is quicker than the network, and a node's ranks share their part of it")
        }
    }
}

#[cfg(test)]
mod tests;

//! Plays the plans of all ranks in any order that they allow, with sets of ranks for values: every chunk is reduced once
//! from every rank, in order, and arrives where it should, with the same bits on every rank, though each node rounds in its
//! own way; nobody waits for ever; nothing is overwritten too early.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use proptest::prelude::*;
use reduce_kernels::{Collective, Place};

use super::{Across, Kind, Layout, Stream, Task, TaskPlan, TaskShape, slices};

#[derive(Clone, Default)]
struct Value {
    /// Whose contributions it has, in their order.
    ranks: Vec<usize>,
    /// How they were folded.
    bits: u64,
}

impl Value {
    fn of(rank: usize) -> Self {
        Self { ranks: vec![rank], bits: rank as u64 }
    }

    /// What folding `parts` comes to in the way of `whose`.
    fn folded(parts: &[Self], whose: Option<usize>) -> Self {
        let mut bits = DefaultHasher::new();
        (whose, parts.iter().map(|part| part.bits).collect::<Vec<_>>()).hash(&mut bits);
        Self { ranks: parts.iter().flat_map(|part| part.ranks.clone()).collect(), bits: bits.finish() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Waiting,
    Begun,
    /// Its result is there, and messages may still be sent out of it.
    Sends,
    Done,
}

struct Rank {
    plan: TaskPlan,
    states: Vec<State>,
    values: BTreeMap<At, Value>,
}

/// A place for a slice of a chunk.
type At = ((usize, usize), Place);

struct Play<'a> {
    layout: &'a Layout,
    shape: &'a TaskShape,
    in_place: bool,
    ranks: Vec<Rank>,
    /// Of a barrier: of whom each rank knows that they have come.
    known: Vec<BTreeSet<usize>>,
}

impl<'a> Play<'a> {
    fn new(layout: &'a Layout, shape: &'a TaskShape, in_place: bool) -> Self {
        let rank = |rank| {
            let plan = TaskPlan::new(layout, shape, rank);
            let gives = shape.collective != Collective::Bcast || rank == shape.root;
            let place = if shape.collective == Collective::Bcast || in_place { Place::Recv } else { Place::Send };
            let pieces = pieces(layout, shape);
            let values =
                pieces.into_iter().filter(|_| gives).map(|(piece, _)| ((piece, place), Value::of(rank))).collect();
            Rank { states: vec![State::Waiting; plan.tasks.len()], plan, values }
        };
        let known = (0..layout.size()).map(|rank| BTreeSet::from([rank])).collect();
        Self { layout, shape, in_place, ranks: (0..layout.size()).map(rank).collect(), known }
    }

    /// Where a place of a task really is: scratch memory is of no chunk.
    fn real(&self, task: &Task, place: Place) -> At {
        match place {
            Place::Send if self.in_place => ((task.chunk, task.slice), Place::Recv),
            Place::Scratch(_) => ((0, 0), place),
            _ => ((task.chunk, task.slice), place),
        }
    }

    /// Begins one task of a rank, in the order of its stream. False if there is none that can be begun.
    fn begin(&mut self, rank: usize, stream: usize) -> bool {
        let Rank { plan, states, .. } = &self.ranks[rank];
        let Some((_, tasks)) = plan.streams.get(stream) else { return false };
        let Some(&next) = tasks.iter().find(|&&task| states[task] == State::Waiting) else { return false };
        let task = &plan.tasks[next];
        let wanted = if task.kind.hands_out() { State::Sends } else { State::Done };
        if task.after.iter().flatten().any(|&after| states[after] < wanted) {
            return false;
        }
        let touches = |task: &Task| {
            let from = (self.real(task, task.from), false);
            [Some(from), task.to.map(|to| (self.real(task, to), true))].into_iter().flatten().collect::<Vec<_>>()
        };
        // The root of a broadcast only reads.
        let touches = |task: &Task| {
            let reads = matches!(task.kind, Kind::Ib | Kind::Sb) && self.is_root(rank, task);
            touches(task).into_iter().map(|(place, writes)| (place, writes && !reads)).collect::<Vec<_>>()
        };
        for (other, state) in states.iter().enumerate() {
            if matches!(state, State::Waiting | State::Done) || self.shape.collective == Collective::Barrier {
                continue;
            }
            for (place, writes) in touches(task) {
                let mut theirs = touches(&plan.tasks[other]).into_iter();
                let clash = theirs.any(|(at, also)| at == place && (writes || also && *state == State::Begun));
                assert!(!clash, "rank {rank}: {task:?} while {:?}", plan.tasks[other]);
            }
        }
        self.ranks[rank].states[next] = State::Begun;
        true
    }

    fn is_root(&self, rank: usize, task: &Task) -> bool {
        self.layout.group(rank, task.stream)[task.root] == rank
    }

    /// Completes the oldest task of a rank's stream if all of its group have begun theirs.
    fn complete(&mut self, rank: usize, stream: usize) -> bool {
        let Some((name, tasks)) = self.ranks[rank].plan.streams.get(stream) else { return false };
        let name = *name;
        let Some(&oldest) = tasks.iter().find(|&&task| self.ranks[rank].states[task] == State::Begun) else {
            return false;
        };
        let task = self.ranks[rank].plan.tasks[oldest].clone();
        let group = self.layout.group(rank, task.stream);
        let mut found = Vec::new();
        for &member in &group {
            let of = &self.ranks[member];
            let Some((_, tasks)) = of.plan.streams.iter().find(|(other, _)| *other == name) else { return false };
            let undone = tasks.iter().find(|&&task| of.states[task] < State::Sends);
            let Some(&undone) = undone.filter(|&&task| of.states[task] == State::Begun) else { return false };
            let theirs = &of.plan.tasks[undone];
            let same = |task: &Task| (task.kind, task.chunk, task.slice, task.root, task.range.clone());
            assert_eq!(same(theirs), same(&task), "ranks {rank} and {member} disagree");
            found.push((member, undone));
        }
        self.carry_out(&task, &found);
        for (member, number) in found {
            self.ranks[member].states[number] = if task.stream.is_in_memory() { State::Done } else { State::Sends };
        }
        true
    }

    /// The oldest task of a rank's stream that still sends has sent everything.
    fn sent(&mut self, rank: usize, stream: usize) -> bool {
        let Rank { plan, states, .. } = &mut self.ranks[rank];
        let Some((_, tasks)) = plan.streams.get(stream) else { return false };
        let oldest = tasks.iter().find(|&&task| states[task] == State::Sends);
        oldest.map(|&task| states[task] = State::Done).is_some()
    }

    /// What ranks of a barrier learn by a task.
    fn tell(&mut self, task: &Task, group: &[(usize, usize)]) {
        let of = |place: usize| self.known[group[place].0].clone();
        let all = || (0..group.len()).flat_map(of).collect();
        let (told, who): (BTreeSet<usize>, _) = match task.kind.collective() {
            Collective::Bcast => (of(task.root), 0..group.len()),
            Collective::Reduce => (all(), task.root..task.root + 1),
            Collective::Allreduce | Collective::Barrier => (all(), 0..group.len()),
        };
        who.for_each(|place| self.known[group[place].0].extend(&told));
    }

    fn carry_out(&mut self, task: &Task, group: &[(usize, usize)]) {
        if self.shape.collective == Collective::Barrier {
            self.tell(task, group);
            return;
        }
        let value = |(member, number): (usize, usize)| {
            let theirs = &self.ranks[member].plan.tasks[number];
            let at = self.real(theirs, theirs.from);
            let value = self.ranks[member].values.get(&at).cloned();
            value.unwrap_or_else(|| panic!("rank {member} gives what it has not: {theirs:?}"))
        };
        let result = match task.kind {
            Kind::Ib | Kind::Sb => value(group[task.root]),
            _ => {
                let parts: Vec<Value> = group.iter().map(|&of| value(of)).collect();
                let is_own = task.stream.is_in_memory() && !task.is_everywhere();
                Value::folded(&parts, is_own.then(|| self.layout.node_of(group[0].0)))
            }
        };
        for (place, &(member, number)) in group.iter().enumerate() {
            let theirs = &self.ranks[member].plan.tasks[number];
            let receives = !matches!(task.kind, Kind::Sr | Kind::Ir) || place == task.root;
            assert_eq!(theirs.to.is_some(), receives, "rank {member}: {theirs:?}");
            if let Some(to) = theirs.to {
                let at = self.real(theirs, to);
                self.ranks[member].values.insert(at, result.clone());
            }
        }
    }

    /// Plays in the order that `choices` gives, then on as long as anything can.
    fn run(&mut self, choices: &[(usize, usize, usize)]) {
        for &(rank, stream, what) in choices {
            let rank = rank % self.layout.size();
            match what {
                0 => self.begin(rank, stream),
                1 => self.complete(rank, stream),
                _ => self.sent(rank, stream),
            };
        }
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for rank in 0..self.layout.size() {
                for stream in 0..self.ranks[rank].plan.streams.len() {
                    goes_on |= self.begin(rank, stream) | self.complete(rank, stream) | self.sent(rank, stream);
                }
            }
        }
        self.check();
    }

    fn check(&self) {
        let everybody: Vec<usize> = (0..self.layout.size()).collect();
        let mut bits = BTreeMap::new();
        for (rank, of) in self.ranks.iter().enumerate() {
            let stuck = of.states.iter().position(|state| *state != State::Done);
            assert_eq!(stuck, None, "rank {rank} waits for ever: {:?}", stuck.map(|task| &of.plan.tasks[task]));
            if self.shape.collective == Collective::Barrier {
                assert_eq!(self.known[rank].len(), self.layout.size(), "rank {rank} leaves before all have come");
            }
            let receives = match self.shape.collective {
                Collective::Barrier => false,
                Collective::Reduce => rank == self.shape.root,
                Collective::Bcast | Collective::Allreduce => true,
            };
            for (piece, _) in pieces(self.layout, self.shape).into_iter().filter(|_| receives) {
                let Value { ranks: mut value, bits: theirs } =
                    of.values.get(&(piece, Place::Recv)).cloned().unwrap_or_default();
                let first = *bits.entry(piece).or_insert(theirs);
                assert_eq!(first, theirs, "chunk and slice {piece:?} of rank {rank} was folded in another way");
                let wanted =
                    if self.shape.collective == Collective::Bcast { vec![self.shape.root] } else { everybody.clone() };
                let is_shared = self.shape.collective == Collective::Reduce && self.shape.leaders > 1;
                if is_shared || !self.layout.keeps_order() {
                    value.sort_unstable();
                }
                assert_eq!(value, wanted, "chunk and slice {piece:?} of rank {rank}");
            }
        }
    }
}

/// Chunk and slice of all that tasks of any rank work on, with its elements.
fn pieces(layout: &Layout, shape: &TaskShape) -> BTreeMap<(usize, usize), Range<usize>> {
    let plans = (0..layout.size()).map(|rank| TaskPlan::new(layout, shape, rank));
    plans.flat_map(|plan| plan.tasks).map(|task| ((task.chunk, task.slice), task.range)).collect()
}

fn layouts() -> impl Strategy<Value = Layout> {
    let blocks = prop::collection::vec(1_usize..5, 1..5).prop_map(|sizes| {
        let nodes = sizes.iter().enumerate().flat_map(|(node, &size)| std::iter::repeat_n(node, size));
        Layout::new(&nodes.collect::<Vec<_>>())
    });
    let any = prop::collection::vec(0_usize..4, 1..12).prop_map(|nodes| Layout::new(&nodes));
    prop_oneof![blocks, any]
}

proptest! {
    #[test]
    fn every_plan_gives_everybody_what_it_should(
        layout in layouts(),
        collective in prop::sample::select(Collective::ALL.to_vec()),
        root in 0_usize..12,
        (count, chunk_bytes) in (0_usize..40, 1_usize..80),
        element_bytes in prop::sample::select(vec![4, 64, 128]),
        leaders in 1_usize..6,
        across in prop::sample::select(vec![Across::Whole, Across::Split, Across::NodeAware]),
        in_place in any::<bool>(),
        choices in prop::collection::vec((0_usize..12, 0_usize..6, 0_usize..3), 0..400),
    ) {
        let count = if collective == Collective::Barrier { 0 } else { count };
        let root = if collective.has_root() { root % layout.size() } else { 0 };
        let chunk_bytes = chunk_bytes * element_bytes / 4;
        let shape = TaskShape { collective, count, element_bytes, chunk_bytes, leaders, across, root };
        Play::new(&layout, &shape, in_place && collective != Collective::Bcast).run(&choices);
    }
}

/// Nodes of several ranks each, of as many or not, numbered node by node or in turns.
fn layouts_with_pairs() -> impl Strategy<Value = Layout> {
    let even = (2_usize..14, 2_usize..5).prop_map(|(nodes, ranks)| vec![ranks; nodes]);
    let uneven = prop::collection::vec(2_usize..6, 2..14);
    (prop_oneof![even, uneven], any::<bool>()).prop_map(|(sizes, in_turns)| {
        let of_node = |(node, &ranks): (usize, &usize)| (0..ranks).map(move |local| (local, node));
        let mut seats: Vec<(usize, usize)> = sizes.iter().enumerate().flat_map(of_node).collect();
        if in_turns {
            seats.sort_unstable();
        }
        Layout::new(&seats.into_iter().map(|(_, node)| node).collect::<Vec<_>>())
    })
}

proptest! {
    #[test]
    fn node_aware_plans_give_everybody_every_contribution_once_and_in_order(
        layout in layouts_with_pairs(),
        (count, chunk_bytes) in (0_usize..40, 8_usize..80),
        in_place in any::<bool>(),
        choices in prop::collection::vec((0_usize..70, 0_usize..6, 0_usize..3), 0..400),
    ) {
        assert!(layout.has_pairs());
        let (collective, across) = (Collective::Allreduce, Across::NodeAware);
        let shape = TaskShape { collective, count, element_bytes: 4, chunk_bytes, leaders: 1, across, root: 0 };
        Play::new(&layout, &shape, in_place).run(&choices);
    }
}

#[test]
fn node_aware_ranks_send_as_few_messages_between_nodes_as_the_paper_says() {
    for (nodes, ranks, more) in
        (2..40).flat_map(|nodes| (2..8).flat_map(move |ranks| [0, 2].map(|more| (nodes, ranks, more))))
    {
        // Every third node has more ranks.
        let of_node = |node: usize| std::iter::repeat_n(node, if node % 3 == 1 { ranks + more } else { ranks });
        let layout = Layout::new(&(0..nodes).flat_map(of_node).collect::<Vec<_>>());
        let (collective, across) = (Collective::Allreduce, Across::NodeAware);
        let shape = TaskShape { collective, count: 1, element_bytes: 8, chunk_bytes: 64, leaders: 1, across, root: 0 };
        let least = (0..).find(|&steps| usize::pow(ranks, steps) >= nodes).unwrap_or(0) as usize;
        let mut most = 0;
        for rank in 0..layout.size() {
            let plan = TaskPlan::new(&layout, &shape, rank);
            let between = plan.tasks.iter().filter(|task| !task.stream.is_in_memory());
            let sent = between.filter(|task| layout.group(rank, task.stream)[task.root] == rank).count();
            most = most.max(sent);
            assert!(plan.tasks.iter().all(|task| !matches!(task.stream, Stream::Rail(_) | Stream::Back(_))));
        }
        assert!(most <= least && most > 0, "{nodes} nodes of {ranks} and {more} more: {most} messages of a rank");
    }
}

#[test]
fn a_chunk_of_a_node_aware_allreduce_is_combined_while_the_one_before_travels() {
    let layout = Layout::new(&[0, 0, 1, 1, 2, 2, 3, 3]);
    let (collective, across) = (Collective::Allreduce, Across::NodeAware);
    let shape = TaskShape { collective, count: 40, element_bytes: 8, chunk_bytes: 64, leaders: 1, across, root: 0 };
    for rank in 0..layout.size() {
        let plan = TaskPlan::new(&layout, &shape, rank);
        let up = plan.streams.iter().find(|(stream, _)| *stream == Stream::Up);
        let in_memory = up.map_or(&[][..], |(_, tasks)| tasks);
        let tasks = &plan.tasks;
        let of = |chunk| move |task: &&usize| tasks[**task].chunk == chunk;
        for chunk in 1..plan.chunks {
            let (first, last) = (in_memory.iter().find(of(chunk)), in_memory.iter().rfind(of(chunk - 1)));
            assert!(first < last, "rank {rank}, chunk {chunk}: {in_memory:?}");
        }
    }
}

#[test]
fn every_chunk_of_an_allreduce_has_as_many_slices_as_leaders() {
    for nodes in [&[0, 0, 0, 1, 1, 1][..], &[0, 0, 0, 1], &[0, 1, 1, 2, 2, 2], &[0, 1]] {
        let layout = Layout::new(nodes);
        for (leaders, count) in (1..5).flat_map(|leaders| [1, 2, 7, 64, 150].map(|count| (leaders, count))) {
            let shape = TaskShape {
                collective: Collective::Allreduce,
                count,
                element_bytes: slices::LINE_BYTES,
                chunk_bytes: 64 * slices::LINE_BYTES,
                leaders,
                across: Across::Whole,
                root: 0,
            };
            let pieces = pieces(&layout, &shape);
            let mut covered = 0;
            for range in pieces.values() {
                assert_eq!((range.start, range.is_empty()), (covered, false), "{nodes:?} {shape:?}");
                covered = range.end;
            }
            assert_eq!(covered, count);
            let of_first = pieces.keys().filter(|(chunk, _)| *chunk == 0).count();
            assert_eq!(of_first, leaders.min(layout.rails()).min(count), "{nodes:?} {shape:?}");
            for rank in 0..layout.size() {
                let plan = TaskPlan::new(&layout, &shape, rank);
                for task in &plan.tasks {
                    let node = layout.node_of(rank);
                    let leader = layout.leader(node, task.slice);
                    let right = match task.kind {
                        Kind::Sr | Kind::Sb => task.root == leader,
                        _ => task.stream == Stream::Rail(task.slice) && layout.local_of(rank) == leader,
                    };
                    assert!(right, "{nodes:?}: rank {rank}: {task:?}");
                }
            }
        }
    }
}

#[test]
fn scratch_memory_is_bounded_whatever_the_length() {
    let layout = Layout::new(&[0, 0, 1, 1]);
    let shape = |count| TaskShape {
        collective: Collective::Reduce,
        count,
        element_bytes: 8,
        chunk_bytes: 1 << 16,
        leaders: 1,
        across: Across::Whole,
        root: 0,
    };
    let scratch = |count| TaskPlan::new(&layout, &shape(count), 3).scratch_bytes;
    assert_eq!([scratch(1 << 20), scratch(1 << 24)], [8 << 16; 2]);
    assert_eq!(TaskPlan::new(&layout, &shape(1 << 24), 0).scratch_bytes, 0, "the root has its own memory");
    let by_two = |rank| TaskPlan::new(&layout, &TaskShape { leaders: 2, ..shape(1 << 24) }, rank).scratch_bytes;
    assert_eq!([0, 1, 2, 3].map(by_two), [0, 4 << 16, 4 << 16, 4 << 16], "each has places for what it leads");
    let whole = |chunk_bytes| TaskPlan::new(&layout, &TaskShape { chunk_bytes, ..shape(64) }, 3);
    for chunk_bytes in [1 << 40, 1 << 63, usize::MAX] {
        assert_eq!(whole(chunk_bytes), whole(512), "a chunk is no longer than the vector");
    }
}

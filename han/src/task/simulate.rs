//! Plans on a clock: when each rank's tasks are done if each task takes what a cost model says. The plans are those that the
//! pipeline carries out; what is simulated is only who waits for whom.
//!
//! A task is begun by all ranks of its group at once, when the last of them has come to it. A node begins one task in
//! memory at a time, and a group of leaders one of each stream; both levels go on at the same time.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::{Layout, Stream, Task, TaskPlan, TaskShape, WINDOW};

/// Tasks of all ranks together, at most: about 100 bytes are needed for each.
const MOST_TASKS: usize = 10_000_000;

/// What a task takes, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// From its begin until it is done.
    pub latency_s: f64,
    /// Until the next one of the same kind can begin: what another one adds where they follow each other.
    pub busy_s: f64,
}

/// Refuses what has too many tasks to look at each.
pub(super) fn check(layout: &Layout, shape: &TaskShape) -> Result<(), String> {
    let chunks = (shape.count * shape.element_bytes).div_ceil(shape.chunk_bytes.max(1));
    let tasks = 2 * layout.size() * chunks * shape.leaders.clamp(1, layout.rails().max(1));
    if tasks > MOST_TASKS {
        return Err(format!("about {tasks} tasks of all ranks: longer chunks or fewer ranks make fewer"));
    }
    Ok(())
}

/// When each rank is done, in seconds after all began; `cost` gives what a task of so many ranks takes.
///
/// # Errors
/// Those of `cost`, and a sentence if there are too many tasks.
pub fn simulate(
    layout: &Layout,
    shape: &TaskShape,
    cost: impl FnMut(&Task, usize) -> Result<Cost, String>,
) -> Result<Vec<f64>, String> {
    check(layout, shape)?;
    let mut clock = Clock::new(layout, shape, cost);
    (0..layout.size()).try_for_each(|rank| clock.come(rank, 0.0))?;
    while let Some(Reverse(Event { at_s, what })) = clock.events.pop() {
        match what {
            What::Free(means) => {
                clock.means[means].is_busy = false;
                clock.serve(means, at_s)?;
            }
            What::Done(crew) => clock.done(crew, at_s)?,
        }
    }
    Ok(clock.ranks.iter().map(|rank| rank.end_s).collect())
}

/// The ranks that do a stream's tasks together.
struct Crew {
    members: Vec<usize>,
    means: usize,
    /// How many members have come to each of the tasks that are not begun.
    waiting: VecDeque<usize>,
    /// Tasks that were begun, and when the last of them is done.
    begun: usize,
    done_s: f64,
}

/// What tasks need to begin: a node's memory, or the network for a stream of leaders.
#[derive(Default)]
struct Means {
    is_busy: bool,
    /// Crews that could begin a task.
    queue: VecDeque<usize>,
}

struct Rank {
    plan: TaskPlan,
    done: Vec<bool>,
    /// By stream of the plan.
    lines: Vec<Line>,
    end_s: f64,
}

/// A rank on a stream.
struct Line {
    crew: usize,
    /// Tasks that it has come to.
    come: usize,
    /// Tasks that are done.
    done: usize,
}

#[derive(PartialEq)]
struct Event {
    at_s: f64,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// Of a crew: its oldest task under way.
    Done(usize),
    /// Of means.
    Free(usize),
}

impl Eq for Event {}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.at_s.total_cmp(&other.at_s).then(self.what.cmp(&other.what))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

struct Clock<C> {
    ranks: Vec<Rank>,
    crews: Vec<Crew>,
    /// The nodes' first.
    means: Vec<Means>,
    events: BinaryHeap<Reverse<Event>>,
    cost: C,
}

impl<C: FnMut(&Task, usize) -> Result<Cost, String>> Clock<C> {
    fn new(layout: &Layout, shape: &TaskShape, cost: C) -> Self {
        let mut crews: Vec<Crew> = Vec::new();
        let mut means: Vec<Means> = (0..layout.nodes()).map(|_| Means::default()).collect();
        let mut known: BTreeMap<(Stream, usize), usize> = BTreeMap::new();
        let mut crew_of = |rank, stream: Stream| {
            let node = stream.is_in_memory().then(|| layout.node_of(rank));
            // Streams have the same names on all nodes, and those of pairs for all of them.
            let pair = if let Stream::Pair(later) = stream { layout.pair(rank, later) } else { None };
            let first = pair.map(|[first, _]| first);
            *known.entry((stream, node.or(first).unwrap_or(0))).or_insert_with(|| {
                means.extend(node.is_none().then(Means::default));
                let means = node.unwrap_or(means.len() - 1);
                let members = layout.group(rank, stream);
                crews.push(Crew { members, means, waiting: VecDeque::new(), begun: 0, done_s: 0.0 });
                crews.len() - 1
            })
        };
        let rank = |rank| {
            let plan = TaskPlan::new(layout, shape, rank);
            let lines = plan.streams.iter().map(|&(stream, _)| Line { crew: crew_of(rank, stream), come: 0, done: 0 });
            Rank { lines: lines.collect(), done: vec![false; plan.tasks.len()], plan, end_s: 0.0 }
        };
        let ranks = (0..layout.size()).map(rank).collect();
        Self { ranks, crews, means, events: BinaryHeap::new(), cost }
    }

    /// Takes a rank to all the tasks that it may begin now.
    fn come(&mut self, rank: usize, now_s: f64) -> Result<(), String> {
        for line in 0..self.ranks[rank].lines.len() {
            loop {
                let Rank { plan, done, lines, .. } = &mut self.ranks[rank];
                let Line { crew, come, done: of_line } = &mut lines[line];
                let Some(&task) = plan.streams[line].1.get(*come).filter(|_| *come < *of_line + WINDOW) else { break };
                if plan.tasks[task].after.iter().flatten().any(|&after| !done[after]) {
                    break;
                }
                *come += 1;
                let (crew, place) = (*crew, *come - 1);
                let Crew { members, means, waiting, begun, .. } = &mut self.crews[crew];
                let place = place - *begun;
                waiting.resize(waiting.len().max(place + 1), 0);
                waiting[place] += 1;
                if place == 0 && waiting[0] == members.len() {
                    let means = *means;
                    self.means[means].queue.push_back(crew);
                    self.serve(means, now_s)?;
                }
            }
        }
        Ok(())
    }

    /// Lets the crew begin that has waited longest, if nobody is at work.
    fn serve(&mut self, means: usize, now_s: f64) -> Result<(), String> {
        if self.means[means].is_busy {
            return Ok(());
        }
        let Some(number) = self.means[means].queue.pop_front() else { return Ok(()) };
        let crew = &mut self.crews[number];
        let Rank { plan, lines, .. } = &self.ranks[crew.members[0]];
        let line = lines.iter().position(|line| line.crew == number).unwrap_or(0);
        let Cost { latency_s, busy_s } =
            (self.cost)(&plan.tasks[plan.streams[line].1[crew.begun]], crew.members.len())?;
        crew.begun += 1;
        crew.waiting.pop_front();
        crew.done_s = crew.done_s.max(now_s + latency_s);
        self.events.push(Reverse(Event { at_s: crew.done_s, what: What::Done(number) }));
        self.events.push(Reverse(Event { at_s: now_s + busy_s, what: What::Free(means) }));
        self.means[means].is_busy = true;
        if crew.waiting.front() == Some(&crew.members.len()) {
            self.means[means].queue.push_back(number);
        }
        Ok(())
    }

    /// The oldest task of a crew is done.
    fn done(&mut self, crew: usize, now_s: f64) -> Result<(), String> {
        for place in 0..self.crews[crew].members.len() {
            let Rank { plan, done, lines, end_s } = &mut self.ranks[self.crews[crew].members[place]];
            *end_s = now_s;
            for (line, (_, tasks)) in lines.iter_mut().zip(&plan.streams).filter(|(line, _)| line.crew == crew) {
                done[tasks[line.done]] = true;
                line.done += 1;
            }
        }
        for place in 0..self.crews[crew].members.len() {
            self.come(self.crews[crew].members[place], now_s)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use reduce_kernels::Collective;

    use super::super::{Across, Kind};
    use super::*;

    fn shape(collective: Collective, chunks: usize, splits: bool) -> TaskShape {
        let across = if splits { Across::Split } else { Across::Whole };
        TaskShape { collective, count: 8 * chunks, element_bytes: 64, chunk_bytes: 512, leaders: 1, across, root: 0 }
    }

    /// Seconds of a plan whose tasks of each kind take these; `hidden` of a network's are latency.
    fn seconds(nodes: &[usize], shape: &TaskShape, costs: [(Kind, f64); 3], hidden: f64) -> f64 {
        let cost = |task: &Task, _| {
            let found = costs.iter().find(|(kind, _)| *kind == task.kind);
            let (kind, latency_s) = *found.ok_or(task.kind.to_string())?;
            let is_network = !matches!(kind, Kind::Sr | Kind::Sb);
            Ok(Cost { latency_s, busy_s: if is_network { latency_s - hidden } else { latency_s } })
        };
        simulate(&Layout::new(nodes), shape, cost).unwrap().into_iter().fold(0.0, f64::max)
    }

    #[test]
    fn chunks_follow_each_other_through_both_levels() {
        let (bcast, reduce) = (shape(Collective::Bcast, 5, false), shape(Collective::Reduce, 5, false));
        for (slow_net, slow_memory) in [(3.0, 1.0), (1.0, 3.0)] {
            let costs = [(Kind::Ib, slow_net), (Kind::Ir, slow_net), (Kind::Sb, slow_memory)];
            // One chunk through the quicker level, all through the slower.
            assert_eq!(seconds(&[0, 0, 1, 1], &bcast, costs, 0.0), 5.0 * 3.0 + 1.0);
            let costs = [(Kind::Ib, slow_net), (Kind::Ir, slow_net), (Kind::Sr, slow_memory)];
            assert_eq!(seconds(&[0, 0, 1, 1, 1], &reduce, costs, 0.0), 5.0 * 3.0 + 1.0);
        }
    }

    #[test]
    fn latency_hides_behind_the_chunks_before() {
        let bcast = shape(Collective::Bcast, 5, false);
        let costs = [(Kind::Ib, 3.0), (Kind::Ir, 3.0), (Kind::Sb, 0.5)];
        assert_eq!(seconds(&[0, 0, 1, 1], &bcast, costs, 2.0), 3.0 + 4.0 + 0.5);
        // But no more tasks than the pipeline has under way: four done at 3.0 and just after, the fifth begins then.
        assert!((6.0..6.6).contains(&seconds(&[0, 0, 1, 1], &bcast, costs, 2.99)));
    }

    #[test]
    fn a_node_s_memory_does_one_thing_at_a_time() {
        let costs = [(Kind::Sr, 1.0), (Kind::Ia, 1.0), (Kind::Sb, 1.0)];
        // Up and down of each of many chunks; the network hides behind them.
        let chunks = 50;
        let took = seconds(&[0, 0, 1, 1], &shape(Collective::Allreduce, chunks, false), costs, 0.0);
        assert!((2.0 * 50.0..=2.0 * 50.0 + 2.0).contains(&took), "{took}");
    }

    #[test]
    fn every_task_of_every_layout_is_done_once() {
        let even = [0, 0, 1, 1, 2, 2];
        for nodes in [&[0][..], &[0, 1], &[0, 0, 0], &[0, 1, 0, 2, 2, 2], &[0, 0, 1, 1, 2, 2, 3], &even] {
            let layout = Layout::new(nodes);
            for collective in Collective::ALL {
                let kinds = [(Across::Whole, 1), (Across::Split, 1), (Across::Whole, 3), (Across::Split, 2)];
                for (across, leaders) in kinds.into_iter().chain([(Across::NodeAware, 1)]) {
                    let shape = TaskShape { leaders, across, root: nodes.len() - 1, ..shape(collective, 7, false) };
                    let mut begun = 0;
                    let count = |_: &Task, ranks| {
                        begun += ranks;
                        Ok(Cost { latency_s: 1.0, busy_s: 0.5 })
                    };
                    simulate(&layout, &shape, count).unwrap();
                    let tasks = |rank| TaskPlan::new(&layout, &shape, rank).tasks.len();
                    assert_eq!(begun, (0..layout.size()).map(tasks).sum::<usize>(), "{nodes:?} {shape:?}");
                }
            }
        }
    }

    #[test]
    fn too_many_tasks_are_refused() {
        let nodes: Vec<usize> = (0..4096).collect();
        let refused =
            simulate(&Layout::new(&nodes), &shape(Collective::Bcast, 10_000, false), |_, _| Err(String::new()));
        assert!(refused.unwrap_err().contains("longer chunks"));
    }
}

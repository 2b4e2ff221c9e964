//! Plans as figures 5.6 and 5.14 of the dissertation draw them: what each rank has under way in each iteration, if all
//! played in lock-step. The pipeline does not, but tasks have their names from there: `sbibirsr(3)`.

use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Write as _};

use super::simulate::check;
use super::{Kind, Layout, Stream, Task, TaskPlan, TaskShape};

/// Chunks, or slices of chunks, that are drawn at either end of a long vector.
const ENDS: usize = 6;

/// What tasks work on, by its chunk: all of it, or a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// The chunk.
    pub chunk: usize,
    /// The slice, where chunks are cut.
    pub slice: Option<usize>,
}

impl fmt::Display for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.slice {
            Some(slice) => f.pad(&format!("{}.{slice}", self.chunk)),
            None => self.chunk.fmt(f),
        }
    }
}

/// For each iteration what a rank does, with the chunk: last work on a chunk first, as in the tasks' names.
pub type Timetable = Vec<Vec<(Kind, Piece)>>;

/// How far a rank is with its plan. What comes next is known without a look at all tasks: long vectors have many.
struct Progress {
    plan: TaskPlan,
    done: Vec<bool>,
    /// Of each stream how many tasks are done: its first ones.
    heads: Vec<usize>,
    /// The `ib` of the same piece that stands before a task in the plan, if there is one.
    brought_by: Vec<Option<usize>>,
}

impl Progress {
    fn new(plan: TaskPlan) -> Self {
        let mut brought = HashMap::new();
        let note = |(number, task): (usize, &Task)| {
            let piece = (task.chunk, task.slice);
            let before = brought.get(&piece).copied();
            if task.kind == Kind::Ib {
                brought.insert(piece, number);
            }
            before
        };
        let brought_by = plan.tasks.iter().enumerate().map(note).collect();
        Self { done: vec![false; plan.tasks.len()], heads: vec![0; plan.streams.len()], brought_by, plan }
    }

    /// Where the rank has the stream.
    fn line(&self, stream: Stream) -> Option<usize> {
        self.plan.streams.iter().position(|(known, _)| *known == stream)
    }

    /// The stream's next task, if its needs are met.
    fn next(&self, stream: Stream) -> Option<usize> {
        let line = self.line(stream)?;
        let next = *self.plan.streams[line].1.get(self.heads[line])?;
        let Task { kind, ref after, .. } = self.plan.tasks[next];
        let is_ready = after.iter().flatten().all(|&after| self.done[after]);
        // In the pipeline the root of a broadcast gives its node what it has at once.
        let has_come = kind != Kind::Sb || self.brought_by[next].is_none_or(|ib| self.done[ib]);
        (is_ready && has_come).then_some(next)
    }

    fn complete(&mut self, task: usize) {
        if let Some(line) = self.line(self.plan.tasks[task].stream) {
            self.heads[line] += 1;
        }
        self.done[task] = true;
    }
}

/// What all ranks do in which iteration, if each iteration does one task of each stream whose needs were met before it.
#[must_use]
pub fn timetables(layout: &Layout, shape: &TaskShape) -> Vec<Timetable> {
    let mut ranks: Vec<Progress> =
        (0..layout.size()).map(|rank| Progress::new(TaskPlan::new(layout, shape, rank))).collect();
    let mut tables: Vec<Timetable> = vec![Vec::new(); ranks.len()];
    let mut left: usize = ranks.iter().map(|rank| rank.done.len()).sum();
    let is_cut = ranks.iter().flat_map(|rank| &rank.plan.tasks).any(|task| task.slice > 0);
    let piece = |task: &Task| Piece { chunk: task.chunk, slice: is_cut.then_some(task.slice) };
    while left > 0 {
        let mut now = Vec::new();
        // A rail has a rank of each node: it is looked at once for all of them.
        let mut rails = HashMap::new();
        for (rank, progress) in ranks.iter().enumerate() {
            let mut row = Vec::new();
            for &(stream, _) in &progress.plan.streams {
                let mut is_ready = || {
                    let look = || layout.group(rank, stream).into_iter().all(|of| ranks[of].next(stream).is_some());
                    if let Stream::Rail(_) | Stream::Back(_) = stream {
                        return *rails.entry(stream).or_insert_with(look);
                    }
                    look()
                };
                if let Some(task) = progress.next(stream)
                    && is_ready()
                {
                    let of_plan = &progress.plan.tasks[task];
                    row.push((of_plan.kind, piece(of_plan)));
                    now.push((rank, task));
                }
            }
            row.sort_unstable_by(|left, right| right.cmp(left));
            tables[rank].push(row);
        }
        if now.is_empty() {
            break;
        }
        left -= now.len();
        now.into_iter().for_each(|(rank, task)| ranks[rank].complete(task));
    }
    tables
}

/// The name of what a rank does in an iteration: `sbib(1)` for `sb` of chunk 0 with `ib` of chunk 1, `iasr(0.1)` for `ia` of
/// the first slice of chunk 0 with `sr` of its second.
#[must_use]
pub fn name(row: &[(Kind, Piece)]) -> String {
    let Some(last) = row.iter().map(|(_, piece)| piece).max() else { return String::new() };
    let kinds: String = row.iter().map(|(kind, _)| kind.to_string()).collect();
    format!("{kinds}({last})")
}

/// The figure of a collective: one table for all ranks that do the same.
///
/// # Errors
/// A sentence if there are too many tasks.
pub fn draw(layout: &Layout, shape: &TaskShape) -> Result<String, String> {
    check(layout, shape)?;
    let tables = timetables(layout, shape);
    let mut figure = String::new();
    let mut drawn: Vec<&Timetable> = Vec::new();
    for table in &tables {
        if drawn.contains(&table) {
            continue;
        }
        drawn.push(table);
        let ranks: Vec<String> =
            (0..tables.len()).filter(|&rank| tables[rank] == *table).map(|rank| rank.to_string()).collect();
        let plural = if ranks.len() == 1 { "" } else { "s" };
        let _ = writeln!(figure, "\nrank{plural} {}", ranks.join(", "));
        draw_one(&mut figure, table);
    }
    Ok(figure)
}

fn draw_one(figure: &mut String, table: &Timetable) {
    let pieces: BTreeSet<Piece> = table.iter().flatten().map(|(_, piece)| *piece).collect();
    let is_drawn = |number: usize, of: usize| of <= 2 * ENDS + 1 || number < ENDS || number + ENDS >= of;
    let columns: Vec<(usize, Piece)> =
        pieces.iter().copied().enumerate().filter(|&(place, _)| is_drawn(place, pieces.len())).collect();
    let mut line = |head: &str, cell: &dyn Fn(Piece) -> String, task: &str| {
        let mut text = format!("{head:>9} |");
        for (column, &(place, piece)) in columns.iter().enumerate() {
            if column > 0 && place > columns[column - 1].0 + 1 {
                text += " ...";
            }
            let _ = write!(text, " {:>3}", cell(piece));
        }
        let _ = writeln!(figure, "{text} | {task}");
    };
    line("iteration", &|piece| piece.to_string(), "task");
    let mut is_gap = false;
    for (iteration, row) in table.iter().enumerate() {
        if is_drawn(iteration, table.len()) {
            let cell = |piece| row.iter().filter(|(_, of)| *of == piece).map(|(kind, _)| kind.to_string()).collect();
            line(&iteration.to_string(), &cell, &name(row));
        } else if !is_gap {
            is_gap = true;
            line("...", &|_| String::new(), "...");
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use reduce_kernels::Collective;

    use super::super::Across;
    use super::*;

    fn names(collective: Collective, rank: usize) -> Vec<String> {
        let layout = Layout::new(&[0, 0, 1, 1]);
        let shape = TaskShape {
            collective,
            count: 6,
            element_bytes: 8,
            chunk_bytes: 8,
            leaders: 1,
            across: Across::Split,
            root: 0,
        };
        timetables(&layout, &shape)[rank].iter().map(|row| name(row)).collect()
    }

    #[test]
    fn a_broadcast_is_that_of_figure_5_6() {
        let leader = ["ib(0)", "sbib(1)", "sbib(2)", "sbib(3)", "sbib(4)", "sbib(5)", "sb(5)"];
        assert_eq!(names(Collective::Bcast, 3), leader);
        assert_eq!(names(Collective::Bcast, 1), ["", "sb(0)", "sb(1)", "sb(2)", "sb(3)", "sb(4)", "sb(5)"]);
    }

    #[test]
    fn an_allreduce_is_that_of_figure_5_14() {
        let leader = [
            "sr(0)",
            "irsr(1)",
            "ibirsr(2)",
            "sbibirsr(3)",
            "sbibirsr(4)",
            "sbibirsr(5)",
            "sbibir(5)",
            "sbib(5)",
            "sb(5)",
        ];
        assert_eq!(names(Collective::Allreduce, 0), leader);
        let other = ["sr(0)", "sr(1)", "sr(2)", "sbsr(3)", "sbsr(4)", "sbsr(5)", "sb(3)", "sb(4)", "sb(5)"];
        assert_eq!(names(Collective::Allreduce, 1), other);
    }

    #[test]
    fn slices_go_up_and_across_one_behind_the_other() {
        let layout = Layout::new(&[0, 0, 1, 1]);
        let (collective, leaders) = (Collective::Allreduce, 2);
        let shape = TaskShape {
            collective,
            count: 64,
            element_bytes: 8,
            chunk_bytes: 512,
            leaders,
            across: Across::Whole,
            root: 0,
        };
        let tables = timetables(&layout, &TaskShape { count: 32, ..shape });
        let names = |rank: usize| tables[rank].iter().map(|row| name(row)).collect::<Vec<_>>();
        assert_eq!(names(0), ["sr(0.0)", "iasr(0.1)", "sb(0.0)", "sb(0.1)"]);
        assert_eq!(names(1), ["sr(0.0)", "sr(0.1)", "sbia(0.1)", "sb(0.1)"]);
        let figure = draw(&layout, &TaskShape { count: 32, ..shape }).unwrap();
        assert!(figure.contains("iteration | 0.0 0.1 | task"), "{figure}");
        let figure = draw(&layout, &shape).unwrap();
        assert!(figure.contains("(0.1)") && !figure.contains("(1.0)"));
    }

    #[test]
    fn leaders_beside_the_root_are_served_by_it_or_serve_it() {
        let layout = Layout::new(&[0, 0, 1, 1]);
        let shape = |collective| TaskShape {
            collective,
            count: 32,
            element_bytes: 8,
            chunk_bytes: 256,
            leaders: 2,
            across: Across::Whole,
            root: 0,
        };
        let names = |collective, rank: usize| {
            let tables = timetables(&layout, &shape(collective));
            tables[rank].iter().map(|row| name(row)).filter(|name| !name.is_empty()).collect::<Vec<_>>()
        };
        let (bcast, reduce) = (Collective::Bcast, Collective::Reduce);
        // Of node 0, then of node 1, whose second rank leads the first slice.
        assert_eq!(names(bcast, 0), ["ib(0.0)", "sb(0.0)", "sb(0.1)"]);
        assert_eq!(names(bcast, 1), ["sb(0.0)", "sb(0.1)", "ib(0.1)"]);
        assert_eq!(names(bcast, 2), ["sb(0.0)", "ib(0.1)", "sb(0.1)"]);
        assert_eq!(names(bcast, 3), ["ib(0.0)", "sb(0.0)", "sb(0.1)"]);
        assert_eq!(names(reduce, 0), ["sr(0.0)", "ir(0.0)", "sr(0.1)"]);
        assert_eq!(names(reduce, 1), ["sr(0.0)", "ir(0.1)", "sr(0.1)"]);
        assert_eq!(names(reduce, 2), ["sr(0.0)", "sr(0.1)", "ir(0.1)"]);
        assert_eq!(names(reduce, 3), ["sr(0.0)", "irsr(0.1)"]);
    }

    #[test]
    fn long_vectors_are_drawn_at_their_ends() {
        let layout = Layout::new(&[0, 0, 1, 1]);
        let shape = TaskShape {
            collective: Collective::Bcast,
            count: 1000,
            element_bytes: 8,
            chunk_bytes: 8,
            leaders: 1,
            across: Across::Whole,
            root: 1,
        };
        let figure = draw(&layout, &shape).unwrap();
        assert!(figure.contains("sbib(999)") && figure.contains("...") && figure.lines().count() < 40, "{figure}");
    }
}

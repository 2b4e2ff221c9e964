//! What the tasks of a call that nodes do in their memory would be carried out by: each is a question to the node's engine.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use reduce_kernels::{Collective, Folding, Place};
use shm_core::{Circumstances, Explanation, Methods, Question, explain};

use super::Foreseen;
use crate::error::Result;
use crate::select::NodesForm;
use crate::select::form::Choice;
use crate::task::{Kind, Task, TaskPlan, TaskShape};

/// What the ranks of some nodes do in their memory, and why so.
#[derive(Debug, Clone)]
pub struct InMemory {
    /// In tasks of this kind.
    pub kind: Kind,
    /// The nodes, ascending.
    pub nodes: Vec<usize>,
    /// Of the first such task, which is the longest.
    pub explanation: Explanation,
}

impl InMemory {
    /// Whether others of its tasks are carried out as this one, whose root and length may differ.
    fn is_like(&self, kind: Kind, other: &Explanation) -> bool {
        let sort = |of: &Explanation| (of.choice, of.ranks, of.own_cores, of.question.mapped, of.question.in_place);
        self.kind == kind && sort(&self.explanation) == sort(other)
    }
}

impl Foreseen {
    /// What nodes do in their memory for `choice`, where vectors and operator of the call are those of `question`; nothing where
    /// all ranks use the network. The ranks of a node reach each other by `methods`.
    ///
    /// # Errors
    /// This process's cores cannot be read, or a topology is set that describes no machine.
    pub fn in_memory(&self, choice: &Choice, question: Question, methods: &Methods) -> Result<Vec<InMemory>> {
        let mut found: Vec<InMemory> = Vec::new();
        let shape = first_and_last(choice.shape);
        let nodes = if choice.form == NodesForm::Hierarchical { self.layout.nodes() } else { 0 };
        // Nodes whose ranks begin on the same core and are as many are alike.
        let mut known: HashMap<(usize, usize), Circumstances> = HashMap::new();
        for node in 0..nodes {
            let members = self.layout.members(node);
            let (first, begin) = (members[0], members[0] % self.cores);
            let here = match known.entry((begin, members.len())) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => {
                    let ranks = begin..begin + members.len();
                    unknown.insert(Circumstances::here(ranks, self.of_node.clone(), methods)?)
                }
            };
            let plans: Vec<TaskPlan> = members.iter().map(|&rank| TaskPlan::new(&self.layout, &shape, rank)).collect();
            // A node's first rank has a part in all that is done in its memory.
            for (stream, tasks) in plans[0].streams.iter().filter(|(stream, _)| stream.is_in_memory()) {
                let group = self.layout.group(first, *stream);
                let group: Vec<usize> = group.into_iter().map(|rank| self.layout.local_of(rank)).collect();
                let here = Circumstances { hierarchy: here.hierarchy.of_ranks(&group), ..here.clone() };
                let streams: Vec<(&TaskPlan, &[usize])> =
                    group.iter().map(|&local| (&plans[local], plans[local].stream(*stream))).collect();
                for number in 0..tasks.len() {
                    let parts: Vec<&Task> = streams.iter().map(|(plan, tasks)| &plan.tasks[tasks[number]]).collect();
                    let explanation = explain_task(&here, question, &parts, shape.element_bytes);
                    let kind = parts[0].kind;
                    match found.iter_mut().find(|known| known.is_like(kind, &explanation)) {
                        Some(known) if known.nodes.last() == Some(&node) => {}
                        Some(known) => known.nodes.push(node),
                        None => found.push(InMemory { kind, nodes: vec![node], explanation }),
                    }
                }
            }
        }
        Ok(found)
    }
}

/// A shape of one whole chunk and the last one: those between them are as the first.
fn first_and_last(shape: TaskShape) -> TaskShape {
    let in_chunk = (shape.chunk_bytes / shape.element_bytes.max(1)).max(1);
    let last = shape.count.saturating_sub(1) % in_chunk + 1;
    TaskShape { count: shape.count.min(in_chunk + last), ..shape }
}

/// What is chosen for a task of a call whose vectors are those of `question`, of which each rank of the group has its part.
fn explain_task(here: &Circumstances, question: Question, parts: &[&Task], element_bytes: usize) -> Explanation {
    let own = |task: &Task| {
        let is_signal = question.collective == Collective::Barrier;
        let at = |place| if question.in_place && place == Place::Send { Place::Recv } else { place };
        let is_scratch = |place: Option<Place>| matches!(place, Some(Place::Scratch(_)));
        Question {
            collective: task.kind.collective(),
            bytes: if is_signal { 1 } else { task.range.len() * element_bytes },
            root: task.root,
            mapped: question.mapped && !is_scratch(Some(task.from)) && !is_scratch(task.to),
            in_place: task.to.is_some_and(|to| at(to) == at(task.from)),
            folding: if is_signal { Folding::Free } else { question.folding },
        }
    };
    let questions: Vec<Question> = parts.iter().map(|task| own(task)).collect();
    let together = Question {
        mapped: questions.iter().all(|own| own.mapped),
        in_place: questions.iter().any(|own| own.in_place),
        ..questions[0]
    };
    let mut explanation = here.explain(together);
    let form = explanation.points[0].value.clone();
    let others = questions.into_iter().filter(|own| *own != together).map(|own| here.explain(own));
    // All ranks take the same form, but each tells for itself where its vectors are worked on.
    if let Some(other) = others.into_iter().find(|own| own.points[0].value == form && own.choice != explanation.choice)
    {
        let because = "what the others work on is memory of the library's own, or in place";
        explanation.points.push(explain::Point::new("some of the ranks", other.choice, because, ""));
    }
    explanation
}

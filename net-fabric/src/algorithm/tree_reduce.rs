//! Reduce up a tree, and allreduce up and down one, chunk by chunk.

use super::Shape;
use super::chunks::Chunks;
use super::pieces::{Pool, places};
use super::tree::{Family, Tree};
use crate::schedule::{Builder, Schedule, Span};

/// Reduce: with an operator that commutes below the root itself; with another one below rank 0, which hands the
/// result on to the root.
pub(super) fn reduce(shape: &Shape<'_>, tree: Tree) -> Schedule {
    if tree == Tree::Linear {
        return linear(shape);
    }
    let top = if shape.commutative { shape.root } else { 0 };
    let mut family = tree.family(shape, top);
    let forwards = top != shape.root;
    if forwards && shape.rank == top {
        family.parent = Some(shape.root);
    }
    let mut up = Up::new(shape, tree.chunks(shape), family, shape.rank == shape.root && !forwards);
    for index in 0..up.chunks.len() {
        up.chunk(index);
        if forwards && shape.rank == shape.root {
            up.program.receive(top, shape.output(up.chunks.get(index)));
        }
        up.program.next_round();
    }
    up.program.finish()
}

/// Allreduce: reduce to rank 0 and bcast from there. The bcast follows the reduction by as many chunks as the tree
/// is deep, so that ranks that take one step after the other have both under way.
pub(super) fn allreduce(shape: &Shape<'_>, tree: Tree) -> Schedule {
    let family = tree.family(shape, 0);
    let mut up = Up::new(shape, tree.chunks(shape), family, shape.rank == 0);
    let (count, behind) = (up.chunks.len(), tree.depth(shape));
    for index in 0..count.saturating_add(behind).min(2 * count) {
        if index < count {
            up.chunk(index);
        }
        // With fewer chunks than levels the bcast follows by the number of chunks.
        if let Some(index) = index.checked_sub(behind.min(count)) {
            let chunk = shape.output(up.chunks.get(index));
            if let Some(parent) = up.family.parent {
                up.program.receive(parent, chunk);
            }
            for &child in up.family.children.iter().rev() {
                up.program.send(child, chunk);
            }
        }
        up.program.next_round();
    }
    up.program.finish()
}

/// The way up of one rank.
struct Up<'a> {
    shape: &'a Shape<'a>,
    family: Family,
    /// Whether the result stays here, in the output.
    last: bool,
    chunks: Chunks,
    pool: Pool,
    program: Builder,
}

impl<'a> Up<'a> {
    fn new(shape: &'a Shape<'a>, chunks: Chunks, family: Family, last: bool) -> Self {
        let peers = family.children.len();
        let mut program = Builder::with_capacity(chunks.len() * (2 * peers + 2));
        let places = if peers > 0 { places(shape, peers, chunks.longest(), chunks.len()) } else { 0 };
        let pool = Pool::new(&mut program, places, chunks.longest());
        Self { shape, family, last, chunks, pool, program }
    }

    /// Combines the rank's own chunk with its children's, the own one on the left, and hands the result on.
    fn chunk(&mut self, index: usize) {
        let range = self.chunks.get(index);
        let mut partial = self.shape.operand(range.clone());
        for &child in &self.family.children {
            let theirs = self.pool.take(range.len());
            self.program.receive(child, theirs);
            let into = if self.last { self.shape.output(range.clone()) } else { theirs };
            self.program.reduce(partial, theirs, into);
            partial = into;
        }
        match self.family.parent {
            Some(parent) => {
                self.program.send(parent, partial);
            }
            None => keep(&mut self.program, partial, self.shape.output(range)),
        }
    }
}

/// All ranks send to the root, which combines in rank order.
fn linear(shape: &Shape<'_>) -> Schedule {
    let chunks = Tree::Linear.chunks(shape);
    let mut program = Builder::new();
    if shape.rank != shape.root {
        for index in 0..chunks.len() {
            program.send(shape.root, shape.operand(chunks.get(index)));
            program.next_round();
        }
        return program.finish();
    }
    let peers = shape.size - 1;
    let places = places(shape, peers, chunks.longest(), chunks.len());
    let mut pool = Pool::new(&mut program, if peers > 0 { places } else { 0 }, chunks.longest());
    for index in 0..chunks.len() {
        let range = chunks.get(index);
        let mut partial = None;
        for rank in 0..shape.size {
            let operand = if rank == shape.root {
                shape.operand(range.clone())
            } else {
                let theirs = pool.take(range.len());
                program.receive(rank, theirs);
                theirs
            };
            // In place, the output holds the root's operand until that is combined.
            let into = if shape.in_place && rank < shape.root { operand } else { shape.output(range.clone()) };
            partial = Some(match partial {
                None => operand,
                Some(left) => {
                    program.reduce(left, operand, into);
                    into
                }
            });
        }
        if let Some(result) = partial {
            keep(&mut program, result, shape.output(range));
        }
        program.next_round();
    }
    program.finish()
}

/// Puts a result that nobody was combined with where it belongs.
fn keep(program: &mut Builder, result: Span, output: Span) {
    if result != output {
        program.copy(result, output);
    }
}

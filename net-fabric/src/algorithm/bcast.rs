//! Bcast down a tree, chunk by chunk (Luo's dissertation, algorithms 1 and 3).

use super::Shape;
use super::tree::Tree;
use crate::schedule::{Builder, Schedule};

/// Each chunk comes from the parent and goes on to the children, the one with the largest tree first.
pub(super) fn build(shape: &Shape<'_>, tree: Tree) -> Schedule {
    let family = tree.family(shape, shape.root);
    let chunks = tree.chunks(shape);
    let mut program = Builder::with_capacity(chunks.len() * (1 + family.children.len()));
    for index in 0..chunks.len() {
        let chunk = shape.output(chunks.get(index));
        if let Some(parent) = family.parent {
            program.receive(parent, chunk);
        }
        for &child in family.children.iter().rev() {
            program.send(child, chunk);
        }
        program.next_round();
    }
    program.finish()
}

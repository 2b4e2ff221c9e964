//! Barriers.

use super::Shape;
use super::tree::Tree;
use crate::schedule::{Buffer, Builder, Schedule, Span};

const NOTHING: Span = Span { buffer: Buffer::Scratch, start: 0, bytes: 0 };

/// By dissemination: in round i each rank tells the one 2^i later what it knows, so that after log2(n) rounds it knows
/// of all that they have come. What it knows is all that it has heard before: a later message may well arrive before an
/// earlier one.
pub(super) fn build(shape: &Shape<'_>) -> Schedule {
    let mut program = Builder::new();
    let mut heard = Vec::new();
    let mut distance = 1;
    while distance < shape.size {
        for &step in &heard {
            program.after(step);
        }
        let (to, of) = (shape.rank + distance, shape.rank + shape.size - distance);
        heard.push(program.exchange(to % shape.size, NOTHING, of % shape.size, NOTHING));
        program.next_round();
        distance *= 2;
    }
    program.finish()
}

/// Up and down a tree below rank 0: twice as many messages as there are other ranks, fewer than by dissemination, but
/// up to twice as many steps.
pub(super) fn tree(shape: &Shape<'_>, tree: Tree) -> Schedule {
    let family = tree.family(shape, 0);
    let mut program = Builder::new();
    let mut known: Vec<u32> = family.children.iter().map(|&child| program.receive(child, NOTHING)).collect();
    program.next_round();
    if let Some(parent) = family.parent {
        known.drain(..).for_each(|step| program.after(step));
        program.send(parent, NOTHING);
        known = vec![program.receive(parent, NOTHING)];
        program.next_round();
    }
    for &child in family.children.iter().rev() {
        known.iter().for_each(|&step| program.after(step));
        program.send(child, NOTHING);
    }
    program.finish()
}

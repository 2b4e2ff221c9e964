//! Rabenseifner's allreduce: reduce-scatter by recursive halving, allgather by recursive doubling, for any number
//! of ranks. Ranks beyond a power of two hand their operands to a neighbour first, and get the result at the end.
//!
//! Neighbours exchange first, with the longest halves, so that operands meet in rank order.

use std::ops::Range;

use super::Shape;
use super::chunks::{Chunks, MOST};
use super::doubling::Core;
use super::pieces::{Part, Pool, exchange, places};
use crate::schedule::{Builder, Schedule};

pub(super) fn build(shape: &Shape<'_>) -> Schedule {
    let mut program = Builder::new();
    allreduce(&mut program, shape, None, 0..shape.bytes, shape.in_place);
    program.finish()
}

/// Allreduce of some bytes of the vector among the shape's ranks, which are `members` where that is given. `in_output`
/// says whether the operands are where the results will be.
pub(super) fn allreduce(
    program: &mut Builder,
    shape: &Shape<'_>,
    members: Option<&[u32]>,
    whole: Range<usize>,
    in_output: bool,
) {
    let rounds = shape.size.ilog2() as usize;
    let chunks = |range: Range<usize>| Chunks::new(range, shape.element_bytes, shape.chunk_bytes, MOST / 4);
    let core = Core::new(shape);
    let output = |range: Range<usize>| shape.output(range);
    let operand = |range: Range<usize>| if in_output { shape.output(range) } else { shape.operand(range) };
    let rank = |number: usize| members.map_or(number, |members| members[number] as usize);
    let own = match core {
        Core::Outside { partner } => {
            for_each(chunks(whole.clone()), |range| {
                program.send(rank(partner), operand(range));
            });
            program.next_round();
            for_each(chunks(whole), |range| {
                program.receive(rank(partner), output(range));
            });
            return;
        }
        Core::Inside { own, .. } => own,
    };
    let longest = chunks(whole.clone()).longest();
    let count = if shape.size > 1 { places(shape, 1, longest, chunks(whole.clone()).len()) } else { 0 };
    let mut pool = Pool::new(program, count, longest);
    // Where the rank's own share of the operands is.
    let mut moved = in_output;
    if let Core::Inside { partner: Some(partner), .. } = core {
        for_each(chunks(whole.clone()), |range| {
            let theirs = pool.take(range.len());
            program.receive(rank(partner), theirs);
            program.reduce(operand(range.clone()), theirs, output(range));
        });
        program.next_round();
        moved = true;
    }
    // The regions that are given away, with whom they are exchanged.
    let mut given = Vec::with_capacity(rounds);
    let mut region = whole.clone();
    for round in 0..rounds {
        let other = own ^ (1 << round);
        let peer = rank(core.rank(shape, other));
        let middle = region.start + region.len() / shape.element_bytes.max(1) / 2 * shape.element_bytes;
        let (lower, upper) = (region.start..middle, middle..region.end);
        let (kept, sent) = if own < other { (lower, upper) } else { (upper, lower) };
        let from = |range: Range<usize>| if moved { output(range) } else { operand(range) };
        exchange(
            program,
            Some(Part { peer, chunks: chunks(sent.clone()) }),
            Some(Part { peer, chunks: chunks(kept.clone()) }),
            from,
            |range| pool.take(range.len()),
            |program, range, theirs| {
                let partial = from(range.clone());
                let (left, right) = if own < other { (partial, theirs) } else { (theirs, partial) };
                program.reduce(left, right, output(range));
            },
        );
        program.next_round();
        (moved, region) = (true, kept);
        given.push((peer, sent));
    }
    if !moved {
        for_each(chunks(whole.clone()), |range| {
            program.copy(operand(range.clone()), output(range));
        });
    }
    for (peer, theirs) in given.into_iter().rev() {
        let parts = [region.clone(), theirs.clone()].map(|range| Some(Part { peer, chunks: chunks(range) }));
        exchange(program, parts[0], parts[1], output, |range| output(range.clone()), |_, _, _| {});
        program.next_round();
        region = region.start.min(theirs.start)..region.end.max(theirs.end);
    }
    if let Core::Inside { partner: Some(partner), .. } = core {
        for_each(chunks(whole), |range| {
            program.send(rank(partner), output(range));
        });
    }
}

fn for_each(chunks: Chunks, act: impl FnMut(Range<usize>)) {
    (0..chunks.len()).map(|index| chunks.get(index)).for_each(act);
}

//! Allreduce of long vectors in a ring: bucket reduce-scatter (`heimlich-reduce-scatter`, section 4.2), then the
//! blocks go round once more. Each rank sends 2 (n - 1) / n of the vector, the least that is possible.

use std::ops::Range;

use super::Shape;
use super::chunks::{Chunks, MOST, block};
use super::pieces::{Part, Pool, exchange, places};
use crate::schedule::{Builder, Schedule};

/// A block starts with the operand of the rank behind its owner, and collects the others' on its way to it.
pub(super) fn allreduce(shape: &Shape<'_>) -> Schedule {
    let Shape { rank, size, bytes, element_bytes, .. } = *shape;
    let chunks = |index: usize| {
        let range = block(bytes, element_bytes, size, index);
        Chunks::new(range, element_bytes, shape.chunk_bytes, (MOST / size).max(1))
    };
    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
    let (longest, steps) = (chunks(0).longest(), size - 1);
    // With fewer elements than ranks most blocks are empty. The last one may hold what is no whole element.
    let elements = bytes / element_bytes.max(1);
    let is_empty = |index: usize| index >= elements && index + 1 != size;
    let mut program = Builder::with_capacity(5 * steps.min(elements + 2) * chunks(0).len() + 1);
    if size == 1 {
        if !shape.in_place {
            program.copy(shape.operand(0..bytes), shape.output(0..bytes));
        }
        return program.finish();
    }
    let places = places(shape, 1, longest, chunks(0).len() * steps);
    let mut pool = Pool::new(&mut program, places, longest);
    // The block that this rank sends, and behind it the one that it gets: each step goes one back.
    let behind = |index: usize| if index == 0 { size - 1 } else { index - 1 };
    let mut index = behind(rank);
    for step in 0..steps {
        let (sent, received) = (index, behind(index));
        index = received;
        if !(is_empty(sent) && is_empty(received)) {
            let from = |range: Range<usize>| if step == 0 { shape.operand(range) } else { shape.output(range) };
            exchange(
                &mut program,
                Some(Part { peer: next, chunks: chunks(sent) }),
                Some(Part { peer: before, chunks: chunks(received) }),
                from,
                |range| pool.take(range.len()),
                |program, range, theirs| {
                    program.reduce(theirs, shape.operand(range.clone()), shape.output(range));
                },
            );
        }
        program.next_round();
    }
    // After a round but one it stands at the rank's own block again, which is complete.
    for _ in 0..steps {
        let (sent, received) = (index, behind(index));
        index = received;
        if !(is_empty(sent) && is_empty(received)) {
            let output = |range: Range<usize>| shape.output(range);
            exchange(
                &mut program,
                Some(Part { peer: next, chunks: chunks(sent) }),
                Some(Part { peer: before, chunks: chunks(received) }),
                output,
                |range| output(range.clone()),
                |_, _, _| {},
            );
        }
        program.next_round();
    }
    program.finish()
}

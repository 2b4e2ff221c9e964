//! Bcast of long vectors: blocks are scattered along a binomial tree, then gathered by all. Each rank sends and
//! receives about twice the vector at most, however many ranks there are.

use std::ops::Range;

use super::Shape;
use super::chunks::{Chunks, MOST, block};
use super::pieces::{Part, exchange};
use crate::schedule::{Builder, Schedule};

/// A rank's view, with ranks and blocks numbered from the root.
struct Scatter<'a> {
    shape: &'a Shape<'a>,
    place: usize,
}

impl Scatter<'_> {
    fn rank(&self, place: usize) -> usize {
        (place + self.shape.root) % self.shape.size
    }

    /// The chunks of consecutive blocks.
    fn chunks(&self, blocks: Range<usize>) -> Chunks {
        let Shape { size, bytes, element_bytes, .. } = *self.shape;
        let border = |index: usize| if index < size { block(bytes, element_bytes, size, index).start } else { bytes };
        let bytes = border(blocks.start)..border(blocks.end);
        let most = (MOST / size).max(1) * blocks.len();
        Chunks::new(bytes, element_bytes, self.shape.chunk_bytes, most)
    }

    /// The blocks that a place gets from the tree, which the ranks below it need.
    fn scattered(&self, place: usize) -> Range<usize> {
        let size = self.shape.size;
        let reach = if place == 0 { size } else { place & place.wrapping_neg() };
        place..size.min(place + reach)
    }

    fn scatter(&self, program: &mut Builder) {
        let own = self.scattered(self.place);
        if self.place > 0 {
            let parent = self.rank(self.place & (self.place - 1));
            let chunks = self.chunks(own.clone());
            for index in 0..chunks.len() {
                program.receive(parent, self.shape.output(chunks.get(index)));
            }
        }
        let weights = (0..usize::BITS).map(|bit| 1usize << bit).take_while(|&weight| weight < own.len());
        for weight in weights.collect::<Vec<_>>().into_iter().rev() {
            let child = self.place + weight;
            let chunks = self.chunks(self.scattered(child));
            for index in 0..chunks.len() {
                program.send(self.rank(child), self.shape.output(chunks.get(index)));
            }
        }
        program.next_round();
    }

    /// One exchange of blocks within the outputs.
    fn exchange(&self, program: &mut Builder, sent: (usize, Range<usize>), received: (usize, Range<usize>)) {
        let part = |(peer, blocks): (usize, Range<usize>)| {
            (!blocks.is_empty()).then(|| Part { peer: self.rank(peer), chunks: self.chunks(blocks) })
        };
        let output = |range: Range<usize>| self.shape.output(range);
        exchange(program, part(sent), part(received), output, |range| output(range.clone()), |_, _, _| {});
    }
}

fn start<'a>(shape: &'a Shape<'a>) -> (Scatter<'a>, Builder) {
    let scatter = Scatter { shape, place: (shape.rank + shape.size - shape.root) % shape.size };
    let mut program = Builder::new();
    scatter.scatter(&mut program);
    (scatter, program)
}

/// The blocks are passed around a ring. A block that the tree has left with the next rank is not sent again.
pub(super) fn ring(shape: &Shape<'_>) -> Schedule {
    let (scatter, mut program) = start(shape);
    let (size, place) = (shape.size, scatter.place);
    let (next, before) = ((place + 1) % size, (place + size - 1) % size);
    for step in 0..size - 1 {
        let missing =
            |place: usize, block: usize| block..block + usize::from(!scatter.scattered(place).contains(&block));
        let sent = missing(next, (place + size - step) % size);
        let received = missing(place, (before + size - step) % size);
        scatter.exchange(&mut program, (next, sent), (before, received));
        program.next_round();
    }
    program.finish()
}

/// The blocks are gathered over doubling distances: a rank that has d blocks from its own on gets up to d more
/// from the rank that comes d later, less those that the tree has left with it.
pub(super) fn doubling(shape: &Shape<'_>) -> Schedule {
    let (scatter, mut program) = start(shape);
    let (size, place) = (shape.size, scatter.place);
    let mut distance = 1;
    while distance < size {
        // Blocks that the one at `place` lacks, counted from its own on without end.
        let lacks = |place: usize| {
            let has = scatter.scattered(place).len();
            place + has.max(distance)..place + size.min(2 * distance).max(has)
        };
        let (to, of) = ((place + size - distance) % size, (place + distance) % size);
        // Round the end of the vector there are two pieces.
        let pieces = |blocks: Range<usize>| {
            let cut = |block: usize| block.min(size);
            let behind = |block: usize| block.max(size) - size;
            [cut(blocks.start)..cut(blocks.end), behind(blocks.start)..behind(blocks.end)]
        };
        for (sent, received) in pieces(lacks(to)).into_iter().zip(pieces(lacks(place))) {
            scatter.exchange(&mut program, (to, sent), (of, received));
        }
        program.next_round();
        distance *= 2;
    }
    program.finish()
}

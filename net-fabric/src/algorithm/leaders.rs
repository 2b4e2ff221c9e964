//! Allreduce of long vectors by several leaders of each node: each leader gets a slice of the vector from all ranks of its
//! node and sums it, the leaders of one slice do an allreduce across the nodes, all slices at once, and the results
//! go to all ranks of the node. So a node's door is used by several ranks, and their processors share the sums.
//!
//! Nodes may be unequal: each has at most as many leaders as the smallest has ranks.

use std::ops::Range;

use super::Shape;
use super::chunks::{Chunks, MOST, block};
use super::pieces::{Part, Pool, exchange, places};
use super::rabenseifner;
use crate::schedule::{Builder, Schedule, Span};

/// A rank among those of its node.
struct Node<'a> {
    shape: &'a Shape<'a>,
    members: &'a [u32],
    local: usize,
    /// Slices, each of which the rank of that number leads.
    slices: usize,
}

pub(super) fn build(shape: &Shape<'_>, leaders: u32) -> Schedule {
    let topology = shape.topology.expect("checked with the shape");
    let (node, local) = topology.seat(shape.rank);
    let slices = (leaders as usize).min(topology.least_node());
    let here = Node { shape, members: &topology.nodes()[node], local, slices };
    let mut program = Builder::new();
    here.reduce_scatter(&mut program);
    if local < slices {
        let group: Vec<u32> = topology.nodes().iter().map(|node| node[local]).collect();
        let among = Shape { rank: node, size: group.len(), ..*shape };
        let summed = here.members.len() > 1 || shape.in_place;
        rabenseifner::allreduce(&mut program, &among, Some(&group), here.slice(local), summed);
        program.next_round();
    }
    here.allgather(&mut program);
    program.finish()
}

impl Node<'_> {
    fn slice(&self, index: usize) -> Range<usize> {
        block(self.shape.bytes, self.shape.element_bytes, self.slices, index)
    }

    /// What is sent to or received from the rank with that number, if there is a slice.
    fn part(&self, number: usize, slice: usize) -> Option<Part> {
        let most = (MOST / self.members.len()).max(1);
        let chunks = Chunks::new(self.slice(slice), self.shape.element_bytes, self.shape.chunk_bytes, most);
        (slice < self.slices).then(|| Part { peer: self.members[number] as usize, chunks })
    }

    /// The ranks at a distance before and behind this one, in a circle.
    fn neighbours(&self, distance: usize) -> (usize, usize) {
        let count = self.members.len();
        ((self.local + distance) % count, (self.local + count - distance) % count)
    }

    /// Each leader gets its slice from one rank after the other, those before it first, from the nearest to the first,
    /// then those behind it, from the last to the nearest: each comes on the left of what came before it on its side.
    fn reduce_scatter(&self, program: &mut Builder) {
        let Self { shape, members, local, .. } = *self;
        let count = members.len();
        let own = self.part(local, local).map(|part| part.chunks);
        let (longest, pieces) = own.map_or((0, 0), |chunks| (chunks.longest(), chunks.len()));
        let has_some = pieces > 0 && count > 1;
        let places = if has_some { places(shape, 1, longest, pieces * (count - 1)) } else { 0 };
        let mut pool = Pool::new(program, places, longest);
        // What those behind this rank sum up to.
        let after = program.scratch(if has_some && local + 2 < count { self.slice(local).len() } else { 0 });
        let after = |range: &Range<usize>| -> Span { after.part(range.start - self.slice(local).start, range.len()) };
        for distance in 1..count {
            let (to, of) = self.neighbours(distance);
            let (is_before, is_last) = (distance <= local, distance + 1 == count);
            exchange(
                program,
                self.part(to, to),
                self.part(of, local),
                |range| shape.operand(range),
                |range| if distance == local + 1 && !is_last { after(range) } else { pool.take(range.len()) },
                |program, range, theirs| {
                    let output = shape.output(range.clone());
                    let summed = if local > 0 && distance > 1 { output } else { shape.operand(range.clone()) };
                    match (is_before, is_last) {
                        (true, _) => _ = program.reduce(theirs, summed, output),
                        (false, false) if distance == local + 1 => {}
                        (false, false) => _ = program.reduce(theirs, after(&range), after(&range)),
                        (false, true) if distance == local + 1 => _ = program.reduce(summed, theirs, output),
                        (false, true) => {
                            program.reduce(theirs, after(&range), after(&range));
                            program.reduce(summed, after(&range), output);
                        }
                    }
                },
            );
            program.next_round();
        }
    }

    /// Each leader sends its result to all others of the node.
    fn allgather(&self, program: &mut Builder) {
        let output = |range: Range<usize>| self.shape.output(range);
        for distance in 1..self.members.len() {
            let (to, of) = self.neighbours(distance);
            let (sent, received) = (self.part(to, self.local), self.part(of, of));
            exchange(program, sent, received, output, |range| output(range.clone()), |_, _, _| {});
            program.next_round();
        }
    }
}

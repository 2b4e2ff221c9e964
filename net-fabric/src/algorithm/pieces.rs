//! What several algorithms are made of.

use super::Shape;
use super::chunks::Chunks;
use crate::schedule::{Builder, Span};

/// Scratch memory for chunks, handed out in turns. A chunk's place is taken again by the one that comes as many
/// later as there are places; the builder makes that one wait until the place is free.
pub(super) struct Pool {
    places: Vec<Span>,
    next: usize,
}

impl Pool {
    /// Places for `count` chunks of at most `bytes` bytes.
    pub(super) fn new(program: &mut Builder, count: usize, bytes: usize) -> Self {
        Self { places: (0..count).map(|_| program.scratch(bytes)).collect(), next: 0 }
    }

    /// The next place, cut to `bytes` bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Span {
        let place = self.places[self.next].part(0, bytes);
        self.next = (self.next + 1) % self.places.len();
        place
    }
}

/// The bytes of a vector that a rank sends to, or gets from, a peer in one go, chunk by chunk.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) peer: usize,
    pub(super) chunks: Chunks,
}

/// Sends some chunks and receives others at once, in lockstep with the peers. What is sent and received where,
/// and what is done with what was received, the functions say; they get the chunks' bytes in the vector.
pub(super) fn exchange(
    program: &mut Builder,
    sent: Option<Part>,
    received: Option<Part>,
    from: impl Fn(std::ops::Range<usize>) -> Span,
    mut into: impl FnMut(&std::ops::Range<usize>) -> Span,
    mut then: impl FnMut(&mut Builder, std::ops::Range<usize>, Span),
) {
    let len = |part: Option<Part>| part.map_or(0, |part| part.chunks.len());
    let at = |part: Option<Part>, index| {
        part.filter(|part| index < part.chunks.len()).map(|part| (part.peer, part.chunks.get(index)))
    };
    for index in 0..len(sent).max(len(received)) {
        match (at(sent, index), at(received, index)) {
            (Some((to, out)), Some((of, range))) => {
                let place = into(&range);
                program.exchange(to, from(out), of, place);
                then(program, range, place);
            }
            (Some((to, out)), None) => {
                program.send(to, from(out));
            }
            (None, Some((of, range))) => {
                let place = into(&range);
                program.receive(of, place);
                then(program, range, place);
            }
            (None, None) => {}
        }
    }
}

/// How many places a pool needs so that `slots` receives from each of `peers` peers can be under way, within
/// bounds: no more than chunks come, no more than 16 MiB unless two places are more than that already.
pub(super) fn places(shape: &Shape<'_>, peers: usize, chunk_bytes: usize, chunks: usize) -> usize {
    const BUDGET: usize = 16 << 20;
    let wanted = shape.slots.max(1).saturating_mul(peers).min(chunks.saturating_mul(peers));
    wanted.min(BUDGET / chunk_bytes.max(1)).max(2)
}

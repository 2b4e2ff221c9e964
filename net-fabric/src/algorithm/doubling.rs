//! Allreduce by recursive doubling (`nap-allreduce`, section II), for any number of ranks.
//!
//! With 2^k ranks, each exchanges its partial result with the one whose number differs in bit i, for i from 0: after
//! i rounds it has that of 2^i neighbouring ranks, so operands come in rank order, and partners compute the same.
//! Of other numbers, the first ranks go in pairs: the upper one hands its operand to the lower one and gets the
//! result at the end.

use super::Shape;
use super::chunks::{Chunks, MOST};
use crate::schedule::{Builder, Schedule, Span};

/// Up to so many bytes of scratch, each round has its own, and receives need not wait for earlier rounds.
const AMPLE_BYTES: usize = 1 << 20;

/// A rank's part in algorithms for 2^k ranks, when there are more: the largest such number of ranks is the core.
#[derive(Debug, Clone, Copy)]
pub(super) enum Core {
    /// It hands its operand to its partner, the rank before it.
    Outside { partner: usize },
    /// It has a number in the core, and perhaps a partner, the rank behind it.
    Inside { own: usize, partner: Option<usize> },
}

impl Core {
    pub(super) fn new(shape: &Shape<'_>) -> Self {
        let (rank, pairs) = (shape.rank, pairs(shape));
        match rank {
            _ if rank >= 2 * pairs => Self::Inside { own: rank - pairs, partner: None },
            _ if rank % 2 == 0 => Self::Inside { own: rank / 2, partner: Some(rank + 1) },
            _ => Self::Outside { partner: rank - 1 },
        }
    }

    /// The rank with this number in the core.
    pub(super) fn rank(self, shape: &Shape<'_>, number: usize) -> usize {
        let pairs = pairs(shape);
        if number < pairs { 2 * number } else { number + pairs }
    }
}

/// Ranks beyond the largest power of two.
fn pairs(shape: &Shape<'_>) -> usize {
    shape.size - (1 << shape.size.ilog2())
}

pub(super) fn build(shape: &Shape<'_>) -> Schedule {
    let chunks = chunks(shape);
    let mut program = Builder::with_capacity(chunks.len() * 3 * rounds(shape));
    let doubling = Doubling::new(&mut program, shape, None, shape.size, chunks);
    for index in 0..chunks.len() {
        let range = chunks.get(index);
        doubling.chunk(&mut program, index, shape.operand(range.clone()), shape.output(range));
        program.next_round();
    }
    program.finish()
}

/// Rounds of a chunk, and one in which nothing is received.
fn rounds(shape: &Shape<'_>) -> usize {
    shape.size.ilog2() as usize + 2
}

/// The chunks of a vector that goes through all rounds.
pub(super) fn chunks(shape: &Shape<'_>) -> Chunks {
    Chunks::new(0..shape.bytes, shape.element_bytes, shape.chunk_bytes, MOST / rounds(shape))
}

/// The doubling of a rank, in a program that may do more.
pub(super) struct Doubling<'a> {
    /// Of those that take part: the rank is one's number among them.
    shape: Shape<'a>,
    /// Their ranks, if not all take part.
    members: Option<&'a [u32]>,
    /// So many of them, from the first on, want the result.
    wanted: usize,
    core: Core,
    /// Lanes for chunks that are under way together, each of some slots.
    scratch: Vec<Span>,
    slots: usize,
    lanes: usize,
}

impl<'a> Doubling<'a> {
    pub(super) fn new(
        program: &mut Builder,
        shape: &Shape<'a>,
        members: Option<&'a [u32]>,
        wanted: usize,
        chunks: Chunks,
    ) -> Self {
        let rounds = rounds(shape);
        let core = Core::new(shape);
        let slots = if chunks.longest() * rounds * shape.slots <= AMPLE_BYTES { rounds } else { 2 };
        let lanes = shape.slots.clamp(1, chunks.len().max(1));
        let places = if shape.size > 1 && matches!(core, Core::Inside { .. }) { slots * lanes } else { 0 };
        let scratch = (0..places).map(|_| program.scratch(chunks.longest())).collect();
        Self { shape: *shape, members, wanted, core, scratch, slots, lanes }
    }

    /// Combines one chunk of all that take part.
    pub(super) fn chunk(&self, program: &mut Builder, index: usize, input: Span, output: Span) {
        match self.core {
            Core::Outside { partner } => {
                let partner = self.rank(partner);
                program.send(partner, input);
                if self.shape.rank < self.wanted {
                    program.receive(partner, output);
                }
            }
            Core::Inside { .. } if self.shape.size == 1 => {
                if input != output {
                    program.copy(input, output);
                }
            }
            Core::Inside { own, partner } => {
                let lane = &self.scratch[index % self.lanes * self.slots..][..self.slots];
                self.inside(program, (own, partner), (input, output), lane);
            }
        }
    }

    /// All rounds of one chunk on a rank of the core.
    fn inside(
        &self,
        program: &mut Builder,
        (own, partner): (usize, Option<usize>),
        (input, output): (Span, Span),
        scratch: &[Span],
    ) {
        let rounds = self.shape.size.ilog2() as usize;
        let partner = partner.map(|partner| self.rank(partner));
        let mut partial = input;
        if let Some(partner) = partner {
            let theirs = scratch[scratch.len() - 1].part(0, input.bytes);
            program.receive(partner, theirs);
            program.reduce(partial, theirs, theirs);
            partial = theirs;
        }
        for round in 0..rounds {
            program.next_round();
            let other = own ^ (1 << round);
            let peer = self.rank(self.core.rank(&self.shape, other));
            let theirs = scratch[round % scratch.len()].part(0, input.bytes);
            match (self.is_of_use(round, own), self.is_of_use(round, other)) {
                (true, true) => program.exchange(peer, partial, peer, theirs),
                (true, false) => program.receive(peer, theirs),
                (false, true) => {
                    program.send(peer, partial);
                    return;
                }
                (false, false) => return,
            };
            let into = if round + 1 == rounds { output } else { theirs };
            let (left, right) = if own < other { (partial, theirs) } else { (theirs, partial) };
            program.reduce(left, right, into);
            partial = into;
        }
        if let Some(partner) = partner
            && self.shape.rank + 1 < self.wanted
        {
            program.next_round();
            program.send(partner, output);
        }
    }

    /// Whether what one of the core has after a round leads to a result that is wanted: the least number that it reaches
    /// in the rounds to come is the one without the bits of these rounds.
    fn is_of_use(&self, round: usize, number: usize) -> bool {
        self.core.rank(&self.shape, number & ((2 << round) - 1)) < self.wanted
    }

    /// The rank of the one with this number.
    fn rank(&self, number: usize) -> usize {
        self.members.map_or(number, |members| members[number] as usize)
    }
}

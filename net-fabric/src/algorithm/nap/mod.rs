//! Node-aware parallel allreduce (`nap-allreduce`, section III): between nodes all ranks of a node send, each to
//! another node, so that a step joins as many groups of nodes as a node has ranks; between these steps the ranks of each
//! node combine what they received.
//!
//! The ranks of a node have received the results of neighbouring groups in the groups' order, and one of them has the
//! node's own. So nothing is counted twice, operands meet in rank order if ranks are placed in order, and all nodes
//! compute the same expression. (Equation 6, and the algorithm as printed, have a reduction more in each step: there
//! every rank combines what it received with what its node had, and a sum would have that as often as there are ranks.)
//!
//! As many ranks of each node take part between nodes as the smallest node has; all take part on their node. Where that
//! is one rank, this is the way of the leaders, [`super::smp`], which with one rank on every node is recursive
//! doubling.

mod steps;

pub use steps::{Exchange, Seat, steps};

use super::Shape;
use super::chunks::{Chunks, MOST};
use super::doubling::Doubling;
use super::{Topology, smp};
use crate::schedule::{Builder, Schedule, Span};

pub(super) fn build(shape: &Shape<'_>) -> Schedule {
    let topology = shape.topology.expect("checked with the shape");
    let (nodes, width) = (topology.nodes().len(), topology.least_node());
    if nodes > 1 && width == 1 {
        return smp::build(shape);
    }
    let (node, local) = topology.seat(shape.rank);
    let exchanges = steps(nodes, width, node, local);
    let members = &topology.nodes()[node];
    // Of a node's rounds, and one between nodes, in every step; the same on all nodes.
    let rounds = (topology.most_node().ilog2() as usize + 4) * (nodes.ilog(width.max(2)) as usize + 2);
    let chunks = Chunks::new(0..shape.bytes, shape.element_bytes, shape.chunk_bytes, (MOST / rounds).max(1));
    let mut program = Builder::with_capacity(chunks.len() * 3 * rounds);
    // Until the last step the result is for those who need it in the next.
    let wanted = |step: usize| exchanges.get(step).map_or(members.len(), |exchange| exchange.needed_by);
    let own = (members.as_slice(), local);
    let at_first = Local::new(&mut program, shape, own, (members.len(), wanted(0)), chunks);
    let later: Vec<_> = (1..)
        .zip(&exchanges)
        .map(|(next, &exchange)| Step::new(&mut program, shape, exchange, wanted(next), chunks))
        .collect();
    for index in 0..chunks.len() {
        let range = chunks.get(index);
        let output = shape.output(range.clone());
        at_first.chunk(&mut program, index, shape.operand(range), output);
        for step in &later {
            program.next_round();
            step.chunk(&mut program, index, output, topology);
        }
        program.next_round();
    }
    program.finish()
}

/// A step between nodes and what follows on the node.
struct Step<'a> {
    exchange: Exchange,
    /// Where what is received goes, chunk by chunk in turns.
    places: Vec<Span>,
    local: Local<'a>,
}

impl<'a> Step<'a> {
    fn new(program: &mut Builder, shape: &Shape<'a>, exchange: Exchange, wanted: usize, chunks: Chunks) -> Self {
        let topology = shape.topology.expect("checked with the shape");
        let (node, local) = topology.seat(shape.rank);
        let count = if exchange.from.is_some() { shape.slots.clamp(1, chunks.len().max(1)) } else { 0 };
        let places = (0..count).map(|_| program.scratch(chunks.longest())).collect();
        let local = Local::new(program, shape, (&topology.nodes()[node], local), (exchange.parts, wanted), chunks);
        Self { exchange, places, local }
    }

    fn chunk(&self, program: &mut Builder, index: usize, output: Span, topology: &Topology) {
        let rank = |seat: Seat| topology.nodes()[seat.node][seat.local] as usize;
        let place = || self.places[index % self.places.len()].part(0, output.bytes);
        let operand = match (self.exchange.to.map(rank), self.exchange.from.map(rank)) {
            (Some(to), Some(from)) => {
                let theirs = place();
                program.exchange(to, output, from, theirs);
                theirs
            }
            (None, Some(from)) => {
                let theirs = place();
                program.receive(from, theirs);
                theirs
            }
            (to, None) => {
                if let Some(to) = to {
                    program.send(to, output);
                }
                output
            }
        };
        program.next_round();
        self.local.chunk(program, index, operand, output);
    }
}

/// Allreduce on a node of what its first ranks have, for its first ranks: they double, then each who has the result
/// hands it to one who wants it, until all have it.
struct Local<'a> {
    doubling: Option<Doubling<'a>>,
    /// Who hands the result to this rank, if that does not double.
    source: Option<usize>,
    /// Whom it hands the result to.
    targets: Vec<usize>,
}

impl<'a> Local<'a> {
    /// The part of rank number `local` of `members`, where the first `parts` have something and the first `wanted` want
    /// the result.
    fn new(
        program: &mut Builder,
        shape: &Shape<'a>,
        (members, local): (&'a [u32], usize),
        (parts, wanted): (usize, usize),
        chunks: Chunks,
    ) -> Self {
        let doubling = (local < parts).then(|| {
            let among = Shape { size: parts, rank: local, ..*shape };
            Doubling::new(program, &among, Some(&members[..parts]), wanted, chunks)
        });
        let (mut source, mut targets) = (None, Vec::new());
        let mut holders = parts;
        let members = &members[..wanted];
        while holders < wanted {
            if (holders..wanted.min(2 * holders)).contains(&local) {
                source = Some(members[local - holders] as usize);
            }
            if local < holders {
                targets.extend(members.get(local + holders).map(|&target| target as usize));
            }
            holders *= 2;
        }
        Self { doubling, source, targets }
    }

    fn chunk(&self, program: &mut Builder, index: usize, operand: Span, output: Span) {
        if let Some(doubling) = &self.doubling {
            doubling.chunk(program, index, operand, output);
        }
        if let Some(source) = self.source {
            program.next_round();
            program.receive(source, output);
        }
        for &target in &self.targets {
            program.next_round();
            program.send(target, output);
        }
    }
}

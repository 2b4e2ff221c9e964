//! The node-aware allreduce as tasks (`nap-allreduce`, section III): `sa` on each node, then step by step an exchange between
//! nodes, of which each rank has one message at most, and a reduction on each node of what its ranks have received.
//!
//! Who exchanges with whom, also where the number of nodes is no power of the ranks on each, is
//! [`net_fabric::algorithm::nap::steps`]. In each step the first ranks of a node have a part each, in the order of the groups of
//! nodes that they are from, so operands meet in the order of the ranks. Where these are all ranks of the node, `sa` combines
//! the parts; else `sr` of these ranks alone does, and `sb` tells the others. As many ranks of each node take part between
//! nodes as the smallest has.

use net_fabric::algorithm::nap::{Exchange, Seat, steps};
use reduce_kernels::Place;

use super::build::{Builder, Piece, SLOTS};
use super::{Kind, Layout, Stream};

impl Layout {
    /// Whether all nodes have several ranks, so that these can exchange with those of other nodes, each with another one.
    #[must_use]
    pub fn has_pairs(&self) -> bool {
        self.nodes() > 1 && self.least() > 1
    }

    /// The steps of a node-aware allreduce for a rank: none without pairs.
    fn exchanges(&self, rank: usize) -> Vec<Exchange> {
        if !self.has_pairs() {
            return Vec::new();
        }
        steps(self.nodes(), self.least(), self.node_of(rank), self.local_of(rank))
    }

    /// The two ranks, in their order, one of them `rank`, that exchange in the step that `later` others follow.
    pub(crate) fn pair(&self, rank: usize, later: usize) -> Option<[usize; 2]> {
        let exchange = *self.exchanges(rank).iter().rev().nth(later)?;
        let Seat { node, local } = exchange.to.or(exchange.from)?;
        let peer = self.members(node)[local];
        Some([rank.min(peer), rank.max(peer)])
    }

    /// How many steps there are for the rank that has most.
    pub(crate) fn most_exchanges(&self) -> usize {
        (0..self.nodes()).map(|node| self.exchanges(self.members(node)[0]).len()).max().unwrap_or(0)
    }

    /// How many ranks of a node of so many have a part in a step, where these are not all: in ascending order.
    pub(crate) fn fewer_parts(&self, ranks: usize) -> Vec<usize> {
        let of_node = |node: usize| self.exchanges(self.members(node)[0]);
        let parts = (0..self.nodes()).flat_map(of_node).map(|exchange| exchange.parts);
        let fewer: std::collections::BTreeSet<usize> = parts.filter(|&parts| parts < ranks).collect();
        fewer.into_iter().collect()
    }
}

impl Builder<'_> {
    /// An allreduce, each chunk a step behind the one before, so that one is combined on the node while others travel. The two
    /// ranks of a pair, whose nodes may have had different numbers of steps before, agree on how many follow.
    pub(super) fn node_aware(&mut self, chunks: &[Piece]) {
        let exchanges = self.layout.exchanges(self.rank);
        let mut last = vec![0; chunks.len()];
        let mut received = 0;
        for wave in 0..chunks.len() + exchanges.len() {
            for chunk in wave.saturating_sub(exchanges.len())..chunks.len().min(wave + 1) {
                let piece = &chunks[chunk];
                last[chunk] = match (wave - chunk).checked_sub(1) {
                    None => self.task(Kind::Sa, piece, Stream::Up, 0, Place::Send, Some(Place::Recv), [None; 2]),
                    Some(step) => {
                        received += 1;
                        let (later, slot) = (exchanges.len() - 1 - step, received % SLOTS);
                        self.step(piece, &exchanges[step], (later, slot), last[chunk])
                    }
                };
            }
        }
    }

    /// What follows `last` in a step; the number of its last task.
    fn step(&mut self, chunk: &Piece, exchange: &Exchange, (later, slot): (usize, usize), last: usize) -> usize {
        let recv = Place::Recv;
        // What it has been given is read in place of the node's own, which may still be on its way.
        let (mut part, mut after) = (recv, [Some(last), None]);
        let pair = self.layout.pair(self.rank, later);
        for root in (0..2).filter(|_| pair.is_some()) {
            let is_own = pair.is_some_and(|pair| pair[root] == self.rank);
            if is_own && exchange.to.is_some() {
                let ib = self.task(Kind::Ib, chunk, Stream::Pair(later), root, recv, Some(recv), [Some(last), None]);
                after[0] = Some(ib);
            } else if !is_own && exchange.from.is_some() {
                part = self.slot(slot);
                let free = [self.slots[slot], None];
                after[1] = Some(self.task(Kind::Ib, chunk, Stream::Pair(later), root, part, Some(part), free));
            }
        }
        let (members, local) = (self.members(), self.layout.local_of(self.rank));
        let (read, last) = if exchange.parts == members {
            let sa = self.task(Kind::Sa, chunk, Stream::Up, 0, part, Some(recv), after);
            (sa, sa)
        } else {
            let to = (local == 0).then_some(recv);
            let first = Stream::First(exchange.parts);
            let sr = (local < exchange.parts).then(|| self.task(Kind::Sr, chunk, first, 0, part, to, after));
            let read = sr.unwrap_or(last);
            (read, self.task(Kind::Sb, chunk, Stream::Down, 0, recv, Some(recv), [Some(read), None]))
        };
        if part != recv {
            self.slots[slot] = Some(read);
        }
        last
    }
}

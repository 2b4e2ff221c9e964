//! Who exchanges with whom in each step of the node-aware parallel allreduce: rank arithmetic only.

/// A rank by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seat {
    /// Its node, from 0.
    pub node: usize,
    /// Its number on that node, from 0.
    pub local: usize,
}

/// What a rank does in one step: it sends what its node has, receives what other nodes have, and combines with its
/// node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// So many ranks of the node, from its first on, need what the node has so far: they send it, or have it below.
    pub needed_by: usize,
    /// Whom it sends its node's partial result to.
    pub to: Option<Seat>,
    /// Whose partial result it receives: mostly that of the same rank.
    pub from: Option<Seat>,
    /// Then this many ranks of the node, from its first on, have something each: the results of so many groups of
    /// nodes, in their order. They are combined, and all ranks of the node get the sum.
    pub parts: usize,
    /// Which of these ranks has what the node had before; the others received theirs.
    pub own: usize,
}

/// The steps of rank `local` of `node`, where `nodes` nodes have at least `width` ranks each (`nap-allreduce`, algorithm
/// III and figures 6 to 9). Before the first, the ranks of each node combine their operands.
///
/// A step joins up to `width` neighbouring groups of nodes that have the same partial result on all their ranks; at
/// first each node is such a group. A rank sends and receives one message a step at most, and there are
/// log<sub>width</sub>(`nodes`) steps, rounded up.
///
/// # Panics
/// `width` is less than 2 and there are several nodes, or there is no such node.
#[must_use]
pub fn steps(nodes: usize, width: usize, node: usize, local: usize) -> Vec<Exchange> {
    assert!(node < nodes && (width > 1 || nodes == 1), "node {node} of {nodes}, {width} ranks of each take part");
    // How many nodes the steps before the last one can join.
    let mut reach = 1;
    while nodes.div_ceil(reach) > width {
        reach *= width;
    }
    let (mut first, mut count) = (0, nodes);
    let mut exchanges = Vec::new();
    while count > 1 {
        let groups = Groups { first, count, parts: count.div_ceil(reach) };
        if groups.parts > 1 {
            exchanges.push(groups.exchange(node, local));
            let (own, _) = groups.place(node);
            (first, count) = (groups.start(own), groups.len(own));
        }
        reach = (reach / width).max(1);
    }
    exchanges.reverse();
    exchanges
}

/// Neighbouring groups of nodes that a step joins: the first ones may have a node more than the others.
#[derive(Debug, Clone, Copy)]
struct Groups {
    /// The first node.
    first: usize,
    /// Number of nodes.
    count: usize,
    /// Number of groups.
    parts: usize,
}

impl Groups {
    /// Nodes of a shorter group.
    fn least(&self) -> usize {
        self.count / self.parts
    }

    /// Groups that have a node more.
    fn longer(&self) -> usize {
        self.count % self.parts
    }

    fn len(&self, group: usize) -> usize {
        self.least() + usize::from(group < self.longer())
    }

    /// The first node of a group.
    fn start(&self, group: usize) -> usize {
        self.first + group * self.least() + group.min(self.longer())
    }

    /// The group of a node, and its position there.
    fn place(&self, node: usize) -> (usize, usize) {
        let (offset, in_longer) = (node - self.first, self.longer() * (self.least() + 1));
        if offset < in_longer {
            return (offset / (self.least() + 1), offset % (self.least() + 1));
        }
        let offset = offset - in_longer;
        (self.longer() + offset / self.least(), offset % self.least())
    }

    /// Rank r of a node in group m exchanges with rank m of the node with the same position in group r. That leaves rank
    /// m idle, and where groups differ in length also some nodes of the longer ones without a partner: those receive
    /// from idle ranks of the shorter group (figure 9). There are enough: each group has at least as many nodes as
    /// there are longer groups.
    fn exchange(&self, node: usize, local: usize) -> Exchange {
        let (own, position) = self.place(node);
        let is_extra = position == self.least();
        debug_assert!(self.longer() <= self.least(), "{self:?}");
        let (to, from) = if local == own {
            let feeds = own >= self.longer() && position < self.longer();
            (feeds.then(|| Seat { node: self.start(position) + self.least(), local }), None)
        } else if local >= self.parts {
            (None, None)
        } else if is_extra && local >= self.longer() {
            (None, Some(Seat { node: self.start(local) + own, local }))
        } else {
            let peer = Seat { node: self.start(local) + position, local: own };
            (Some(peer), Some(peer))
        };
        let needed_by = if is_extra { self.longer() } else { self.parts };
        Exchange { needed_by, to, from, parts: self.parts, own }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Global numbers of a step's peers, as the paper has them.
    fn peers(nodes: usize, ppn: usize, rank: usize, step: usize) -> (Option<usize>, Option<usize>) {
        let exchange = steps(nodes, ppn, rank / ppn, rank % ppn)[step];
        let number = |seat: Seat| seat.node * ppn + seat.local;
        (exchange.to.map(number), exchange.from.map(number))
    }

    #[test]
    fn figures_6_and_7() {
        assert_eq!(peers(4, 4, 9, 0), (Some(6), Some(6)));
        assert_eq!(peers(4, 4, 10, 0), (None, None));
        assert_eq!(peers(16, 4, 9, 1), (Some(24), Some(24)));
    }

    /// 12 nodes of 4: the last step joins three groups, and the last rank of each node has nothing to do.
    #[test]
    fn figure_8() {
        for rank in 0..48 {
            let exchanges = steps(12, 4, rank / 4, rank % 4);
            assert_eq!(exchanges.iter().map(|exchange| exchange.parts).collect::<Vec<_>>(), [4, 3]);
            if rank % 4 == 3 {
                assert_eq!(peers(12, 4, rank, 1), (None, None));
            }
        }
        assert_eq!(peers(12, 4, 1, 1), (Some(16), Some(16)));
    }

    /// 11 nodes of 4: the last nodes of the two longer groups get what the shortest one has from its idle ranks.
    #[test]
    fn figure_9() {
        assert_eq!(peers(11, 4, 34, 1), (Some(14), None));
        assert_eq!(peers(11, 4, 14, 1), (None, Some(34)));
        assert_eq!(peers(11, 4, 38, 1), (Some(30), None));
        assert_eq!(peers(11, 4, 42, 1), (None, None));
        assert_eq!(peers(11, 4, 13, 1), (Some(28), Some(28)));
    }

    #[test]
    fn every_message_is_expected_and_one_step_has_one_at_most() {
        for nodes in 1..=70 {
            for width in 2..=9 {
                let mut log = 0;
                while width_to(width, log) < nodes {
                    log += 1;
                }
                // By level from the last step on: steps in which a rank has nothing are left out by all of a group.
                for node in 0..nodes {
                    for local in 0..=width {
                        let exchanges = steps(nodes, width, node, local);
                        assert!(exchanges.len() <= log, "{nodes} nodes of {width}");
                        for (index, exchange) in exchanges.iter().enumerate() {
                            assert!((2..=width).contains(&exchange.parts) && exchange.own < exchange.parts);
                            let is_given = local < exchange.parts && local != exchange.own;
                            assert_eq!(exchange.from.is_some(), is_given, "{nodes} nodes of {width}");
                            let has_it = local == exchange.own || exchange.to.is_some();
                            assert_eq!(has_it, local < exchange.needed_by, "{nodes} nodes of {width}");
                            let me = Seat { node, local };
                            let from_end = exchanges.len() - index;
                            let same = |seat: Seat| {
                                let theirs = steps(nodes, width, seat.node, seat.local);
                                theirs[theirs.len() - from_end]
                            };
                            if let Some(to) = exchange.to {
                                assert_eq!(same(to).from, Some(me), "{nodes} nodes of {width}");
                            }
                            if let Some(from) = exchange.from {
                                assert_eq!(same(from).to, Some(me), "{nodes} nodes of {width}");
                            }
                        }
                    }
                }
            }
        }
    }

    fn width_to(width: usize, power: usize) -> usize {
        (0..power).fold(1, |product, _| product * width)
    }
}

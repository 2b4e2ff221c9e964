//! Which rank of a communicator is where: nodes, local ranks, leaders, rails.

use std::collections::HashMap;

use super::Stream;

/// The ranks of a communicator on their nodes.
///
/// Nodes are numbered in the order of their lowest ranks, the local ranks of a node in the order of their ranks. *Rail*
/// `k` joins one rank of each node: the local rank `(k + n) % p` of node `n` with `p` ranks. It steps from node to node,
/// because virtual nodes share their machine's cores in turn, and leaders should have different ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// By rank: node and local rank.
    places: Vec<(usize, usize)>,
    /// By node: its ranks.
    members: Vec<Vec<usize>>,
    /// Fewest and most ranks of a node.
    sizes: (usize, usize),
}

impl Layout {
    /// The layout of ranks on the nodes `node_of`, whose numbers may be any.
    #[must_use]
    pub fn new(node_of: &[usize]) -> Self {
        let mut seen: HashMap<usize, usize> = HashMap::new();
        let mut members: Vec<Vec<usize>> = Vec::new();
        let places = node_of.iter().enumerate().map(|(rank, &name)| {
            let node = *seen.entry(name).or_insert_with(|| {
                members.push(Vec::new());
                members.len() - 1
            });
            members[node].push(rank);
            (node, members[node].len() - 1)
        });
        let places = places.collect();
        let sizes = members.iter().fold((usize::MAX, 0), |(least, most), of| (least.min(of.len()), most.max(of.len())));
        Self { places, members, sizes }
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.places.len()
    }

    /// Number of nodes.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.members.len()
    }

    /// The node of a rank.
    #[must_use]
    pub fn node_of(&self, rank: usize) -> usize {
        self.places[rank].0
    }

    /// The place of a rank on its node.
    #[must_use]
    pub fn local_of(&self, rank: usize) -> usize {
        self.places[rank].1
    }

    /// The ranks of a node.
    #[must_use]
    pub fn members(&self, node: usize) -> &[usize] {
        &self.members[node]
    }

    /// Ranks of the node that has most: as many rails there are.
    #[must_use]
    pub fn rails(&self) -> usize {
        self.sizes.1
    }

    /// Ranks of the node that has fewest.
    #[must_use]
    pub fn least(&self) -> usize {
        self.sizes.0
    }

    /// Whether all nodes have as many ranks, so that no rank is on two rails.
    #[must_use]
    pub fn is_even(&self) -> bool {
        self.least() >= self.rails()
    }

    /// The colour of a rail: those of one colour have no rank in common, as they are less apart than any node has ranks.
    #[must_use]
    pub fn color_of(&self, rail: usize) -> usize {
        rail / self.least()
    }

    /// Colours that rails have: one where all nodes have as many ranks.
    #[must_use]
    pub fn colors(&self) -> usize {
        self.rails().div_ceil(self.least())
    }

    /// The local rank by which a node takes part in a rail.
    #[must_use]
    pub fn leader(&self, node: usize, rail: usize) -> usize {
        (rail + node) % self.members[node].len()
    }

    /// The first rail that a rank is on.
    #[must_use]
    pub fn rail_of(&self, rank: usize) -> usize {
        let (node, local) = self.places[rank];
        let ranks = self.members[node].len();
        (local + ranks - node % ranks) % ranks
    }

    /// The ranks of a rail, by node.
    #[must_use]
    pub fn rail(&self, rail: usize) -> Vec<usize> {
        (0..self.nodes()).map(|node| self.members[node][self.leader(node, rail)]).collect()
    }

    /// The ranks that do the tasks of a stream of `rank` together, in the order of their group.
    #[must_use]
    pub fn group(&self, rank: usize, stream: Stream) -> Vec<usize> {
        match stream {
            Stream::Up | Stream::Down => self.members[self.node_of(rank)].clone(),
            Stream::Rail(rail) | Stream::Back(rail) => self.rail(rail),
            Stream::First(ranks) => self.members[self.node_of(rank)][..ranks].to_vec(),
            Stream::Pair(later) => self.pair(rank, later).map_or(Vec::new(), Vec::from),
        }
    }

    /// Whether the ranks of each node follow one another, node by node: then operands that are combined on the nodes
    /// first stay in the order of the ranks.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        self.places.windows(2).all(|pair| pair[0] < pair[1])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rails_of_one_color_have_no_rank_in_common(nodes in prop::collection::vec(0_usize..4, 1..40)) {
            let layout = Layout::new(&nodes);
            let rails = || 0..layout.rails();
            assert!(rails().all(|rail| layout.color_of(rail) < layout.colors()));
            for color in 0..layout.colors() {
                let mut ranks: Vec<usize> = rails().filter(|&rail| layout.color_of(rail) == color).flat_map(|rail| layout.rail(rail)).collect();
                let all = ranks.len();
                ranks.sort_unstable();
                ranks.dedup();
                assert_eq!(ranks.len(), all, "color {color}");
            }
        }
    }

    #[test]
    fn nodes_and_rails_of_any_mapping() {
        let layout = Layout::new(&[7, 3, 7, 3, 3]);
        assert_eq!((layout.nodes(), layout.rails(), layout.is_even()), (2, 3, false));
        assert_eq!(layout.members(1), [1, 3, 4]);
        assert_eq!((layout.node_of(2), layout.local_of(2)), (0, 1));
        assert_eq!([layout.rail(0), layout.rail(1), layout.rail(2)], [[0, 3], [2, 4], [0, 1]]);
        for (rank, rail) in [(0, 0), (1, 2), (2, 1), (3, 0), (4, 1)] {
            assert_eq!(layout.rail_of(rank), rail);
        }
        assert!(!layout.keeps_order());
        assert!(Layout::new(&[1, 1, 0, 0, 2]).keeps_order());
    }
}

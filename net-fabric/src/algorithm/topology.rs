//! The topology-aware tree (Luo's dissertation, section 4.2.2, figures 4.4 and 4.5).

use super::tree::Family;

/// Where ranks are: groups within groups, the smallest first. The first member of a group leads it, and is the
/// member of a group of the next level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    tiers: Vec<Tier>,
    /// All members of the largest groups, and where in these each rank is.
    nodes: Vec<Vec<u32>>,
    seats: Vec<(u32, u32)>,
    /// Members of the smallest and of the largest of them.
    node_sizes: (usize, usize),
    size: usize,
}

/// The groups of one level, and where each rank is a member of one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tier {
    groups: Vec<Vec<u32>>,
    /// Group and position of each rank; `NOWHERE` for ranks that are no members at this level.
    places: Vec<(u32, u32)>,
}

const NOWHERE: (u32, u32) = (u32::MAX, u32::MAX);

/// The form of the tree within each group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Within {
    /// All hang on the leader.
    Linear,
    /// Each hangs on the one before, as in the dissertation.
    Chain,
    /// The children's trees double in size.
    Binomial,
}

impl Within {
    /// The position of the parent of the member at `position`, which is not 0.
    fn parent(self, position: usize) -> usize {
        match self {
            Self::Linear => 0,
            Self::Chain => position - 1,
            Self::Binomial => position & (position - 1),
        }
    }

    /// The positions of the children of the member at `position` of `count`, in ascending order.
    fn children(self, position: usize, count: usize) -> Vec<usize> {
        match self {
            Self::Linear => if position == 0 { 1..count } else { 0..0 }.collect(),
            Self::Chain => (position + 1..count).take(1).collect(),
            Self::Binomial => (0..usize::BITS)
                .map(|bit| 1usize << bit)
                .take_while(|&weight| (position == 0 || weight < position & position.wrapping_neg()) && weight < count)
                .map(|weight| position + weight)
                .take_while(|&child| child < count)
                .collect(),
        }
    }

    /// Steps from the leader to the farthest of `count` members.
    fn depth(self, count: usize) -> usize {
        match self {
            Self::Linear => usize::from(count > 1),
            Self::Chain => count - 1,
            Self::Binomial => count.ilog2() as usize,
        }
    }
}

impl Topology {
    /// Levels from the largest groups to the smallest, such as nodes and then sockets: each gives a group number to
    /// every rank. Ranks of one group at one level may have the same numbers at the next in different groups.
    ///
    /// # Panics
    /// The levels have no ranks, or not the same number of them.
    #[must_use]
    pub fn new(levels: &[&[usize]]) -> Self {
        let size = levels.first().map_or(0, |level| level.len());
        assert!(size > 0 && levels.iter().all(|level| level.len() == size), "each level has a number for each rank");
        let mut members: Vec<usize> = (0..size).collect();
        let mut tiers = Vec::new();
        for depth in (0..=levels.len()).rev() {
            // Those that have the numbers of the first `depth` levels in common are one group.
            let key = |rank: usize| levels[..depth].iter().map(|level| level[rank]).collect::<Vec<_>>();
            members.sort_by_cached_key(|&rank| (key(rank), rank));
            let mut groups: Vec<Vec<u32>> = members
                .chunk_by(|&a, &b| key(a) == key(b))
                .map(|group| group.iter().map(|&rank| narrow(rank)).collect())
                .collect();
            groups.sort_unstable();
            members = groups.iter().map(|group| group[0] as usize).collect();
            let places = places(&groups, size);
            tiers.push(Tier { groups, places });
        }
        let mut ranks: Vec<u32> = (0..size).map(narrow).collect();
        let node = |rank: u32| levels[0][rank as usize];
        ranks.sort_by_key(|&rank| node(rank));
        let mut nodes: Vec<Vec<u32>> = ranks.chunk_by(|&a, &b| node(a) == node(b)).map(<[u32]>::to_vec).collect();
        nodes.sort_unstable();
        let sizes = nodes.iter().fold((size, 0), |(least, most), node| (least.min(node.len()), most.max(node.len())));
        Self { tiers, seats: places(&nodes, size), nodes, node_sizes: sizes, size }
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The neighbours of `rank` in the tree below `root`: the root takes the place of the leader in each group that
    /// it is in or leads, and the leader takes the root's, so that each group is still entered once.
    pub(super) fn family(&self, rank: usize, root: usize, within: Within) -> Family {
        let mut family = Family::default();
        // Who is in the root's place at the tier at hand, and who stands in its group's first.
        let mut replaced = root;
        for tier in &self.tiers {
            let (group, position) = tier.places[replaced];
            let (members, swapped) = (&tier.groups[group as usize], position as usize);
            let leader = members[0] as usize;
            let own = if rank == root {
                Some((group, 0))
            } else {
                Some(tier.places[rank]).filter(|&place| place != NOWHERE && rank != replaced)
            };
            replaced = leader;
            let Some((own_group, own_position)) = own else { continue };
            let in_root_group = own_group == group;
            let members = &tier.groups[own_group as usize];
            // Positions with the root and the leader swapped, and the rank at such a position.
            let mut own_position = own_position as usize;
            if in_root_group && rank != root && own_position == 0 {
                own_position = swapped;
            }
            let at = |position: usize| match position {
                0 if in_root_group => root,
                _ if in_root_group && position == swapped => leader,
                _ => members[position] as usize,
            };
            if own_position > 0 {
                family.parent = Some(at(within.parent(own_position)));
            }
            family.children.extend(within.children(own_position, members.len()).into_iter().map(at));
        }
        family
    }

    /// The neighbours of `rank` in the tree of its largest group, such as a node, below the one who leads it.
    pub(super) fn family_in_group(&self, rank: usize, within: Within) -> Family {
        let mut family = Family::default();
        for tier in &self.tiers[..self.tiers.len() - 1] {
            let (group, position) = tier.places[rank];
            if (group, position) == NOWHERE {
                break;
            }
            let (members, position) = (&tier.groups[group as usize], position as usize);
            if position > 0 {
                family.parent = Some(members[within.parent(position)] as usize);
            }
            let children = within.children(position, members.len());
            family.children.extend(children.into_iter().map(|child| members[child] as usize));
        }
        family
    }

    /// The ranks of each of the largest groups, the nodes, in ascending order; the nodes in the order of their first
    /// ranks.
    #[must_use]
    pub fn nodes(&self) -> &[Vec<u32>] {
        &self.nodes
    }

    /// The node of a rank and its number there.
    #[must_use]
    pub fn seat(&self, rank: usize) -> (usize, usize) {
        let (node, local) = self.seats[rank];
        (node as usize, local as usize)
    }

    /// Ranks of the smallest node.
    #[must_use]
    pub fn least_node(&self) -> usize {
        self.node_sizes.0
    }

    /// Ranks of the largest node.
    pub(super) fn most_node(&self) -> usize {
        self.node_sizes.1
    }

    /// Who leads the largest groups, in ascending order.
    pub(super) fn leaders(&self) -> &[u32] {
        self.tiers.last().map_or(&[], |tier| &tier.groups[0])
    }

    /// Steps from the root down to the farthest rank, at most.
    pub(super) fn depth(&self, within: Within) -> usize {
        let longest = |tier: &Tier| tier.groups.iter().map(Vec::len).max().unwrap_or(1);
        self.tiers.iter().map(|tier| within.depth(longest(tier))).sum()
    }

    /// Whether the ranks of the first group come before those of the second, and so on, at each level: then the
    /// tree below rank 0 keeps rank order.
    pub(super) fn in_order(&self) -> bool {
        self.tiers.iter().all(|tier| tier.groups.iter().flatten().is_sorted())
    }
}

/// Group and position of each rank.
fn places(groups: &[Vec<u32>], size: usize) -> Vec<(u32, u32)> {
    let mut places = vec![NOWHERE; size];
    for (number, group) in groups.iter().enumerate() {
        for (position, &member) in group.iter().enumerate() {
            places[member as usize] = (narrow(number), narrow(position));
        }
    }
    places
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("fewer than 2^32 ranks")
}

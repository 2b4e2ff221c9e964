//! Who hands a sum on to whom, up to a root: the ranks of a core to each other, where several share one, else along a tree.

use crate::coll::choice::CROWD;
use crate::topo::{Hierarchy, Level};
use crate::tree::halving;

/// Most cores whose sums one rank adds up; more were not measured.
const MOST_CORES: usize = 4;

/// The ways of sums to a root.
#[derive(Debug)]
pub(crate) enum HandOn {
    /// In each chain from rank to rank, ascending, in one rank's cells; the root adds up those of all chains.
    Chains(Vec<Vec<usize>>),
    /// Along the tree of [`halving`] over so many ranks, counted from the root, each in cells of its own.
    Tree(usize),
}

/// A sum that some ranks have added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Who adds to it last, and announces it.
    pub(crate) by: usize,
    /// Whose cells hold it.
    pub(crate) at: usize,
}

/// What a rank does in a reduction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// What it adds its own part to.
    pub(crate) sums: Vec<Sum>,
    /// Whose cells hold what comes out; not at the root of a reduce.
    pub(crate) into: usize,
    /// Who reads this rank's cells last, if it is the first to write there; not at the root.
    pub(crate) reader: Option<usize>,
}

impl HandOn {
    /// A tree where every rank has a core. Where they share them, the ranks of each core are a chain, in a [crowd](CROWD) each
    /// rank is one; but `None` unless each of few cores has two ranks or more on average. A rank of which no core is known counts as one.
    pub(crate) fn of(hierarchy: &Hierarchy, own_cores: bool) -> Option<Self> {
        let ranks = hierarchy.size();
        if own_cores {
            return Some(Self::Tree(ranks));
        }
        let tier = hierarchy.tiers().first().filter(|tier| tier.level == Level::Core)?;
        let cores: Vec<_> = tier.groups.iter().map(|group| group.members().to_vec()).collect();
        let pays = cores.len() <= MOST_CORES && 2 * cores.len() <= ranks;
        let chains = if ranks >= CROWD { (0..ranks).map(|rank| vec![rank]).collect() } else { cores };
        pays.then_some(Self::Chains(chains))
    }

    /// What `rank` does where the sums go to `root`.
    pub(crate) fn link(&self, rank: usize, root: usize) -> Link {
        match self {
            Self::Chains(chains) => in_chains(chains, rank, root),
            &Self::Tree(ranks) => {
                let from_root = |place: usize| (place + root) % ranks;
                let (parent, children) = halving((rank + ranks - root) % ranks, ranks);
                let sums = children.map(from_root).map(|child| Sum { by: child, at: child });
                Link { sums: sums.collect(), into: rank, reader: parent.map(from_root) }
            }
        }
    }
}

fn in_chains(chains: &[Vec<usize>], rank: usize, root: usize) -> Link {
    let mut sums = Vec::new();
    for ranks in chains {
        let others: Vec<usize> = ranks.iter().copied().filter(|&member| member != root).collect();
        let Some(&at) = others.first() else { continue };
        let before = others.iter().copied().take_while(|&member| member != rank).last();
        if rank == root {
            sums.extend(before.map(|by| Sum { by, at }));
        } else if others.contains(&rank) {
            let reader = (rank == at).then_some(root);
            return Link { sums: before.map(|by| Sum { by, at }).into_iter().collect(), into: at, reader };
        }
    }
    Link { sums, into: root, reader: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topo::{Place, Topology};

    fn on(cores: &[usize]) -> Hierarchy {
        let topology = Topology::synthetic("pack:1 core:8").expect("a machine");
        let numbers = topology.one_per_core();
        Hierarchy::new(cores.iter().map(|&core| Place::of(&topology, &[numbers[core]]).expect("a core")).collect())
    }

    #[test]
    fn ranks_of_a_core_hand_a_sum_on_and_the_root_adds_up_all() {
        let by_core = HandOn::of(&on(&[0, 1, 0, 1, 0]), false).expect("shared cores");
        let link = |rank, root| by_core.link(rank, root);
        assert_eq!(link(0, 2), Link { sums: vec![], into: 0, reader: Some(2) });
        assert_eq!(link(4, 2), Link { sums: vec![Sum { by: 0, at: 0 }], into: 0, reader: None });
        assert_eq!(link(3, 2), Link { sums: vec![Sum { by: 1, at: 1 }], into: 1, reader: None });
        let of_both = vec![Sum { by: 4, at: 0 }, Sum { by: 3, at: 1 }];
        assert_eq!(link(2, 2), Link { sums: of_both, into: 2, reader: None });
        // A root that is alone on its core has that much less to add.
        let by_core = HandOn::of(&on(&[0, 1, 1, 1]), false).expect("shared cores");
        assert_eq!(by_core.link(0, 0), Link { sums: vec![Sum { by: 3, at: 1 }], into: 0, reader: None });
    }

    #[test]
    fn each_rank_adds_its_part_once() {
        let crowd: Vec<usize> = (0..CROWD).map(|rank| rank % 2).collect();
        let shared =
            [&[0, 0][..], &[0, 0, 0, 1], &[3, 1, 3, 1, 2, 2, 2], &crowd].map(|cores| (cores.len(), Some(cores)));
        for (ranks, cores) in shared.into_iter().chain((1..20).map(|ranks| (ranks, None))) {
            let own = HandOn::of(&Hierarchy::new(vec![Place::anywhere(); ranks]), true);
            let ways = cores.map_or(own, |cores| HandOn::of(&on(cores), false)).expect("they hand sums on");
            for root in 0..ranks {
                // Each sum but the root's is some rank's input once: together they are all other ranks.
                let mut announced: Vec<usize> =
                    (0..ranks).flat_map(|r| ways.link(r, root).sums).map(|sum| sum.by).collect();
                announced.sort_unstable();
                assert_eq!(announced, (0..ranks).filter(|&rank| rank != root).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn who_waits_for_room_waits_for_who_reads_there() {
        let tree = HandOn::of(&Hierarchy::new(vec![Place::anywhere(); 6]), true).expect("own cores");
        for rank in 0..6 {
            let Link { sums, into, reader } = tree.link(rank, 4);
            assert_eq!((into, reader.is_none()), (rank, rank == 4));
            assert!(sums.iter().all(|sum| sum.at == sum.by && tree.link(sum.at, 4).reader == Some(rank)));
        }
    }

    #[test]
    fn in_a_crowd_the_root_adds_up_all() {
        let by_core = |ranks: usize| {
            HandOn::of(&on(&(0..ranks).map(|rank| rank % 2).collect::<Vec<_>>()), false).expect("shared cores")
        };
        assert_eq!(by_core(CROWD - 1).link(0, 0).sums.len(), 2);
        let crowd = by_core(CROWD);
        assert_eq!(crowd.link(5, 2), Link { sums: vec![], into: 5, reader: Some(2) });
        let all = (0..CROWD).filter(|&rank| rank != 2).map(|rank| Sum { by: rank, at: rank });
        assert_eq!(crowd.link(2, 2), Link { sums: all.collect(), into: 2, reader: None });
    }

    #[test]
    fn cores_that_are_not_shared_have_no_chains() {
        assert!(HandOn::of(&on(&[0, 1, 2]), false).is_none());
        assert!(HandOn::of(&on(&[0, 0, 1]), false).is_none());
        assert!(HandOn::of(&on(&[0, 0, 1, 1, 2, 2, 3, 3, 4, 4]), false).is_none());
        assert!(HandOn::of(&Hierarchy::new(vec![Place::anywhere(); 8]), false).is_none());
    }
}

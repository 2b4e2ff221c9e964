//! The ranks of a communicator core by core, and how the ranks of a core hand a sum on.

use crate::coll::sm::table::CROWD;
use crate::topo::{Hierarchy, Level};

/// Most cores whose sums one rank adds up; more were not measured.
const MOST_CORES: usize = 4;

/// The ranks that hand a sum on, ascending: those of a core, where several share one.
#[derive(Debug)]
pub(crate) struct ByCore {
    chains: Vec<Vec<usize>>,
}

/// A sum that some ranks of a core have added up.
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
    /// What it adds its own part to: the sum so far of its core, or, at the root, of every core.
    pub(crate) sums: Vec<Sum>,
    /// Whose cells hold what comes out; not at the root of a reduce.
    pub(crate) into: usize,
}

impl ByCore {
    /// `None` unless each of few cores has two ranks or more on average. A rank of which no core is known counts as one. In a
    /// [crowd](CROWD) each rank is a chain.
    pub(crate) fn of(hierarchy: &Hierarchy) -> Option<Self> {
        let tier = hierarchy.tiers().first().filter(|tier| tier.level == Level::Core)?;
        let cores: Vec<_> = tier.groups.iter().map(|group| group.members().to_vec()).collect();
        let ranks = hierarchy.size();
        let pays = cores.len() <= MOST_CORES && 2 * cores.len() <= ranks;
        let chains = if ranks >= CROWD { (0..ranks).map(|rank| vec![rank]).collect() } else { cores };
        pays.then_some(Self { chains })
    }

    /// What `rank` does where `root` adds up the sums of all cores.
    pub(crate) fn link(&self, rank: usize, root: usize) -> Link {
        let mut sums = Vec::new();
        for ranks in &self.chains {
            let others: Vec<usize> = ranks.iter().copied().filter(|&member| member != root).collect();
            let Some(&at) = others.first() else { continue };
            let before = others.iter().copied().take_while(|&member| member != rank).last();
            if rank == root {
                sums.extend(before.map(|by| Sum { by, at }));
            } else if others.contains(&rank) {
                return Link { sums: before.map(|by| Sum { by, at }).into_iter().collect(), into: at };
            }
        }
        Link { sums, into: root }
    }
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
        let by_core = ByCore::of(&on(&[0, 1, 0, 1, 0])).expect("shared cores");
        let link = |rank, root| by_core.link(rank, root);
        assert_eq!(link(0, 2), Link { sums: vec![], into: 0 });
        assert_eq!(link(4, 2), Link { sums: vec![Sum { by: 0, at: 0 }], into: 0 });
        assert_eq!(link(3, 2), Link { sums: vec![Sum { by: 1, at: 1 }], into: 1 });
        assert_eq!(link(2, 2), Link { sums: vec![Sum { by: 4, at: 0 }, Sum { by: 3, at: 1 }], into: 2 });
        // A root that is alone on its core has that much less to add.
        let by_core = ByCore::of(&on(&[0, 1, 1, 1])).expect("shared cores");
        assert_eq!(by_core.link(0, 0), Link { sums: vec![Sum { by: 3, at: 1 }], into: 0 });
    }

    #[test]
    fn each_rank_adds_its_part_once() {
        let crowd: Vec<usize> = (0..CROWD).map(|rank| rank % 2).collect();
        for cores in [&[0, 0][..], &[0, 0, 0, 1], &[3, 1, 3, 1, 2, 2, 2], &crowd] {
            let by_core = ByCore::of(&on(cores)).expect("shared cores");
            for root in 0..cores.len() {
                // Each sum but the root's is some rank's input once: together they are all other ranks.
                let mut announced: Vec<usize> =
                    (0..cores.len()).flat_map(|r| by_core.link(r, root).sums).map(|sum| sum.by).collect();
                announced.sort_unstable();
                assert_eq!(announced, (0..cores.len()).filter(|&rank| rank != root).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn in_a_crowd_the_root_adds_up_all() {
        let by_core =
            |ranks: usize| ByCore::of(&on(&(0..ranks).map(|rank| rank % 2).collect::<Vec<_>>())).expect("shared cores");
        assert_eq!(by_core(CROWD - 1).link(0, 0).sums.len(), 2);
        let crowd = by_core(CROWD);
        assert_eq!(crowd.link(5, 2), Link { sums: vec![], into: 5 });
        let all = (0..CROWD).filter(|&rank| rank != 2).map(|rank| Sum { by: rank, at: rank });
        assert_eq!(crowd.link(2, 2), Link { sums: all.collect(), into: 2 });
    }

    #[test]
    fn cores_that_are_not_shared_have_no_chains() {
        assert!(ByCore::of(&on(&[0, 1, 2])).is_none());
        assert!(ByCore::of(&on(&[0, 0, 1])).is_none());
        assert!(ByCore::of(&on(&[0, 0, 1, 1, 2, 2, 3, 3, 4, 4])).is_none());
        assert!(ByCore::of(&Hierarchy::new(vec![Place::anywhere(); 8])).is_none());
    }
}

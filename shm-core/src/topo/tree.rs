//! The tree over a hierarchy for any root (Luo's dissertation, section 4.2.2 and figure 4.5).

use super::{Hierarchy, Level};
use crate::tree;

/// The form of the tree within a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// All hang on the leader: least depth, most work for the leader.
    Flat,
    /// Each hangs on the one before: best for many chunks.
    Chain,
    /// Half of the rest hangs on the last child, and so on.
    Binomial,
    /// In eights, and eights of these, and so on: a leader sees to 7 others a level, all of which come at a time.
    Radix8,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Self; 4] = [Self::Flat, Self::Chain, Self::Binomial, Self::Radix8];

    /// As options take it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Chain => "chain",
            Self::Binomial => "binomial",
            Self::Radix8 => "radix8",
        }
    }

    /// Position of the parent of the one at `position`, which is not 0.
    fn parent(self, position: usize) -> usize {
        match self {
            Self::Flat => 0,
            Self::Chain => position - 1,
            Self::Binomial => tree::parent(position, 2).unwrap_or(0),
            Self::Radix8 => tree::parent(position, 8).unwrap_or(0),
        }
    }
}

/// Who hangs on whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    root: usize,
    parents: Vec<Option<usize>>,
    children: Vec<Vec<usize>>,
}

impl Tree {
    /// The rank on which all hang.
    #[must_use]
    pub fn root(&self) -> usize {
        self.root
    }

    /// On whom `rank` hangs; `None` for the root.
    ///
    /// # Panics
    /// `rank` is not a rank of this tree.
    #[must_use]
    pub fn parent(&self, rank: usize) -> Option<usize> {
        self.parents[rank]
    }

    /// Who hangs on `rank`, the near ones first.
    ///
    /// # Panics
    /// `rank` is not a rank of this tree.
    #[must_use]
    pub fn children(&self, rank: usize) -> &[usize] {
        &self.children[rank]
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.parents.len()
    }

    /// True if own, first child, second child and so on, each with all below it, is the order of the ranks.
    #[must_use]
    pub fn keeps_order(&self) -> bool {
        let mut expected = 0..self.size();
        let mut left = vec![self.root];
        while let Some(rank) = left.pop() {
            if expected.next() != Some(rank) {
                return false;
            }
            left.extend(self.children[rank].iter().rev());
        }
        true
    }

    /// Steps from the root down to the farthest rank.
    #[must_use]
    pub fn depth(&self) -> usize {
        let steps = |rank| std::iter::successors(self.parents[rank], |&up| self.parents[up]).count();
        (0..self.size()).map(steps).max().unwrap_or_default()
    }
}

impl Hierarchy {
    /// The tree below `root`, with `shape` within the groups of each level.
    ///
    /// The root takes the place of the leader in each group that it is in or leads, and the leader
    /// takes the root's, so that only the ways to the root change.
    ///
    /// # Panics
    /// `root` is not a rank of this hierarchy.
    #[must_use]
    pub fn tree(&self, root: usize, shape: impl Fn(Level) -> Shape) -> Tree {
        let size = self.size();
        assert!(root < size, "root {root} of {size} ranks");
        let (mut parents, mut children) = (vec![None; size], vec![Vec::new(); size]);
        // Who stands for the root's group in the groups of the tier at hand.
        let mut replaced = root;
        for tier in self.tiers() {
            for group in &tier.groups {
                let mut members = group.members().to_vec();
                if let Some(position) = members.iter().position(|&member| member == replaced) {
                    members[position] = root;
                    members.swap(0, position);
                    replaced = group.leader();
                }
                for position in 1..members.len() {
                    let parent = members[shape(tier.level).parent(position)];
                    parents[members[position]] = Some(parent);
                    children[parent].push(members[position]);
                }
            }
        }
        Tree { root, parents, children }
    }
}

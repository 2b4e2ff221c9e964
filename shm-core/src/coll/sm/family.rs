//! Whom a rank hangs on in the trees of a communicator, and who hangs on it.
//!
//! Where the machine has several levels (caches within sockets, say), trees follow them: each object is entered
//! once, by its leader, or by the root in its place (dissertation, section 4.2.2 and figure 4.5). Else ranks are
//! counted from the root on in eights.

use std::rc::Rc;

use crate::topo::{Hierarchy, Shape, Tree};
use crate::tree;

/// Flags that one rank reads at a level.
const RADIX: usize = 8;

/// The place of this rank in one tree.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Family {
    /// None at the root.
    pub(crate) parent: Option<usize>,
    /// In rank order, if the tree keeps it.
    pub(crate) children: Vec<usize>,
}

/// The places of this rank below every root; made when first needed.
#[derive(Debug)]
pub(crate) struct Families {
    /// Several levels; none where trees have nothing to follow.
    levels: Option<Hierarchy>,
    rank: usize,
    size: usize,
    by_root: Vec<Option<Rc<Family>>>,
    in_order: Option<Rc<Family>>,
}

impl Families {
    /// Those of `rank` among the ranks of `hierarchy`.
    pub(crate) fn new(hierarchy: Hierarchy, rank: usize) -> Self {
        let size = hierarchy.size();
        let levels = has_levels(&hierarchy).then_some(hierarchy);
        Self { levels, rank, size, by_root: vec![None; size], in_order: None }
    }

    /// True if trees follow the machine.
    pub(crate) fn follow_levels(&self) -> bool {
        self.levels.is_some()
    }

    /// The place below `root`.
    pub(crate) fn below(&mut self, root: usize) -> Rc<Family> {
        let Self { levels, rank, size, by_root, .. } = self;
        let family = by_root[root].get_or_insert_with(|| {
            Rc::new(match levels {
                Some(levels) => of_tree(&by_levels(levels, root), *rank),
                None => counted(*rank, *size, root),
            })
        });
        Rc::clone(family)
    }

    /// The place below rank 0 in a tree in which own, first child, second child and so on is rank order.
    pub(crate) fn in_order(&mut self) -> Rc<Family> {
        let Self { levels, rank, size, in_order, .. } = self;
        let family = in_order.get_or_insert_with(|| {
            let tree = levels.as_ref().map(|levels| by_levels(levels, 0)).filter(Tree::keeps_order);
            Rc::new(tree.map_or_else(|| counted(*rank, *size, 0), |tree| of_tree(&tree, *rank)))
        });
        Rc::clone(family)
    }
}

/// Whether the tree below rank 0 that follows these levels keeps rank order; if not, ranks are counted.
pub(crate) fn keeps_order(hierarchy: &Hierarchy) -> bool {
    by_levels(hierarchy, 0).keeps_order()
}

/// True if there is more to follow than one level.
pub(crate) fn has_levels(hierarchy: &Hierarchy) -> bool {
    hierarchy.tiers().len() > 1
}

fn by_levels(hierarchy: &Hierarchy, root: usize) -> Tree {
    hierarchy.tree(root, |_| Shape::Radix8)
}

fn of_tree(tree: &Tree, rank: usize) -> Family {
    Family { parent: tree.parent(rank), children: tree.children(rank).to_vec() }
}

fn counted(rank: usize, size: usize, root: usize) -> Family {
    let relative = (rank + size - root) % size;
    let absolute = |relative: usize| (relative + root) % size;
    Family {
        parent: tree::parent(relative, RADIX).map(absolute),
        children: tree::children(relative, size, RADIX).map(absolute).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topo::{Place, Topology};

    fn on(description: &str, order: impl Fn(usize) -> usize) -> Hierarchy {
        let topology = Topology::synthetic(description).expect("a machine");
        let cores = topology.one_per_core();
        let place = |rank| Place::of(&topology, &[cores[order(rank)]]).expect("a core");
        Hierarchy::new((0..cores.len()).map(place).collect())
    }

    #[test]
    fn one_level_is_counted_in_eights_from_the_root() {
        let mut families = Families::new(on("core:20", |rank| rank), 11);
        assert!(!families.follow_levels());
        assert_eq!(*families.below(3), Family { parent: Some(3), children: vec![12, 13, 14, 15, 16, 17, 18] });
        assert_eq!(*families.in_order(), Family { parent: Some(8), children: vec![] });
    }

    #[test]
    fn several_levels_are_followed() {
        // Rank 4 leads the second L3 of the first socket.
        let mut families = Families::new(on("pack:2 l3:2 core:4", |rank| rank), 4);
        assert!(families.follow_levels());
        assert_eq!(*families.below(0), Family { parent: Some(0), children: vec![5, 6, 7] });
        assert_eq!(families.below(0), families.in_order());
        // Rank 6 is the root, and takes its place.
        assert_eq!(*families.below(6), Family { parent: Some(6), children: vec![] });
    }

    #[test]
    fn rank_order_goes_before_levels() {
        // Neighbours in rank sit on different sockets.
        let mut families = Families::new(on("pack:2 core:4", |rank| rank % 2 * 4 + rank / 2), 0);
        assert_eq!(families.below(0).children, [2, 4, 6, 1]);
        assert_eq!(families.in_order().children, [1, 2, 3, 4, 5, 6, 7]);
    }
}

//! Trees of ranks. A rank computes its own neighbours only.
//!
//! All are numbered in preorder from the root: a rank and those below it are a contiguous range, the rank first,
//! its children's ranges behind it in ascending order. So a reduction that takes a rank's own operand and then
//! its children's in this order keeps rank order, relative to the root.

use super::Shape;
use super::chunks::{Chunks, MOST};
use super::topology::Within;

/// The form of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tree {
    /// All hang on the root.
    Linear,
    /// Each hangs on the one before: with many chunks all links are busy.
    Chain,
    /// Two children each, halves of the rest.
    Binary,
    /// The children's trees double in size: each message round reaches as many ranks as have it.
    Binomial,
    /// As binomial, each round reaching k - 1 ranks from each that has it; k is at least 2.
    Knomial(u32),
    /// Each group of the shape's topology is entered once, with a tree of this form within each group.
    Topology(Within),
}

/// A rank's neighbours in a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Family {
    /// On whom it hangs; the root on nobody.
    pub(super) parent: Option<usize>,
    /// Who hangs on it, in ascending order relative to the root.
    pub(super) children: Vec<usize>,
}

impl Tree {
    /// The neighbours of the shape's rank in the tree below `root`.
    pub(super) fn family(self, shape: &Shape<'_>, root: usize) -> Family {
        let (rank, size) = (shape.rank, shape.size);
        let place = if rank >= root { rank - root } else { rank + size - root };
        let rank_at = |place: usize| if place < size - root { place + root } else { place + root - size };
        let (parent, mut children) = match self {
            Self::Linear => (0, if place == 0 { (1..size).collect() } else { Vec::new() }),
            Self::Chain => (place.wrapping_sub(1), (place + 1..size).take(1).collect()),
            Self::Binary => binary(place, size),
            Self::Binomial => knomial(place, size, 2),
            Self::Knomial(k) => knomial(place, size, k as usize),
            Self::Topology(within) => {
                return shape.topology.expect("checked with the shape").family(rank, root, within);
            }
        };
        for child in &mut children {
            *child = rank_at(*child);
        }
        Family { parent: (place != 0).then(|| rank_at(parent)), children }
    }

    /// The chunks of a vector that is passed along the tree: fewer, longer ones where a rank may have many children,
    /// so that schedules stay bounded.
    pub(super) fn chunks(self, shape: &Shape<'_>) -> Chunks {
        let others = shape.size - 1;
        let children = match self {
            Self::Linear | Self::Topology(Within::Linear) => others,
            Self::Knomial(k) => others.min((k as usize - 1).saturating_mul(self.depth(shape))),
            Self::Chain | Self::Binary => 2,
            Self::Binomial | Self::Topology(_) => self.depth(shape).min(16),
        };
        let most = (4 * MOST / children.max(4)).max(1);
        Chunks::new(0..shape.bytes, shape.element_bytes, shape.chunk_bytes, most)
    }

    /// Steps from the root down to the farthest rank, at most; the same on all ranks.
    pub(super) fn depth(self, shape: &Shape<'_>) -> usize {
        let size = shape.size;
        match self {
            Self::Linear => 1,
            Self::Chain => size - 1,
            Self::Binary | Self::Binomial => size.ilog2() as usize,
            Self::Knomial(k) => size.ilog(k as usize) as usize + 1,
            Self::Topology(within) => shape.topology.expect("checked with the shape").depth(within),
        }
    }
}

/// Place 0 of a range hangs on nobody; the rest is halved, and the first of each half hangs on it.
fn binary(place: usize, size: usize) -> (usize, Vec<usize>) {
    let (mut parent, mut first, mut behind) = (0, 0, size);
    while first != place {
        parent = first;
        let middle = first + 1 + (behind - first - 1).div_ceil(2);
        if place < middle {
            (first, behind) = (first + 1, middle);
        } else {
            first = middle;
        }
    }
    let middle = first + 1 + (behind - first - 1).div_ceil(2);
    let children = [first + 1, middle];
    let children =
        children.into_iter().enumerate().filter(|&(index, child)| child < behind && (index == 0 || child != first + 1));
    (parent, children.map(|(_, child)| child).collect())
}

/// With places written to base k: a parent has the last digit that is not 0 cleared; children have one more digit
/// behind it.
fn knomial(place: usize, size: usize, k: usize) -> (usize, Vec<usize>) {
    let mut weight = 1;
    let mut children = Vec::new();
    while weight < size {
        let digit = place / weight % k;
        if digit != 0 {
            return (place - digit * weight, children);
        }
        children.extend((1..k).map(|digit| place + digit * weight).take_while(|&child| child < size));
        weight = weight.saturating_mul(k);
    }
    (0, children)
}

//! Rank arithmetic of trees; no communication.
//!
//! The tree of radix `k` over ranks `0..size`, rooted at 0: at each level groups of `k` neighbours
//! hang on their first. Every subtree is an interval of ranks that begins with its root, and the
//! children of a rank come in ascending order, so that folding own, first child, second child, ...
//! keeps rank order.

/// Children of `rank`, ascending.
pub(crate) fn children(rank: usize, size: usize, radix: usize) -> impl Iterator<Item = usize> {
    let strides = std::iter::successors(Some(1), move |stride| Some(stride * radix))
        .take_while(move |stride| *stride < size && rank.is_multiple_of(stride * radix));
    strides.flat_map(move |stride| (1..radix).map(move |j| rank + j * stride)).filter(move |child| *child < size)
}

/// Parent of `rank`; `None` for rank 0.
pub(crate) fn parent(rank: usize, radix: usize) -> Option<usize> {
    if rank == 0 {
        return None;
    }
    let mut stride = radix;
    while rank.is_multiple_of(stride) {
        stride *= radix;
    }
    Some(rank - rank % stride)
}

/// Parent and children of `rank` in the tree over ranks `0..size` in which each has two children at most, the first ranks of the
/// two halves of what follows it: little passes through any rank, and the tree is as low as can be.
pub(crate) fn halving(rank: usize, size: usize) -> (Option<usize>, impl Iterator<Item = usize>) {
    let (mut parent, mut at, mut end) = (None, 0, size);
    let second = |at: usize, end: usize| at + 1 + (end - at - 1).div_ceil(2);
    while at != rank {
        let second = second(at, end);
        parent = Some(at);
        (at, end) = if rank < second { (at + 1, second) } else { (second, end) };
    }
    let halves = [at + 1..second(at, end), second(at, end)..end];
    (parent, halves.into_iter().filter(|half| !half.is_empty()).map(|half| half.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_hold_every_rank_once_and_are_as_low_as_can_be() {
        for size in 1..=256 {
            let mut depths = vec![0; size];
            for rank in 0..size {
                let (parent, children) = halving(rank, size);
                assert_eq!(parent.is_none(), rank == 0);
                // A parent comes before its children.
                depths[rank] = parent.map_or(0, |parent| depths[parent] + 1);
                let children: Vec<usize> = children.collect();
                assert!(children.len() <= 2 && children.iter().all(|&child| halving(child, size).0 == Some(rank)));
            }
            assert_eq!(depths.iter().max().copied(), Some(size.ilog2() as usize), "of {size}");
            let of_others: usize = (0..size).map(|rank| halving(rank, size).1.count()).sum();
            assert_eq!(of_others, size - 1);
        }
    }

    /// Ranks of the subtree of `rank` in the order in which folding visits them.
    fn subtree(rank: usize, size: usize, radix: usize) -> Vec<usize> {
        let mut all = vec![rank];
        for child in children(rank, size, radix) {
            all.extend(subtree(child, size, radix));
        }
        all
    }

    #[test]
    fn every_tree_holds_every_rank_once_and_in_order() {
        for radix in [2, 3, 4, 8] {
            for size in (1..=80).chain([255, 256]) {
                assert_eq!(subtree(0, size, radix), (0..size).collect::<Vec<_>>(), "radix {radix} size {size}");
                for rank in 0..size {
                    for child in children(rank, size, radix) {
                        assert_eq!(parent(child, radix), Some(rank), "radix {radix} size {size} child {child}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_tree_of_radix_8_over_256_ranks_is_three_levels_deep() {
        let depth = |mut rank| {
            let mut levels = 0;
            while let Some(up) = parent(rank, 8) {
                rank = up;
                levels += 1;
            }
            levels
        };
        assert_eq!((0..256).map(depth).max(), Some(3));
    }
}

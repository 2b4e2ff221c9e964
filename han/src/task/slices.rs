//! How a chunk is cut among the leaders of a node: into slices of whole elements and whole lines, as long as each other up to
//! a line. Each goes up, across the nodes and down on a rail of its own, all at once.

use std::ops::Range;

/// Slices begin on lines of their own, so that no two leaders write to the same one.
pub(super) const LINE_BYTES: usize = 128;

/// Slices of a chunk of so many elements for `leaders` leaders: no more than it has lines.
#[must_use]
pub fn number(elements: usize, element_bytes: usize, leaders: usize) -> usize {
    leaders.clamp(1, lines(elements, element_bytes).max(1))
}

/// The slices of the elements `range`.
pub(super) fn cut(range: Range<usize>, element_bytes: usize, leaders: usize) -> impl Iterator<Item = Range<usize>> {
    let slices = number(range.len(), element_bytes, leaders);
    let (lines, in_line) = (lines(range.len(), element_bytes), in_line(element_bytes));
    // The first ones have a line more than the others.
    let begin = move |slice: usize| {
        let lines = slice * (lines / slices) + slice.min(lines % slices);
        (range.start + lines * in_line).min(range.end)
    };
    (0..slices).map(move |slice| begin(slice)..begin(slice + 1))
}

/// Elements of the longest slice of a chunk of so many, and of any shorter one.
pub(crate) fn longest(elements: usize, element_bytes: usize, leaders: usize) -> usize {
    cut(0..elements, element_bytes, leaders).next().map_or(0, |slice| slice.len())
}

/// Elements that fill a line.
fn in_line(element_bytes: usize) -> usize {
    LINE_BYTES.div_ceil(element_bytes.max(1))
}

fn lines(elements: usize, element_bytes: usize) -> usize {
    elements.div_ceil(in_line(element_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_cover_a_chunk_by_whole_lines() {
        for element_bytes in [1, 4, 8, 12, 128, 1024] {
            for elements in [0, 1, 15, 16, 17, 31, 32, 33, 100, 1000] {
                for leaders in 1..9 {
                    let slices: Vec<_> = cut(7..7 + elements, element_bytes, leaders).collect();
                    assert_eq!(slices.len(), number(elements, element_bytes, leaders));
                    assert_eq!((slices[0].start, slices[slices.len() - 1].end), (7, 7 + elements));
                    assert!(slices.windows(2).all(|pair| pair[0].end == pair[1].start));
                    let whole = |slice: &Range<usize>| (slice.len() * element_bytes) >= LINE_BYTES;
                    assert!(slices[..slices.len() - 1].iter().all(whole), "{slices:?} of {element_bytes} bytes");
                    assert!(elements == 0 || slices.iter().all(|slice| !slice.is_empty()), "{slices:?}");
                    let (most, least) = (slices[0].len(), slices[slices.len() - 1].len());
                    assert!(most <= least + 2 * in_line(element_bytes), "{slices:?}");
                }
            }
        }
    }

    #[test]
    fn short_chunks_are_not_cut() {
        assert_eq!([number(1, 8, 4), number(16, 8, 4), number(17, 8, 4), number(1 << 20, 8, 4)], [1, 1, 2, 4]);
        assert_eq!([number(0, 8, 4), number(0, 0, 4), number(5, 1024, 9)], [1, 1, 5]);
    }
}

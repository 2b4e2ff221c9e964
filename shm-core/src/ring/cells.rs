//! The cells of a communicator: a ring of equal places in every rank's part of the segment, of which a span
//! has as many consecutive ones as its payload needs.
#![allow(unsafe_code)] // writes to memory that other processes map

use std::collections::VecDeque;

use super::Span;
use super::marks::{is_far_behind, stay_comparable};
use crate::copy::Stores;
use crate::segment::Segment;
use crate::segment::layout::{PAGE, SLOTS, cell_bytes, cells_in_ring};
use crate::sync::before;
use crate::sys::map;

/// Where the ranks' cells are, and which steps have them.
#[derive(Debug)]
pub(super) struct Cells {
    /// Each rank's first cell.
    first: Vec<*mut u8>,
    cell_bytes: usize,
    count: usize,
    /// Cells that the steps so far have taken, those that were left over at the ring's end included.
    taken: u64,
    /// Steps whose cells no later step has taken any of, but for very old ones, oldest first, and where they begin in that count.
    intact: VecDeque<(u32, u64)>,
    /// The step behind the last one whose cells were taken again.
    overrun: u32,
    /// How this rank's payloads go into its cells.
    stores: Stores,
    /// All cells have been in use, so that they cost no page faults any more.
    lapped: bool,
    /// Bytes of this rank's cells, from the first on, whose pages are there.
    touched: usize,
}

/// Pages of cells are taken so many bytes at a time: as much as the kernel maps into a reader with one fault.
const TOUCHED_BYTES: usize = 64 << 10;

impl Cells {
    /// Bytes of one rank's cells where there are `ranks`.
    pub(super) fn bytes_of(ranks: usize) -> usize {
        cells_in_ring(ranks) * cell_bytes(ranks)
    }

    /// The cells that begin at `at` of `segment`, one place for each rank.
    pub(super) fn new(segment: &Segment, at: &[usize], stores: Stores) -> Self {
        let ranks = at.len();
        Self {
            first: at.iter().map(|&at| segment.bytes_at(at, Self::bytes_of(ranks))).collect(),
            cell_bytes: cell_bytes(ranks),
            count: cells_in_ring(ranks),
            taken: 0,
            intact: VecDeque::with_capacity(SLOTS as usize),
            overrun: 0,
            stores,
            lapped: false,
            touched: 0,
        }
    }

    pub(super) fn cell_bytes(&self) -> usize {
        self.cell_bytes
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes room for `bytes` for `step`, whose slot was last used before `oldest`.
    ///
    /// All ranks take the same cells.
    #[inline(never)]
    pub(super) fn take(&mut self, step: u32, bytes: usize, oldest: u32) -> Span {
        let ring = self.count as u64;
        let cells = bytes.div_ceil(self.cell_bytes) as u64;
        debug_assert!(cells <= ring);
        let at = self.taken % ring;
        // Consecutive, so not across the ring's end.
        let begin = if at + cells > ring { self.taken + (ring - at) } else { self.taken };
        self.taken = begin + cells;
        // Whatever began a ring before this span's end has had some of its cells, or is older still.
        while let Some(&(earlier, at)) = self.intact.front()
            && at + ring < self.taken
        {
            self.overrun = earlier.wrapping_add(1);
            self.intact.pop_front();
        }
        self.intact.push_back((step, begin));
        #[allow(clippy::cast_possible_truncation)] // less than the ring's cells, and bytes
        let (first_cell, bytes) = ((begin % ring) as u32, bytes as u32);
        let needed = if before(self.overrun, oldest) { oldest } else { self.overrun };
        Span::with_cells(step, needed, first_cell, bytes)
    }

    /// Where `rank`'s cells of `span` are.
    #[inline]
    pub(super) fn at(&self, rank: usize, span: Span) -> *mut u8 {
        // In bounds: a span lies within the ring, whose length was checked when the pointer was made.
        self.first[rank].wrapping_add(span.first_cell() as usize * self.cell_bytes)
    }

    /// Copies `bytes` at `from` into `rank`'s cells of `span`, from `offset` on.
    ///
    /// # Safety
    /// They are this rank's, nobody reads them before they are published, and `from` is valid for `bytes` and
    /// not in them.
    #[inline]
    pub(super) unsafe fn put(&mut self, rank: usize, span: Span, offset: usize, from: *const u8, bytes: usize) {
        assert!(offset + bytes <= span.bytes() as usize, "{bytes} bytes at {offset} for a span of {}", span.bytes());
        self.lapped |= self.taken > self.count as u64;
        let to = self.at(rank, span).wrapping_add(offset);
        let begin = span.first_cell() as usize * self.cell_bytes + offset;
        if begin + bytes > self.touched {
            self.touch(rank, begin, begin + bytes);
        }
        // SAFETY: the cells have room; the rest is the caller's promise.
        unsafe { self.stores.copy_in(to, from, bytes, self.lapped) };
    }

    /// Takes the pages of `rank`'s own cells, at least from byte `begin` to `end`, before the first lap has come there.
    /// Without it each costs a fault of the writer and one of each reader, some microseconds.
    #[cold]
    fn touch(&mut self, rank: usize, begin: usize, end: usize) {
        let from = self.touched.max(begin / PAGE * PAGE);
        let to = end.next_multiple_of(TOUCHED_BYTES).min(self.count * self.cell_bytes);
        map::touch(self.first[rank].wrapping_add(from), to - from);
        self.touched = to;
    }

    /// Keeps steps within half the circle behind `step`, where they compare well.
    pub(super) fn stay_comparable(&mut self, step: u32) {
        // What was taken long ago need not be told from what others have taken since.
        while let Some(&(earlier, _)) = self.intact.front()
            && is_far_behind(earlier, step)
        {
            self.overrun = earlier.wrapping_add(1);
            self.intact.pop_front();
        }
        stay_comparable(&mut self.overrun, step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Alone;
    use crate::segment::{Backing, Shape};

    /// Steps are numbers of 32 bits, and a long series of small operations takes no cells.
    #[test]
    fn cells_that_were_taken_long_ago_are_free() {
        const RANKS: usize = 33;
        let bytes = Cells::bytes_of(RANKS);
        let shape = Shape { name: "test", ranks: 1, cell_bytes: 0, bytes };
        let segment = Segment::together(&mut Alone, &shape, &[Backing::Heap]).expect("heap");
        let mut cells = Cells::new(&segment, &[0; RANKS], Stores::new(None));
        cells.take(5, bytes / 2, 5_u32.wrapping_sub(SLOTS));
        for eighth in 1_u32..=20 {
            let step = 5_u32.wrapping_add(eighth << 29);
            cells.stay_comparable(step);
            if eighth % 6 != 5 {
                continue; // no cells for more than half the circle
            }
            // The third of these takes what was taken first.
            for step in (0..3).map(|i| step.wrapping_add(i)) {
                let needed = cells.take(step, bytes / 2, step.wrapping_sub(SLOTS)).needed();
                assert!(before(needed, step), "step {step} waits for {needed}, which is still to come");
            }
        }
    }
}

//! The cells of a communicator: a ring of equal places in every rank's part of the segment, of which a span
//! has as many consecutive ones as its payload needs.
//!
//! The ring is short at first and doubles, up to the cells that there are, when it has been gone round a few
//! times: a cell's first use costs memory that the kernel must first find and clear, more than a long ring
//! saves an operation. All ranks take the same cells, so all rings grow at the same step.
#![allow(unsafe_code)] // writes to memory that other processes map

use std::collections::VecDeque;
use std::ops::Range;

use super::Span;
use super::marks::{is_far_behind, stay_comparable};
use crate::copy::Stores;
use crate::copy::cico::{LINE, prefetch_for_write};
use crate::segment::Segment;
use crate::segment::layout::{FIRST_CELLS, MOST_BYTES_OF_CELLS, SLOTS, cell_bytes};
use crate::sync::before;
use crate::sys::map;

/// Times round the ring before it doubles: by then it has cost about what the new cells will.
const LAPS: u64 = 8;
const _: () = assert!(FIRST_CELLS.is_power_of_two());
/// Spans that fit into the ring at a time, or it doubles at once: twice what forms have in flight, because cells may
/// be left over at a lap's end.
const SPANS: usize = 8;

/// Where the ranks' cells are, and which steps have them.
#[derive(Debug)]
pub(super) struct Cells {
    /// Each rank's first cell.
    first: Vec<*mut u8>,
    cell_bytes: usize,
    /// Left free behind each span's payload.
    gap_bytes: usize,
    /// Cells that there are.
    most: usize,
    /// Cells of the ring so far.
    count: usize,
    /// The place behind the latest span, of an endless row of which each ring's length is a lap; what was left over
    /// at a lap's end was taken with it. Counted anew when the ring grows.
    taken: u64,
    /// The ring doubles when this place is reached, unless it is as long as can be.
    grows_at: u64,
    /// Cells, from the first on, that some operation has had.
    used: usize,
    /// Steps whose cells no later step has taken any of, but for very old ones, oldest first, and where they begin in that row.
    intact: VecDeque<(u32, u64)>,
    /// The step behind the last one whose cells were taken again.
    overrun: u32,
    /// How this rank's payloads go into its cells.
    stores: Stores,
    /// Bytes of this rank's cells, from the first on, that it has written to.
    written: usize,
    /// Those that it has asked for last.
    asked: Range<usize>,
    /// Blocks of this rank's cells whose pages are there, a bit for each.
    touched: u64,
}

/// Pages of cells are taken in blocks of so many bytes: as much as the kernel maps into a reader with one fault.
const BLOCK_BYTES: usize = 64 << 10;
const _: () = assert!(MOST_BYTES_OF_CELLS <= 64 * BLOCK_BYTES, "a bit for each block");

impl Cells {
    /// The `most` cells of each rank that begin at `at` of `segment`, one place for each; `gap_bytes` are left free behind
    /// each payload.
    pub(super) fn new(segment: &Segment, at: &[usize], most: usize, gap_bytes: usize, stores: Stores) -> Self {
        let cell_bytes = cell_bytes(at.len());
        assert!(cell_bytes.is_power_of_two(), "a cell of {cell_bytes} bytes");
        Self {
            first: at.iter().map(|&at| segment.bytes_at(at, most * cell_bytes)).collect(),
            cell_bytes,
            gap_bytes,
            most,
            count: FIRST_CELLS,
            taken: 0,
            grows_at: LAPS * FIRST_CELLS as u64,
            used: 0,
            intact: VecDeque::with_capacity(SLOTS as usize),
            overrun: 0,
            stores,
            written: 0,
            asked: 0..0,
            touched: 0,
        }
    }

    pub(super) fn cell_bytes(&self) -> usize {
        self.cell_bytes
    }

    /// Cells that there are; the ring grows to as many.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Cells, from the first on, that some operation has had: the same on all ranks.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    /// Takes room for `bytes` for `step`, whose slot was last used before `oldest`.
    ///
    /// All ranks take the same cells.
    #[inline(never)]
    pub(super) fn take(&mut self, step: u32, bytes: usize, oldest: u32) -> Span {
        self.take_until(step, step, bytes, oldest)
    }

    /// As [`take`](Self::take), for an operation that keeps them until its step `last` is consumed.
    pub(super) fn take_until(&mut self, last: u32, step: u32, bytes: usize, oldest: u32) -> Span {
        let cells = self.cells_of(bytes);
        debug_assert!(cells <= self.most);
        while self.count < self.most && (self.taken >= self.grows_at || cells * SPANS > self.count) {
            self.grow();
        }
        let (ring, cells) = (self.count as u64, cells as u64);
        // Rings double from a power of two, so that nothing is divided.
        let within = |place: u64| place & (ring - 1);
        let at = within(self.taken);
        // Consecutive, so not across the ring's end.
        let begin = if at + cells > ring { self.taken + (ring - at) } else { self.taken };
        self.taken = begin + cells;
        #[allow(clippy::cast_possible_truncation)] // at most the ring's cells
        let end = (within(begin) + cells) as usize;
        self.used = self.used.max(end);
        // Whatever began a ring before this span's end has had some of its cells, or is older still.
        while let Some(&(earlier, at)) = self.intact.front()
            && at + ring < self.taken
        {
            self.overrun = earlier.wrapping_add(1);
            self.intact.pop_front();
        }
        self.intact.push_back((last, begin));
        #[allow(clippy::cast_possible_truncation)] // less than the ring's cells, and bytes
        let (first_cell, bytes) = (within(begin) as u32, bytes as u32);
        let needed = if before(self.overrun, oldest) { oldest } else { self.overrun };
        Span::with_cells(step, needed, first_cell, bytes)
    }

    /// Cells that a payload of `bytes` takes.
    fn cells_of(&self, bytes: usize) -> usize {
        (bytes + self.gap_bytes + self.cell_bytes - 1) >> self.cell_bytes.trailing_zeros()
    }

    /// Doubles the ring, unless it is as long as can be.
    pub(super) fn lengthen(&mut self) {
        if self.count < self.most {
            self.grow();
        }
    }

    /// The next copy is timed, if it can be.
    pub(super) fn time_stores(&mut self) {
        self.stores.look_now();
    }

    /// Doubles the ring, whose new cells nobody has used.
    ///
    /// Places are counted anew, such that each span keeps its cells, and those of the lap before this one lie a whole
    /// ring of the new length behind: the next spans take the same old cells as before, then new ones.
    #[cold]
    fn grow(&mut self) {
        let ring = self.count as u64;
        let at = self.taken % ring;
        let lap = self.taken - at;
        for (_, begin) in &mut self.intact {
            // Nothing that is intact is older than a ring.
            *begin = if *begin >= lap { *begin - lap + 2 * ring } else { *begin + ring - lap };
        }
        self.taken = 2 * ring + at;
        self.count *= 2;
        self.grows_at = self.taken + LAPS * self.count as u64;
    }

    /// Where `rank`'s cells of `span` are.
    #[inline]
    pub(super) fn at(&self, rank: usize, span: Span) -> *mut u8 {
        // In bounds: a span lies within the ring, whose length was checked when the pointer was made.
        self.first[rank].wrapping_add(span.first_cell() as usize * self.cell_bytes)
    }

    /// Asks for `rank`'s cells of the next `bytes`, its own, of which each `chunk_bytes` have a span, so that they are this core's
    /// when it comes to write there, if they are worth it (see [`Stores::ask_ahead`]).
    pub(super) fn ask_for_next(&mut self, rank: usize, bytes: usize, chunk_bytes: usize, idle: bool) {
        if !self.stores.ask_ahead(idle) {
            return;
        }
        #[allow(clippy::cast_possible_truncation)] // less than the ring's cells
        let cell = (self.taken % self.count as u64) as usize;
        let begin = cell * self.cell_bytes;
        // Not across the ring's end.
        let end = self.count * self.cell_bytes;
        self.asked = begin..begin;
        let chunk_cells = self.cells_of(chunk_bytes);
        for chunk in 0..bytes.div_ceil(chunk_bytes) {
            let begin = begin + chunk * chunk_cells * self.cell_bytes;
            self.asked.end = end.min(begin + chunk_bytes.min(bytes - chunk * chunk_bytes));
            for at in (begin..self.asked.end).step_by(LINE) {
                prefetch_for_write(self.first[rank].wrapping_add(at));
            }
        }
    }

    /// Copies `bytes` at `from` into `rank`'s cells of `span`, from `offset` on.
    ///
    /// # Safety
    /// They are this rank's, no peer reads these bytes of them before a flag that is yet to be published, and `from` is
    /// valid for `bytes` and not in them.
    #[inline]
    pub(super) unsafe fn put(&mut self, rank: usize, span: Span, offset: usize, from: *const u8, bytes: usize) {
        let to = self.room_for(rank, span, offset, bytes);
        // What is left out before the offset is written later.
        let begin = span.first_cell() as usize * self.cell_bytes + offset;
        let end = begin + bytes;
        let was_asked_for = self.asked.contains(&begin);
        let rested = end <= self.written && !was_asked_for;
        if was_asked_for {
            // Once only: the next lap finds it where its reader has left it.
            self.asked.start = end;
        }
        self.written = self.written.max(end);
        // SAFETY: the cells have room; the rest is the caller's promise.
        unsafe { self.stores.copy_in(to, from, bytes, rested) };
    }

    /// Where the `bytes` from `offset` on of `rank`'s cells of `span` are, its own, whose pages are taken.
    #[inline]
    pub(super) fn room_for(&mut self, rank: usize, span: Span, offset: usize, bytes: usize) -> *mut u8 {
        assert!(offset + bytes <= span.bytes() as usize, "{bytes} bytes at {offset} for a span of {}", span.bytes());
        let begin = span.first_cell() as usize * self.cell_bytes + offset;
        if bytes > 0 {
            self.touch(rank, begin..begin + bytes);
        }
        self.at(rank, span).wrapping_add(offset)
    }

    /// Takes the pages of `rank`'s own cells for `bytes`, block by block, where they are not there yet. Without it each costs a fault
    /// of the writer and one of each reader, some microseconds.
    #[inline]
    fn touch(&mut self, rank: usize, bytes: Range<usize>) {
        for block in bytes.start / BLOCK_BYTES..=(bytes.end - 1) / BLOCK_BYTES {
            if self.touched & 1 << block == 0 {
                self.touch_block(rank, block);
            }
        }
    }

    #[cold]
    fn touch_block(&mut self, rank: usize, block: usize) {
        map::touch(self.first[rank].wrapping_add(block * BLOCK_BYTES), BLOCK_BYTES);
        self.touched |= 1 << block;
    }

    /// Which blocks of its cells this rank has, a bit for each: others cost the operation that writes there first.
    pub(super) fn touched(&self) -> u64 {
        self.touched
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
    use crate::segment::layout::{PAGE, cells_in_ring};
    use crate::segment::{Backing, Shape};

    fn cells_of(ranks: usize) -> (Cells, Segment) {
        let most = cells_in_ring(ranks);
        let bytes = PAGE + most * cell_bytes(ranks);
        let shape = Shape { name: "test", ranks: 1, members: 0, cell_bytes: 0, bytes, least_bytes: bytes };
        let segment = Segment::together(&mut Alone, &shape, &[Backing::Heap]).expect("heap");
        // Behind the segment's header.
        (Cells::new(&segment, &vec![PAGE; ranks], most, 0, Stores::new(None, None, true)), segment)
    }

    /// Whoever has had any of a span's cells before is waited for, and nobody who is not a ring behind.
    #[test]
    fn a_span_waits_for_all_that_had_its_cells_while_the_ring_grows() {
        for (seed, longest) in [(1, 1), (2, 3), (3, 16), (4, 40), (5, 256)] {
            let (mut cells, _segment) = cells_of(2);
            // The latest step that has had each cell, if any.
            let mut had: Vec<Option<u32>> = vec![None; cells.most()];
            let (mut random, mut rings) = (seed * 0x9e37_79b9_u64, vec![cells.count]);
            for step in 0..20_000 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let wanted = 1 + usize::try_from(random >> 33).expect("31 bits") % longest;
                let span = cells.take(step, wanted * cells.cell_bytes(), step.saturating_sub(SLOTS));
                let first = span.first_cell() as usize;
                assert!(first + wanted <= cells.count && (wanted * SPANS).min(cells.most()) <= cells.count);
                for cell in &mut had[first..first + wanted] {
                    assert!(cell.is_none_or(|had| had < span.needed()), "step {step} overwrites {cell:?}");
                    *cell = Some(step);
                }
                assert!(span.needed() <= step, "step {step} waits for itself");
                if rings.last() != Some(&cells.count) {
                    rings.push(cells.count);
                }
            }
            assert_eq!(cells.count, cells.most());
            assert!(rings.is_sorted() && (longest > 3 || rings == [64, 128, 256, 512, 1024]), "{rings:?}");
            assert!(had.iter().all(Option::is_some), "all cells are used in the end");
        }
    }

    /// What an operation or two take is soon used again.
    #[test]
    fn few_operations_touch_few_cells() {
        let (mut cells, _segment) = cells_of(2);
        let first: std::collections::BTreeSet<u32> =
            (0..500).map(|step| cells.take(step, 4096, step.saturating_sub(SLOTS)).first_cell()).collect();
        assert_eq!(first.len(), FIRST_CELLS);
    }

    /// What is asked for in advance is where the next payload's chunks will stand, and nothing of the gaps between them.
    #[test]
    fn the_next_places_are_asked_for() {
        for (gap, bytes, chunk) in [(0, 4096, 4096), (512, 4096, 4096), (512, 3584, 3584), (512, 40_000, 16_384)] {
            let (mut cells, _segment) = cells_of(2);
            cells.gap_bytes = gap;
            for step in 0..200 {
                cells.take(step, chunk, step.saturating_sub(SLOTS));
            }
            cells.ask_for_next(0, bytes, chunk, false);
            let asked = cells.asked.clone();
            let mut begins = Vec::new();
            for at in 0..bytes.div_ceil(chunk) {
                let part = chunk.min(bytes - at * chunk);
                let begin = cells.take(200, part, 100).first_cell() as usize * cells.cell_bytes();
                begins.push(begin);
                assert!(asked.contains(&begin) && asked.contains(&(begin + part - 1)), "{asked:?}, {begin}");
            }
            assert_eq!(asked.start, begins[0]);
            let next = cells.take(201, chunk, 100).first_cell() as usize * cells.cell_bytes();
            assert!(next >= asked.end + gap, "{gap} bytes behind {asked:?} are free before {next}");
        }
    }

    /// Also those before the place where a rank begins to write, when the ring comes there.
    #[test]
    fn pages_are_taken_before_they_are_written() {
        let (mut cells, _segment) = cells_of(2);
        let payload = vec![1; 10_000];
        for step in 0..4000 {
            let span = cells.take(step, payload.len(), step.saturating_sub(SLOTS));
            if step < 40 {
                continue; // others write
            }
            // SAFETY: the cells are this rank's and were taken for the payload; nobody reads them.
            unsafe { cells.put(0, span, 0, payload.as_ptr(), payload.len()) };
            let begin = span.first_cell() as usize * cells.cell_bytes();
            for at in [begin, begin + payload.len() - 1] {
                assert!(cells.touched & 1 << (at / BLOCK_BYTES) != 0, "step {step}");
            }
        }
        assert_eq!(cells.touched, u64::MAX);
    }

    /// A copy that is to be timed finds its lines where its reader has left them.
    #[test]
    fn who_times_the_next_copy_asks_for_nothing() {
        let (mut cells, _segment) = cells_of(2);
        let payload = [1; 4096];
        let mut looks = 0;
        for step in 0..1000 {
            let span = cells.take(step, payload.len(), step.saturating_sub(SLOTS));
            // SAFETY: the cells are this rank's and were taken for the payload; nobody reads them.
            unsafe { cells.put(0, span, 0, payload.as_ptr(), payload.len()) };
            let is_due = cells.stores.look_is_due();
            let asked = cells.asked.clone();
            cells.ask_for_next(0, payload.len(), payload.len(), false);
            assert!(!is_due || cells.asked == asked, "step {step}");
            looks += usize::from(is_due);
        }
        assert!((2..500).contains(&looks), "{looks} looks");
    }

    /// What was asked for is written once; after that it can be timed like all else.
    #[test]
    fn places_that_were_asked_for_are_so_once() {
        let (mut cells, _segment) = cells_of(2);
        let payload = [1; 4096];
        cells.ask_for_next(0, payload.len(), payload.len(), false);
        assert!(!cells.asked.is_empty());
        let span = cells.take(0, payload.len(), 0);
        // SAFETY: the cells are this rank's and were taken for the payload; nobody reads them.
        unsafe { cells.put(0, span, 0, payload.as_ptr(), payload.len()) };
        assert!(cells.asked.is_empty());
    }

    /// Steps are numbers of 32 bits, and a long series of small operations takes no cells.
    #[test]
    fn cells_that_were_taken_long_ago_are_free() {
        const RANKS: usize = 33;
        let bytes = cells_in_ring(RANKS) * cell_bytes(RANKS);
        let (mut cells, _segment) = cells_of(RANKS);
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

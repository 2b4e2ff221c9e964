//! The regions of this rank that its peers can map, and the heap in them.
//!
//! A region is a memfd that stays open as long as it lives. Regions of the heap are made when they are
//! needed, at least as large as all before them together, so that there are few (each takes a descriptor);
//! what would fill half of one has a region of its own. Pages are taken by who touches them first, and
//! go back to the system with their region, or where a large block is freed beside others. Regions in which nothing is left and
//! the pages of such blocks are kept for the next ones up to a length: to get them anew takes longer than a collective on them.

use std::collections::VecDeque;
use std::ops::Range;

use crate::error::{Error, Result};
use crate::segment::layout::{HEAP_REGIONS, PAGE, REGIONS, REGISTERED, whole_pages};
use crate::sys::map::SharedMap;
use crate::sys::pages;

use super::peers::place_of;
use super::ranges::Ranges;

/// The first region of the heap.
const FIRST_BYTES: usize = 2 << 20;
/// Bytes that regions in which nothing is left, and large blocks freed beside others, may have together.
pub(super) const KEPT_BYTES: usize = 32 << 20;
/// Freed blocks of this size may give their pages back before their region is empty.
const DISCARDED_BYTES: usize = 2 << 20;
/// Blocks begin at multiples of this at least: two lines, as the processor fetches them.
pub(super) const ALIGN: usize = 128;

/// What a peer must know of a region.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extent {
    pub(super) start: usize,
    pub(super) bytes: usize,
    /// Never used again; modulo the places of the table it is its own.
    pub(super) number: u64,
    pub(super) fd: u32,
    pub(super) inode: u64,
    /// Whether its offset in the file is its address; else it is 0.
    pub(super) at_address: bool,
}

impl Extent {
    /// An extent that nothing lies in.
    pub(super) const NOWHERE: Self =
        Self { start: usize::MAX, bytes: 0, number: 0, fd: 0, inode: 0, at_address: false };

    /// How far into it `start..start + bytes` begins, if it lies wholly in it.
    #[inline]
    pub(super) fn offset_of(&self, start: usize, bytes: usize) -> Option<usize> {
        let offset = start.wrapping_sub(self.start);
        (offset < self.bytes && bytes <= self.bytes - offset).then_some(offset)
    }
}

#[derive(Debug)]
pub(super) struct Region {
    pub(super) extent: Extent,
    /// What is free in a region of the heap; `None` for registered memory.
    heap: Option<Heap>,
}

#[derive(Debug)]
struct Heap {
    map: SharedMap,
    ranges: Ranges,
}

impl Region {
    /// Gives its memory back, whoever has it mapped.
    pub(super) fn discard(&self) {
        if let Some(heap) = &self.heap {
            // Where the system cannot, the pages go with the peers' mappings.
            let _ = heap.map.discard(0, self.extent.bytes);
        }
    }

    fn is_free(&self) -> bool {
        self.heap.as_ref().is_some_and(|heap| heap.ranges.is_free())
    }
}

/// All regions of this rank.
#[derive(Debug, Default)]
pub(super) struct Regions {
    /// By their start.
    regions: Vec<Region>,
    /// Numbers given out so far, without their places.
    numbers: u64,
    /// Bytes in blocks that are in use.
    live_bytes: usize,
    /// Region and bytes of large blocks that were freed beside others and may have pages, the oldest first.
    freed: VecDeque<(u64, Range<usize>)>,
}

/// A block of the heap.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) pointer: *mut u8,
    /// The region's number.
    pub(super) region: u64,
    /// So many bytes at its start may have been used before; the rest is zero.
    pub(super) used_bytes: usize,
    /// Whether its region was made for it.
    pub(super) is_new: bool,
}

/// Size and alignment that a block of `bytes` really has; `None` if no address space has room for it.
pub(super) fn rounded(bytes: usize) -> Option<(usize, usize)> {
    let align = if bytes < PAGE { ALIGN } else { PAGE };
    let rounded = bytes.max(1).checked_next_multiple_of(align)?;
    (rounded < isize::MAX.unsigned_abs()).then_some((rounded, align))
}

impl Regions {
    /// The region that `start..start + bytes` lies wholly in.
    pub(super) fn around(&self, start: usize, bytes: usize) -> Option<Extent> {
        let after = self.regions.partition_point(|region| region.extent.start <= start);
        // Registered ranges may overlap, so the last one is not always it.
        let mut extents = self.regions[..after].iter().rev().map(|region| region.extent);
        extents.find(|extent| extent.offset_of(start, bytes).is_some())
    }

    /// True if a region of the heap has one of these bytes.
    pub(super) fn heap_overlaps(&self, range: &Range<usize>) -> bool {
        let overlaps = |extent: &Extent| extent.start < range.end && range.start < extent.start + extent.bytes;
        self.regions.iter().any(|region| region.heap.is_some() && overlaps(&region.extent))
    }

    /// Takes a block of the heap; `None` where it needs a region and the table is full.
    ///
    /// # Errors
    /// No memory, or no descriptor.
    pub(super) fn take(&mut self, bytes: usize) -> Result<Option<Block>> {
        let too_much = || Error::NoMemory { bytes, reason: "more than an address space has".to_owned() };
        let (bytes, align) = rounded(bytes).ok_or_else(too_much)?;
        let fits = |region: &mut Region| {
            let heap = region.heap.as_mut()?;
            let taken = heap.ranges.take(bytes, align)?;
            let pointer = heap.map.base().wrapping_add(taken.offset);
            Some(Block { pointer, region: region.extent.number, used_bytes: taken.used_bytes, is_new: false })
        };
        // Those in use first, then the smallest one, so that large ones are left for large blocks.
        let mut heap: Vec<&mut Region> = self.regions.iter_mut().filter(|region| region.heap.is_some()).collect();
        heap.sort_by_key(|region| if region.is_free() { region.extent.bytes } else { 0 });
        if let Some(block) = heap.into_iter().find_map(fits) {
            self.live_bytes += bytes;
            return Ok(Some(block));
        }
        // The kernel gives a file any length, and ends who touches more of it than there is.
        let machine_bytes = pages::machine_bytes();
        if bytes as u64 > machine_bytes {
            return Err(Error::NoMemory { bytes, reason: format!("this machine has {machine_bytes}") });
        }
        let Some(place) = self.free_place() else { return Ok(None) };
        let next_bytes = self.live_bytes.next_power_of_two().max(FIRST_BYTES);
        let mut region_bytes = if bytes > next_bytes / 2 { whole_pages(bytes) } else { next_bytes };
        let map = loop {
            match SharedMap::anonymous("han-memory", region_bytes) {
                Ok(map) => break map,
                // What is asked for and may be had is had, be there room for a large region or not.
                Err(_) if region_bytes / 2 > bytes.max(FIRST_BYTES) => region_bytes = whole_pages(region_bytes / 2),
                Err(error) => return Err(Error::NoMemory { bytes, reason: error.to_string() }),
            }
        };
        let mut ranges = Ranges::new(region_bytes);
        ranges.take(bytes, align).ok_or_else(too_much)?;
        map.prefer_huge_pages();
        let (pointer, start) = (map.base(), map.base().expose_provenance());
        let no_file = || Error::System { api: "fstat", reason: "a region lost its descriptor".to_owned() };
        let (fd, inode) = map.fd().zip(map.inode()).ok_or_else(no_file)?;
        let extent = Extent { start, bytes: region_bytes, number: 0, fd, inode, at_address: false };
        let region = self.insert(place, extent, Some(Heap { map, ranges }));
        self.live_bytes += bytes;
        Ok(Some(Block { pointer, region, used_bytes: 0, is_new: true }))
    }

    /// Gives back a block of the heap.
    pub(super) fn give(&mut self, pointer: *mut u8, bytes: usize, number: u64) {
        let Some((bytes, _)) = rounded(bytes) else { return };
        let Some(region) = self.regions.iter_mut().find(|region| region.extent.number == number) else { return };
        let Some(heap) = &mut region.heap else { return };
        self.live_bytes -= bytes;
        let offset = pointer.addr() - region.extent.start;
        heap.ranges.give(offset, bytes);
        let (block, is_free) = (offset..offset + bytes, heap.ranges.is_free());
        let is_gone = |other: &Range<usize>| is_free || block.start <= other.start && other.end <= block.end;
        self.freed.retain(|(of, other)| *of != number || !is_gone(other));
        if bytes >= DISCARDED_BYTES && !is_free {
            self.freed.push_back((number, block));
        }
    }

    /// Takes out regions in which nothing is left, until the others of them have `most` bytes together at most. What they leave
    /// of that freed blocks beside others may keep.
    pub(super) fn surplus(&mut self, most: usize) -> Vec<Region> {
        let mut surplus = Vec::new();
        loop {
            let free = || self.regions.iter().enumerate().filter(|(_, region)| region.is_free());
            let bytes: usize = free().map(|(_, region)| region.extent.bytes).sum();
            // First what is too large alone, then the oldest.
            let next = free().min_by_key(|(_, region)| (region.extent.bytes <= most, region.extent.number));
            let Some((index, _)) = next.filter(|_| bytes > most) else {
                self.discard_freed(most - bytes.min(most));
                return surplus;
            };
            surplus.push(self.regions.remove(index));
        }
    }

    /// Gives back pages of blocks that were freed beside others, until the rest of these have `most` bytes at most.
    fn discard_freed(&mut self, most: usize) {
        let mut bytes: usize = self.freed.iter().map(|(_, block)| block.len()).sum();
        while bytes > most
            && let Some((number, block)) = self.freed.pop_front()
        {
            bytes -= block.len();
            let region = self.regions.iter().find(|region| region.extent.number == number);
            let Some(heap) = region.and_then(|region| region.heap.as_ref()) else { continue };
            for range in heap.ranges.free_within(&block) {
                // Where the system cannot, the pages stay until the region is empty.
                let _ = heap.map.discard(range.start, range.len());
            }
        }
    }

    /// Takes in registered memory; its number. The rest of its pages belongs to other buffers, which may stay when
    /// this one goes.
    ///
    /// # Errors
    /// There are as many as may be.
    pub(super) fn add_registered(&mut self, buffer: &Range<usize>, fd: u32, inode: u64) -> Result<u64> {
        let extent = Extent { start: buffer.start, bytes: buffer.len(), number: 0, fd, inode, at_address: true };
        let full = || Error::NoMemory {
            bytes: extent.bytes,
            reason: format!("a rank has at most {REGISTERED} registered buffers at a time"),
        };
        let of_heap = self.regions.iter().filter(|region| region.heap.is_some()).count();
        let is_full = self.regions.len() + HEAP_REGIONS.saturating_sub(of_heap) >= REGIONS;
        let place = self.free_place().filter(|_| !is_full).ok_or_else(full)?;
        Ok(self.insert(place, extent, None))
    }

    /// Takes out registered memory.
    pub(super) fn remove(&mut self, number: u64) -> Option<Region> {
        let index = self.regions.iter().position(|region| region.extent.number == number)?;
        Some(self.regions.remove(index))
    }

    /// Takes in a region at a free place, and gives it a number.
    fn insert(&mut self, place: u64, mut extent: Extent, heap: Option<Heap>) -> u64 {
        self.numbers += 1;
        extent.number = self.numbers * REGIONS as u64 + place;
        let at = self.regions.partition_point(|other| other.extent.start < extent.start);
        self.regions.insert(at, Region { extent, heap });
        extent.number
    }

    fn free_place(&self) -> Option<u64> {
        let mut taken = [false; REGIONS];
        for region in &self.regions {
            taken[place_of(region.extent.number)] = true;
        }
        taken.iter().position(|taken| !taken).and_then(|place| u64::try_from(place).ok())
    }

    /// How many there are, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.regions.len(), self.regions.iter().map(|region| region.extent.bytes).sum())
    }
}

#[cfg(test)]
impl Regions {
    /// Takes all places but the heap's with registered buffers, or, if it is to be `full`, these as well.
    pub(super) fn fill(&mut self, full: bool) {
        let buffer = |count: usize| count * PAGE..(count + 1) * PAGE;
        while self.add_registered(&buffer(self.regions.len()), 0, 0).is_ok() {}
        while let Some(place) = self.free_place().filter(|_| full) {
            let extent = Extent { start: self.regions.len() * PAGE, bytes: 1, at_address: true, ..Extent::NOWHERE };
            self.insert(place, extent, None);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, unsafe_code)]
mod tests {
    use super::*;

    #[test]
    fn registered_buffers_leave_places_to_the_heap() {
        let mut regions = Regions::default();
        let (small, large) = (regions.take(1000).unwrap().unwrap(), regions.take(4 << 20).unwrap().unwrap());
        regions.fill(false);
        assert_eq!(regions.size().0, REGISTERED + 2, "as many as if the heap had nothing");
        let error = regions.add_registered(&(0..5), 0, 0).unwrap_err().to_string();
        assert!(error.contains("no memory for 5 bytes") && error.contains("at most 256 registered buffers"), "{error}");
        // Up to all memory of the machine.
        let mut bytes = FIRST_BYTES;
        while let Ok(block) = regions.take(bytes) {
            assert!(block.is_some());
            bytes *= 2;
        }
        for block in [(small, 1000), (large, 4 << 20)] {
            regions.give(block.0.pointer, block.1, block.0.region);
        }
        let mut regions = Regions::default();
        regions.fill(true);
        assert!(regions.take(1000).unwrap().is_none());
    }

    #[test]
    fn few_regions_hold_much_and_go_when_they_are_empty() {
        let mut regions = Regions::default();
        let mut blocks = Vec::new();
        // Nothing is touched: only address space is used.
        for bytes in [1, 4096, 100_000, 3 << 20].into_iter().cycle().take(2000) {
            let block = regions.take(bytes).unwrap().unwrap();
            assert!(block.pointer.addr().is_multiple_of(if bytes < PAGE { ALIGN } else { PAGE }));
            assert!(regions.around(block.pointer.addr(), bytes).is_some());
            blocks.push((block, bytes));
        }
        assert!(regions.size().0 < 40, "{:?}", regions.size());
        for (block, bytes) in blocks {
            regions.give(block.pointer, bytes, block.region);
            regions.surplus(KEPT_BYTES);
        }
        assert!(regions.size().1 <= KEPT_BYTES, "{:?}", regions.size());
        assert_eq!(regions.live_bytes, 0);
        regions.surplus(0);
        assert_eq!(regions.size(), (0, 0));
    }

    #[test]
    fn regions_are_kept_for_the_next_blocks() {
        let mut regions = Regions::default();
        let mut numbers = Vec::new();
        let mut turn = |bytes: usize, kept: usize| {
            let block = regions.take(bytes).unwrap().unwrap();
            assert_eq!(block.is_new, !numbers.contains(&block.region));
            numbers.push(block.region);
            regions.give(block.pointer, bytes, block.region);
            regions.surplus(KEPT_BYTES);
            assert_eq!(regions.size().1, kept << 20, "{bytes}");
            block.is_new
        };
        assert!(turn(12 << 20, 12) && turn(16 << 20, 28));
        assert!(!turn(12 << 20, 28) && !turn(16 << 20, 28));
        assert!(turn(100 << 20, 28), "too large to be kept");
        assert!(!turn(100, 28), "in the smallest");
        assert!(turn(20 << 20, 20), "the others are older");
        assert!(!turn(20 << 20, 20));
    }

    #[test]
    fn large_blocks_that_are_freed_beside_others_keep_their_pages_up_to_a_length() {
        const BYTES: usize = 4 << 20;
        let mut regions = Regions::default();
        let live = [(); 3].map(|()| regions.take(BYTES).unwrap().unwrap());
        let mut turn = |most| {
            let block = regions.take(BYTES).unwrap().unwrap();
            assert_eq!(block.region, live[2].region);
            // SAFETY: a block of so many bytes that nobody else knows of.
            unsafe { block.pointer.write_bytes(1, BYTES) };
            regions.give(block.pointer, BYTES, block.region);
            regions.surplus(most);
            let region = regions.regions.iter().find(|region| region.extent.number == block.region).unwrap();
            let file = std::fs::metadata(format!("/proc/self/fd/{}", region.extent.fd)).unwrap();
            std::os::unix::fs::MetadataExt::blocks(&file) * 512
        };
        for (most, kept) in [(KEPT_BYTES, BYTES), (BYTES, BYTES), (BYTES - 1, 0), (0, 0)] {
            assert_eq!(turn(most), kept as u64, "of {most}");
        }
    }

    #[test]
    fn a_small_block_leaves_large_regions_whole() {
        let mut regions = Regions::default();
        let blocks = [8 << 20, 4 << 20].map(|bytes| (regions.take(bytes).unwrap().unwrap(), bytes));
        for (block, bytes) in blocks {
            regions.give(block.pointer, bytes, block.region);
        }
        let first = regions.take(100).unwrap().unwrap();
        assert_eq!(first.region, blocks[1].0.region, "the smaller one");
        assert_eq!(regions.take(100).unwrap().unwrap().region, first.region, "in use already");
        assert_eq!(regions.take(8 << 20).unwrap().unwrap().region, blocks[0].0.region);
    }

    #[test]
    fn numbers_are_never_used_again() {
        let mut regions = Regions::default();
        let mut numbers = std::collections::HashSet::new();
        for _ in 0..1000 {
            let block = regions.take(4 << 20).unwrap().unwrap();
            assert!(block.is_new && numbers.insert(block.region));
            regions.give(block.pointer, 4 << 20, block.region);
            assert_eq!(regions.surplus(0).len(), 1);
        }
    }

    #[test]
    fn a_buffer_across_a_regions_end_lies_in_none() {
        let mut regions = Regions::default();
        let block = regions.take(8 << 20).unwrap().unwrap();
        let start = block.pointer.addr();
        assert!(regions.around(start, 8 << 20).is_some());
        assert!(regions.around(start, (8 << 20) + 1).is_none());
        assert!(regions.around(start + 4096, 8 << 20).is_none());
        assert!(regions.around(start - 1, 2).is_none());
        assert!(regions.around(start + (8 << 20) - 1, 1).is_some());
    }

    #[test]
    fn more_than_there_is_room_for_is_refused() {
        let mut regions = Regions::default();
        for bytes in [usize::MAX, usize::MAX / 2, isize::MAX.unsigned_abs() - 8192] {
            let error = regions.take(bytes).unwrap_err().to_string();
            assert!(error.starts_with("no memory for"), "{error}");
        }
        assert_eq!(regions.size(), (0, 0));
    }
}

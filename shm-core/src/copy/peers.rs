//! The regions of one peer that are mapped here: each once, until its owner has given it up.
#![allow(unsafe_code)] // dereferences the peer's table in the job's segment

use crate::error::Result;
use crate::segment::Place;
use crate::segment::layout::{REGIONS, RegionTable};
use crate::sync::Ordering;
use crate::sys::map::SharedMap;

use super::described::Described;

/// A peer's regions.
#[derive(Debug)]
pub(super) struct Peer {
    pid: u32,
    table: Place<RegionTable>,
    /// What the table's count was when dead regions were last looked for.
    seen: u32,
    mapped: Vec<(u64, SharedMap)>,
    /// The region that was asked for last, and where it is mapped.
    last: (u64, *mut u8),
}

impl Peer {
    /// The table must lie in a segment that stays mapped as long as this value.
    pub(super) fn new(pid: u32, table: Place<RegionTable>) -> Self {
        Self { pid, table, seen: 0, mapped: Vec::new(), last: (0, std::ptr::null_mut()) }
    }

    fn table(&self) -> &RegionTable {
        // SAFETY: the segment stays mapped as long as `self`, as `new` demands.
        unsafe { self.table.get() }
    }

    /// Where the region of `what` is mapped here.
    ///
    /// # Errors
    /// It cannot be opened or mapped.
    #[inline]
    pub(super) fn map(&mut self, what: &Described) -> Result<*mut u8> {
        // G2 (Acquire): pairs with G1. A region that was given up before what is described now was made
        // is dropped here; nothing else depends on it.
        let given_up = self.table().given_up.0.load(Ordering::Acquire);
        if given_up != self.seen {
            self.drop_dead(given_up);
        }
        if self.last.0 == what.region {
            return Ok(self.last.1);
        }
        self.find_or_map(what)
    }

    #[cold]
    fn find_or_map(&mut self, what: &Described) -> Result<*mut u8> {
        let known = self.mapped.iter().find(|(region, _)| *region == what.region);
        let base = if let Some((_, map)) = known {
            map.base()
        } else {
            let map = SharedMap::of_peer(self.pid, what.fd, what.inode, what.file_offset(), what.region_bytes)?;
            map.prefer_huge_pages();
            let base = map.base();
            self.mapped.push((what.region, map));
            base
        };
        self.last = (what.region, base);
        Ok(base)
    }

    #[cold]
    fn drop_dead(&mut self, given_up: u32) {
        self.seen = given_up;
        self.last.0 = 0;
        let mut mapped = std::mem::take(&mut self.mapped);
        mapped.retain(|(region, _)| self.table().living[place_of(*region)].load(Ordering::Relaxed) == *region);
        self.mapped = mapped;
    }

    /// How many regions are mapped here.
    pub(super) fn mapped(&self) -> usize {
        self.mapped.len()
    }
}

/// The place of a region in its owner's table: its number modulo all places.
pub(super) fn place_of(region: u64) -> usize {
    usize::try_from(region % REGIONS as u64).unwrap_or(0)
}

//! This process's memory as its peers can reach it, and theirs as it can.
#![allow(unsafe_code)] // dereferences this rank's table, copies between processes, takes private memory

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::rc::Rc;

use crate::error::{Error, Result};
use crate::segment::Place;
use crate::segment::layout::RegionTable;
use crate::sync::Ordering;
use crate::sys::fork;
use crate::sys::map::Spare;
use crate::sys::pidfd::Lives;
use crate::sys::remote::{Way, obstacle_here};

use super::described::Described;
use super::method::{Method, Methods};
use super::peers::{Peer, place_of};
use super::regions::{Extent, KEPT_BYTES, Region, Regions, rounded};
use super::registered::{Neighbours, Registered, Untold, pages_around, refused};
use super::remote::{RemoteBuffer, nothing_there};

/// A peer's buffer, as this rank reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It is mapped here.
    Mapped(*mut u8),
    /// The kernel copies from and to it.
    Kernel(RemoteBuffer),
}

/// Where a block of memory comes from, and so how it goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Home {
    /// The heap that peers can map: its region's number.
    Region(u64),
    /// This process's own heap.
    Private(Layout),
}

/// What one rank can reach of the others, and they of it.
pub(crate) struct Reach {
    rank: usize,
    pid: u32,
    pids: Vec<u32>,
    lives: Rc<Lives>,
    /// This rank's own table, in the job's segment.
    table: Place<RegionTable>,
    methods: Methods,
    /// Whether memory comes from regions at all.
    has_heap: bool,
    regions: RefCell<ManuallyDrop<Regions>>,
    registered: RefCell<ManuallyDrop<Registered>>,
    /// The region that was described last.
    last: Cell<Extent>,
    peers: Vec<RefCell<Peer>>,
    /// Kept for mappings, if a program takes all descriptors that it may have.
    spare: Cell<Option<Spare>>,
    /// Why a peer's region could not be mapped, where `cma` took its place.
    fallback: RefCell<Option<String>>,
    /// What others than this process work on where it is, in operations under way.
    lent: Rc<RefCell<VecDeque<Range<usize>>>>,
}

/// Vectors of an operation that others than this process may read and write where they are, other than by mapping them: a
/// peer's kernel, or the network. As long as it lives their pages are not moved.
#[derive(Debug)]
pub struct Lent {
    all: Rc<RefCell<VecDeque<Range<usize>>>>,
    vectors: [Range<usize>; 2],
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut all = self.all.borrow_mut();
        for vector in &self.vectors {
            // The oldest are in front, and mostly go first.
            let place = all.iter().position(|other| other == vector);
            place.map(|place| all.remove(place));
        }
    }
}

impl Reach {
    /// For rank `rank` of processes `pids`; `tables` lie in a segment that stays mapped as long as this
    /// value. Threads of one process reach each other's memory without `regions`.
    pub(crate) fn new(
        rank: usize,
        pids: &[u32],
        lives: Rc<Lives>,
        tables: &[Place<RegionTable>],
        methods: Methods,
        regions: bool,
    ) -> Self {
        let peers = pids.iter().zip(tables).map(|(&pid, &table)| RefCell::new(Peer::new(pid, table)));
        let has_heap = regions && methods.has(Method::Shared);
        if has_heap {
            // Where the system refuses, so does registering.
            fork::ready();
        }
        Self {
            rank,
            pid: std::process::id(),
            pids: pids.to_vec(),
            lives,
            table: tables[rank],
            has_heap,
            methods,
            regions: RefCell::default(),
            registered: RefCell::default(),
            last: Cell::new(Extent::NOWHERE),
            peers: peers.collect(),
            spare: Cell::new(if has_heap { Spare::take() } else { None }),
            fallback: RefCell::default(),
            lent: Rc::default(),
        }
    }

    /// The methods that all ranks can use.
    #[inline]
    pub(crate) fn methods(&self) -> &Methods {
        &self.methods
    }

    /// Lends an operation's vectors, of `bytes` each.
    pub(crate) fn lend(&self, vectors: [*const u8; 2], bytes: usize) -> Lent {
        let vectors = vectors.map(|start| start.addr()..start.addr().saturating_add(bytes));
        self.lent.borrow_mut().extend(vectors.clone());
        Lent { all: Rc::clone(&self.lent), vectors }
    }

    /// True if a vector that is lent lies on one of these pages.
    fn is_lent(&self, pages: &Range<usize>) -> bool {
        let overlaps = |vector: &Range<usize>| vector.start < pages.end && pages.start < vector.end;
        self.lent.borrow().iter().any(|vector| !vector.is_empty() && overlaps(vector))
    }

    /// True if all ranks reach all of each other's memory, be it mapped or not; all ranks say the same.
    pub(crate) fn reaches_all(&self) -> bool {
        self.methods.has(Method::Cma) || self.methods.has(Method::Shared) && self.is_one_process()
    }

    /// True if all ranks are threads of this process.
    fn is_one_process(&self) -> bool {
        self.pids.iter().all(|&pid| pid == self.pid)
    }

    fn table(&self) -> &RegionTable {
        // SAFETY: the segment stays mapped as long as `self`, as `new` demands.
        unsafe { self.table.get() }
    }

    /// Describes `start..start + bytes` of this process to peers.
    #[inline]
    pub(crate) fn describe(&self, start: *const u8, bytes: usize) -> Described {
        let address = start.expose_provenance();
        let last = self.last.get();
        if let Some(offset) = last.offset_of(address, bytes) {
            return Described::within(&last, address, offset);
        }
        self.describe_other(address, bytes)
    }

    fn describe_other(&self, address: usize, bytes: usize) -> Described {
        let Some(extent) = self.regions.borrow().around(address, bytes) else { return Described::plain(address) };
        self.last.set(extent);
        Described::within(&extent, address, address - extent.start)
    }

    /// True if every rank would map `what`, of this one or of a peer; all ranks say the same of it.
    #[inline]
    pub(crate) fn everywhere(&self, what: &Described) -> bool {
        self.methods.has(Method::Shared) && (what.is_shared() || self.is_one_process())
    }

    /// Finds the buffer that world rank `rank` has described.
    ///
    /// The access is valid until the owner may free the buffer: mappings go only when it gives the region up.
    ///
    /// # Errors
    /// [`Error::Unreachable`]: no method reaches it.
    #[inline]
    pub(crate) fn resolve(&self, rank: usize, what: &Described) -> Result<Access> {
        if self.methods.has(Method::Shared) {
            if self.pids[rank] == self.pid {
                return Ok(Access::Mapped(std::ptr::with_exposed_provenance_mut(what.address)));
            }
            if what.is_shared() {
                let mapped = self.peers[rank].borrow_mut().map(what);
                match mapped.or_else(|error| self.map_by_spare(rank, what, error)) {
                    Ok(base) => return Ok(Access::Mapped(base.wrapping_add(what.offset))),
                    Err(error) => self.note_fallback(rank, &error)?,
                }
            }
        }
        if self.methods.has(Method::Cma) {
            return Ok(Access::Kernel(RemoteBuffer::at(rank, self.pids[rank], what.address)));
        }
        Err(self.unreachable(rank))
    }

    /// Copies `bytes` that stand `offset` bytes into a peer's buffer to `to`.
    ///
    /// # Errors
    /// As [`RemoteBuffer::read`].
    ///
    /// # Safety
    /// `to` may be written for `bytes`.
    pub(crate) unsafe fn read(&self, from: RemoteBuffer, offset: usize, to: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        let outcome = unsafe { from.read(offset, to, bytes) };
        outcome.map_err(|error| self.or_own(error, Way::Read, to, bytes))?;
        // The peer's id was its own until now, as far as a tick of the clock tells: what was read is of no other process.
        if self.lives.may_be_another(from.rank()) { Err(from.gone()) } else { Ok(()) }
    }

    /// Copies `bytes` at `from` to the place `offset` bytes into a peer's buffer.
    ///
    /// A peer that ends, is reaped and has its id taken by another process of this user within a tick of the kernel's clock, or
    /// while this function runs, is not noticed before: the kernel has no such copy that goes by a descriptor of the process.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    ///
    /// # Safety
    /// `from` may be read for `bytes`, and the peer has given the buffer to be written.
    pub(crate) unsafe fn write(&self, to: RemoteBuffer, offset: usize, from: *const u8, bytes: usize) -> Result<()> {
        if self.lives.may_be_another(to.rank()) {
            return Err(to.gone());
        }
        // SAFETY: the caller's promise.
        let outcome = unsafe { to.write(offset, from, bytes) };
        outcome.map_err(|error| self.or_own(error, Way::Write, from, bytes))
    }

    /// The error of a copy, unless the kernel cannot reach the memory on this side of it, which it does not tell apart.
    #[cold]
    fn or_own(&self, error: Error, way: Way, here: *const u8, bytes: usize) -> Error {
        match obstacle_here(way, &(here.addr()..here.addr().saturating_add(bytes))) {
            Some(at) => nothing_there(self.rank, self.pid, way == Way::Read, at),
            None => error,
        }
    }

    /// Tries again what has failed with `error`, if the program has taken all descriptors, with one less in use. The spare one is
    /// lost if another thread takes it meanwhile.
    #[cold]
    fn map_by_spare(&self, rank: usize, what: &Described, error: Error) -> Result<*mut u8> {
        if let Some(another) = Spare::take() {
            // There are descriptors: that was not the reason.
            self.spare.set(Some(another));
            return Err(error);
        }
        let Some(spare) = self.spare.take() else { return Err(error) };
        drop(spare);
        let mapped = self.peers[rank].borrow_mut().map(what);
        self.spare.set(Spare::take());
        mapped
    }

    #[cold]
    fn note_fallback(&self, rank: usize, error: &Error) -> Result<()> {
        if self.methods.has(Method::Cma) {
            self.fallback.replace(Some(format!("rank {rank}: {error}")));
            return Ok(());
        }
        Err(Error::Unreachable { rank, pid: self.pids[rank], reason: error.to_string() })
    }

    #[cold]
    fn unreachable(&self, rank: usize) -> Error {
        let reason = format!("it is not shared memory, and cma is {}", self.methods.verdict(Method::Cma));
        Error::Unreachable { rank, pid: self.pids[rank], reason }
    }

    /// Takes memory for a buffer: from the heap that peers can map, if there is one, else from this
    /// process's own, as where the heap has no place for a region left. Aligned to 128 bytes, from 4 KiB on to pages;
    /// zeroed where that is wanted.
    ///
    /// # Errors
    /// [`Error::NoMemory`].
    pub(crate) fn take(&self, bytes: usize, zeroed: bool) -> Result<(*mut u8, Home)> {
        if !self.has_heap || !self.is_own() {
            return private(bytes);
        }
        let mut taken = self.regions.borrow_mut().take(bytes);
        if !matches!(taken, Ok(Some(_))) && self.bury_surplus(0) {
            taken = self.regions.borrow_mut().take(bytes);
        }
        let Some(block) = taken? else { return private(bytes) };
        if block.is_new {
            self.announce(block.region);
        }
        if zeroed {
            // SAFETY: the block is this long, and nobody else knows of it yet.
            unsafe { block.pointer.write_bytes(0, block.used_bytes.min(bytes)) };
        }
        Ok((block.pointer, Home::Region(block.region)))
    }

    /// Gives memory back that [`take`](Self::take) gave out for as many bytes.
    ///
    /// # Safety
    /// It was taken for `bytes`, is given back once, and nobody uses it any more.
    pub(crate) unsafe fn give(&self, pointer: *mut u8, bytes: usize, home: Home) {
        match home {
            // SAFETY: it was allocated with this layout, once, and goes back once (the caller's promise).
            Home::Private(layout) => unsafe { dealloc(pointer, layout) },
            // A forked child has copies of its parent's books, which are not its own to change.
            Home::Region(number) if self.is_own() => {
                self.regions.borrow_mut().give(pointer, bytes, number);
                self.bury_surplus(KEPT_BYTES);
            }
            Home::Region(_) => {}
        }
    }

    /// Gives up regions of the heap in which nothing is left, but for `most` bytes of them; false if there are none.
    fn bury_surplus(&self, most: usize) -> bool {
        let surplus = self.regions.borrow_mut().surplus(most);
        let any = !surplus.is_empty();
        surplus.into_iter().for_each(|region| self.bury(region));
        any
    }

    /// Gives up a region: peers unmap it when they next look, its pages go at once.
    fn bury(&self, region: Region) {
        self.last.set(Extent::NOWHERE);
        let table = self.table();
        table.living[place_of(region.extent.number)].store(0, Ordering::Relaxed);
        // G1 (Release): the place in the table is empty. Pairs with G2. One writer, so no exchange.
        let given_up = table.given_up.0.load(Ordering::Relaxed);
        table.given_up.0.store(given_up.wrapping_add(1), Ordering::Release);
        region.discard();
    }

    /// Registers ordinary memory, so that peers can map it where it is. Where the method is off nothing
    /// changes but the books.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`]: what else than private anonymous memory it is; or the system refuses.
    ///
    /// # Safety
    /// Until this returns, no other thread writes to `start..start + bytes`, nor, with
    /// [`Neighbours::Still`], to the rest of the first and the last page. The memory is not freed before it is
    /// unregistered.
    pub(crate) unsafe fn register(&self, start: *mut u8, bytes: usize, neighbours: Neighbours) -> Result<()> {
        let buffer = start.expose_provenance();
        let pages = pages_around(buffer, bytes, neighbours)?;
        if !self.is_own() {
            return Err(refused(buffer, bytes, "this process is a forked child of the rank"));
        }
        let (mut regions, mut registered) = (self.regions.borrow_mut(), self.registered.borrow_mut());
        if regions.heap_overlaps(&pages) {
            return Err(refused(buffer, bytes, "it is memory of han, which peers can map already"));
        }
        let table = fork::table();
        if table.start < pages.end && pages.start < table.end {
            return Err(refused(buffer, bytes, "a table of han's that forked children need lies on its pages"));
        }
        let fresh = registered.check(buffer, bytes, &pages)?;
        if fresh.iter().any(|pages| self.is_lent(pages)) {
            let why = "a vector of a collective that is under way lies on its pages: complete that before";
            return Err(refused(buffer, bytes, why));
        }
        if !self.has_heap {
            registered.note(buffer, bytes, pages);
            return Ok(());
        }
        let (fd, inode) = registered.file()?;
        let region = regions.add_registered(&(buffer..buffer + bytes), fd, inode)?;
        // SAFETY: just checked; the rest is the caller's promise.
        if let Err(error) = unsafe { registered.take_in((buffer, bytes), pages, fresh, neighbours, region) } {
            regions.remove(region);
            return Err(error);
        }
        self.announce(region);
        Ok(())
    }

    /// Makes registered memory private again; its contents stay.
    ///
    /// # Errors
    /// No registered buffer begins there, or the system does not tell ([`Untold::Refused`]); nothing has changed then. It was
    /// freed before, or the system refuses; then it is registered no more.
    ///
    /// # Safety
    /// No operation uses the buffer, and until this returns no other thread accesses its pages.
    pub(crate) unsafe fn unregister(&self, start: *mut u8, untold: Untold) -> Result<()> {
        let buffer = start.expose_provenance();
        if !self.is_own() {
            let why = "this process is a forked child of the rank that registered it".to_owned();
            return Err(Error::InvalidArgument(why));
        }
        let leaving = self.registered.borrow().leaving(buffer, |pages| self.is_lent(pages), untold)?;
        if let Some(region) = leaving.region.and_then(|region| self.regions.borrow_mut().remove(region)) {
            self.bury(region);
        }
        // SAFETY: just found; the rest is the caller's promise.
        unsafe { self.registered.borrow_mut().give_back(leaving) }
    }

    /// Enters a region into the table. Peers learn of it by descriptions, whose flags are a release.
    fn announce(&self, region: u64) {
        self.table().living[place_of(region)].store(region, Ordering::Relaxed);
    }

    /// False in a forked child of the rank.
    fn is_own(&self) -> bool {
        std::process::id() == self.pid
    }

    /// Several lines on methods and memory.
    pub(crate) fn in_words(&self) -> String {
        let (regions, bytes) = self.regions.borrow().size();
        let mapped: usize = self.peers.iter().map(|peer| peer.borrow().mapped()).sum();
        let fallback = self.fallback.borrow();
        format!(
            "copy methods: {}\n\
             reachable memory: {regions} regions of {} KiB here, {mapped} of peers mapped{}\n",
            self.methods,
            bytes / 1024,
            fallback.as_ref().map_or_else(String::new, |why| format!(" (cma in place of a mapping: {why})")),
        )
    }
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reach").field("rank", &self.rank).field("methods", &self.methods).finish_non_exhaustive()
    }
}

impl Drop for Reach {
    fn drop(&mut self) {
        if self.is_own() {
            // SAFETY: no communicator is left that could use a buffer; that no other thread accesses registered
            // memory is what those who registered it have promised to see to.
            unsafe { self.registered.borrow_mut().give_all_back() };
            // SAFETY: dropped here only, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.registered.borrow_mut()) };
            // SAFETY: dropped here only, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.regions.borrow_mut()) };
        }
    }
}

/// Zeroed memory of this process alone.
fn private(bytes: usize) -> Result<(*mut u8, Home)> {
    let no_memory = |reason: &str| Error::NoMemory { bytes, reason: reason.to_owned() };
    let (rounded, align) = rounded(bytes).ok_or_else(|| no_memory("more than an address space has"))?;
    let layout = Layout::from_size_align(rounded, align).map_err(|error| no_memory(&error.to_string()))?;
    // SAFETY: the layout's size is not 0.
    let pointer = unsafe { alloc_zeroed(layout) };
    if pointer.is_null() { Err(no_memory("the system has no more")) } else { Ok((pointer, Home::Private(layout))) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

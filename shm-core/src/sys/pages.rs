//! Ordinary memory of this process put where other processes can map it, and back, in place.
//!
//! A [`Mirror`] is one memfd whose offsets are this process's addresses. Pages that are taken in are copied
//! to their own offset and mapped from there, so the process finds them where they were; pages of several
//! ranges meet in it without ever moving, and one descriptor serves them all.
#![allow(unsafe_code)] // replaces mappings of this process
#![allow(clippy::cast_possible_wrap)] // addresses of user space as offsets, below 2^48

use std::fs::{self, File};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::sysinfo::sysinfo;

use super::held::Held;
use super::maps::{self, Mapping};
use super::{fork, map};
use crate::error::{Error, Result};

/// No user address of four-level page tables, which is where allocators stay, is as large: of their 48 bits, x86 keeps half
/// of the addresses for the kernel.
const ADDRESSES: u64 = 1 << if cfg!(target_arch = "x86_64") { 47 } else { 48 };
/// A page that is given back rests on the stack for a moment.
const LARGEST_PAGE: usize = if cfg!(target_arch = "x86_64") { 4096 } else { 65536 };
/// Pages that are looked up and moved at a time.
const PAGES_AT_A_TIME: usize = 512;

/// Bytes of a page of this system.
#[must_use]
pub fn page_bytes() -> usize {
    // SAFETY: sysconf reads no memory of this process.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Bytes of memory and swap of this machine; the most that there can be where the system does not tell.
#[must_use]
pub fn machine_bytes() -> u64 {
    sysinfo().map_or(u64::MAX, |seen| seen.ram_total().saturating_add(seen.swap_total()))
}

/// Threads of this process.
///
/// # Errors
/// The system does not tell.
pub fn threads() -> Result<usize> {
    let tasks = fs::read_dir("/proc/self/task").map_err(|error| Error::io("/proc/self/task", &error))?;
    Ok(tasks.count())
}

/// Why these pages cannot be taken in.
fn obstacle(mapping: &Mapping<'_>) -> Option<String> {
    let &Mapping { permissions, inode, name, .. } = mapping;
    let at = format!("the pages at {:#x}", mapping.range.start);
    if name.starts_with("[stack") {
        Some("it lies on a stack".to_owned())
    } else if permissions.ends_with('s') {
        Some(format!("{at} are shared already ({name})"))
    } else if inode != 0 {
        Some(format!("{at} are a mapping of the file {name}"))
    } else if !permissions.starts_with("rw-") {
        Some(format!("{at} are {permissions}, expected memory that is read and written (rw-)"))
    } else if name.is_empty() || name == "[heap]" || name.starts_with("[anon:") {
        None
    } else {
        Some(format!("{at} belong to the system ({name})"))
    }
}

/// What whole pages are instead of private anonymous memory that can be read and written, as the end of a sentence:
/// a stack of the main or the calling thread, for instance. `None` if they are such memory.
///
/// # Errors
/// The system does not tell.
pub fn obstacle_in(range: &Range<usize>) -> Result<Option<String>> {
    let here = 0_u8;
    let stack = own_stack();
    // A thread may run on a stack that the C library does not know.
    let is_stack = range.contains(&(&raw const here).addr())
        || stack.as_ref().is_some_and(|stack| stack.start < range.end && range.start < stack.end);
    if is_stack {
        return Ok(Some("it lies on a stack".to_owned()));
    }
    let (mut reached, mut fault) = (range.start, None);
    let read = maps::each(|mapping| {
        if mapping.range.end <= reached {
            return false;
        }
        if mapping.range.start > reached {
            return true;
        }
        fault = obstacle(mapping);
        reached = mapping.range.end;
        fault.is_some() || reached >= range.end
    });
    read.map_err(|errno| Error::system(maps::LIST, errno))?;
    let fault = fault.or_else(|| (reached < range.end).then(|| format!("nothing is mapped at {reached:#x}")));
    let locked = || are_locked(range).then(|| "it is locked in memory (mlock), which shared pages are not".to_owned());
    Ok(fault.or_else(locked))
}

/// True if any of these pages is locked. (`/proc/self/smaps` says so, too, but counts the pages of every mapping before them: 4 ms
/// per GiB.)
fn are_locked(range: &Range<usize>) -> bool {
    // SAFETY: writes and reads no memory; with this flag it is an error where pages are locked.
    let outcome = unsafe { libc::msync(pointer(range.start).cast(), range.len(), libc::MS_INVALIDATE) };
    outcome != 0 && Errno::last() == Errno::EBUSY
}

/// The calling thread's stack.
fn own_stack() -> Option<Range<usize>> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: it only gives the calling thread's own handle.
    let thread = unsafe { libc::pthread_self() };
    // SAFETY: the calling thread exists, and the attributes are there to be written.
    if unsafe { libc::pthread_getattr_np(thread, attributes.as_mut_ptr()) } != 0 {
        return None;
    }
    let (mut start, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes were filled in by the call above; the results are there to be written.
    let told = unsafe { libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut start, &raw mut bytes) } == 0;
    // SAFETY: filled in above, destroyed once.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    told.then(|| start.addr()..start.addr() + bytes)
}

/// Pages that could not be moved to the end.
#[derive(Debug)]
pub struct Stuck {
    /// Those that are mapped from the file.
    pub pages: Range<usize>,
    /// What the system has refused.
    pub error: Error,
}

/// The memfd that this process's registered pages live in.
#[derive(Debug)]
pub struct Mirror {
    file: Held,
    /// [`fork::count`] when it was made.
    forks: u32,
    /// Tells which pages were ever touched; without it all are copied.
    pagemap: Option<Held>,
}

impl Mirror {
    /// An empty one.
    ///
    /// # Errors
    /// The kernel refuses the memfd, or the limit on a file's size does.
    pub fn new() -> Result<Self> {
        check_file_limit("ftruncate", ADDRESSES)?;
        let file = Held::new(map::sealed_memfd("han-registered", ADDRESSES)?)?;
        let pagemap = File::open("/proc/thread-self/pagemap").ok().and_then(|file| Held::new(file).ok());
        Ok(Self { file, forks: fork::count(), pagemap })
    }

    /// The descriptor, for peers and for forked children.
    #[must_use]
    pub fn fd(&self) -> u32 {
        u32::try_from(self.file.as_raw_fd()).unwrap_or(u32::MAX)
    }

    /// The file's identity.
    #[must_use]
    pub fn inode(&self) -> u64 {
        self.file.inode()
    }

    /// False if the program has closed the descriptor. Then nothing can be taken in, but all can be given back.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.file.is_open()
    }

    /// The parts of `range` that are not mapped from this file.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn lacks(&self, range: &Range<usize>) -> Result<Vec<Range<usize>>> {
        let (mut parts, mut reached) = (Vec::new(), range.start);
        let read = maps::each(|mapping| {
            let overlaps = mapping.range.start < range.end && reached < mapping.range.end;
            if overlaps && mapping.mirrors(self.inode()) {
                parts.extend((reached < mapping.range.start).then_some(reached..mapping.range.start));
                reached = mapping.range.end;
            }
            mapping.range.end >= range.end
        });
        read.map_err(|errno| Error::system(maps::LIST, errno))?;
        parts.extend((reached < range.end).then_some(reached..range.end));
        Ok(parts)
    }

    /// Whether a forked child may have a view of it, in which pages that are given back would turn to zeros.
    #[must_use]
    pub fn has_viewers(&self) -> bool {
        fork::count() != self.forks
    }

    /// Gives the memory of pages back that are not mapped here any more; false where the file keeps it, for a child for
    /// instance, until it is closed by all.
    pub fn discard(&self, range: &Range<usize>) -> bool {
        if self.has_viewers() || !self.is_open() {
            return false;
        }
        let (Ok(offset), Ok(bytes)) = (i64::try_from(range.start), i64::try_from(range.len())) else { return false };
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(&*self.file, flags, offset, bytes).is_ok()
    }

    /// Whether the file is a hole there.
    fn has_nothing_in(&self, range: &Range<usize>) -> bool {
        let Ok(start) = libc::off_t::try_from(range.start) else { return false };
        // SAFETY: it touches no memory; nothing reads or writes at the file's own position.
        let data = unsafe { libc::lseek(self.file.as_raw_fd(), start, libc::SEEK_DATA) };
        usize::try_from(data).map_or_else(|_| Errno::last() == Errno::ENXIO, |data| data >= range.end)
    }

    /// Takes whole pages in; their contents stay. Pages that were never touched are not touched here.
    ///
    /// # Errors
    /// The kernel refuses; [`Stuck::pages`] are in the file then, the others as they were.
    ///
    /// # Safety
    /// The file [is open](Self::is_open). The pages are private anonymous memory that may be read and written
    /// ([`obstacle_in`]), and nobody writes to them or changes the mapping meanwhile, no handler of a signal either.
    pub unsafe fn take_in(&self, range: Range<usize>) -> std::result::Result<(), Stuck> {
        if range.end as u64 > ADDRESSES {
            let reason = "the address is above those that allocators use".to_owned();
            let error = Error::System { api: "mmap", reason };
            return Err(Stuck { pages: range.start..range.start, error });
        }
        let step = PAGES_AT_A_TIME * page_bytes();
        for start in range.clone().step_by(step) {
            let chunk = start..range.end.min(start + step);
            // SAFETY: part of what the caller has promised.
            let taken = unsafe { self.take_in_chunk(&chunk) };
            taken.map_err(|error| Stuck { pages: range.start..start, error })?;
        }
        // SAFETY: advice on a mapping of this process; where huge pages are refused there are small ones.
        unsafe { libc::madvise(pointer(range.start).cast(), range.len(), libc::MADV_HUGEPAGE) };
        Ok(())
    }

    /// # Safety
    /// As [`take_in`](Self::take_in). Nothing is allocated between the first copy and the mapping: the
    /// allocator's own books may lie in these pages.
    unsafe fn take_in_chunk(&self, chunk: &Range<usize>) -> Result<()> {
        let page = page_bytes();
        let mut entries = [0_u8; 8 * PAGES_AT_A_TIME];
        let entries = &mut entries[..8 * (chunk.len() / page)];
        let known = self
            .pagemap
            .as_ref()
            .filter(|pagemap| pagemap.is_open())
            .is_some_and(|pagemap| pagemap.read_exact_at(entries, 8 * (chunk.start / page) as u64).is_ok());
        // Of a page's eight bytes the top two bits: it is in memory, it is swapped out.
        let has_content = if cfg!(target_endian = "little") { 7 } else { 0 };
        let holds_something = |index: usize| entries[8 * index + has_content] & 0xc0 != 0;
        // What is not written must be a hole in the file, also if pages that were freed unasked have left
        // something there.
        let is_hole = || self.discard(chunk) || self.has_nothing_in(chunk);
        let skips = known && !(0..chunk.len() / page).all(holds_something) && is_hole();
        let touched = |index: usize| !skips || holds_something(index);
        let mut index = 0;
        while index < chunk.len() / page {
            let first = index;
            while index < chunk.len() / page && touched(index) {
                index += 1;
            }
            let at = chunk.start + first * page;
            // SAFETY: pages of the chunk, which may be read and are not written meanwhile.
            unsafe { write_all(&self.file, at, (index - first) * page) }?;
            index += usize::from(index == first);
        }
        // SAFETY: the pages are the caller's to replace, and the file has their contents.
        unsafe { map_file(self.file.as_raw_fd(), chunk) }.map_err(|errno| Error::system("mmap", errno))
    }

    /// Gives whole pages back to be private memory; their contents stay.
    ///
    /// # Errors
    /// The kernel refuses; [`Stuck::pages`] are still in the file then, with their contents.
    ///
    /// # Safety
    /// The pages are mapped from this file ([`lacks`](Self::lacks)), and nobody accesses them or changes
    /// the mapping meanwhile, no handler of a signal either. All but the first and the last are free of data of
    /// this process's own workings: the allocator's books, this value, thread-local storage.
    pub unsafe fn give_back(&self, range: Range<usize>) -> std::result::Result<(), Stuck> {
        if range.is_empty() {
            return Ok(());
        }
        // This value may lie on the first or the last page: nothing below reads it while they are moved.
        let (fd, page) = (self.file.as_raw_fd(), page_bytes());
        let (first, last) = (range.start, range.end - page);
        let (mut at, mut hole) = (first, first);
        while at < range.end {
            // The first page and the last one alone, what is between in larger pieces as long as there is a file to read. They
            // end where a huge page may begin.
            let alone = at == first || at == last || !self.is_open();
            let end = if alone { at + page } else { last.min((at + 1).next_multiple_of(PAGES_AT_A_TIME * page)) };
            let chunk = at..end;
            at = end;
            let moved = if alone {
                // SAFETY: a page of the file, which nobody else accesses (the caller's promise).
                unsafe { page_back(&chunk) }
            } else {
                // SAFETY: pages of the file, which nobody accesses and this process can do without (the same).
                unsafe { pages_back(fd, &chunk, &mut hole) }
            };
            if let Err(errno) = moved {
                return Err(Stuck { pages: chunk.start..range.end, error: Error::system("mmap", errno) });
            }
            // Where the system cannot, the file keeps the pages until they are taken in again.
            self.discard(&chunk);
        }
        Ok(())
    }
}

/// Gives one page back, on which anything may lie: from the first instruction after its mapping is
/// replaced until its contents are there again, only this stack is used.
///
/// # Safety
/// The page may be read and is the caller's to replace, and nobody else accesses it meanwhile.
#[inline(never)]
pub(super) unsafe fn page_back(page: &Range<usize>) -> std::result::Result<(), Errno> {
    let (start, bytes) = (page.start, page.len());
    let mut copy = MaybeUninit::<[usize; LARGEST_PAGE / size_of::<usize>()]>::uninit();
    let copy = copy.as_mut_ptr().expose_provenance();
    if bytes > LARGEST_PAGE {
        return Err(Errno::EINVAL);
    }
    // SAFETY: a page that may be read, and room for it.
    unsafe { copy_page(start, copy, bytes) };
    // SAFETY: the caller's promise.
    unsafe { map_anonymous(&(start..start + bytes)) }?;
    // SAFETY: the page was just mapped for writing.
    unsafe { copy_page(copy, start, bytes) };
    Ok(())
}

/// Copies a page with all that lies on it. Not by `memcpy`: in a program that is built with AddressSanitizer that is the
/// sanitizer's, which ends the program where it finds bytes between objects.
///
/// # Safety
/// At both addresses `bytes` are valid, aligned as a `usize` is, and apart; nobody else accesses them meanwhile.
#[inline]
pub(super) unsafe fn copy_page(from: usize, to: usize, bytes: usize) {
    if cfg!(sanitized) {
        // Where this code is built with it, too, every access is looked at, but what `memcpy` finds can be suppressed.
        // SAFETY: the caller's promise.
        return unsafe { pointer(to).copy_from_nonoverlapping(pointer(from), bytes) };
    }
    for at in (0..bytes).step_by(size_of::<usize>()) {
        let word: *const usize = std::ptr::with_exposed_provenance(from + at);
        // SAFETY: a word of the page. Volatile, lest the compiler makes a `memcpy` of the loop.
        let word = unsafe { word.read_volatile() };
        let place: *mut usize = std::ptr::with_exposed_provenance_mut(to + at);
        // SAFETY: its place, the same.
        unsafe { place.write_volatile(word) };
    }
}

/// Gives pages back, as far as the file has something of them; the rest is zero there and here. `hole` keeps where the
/// data ends that was found last, from one piece of a buffer to the next: the kernel looks at every page before it.
///
/// # Safety
/// The pages are the caller's to replace, nobody else accesses them meanwhile, and nothing that this process
/// needs in order to run lies on them.
unsafe fn pages_back(fd: i32, pages: &Range<usize>, hole: &mut usize) -> std::result::Result<(), Errno> {
    // SAFETY: the caller's promise; the contents are in the file.
    unsafe { map_anonymous(pages) }?;
    // SAFETY: just mapped for writing.
    let read = unsafe { read_back(fd, pages, hole) };
    if read.is_err() {
        // SAFETY: as they were before.
        unsafe { map_file(fd, pages) }?;
    }
    read
}

/// # Safety
/// The pages may be written, and nobody else accesses them meanwhile.
unsafe fn read_back(fd: i32, pages: &Range<usize>, hole: &mut usize) -> std::result::Result<(), Errno> {
    let seek = |from: usize, whence: i32| {
        // SAFETY: lseek reads no memory of this process; the file's position means nothing to anybody.
        let found = unsafe { libc::lseek(fd, from as libc::off_t, whence) };
        Errno::result(found).map(|found| usize::try_from(found).unwrap_or(usize::MAX))
    };
    let mut at = pages.start;
    while at < pages.end {
        at = match seek(at, libc::SEEK_DATA) {
            Err(Errno::ENXIO) => return Ok(()),
            data => data?,
        };
        if *hole <= at && at < pages.end {
            *hole = seek(at, libc::SEEK_HOLE)?;
        }
        let end = pages.end.min(*hole);
        while at < end {
            // SAFETY: part of the pages, which may be written.
            let read = unsafe { libc::pread(fd, pointer(at).cast(), end - at, at as libc::off_t) };
            at += usize::try_from(Errno::result(read)?).unwrap_or(0);
        }
    }
    Ok(())
}

/// # Safety
/// The range is the caller's to replace.
#[inline]
unsafe fn map_anonymous(range: &Range<usize>) -> std::result::Result<(), Errno> {
    // SAFETY: the caller's promise.
    unsafe { map_fixed(range, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }
}

/// Maps the file over the addresses that are its offsets.
///
/// # Safety
/// The range is the caller's to replace.
unsafe fn map_file(fd: i32, range: &Range<usize>) -> std::result::Result<(), Errno> {
    // SAFETY: the caller's promise; the file is as long as the address space.
    unsafe { map_fixed(range, libc::MAP_SHARED, fd, range.start as libc::off_t) }
}

/// # Safety
/// The range is the caller's to replace.
#[inline]
unsafe fn map_fixed(range: &Range<usize>, kind: i32, fd: i32, offset: libc::off_t) -> std::result::Result<(), Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let place = pointer(range.start).cast();
    // SAFETY: the caller's promise.
    let mapped = unsafe { libc::mmap(place, range.len(), protection, kind | libc::MAP_FIXED, fd, offset) };
    if mapped == libc::MAP_FAILED { Err(Errno::last()) } else { Ok(()) }
}

fn pointer(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

/// An error of `api` if the mirror may not reach to `end`, as it might when it was made: the kernel's answer would be a signal.
fn check_file_limit(api: &'static str, end: u64) -> Result<()> {
    if end <= map::file_limit() {
        return Ok(());
    }
    let reason = "registered memory lies in a file as long as the address space, and this process has a limit on a file's \
                  size: lift it (ulimit -f unlimited)";
    Err(Error::System { api, reason: reason.to_owned() })
}

/// Writes `bytes` at `address` to the same offset of `file`.
///
/// # Safety
/// They may be read, and nobody writes them meanwhile.
unsafe fn write_all(file: &File, address: usize, bytes: usize) -> Result<()> {
    let (mut at, end) = (address, address + bytes);
    while at < end {
        check_file_limit("pwrite", end as u64)?;
        // By the kernel's number: the function may be AddressSanitizer's (see `copy_page`).
        let (place, rest, offset) = (pointer(at), end - at, at as libc::off_t);
        // SAFETY: the caller's promise.
        let written = unsafe { libc::syscall(libc::SYS_pwrite64, file.as_raw_fd(), place, rest, offset) };
        match Errno::result(written).map(|bytes| usize::try_from(bytes).unwrap_or(0)) {
            // As if the file had no room: another try would write nothing, either.
            Ok(0) => return Err(Error::system("pwrite", Errno::ENOSPC)),
            Ok(bytes) => at += bytes,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::system("pwrite", errno)),
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

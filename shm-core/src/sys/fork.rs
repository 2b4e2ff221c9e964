//! What a forked child sees of pages that its parent shares with other processes.
//!
//! A child inherits shared pages as they are: what it wrote would change its parent, and through malloc's
//! books on the same pages its parent's heap. So the child, before anything else of it runs, replaces them:
//! by a private view of the file, and for the first and last page of a range, which hold other data as well,
//! by an exact copy, for which the parent waits. Where the process has closed the file's descriptor, all are copies. The C
//! library calls us at each `fork`; a bare `clone` does not, and `vfork` and `posix_spawn` need not.
//!
//! If there are several threads, the C library works in the child before it calls us: on locks of its own, of streams and
//! of malloc, which may lie on the first or the last page of a range. The child gets these pages by another mapping alone,
//! of which the C library does not know: where it needs them the child ends by a signal, and its parent is unharmed.
//!
//! Which pages these are the child asks the kernel: a range that was freed against the rules may be anybody's
//! by now. While pages are moved nobody forks, and no handler of a signal runs ([`Still`]); nor from before a fork until
//! the child has its pages, as a handler may fork itself, and may write to pages that are not the child's yet.
//!
//! Handlers of `fork` belong to the process and cannot be given a value, hence the static here.
#![allow(unsafe_code)] // replaces mappings of the child, and handlers of fork have no safe interface

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow};
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, send, socketpair};
use nix::sys::stat::stat;

use super::pages::{copy_page, page_back, page_bytes};
use super::{affinity, futex, maps};

/// Ranges of one process at one time.
pub const MOST: usize = 1024;
/// How long a parent waits for its child's copies: longer than a busy machine keeps a child from running, as until
/// then both have the same pages. Its thread handles no signal meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pages to itself, because the child writes here before it has pages of its own. The larger alignment is that of the
/// largest pages of a machine.
#[cfg_attr(not(target_arch = "aarch64"), repr(align(4096)))]
#[cfg_attr(target_arch = "aarch64", repr(align(65536)))]
struct Shared {
    /// Held by whoever moves pages, and from before a fork until its child has its own pages.
    lock: AtomicBool,
    /// The fork under way has pages to replace; belongs to who has the lock.
    forking: AtomicBool,
    /// The fork under way; belongs to who has the lock.
    fork: UnsafeCell<Option<Fork>>,
    /// 1 once the child has its own pages; lies in memory that parent and child share. Each parent has its own word, lest
    /// the children of a child speak for it: null in a child, until it needs one.
    done: AtomicPtr<AtomicU32>,
    /// Forks that had pages to replace.
    forks: AtomicU32,
    count: AtomicUsize,
    entries: [Entry; MOST],
}

/// A fork under way.
struct Fork {
    _still: Still,
    /// The parent's end of a connection and the child's, if there are pages to replace: it ends when the child does, however
    /// early. A process without free descriptors has none.
    line: Option<(OwnedFd, OwnedFd)>,
}

struct Entry {
    start: AtomicUsize,
    bytes: AtomicUsize,
    fd: AtomicU32,
    inode: AtomicU64,
    /// The other mappings of the first and the last page while a fork is under way; 0 where there is none.
    aliases: [AtomicUsize; 2],
}

/// What stands in the table: pages, and the descriptor and the inode of their file.
#[derive(Clone)]
struct Known {
    range: Range<usize>,
    fd: u32,
    inode: u64,
}

// SAFETY: only who has the lock accesses `fork`; all else is atomic.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared {
    lock: AtomicBool::new(false),
    forking: AtomicBool::new(false),
    fork: UnsafeCell::new(None),
    done: AtomicPtr::new(ptr::null_mut()),
    forks: AtomicU32::new(0),
    count: AtomicUsize::new(0),
    entries: [const {
        Entry {
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            fd: AtomicU32::new(0),
            inode: AtomicU64::new(0),
            aliases: [const { AtomicUsize::new(0) }; 2],
        }
    }; MOST],
};

impl Shared {
    fn lock(&self) {
        // F2 (Acquire): pairs with F1.
        while self.lock.swap(true, Ordering::Acquire) {
            affinity::yield_now();
        }
    }

    fn unlock(&self) {
        // F1 (Release): the entries and `fork` are as the next thread shall find them. Pairs with F2.
        self.lock.store(false, Ordering::Release);
    }

    fn get(&self, index: usize) -> Known {
        let entry = &self.entries[index];
        let start = entry.start.load(Ordering::Relaxed);
        let range = start..start + entry.bytes.load(Ordering::Relaxed);
        Known { range, fd: entry.fd.load(Ordering::Relaxed), inode: entry.inode.load(Ordering::Relaxed) }
    }

    fn set(&self, index: usize, known: &Known) {
        let entry = &self.entries[index];
        entry.start.store(known.range.start, Ordering::Relaxed);
        entry.bytes.store(known.range.len(), Ordering::Relaxed);
        entry.fd.store(known.fd, Ordering::Relaxed);
        entry.inode.store(known.inode, Ordering::Relaxed);
    }

    /// The first and the last page of each range, and where the other mapping of each is noted.
    fn edges(&self) -> impl Iterator<Item = (Range<usize>, u64, &AtomicUsize)> {
        let page = page_bytes();
        self.all().zip(&self.entries).flat_map(move |(known, entry)| {
            let firsts = [known.range.start, known.range.end - page];
            let edges = firsts.into_iter().zip(&entry.aliases);
            edges.map(move |(first, alias)| (first..first + page, known.inode, alias))
        })
    }

    fn all(&self) -> impl Iterator<Item = Known> {
        (0..self.count.load(Ordering::Relaxed)).map(|index| self.get(index))
    }
}

/// As long as it lives nobody forks this process, and this thread handles no signal.
#[derive(Debug)]
pub struct Still {
    signals: SigSet,
}

impl Still {
    /// Waits until no fork is under way.
    #[must_use]
    pub fn begin() -> Self {
        let mut signals = SigSet::empty();
        // A mask that cannot be set, which has no reason but a wrong argument, stays as it is.
        let _ = nix::sys::signal::sigprocmask(SigmaskHow::SIG_BLOCK, Some(&SigSet::all()), Some(&mut signals));
        SHARED.lock();
        Self { signals }
    }

    /// From now on, children of this process get pages of their own in place of `ranges`, which are mapped
    /// from `fd`, the file of `inode`, at offsets that are their addresses. Replaces what was said of that file before.
    ///
    /// False if there are too many, or the system refuses; then nothing has changed.
    #[must_use]
    pub fn protect(&self, fd: u32, inode: u64, ranges: &[Range<usize>]) -> bool {
        let needs_handlers = !ranges.is_empty();
        if needs_handlers && !ready() {
            return false;
        }
        let others = SHARED.all().filter(|known| known.inode != inode).count();
        if others + ranges.len() > MOST {
            return false;
        }
        let mut kept = 0;
        for known in SHARED.all().filter(|known| known.inode != inode) {
            SHARED.set(kept, &known);
            kept += 1;
        }
        for (place, range) in ranges.iter().enumerate() {
            SHARED.set(kept + place, &Known { range: range.clone(), fd, inode });
        }
        SHARED.count.store(kept + ranges.len(), Ordering::Relaxed);
        true
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        SHARED.unlock();
        // What was in force before.
        let _ = nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.signals), None);
    }
}

/// Calls `handler` in every child that is forked from now on, before its `fork` returns, and when it has pages of its own.
/// It may do what is allowed there: atomics and plain system calls. False if the system refuses.
#[must_use]
pub fn in_children(handler: extern "C" fn()) -> bool {
    // SAFETY: the function is there as long as this library. The C library calls those of children in the order in which
    // they were given.
    has_handlers() && unsafe { libc::pthread_atfork(None, None, Some(handler)) == 0 }
}

/// Where the table lies by which children are given pages of their own, which cannot be given to them itself.
#[must_use]
pub fn table() -> Range<usize> {
    let start = (&raw const SHARED).addr();
    start..start + size_of::<Shared>()
}

/// How many forks had pages to replace: children of theirs may have views of files. Changes in no [`Still`].
#[must_use]
pub fn count() -> u32 {
    SHARED.forks.load(Ordering::Relaxed)
}

/// Prepares for [`Still::protect`]. To be called well before, because a fork that another thread has under way just
/// then is not told of. False if the system refuses.
pub fn ready() -> bool {
    prepare() && has_handlers()
}

/// True once the C library calls us at forks.
fn has_handlers() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: the three functions are there for ever, and make system calls and atomic accesses only.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) == 0 }
    })
}

/// Makes the word by which this process's children report.
fn prepare() -> bool {
    if !SHARED.done.load(Ordering::Relaxed).is_null() {
        return true;
    }
    let (read_write, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping where the kernel likes; it stays for the life of the process.
    let page = unsafe { libc::mmap(ptr::null_mut(), page_bytes(), read_write, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    // Nothing has been written to the page: the kernel's zero is seen by whoever sees where it is.
    let raced = SHARED.done.compare_exchange(ptr::null_mut(), page.cast(), Ordering::Relaxed, Ordering::Relaxed);
    if raced.is_err() {
        // SAFETY: another thread's page is used; nobody knows of this one.
        unsafe { libc::munmap(page, page_bytes()) };
    }
    true
}

fn done() -> Option<&'static AtomicU32> {
    // SAFETY: null, or the page of `prepare`, which is never unmapped and starts as a zero.
    unsafe { SHARED.done.load(Ordering::Relaxed).as_ref() }
}

/// In the parent, before each fork.
extern "C" fn before() {
    let still = Still::begin();
    let is_needed = SHARED.count.load(Ordering::Relaxed) > 0;
    SHARED.forking.store(is_needed, Ordering::Relaxed);
    SHARED.forks.fetch_add(u32::from(is_needed), Ordering::Relaxed);
    if let Some(done) = done() {
        done.store(0, Ordering::Relaxed);
    }
    let connect = || socketpair(AddressFamily::Unix, SockType::Stream, None, SockFlag::SOCK_CLOEXEC).ok();
    let line = is_needed.then(connect).flatten();
    if is_needed && !is_only_thread() {
        withhold_edges();
    }
    // SAFETY: this thread has just taken the lock.
    unsafe { *SHARED.fork.get() = Some(Fork { _still: still, line }) };
}

/// Whether this process has no other thread; false where the system does not tell.
fn is_only_thread() -> bool {
    // A folder has two links, and one more for each in it.
    stat(c"/proc/self/task").is_ok_and(|tasks| tasks.st_nlink == 3)
}

/// Withholds the first and the last page of each range from the next child, but for another mapping of each.
fn withhold_edges() {
    // Where the system does not tell, the child gets them as they are.
    let _ = maps::each(|mapping| {
        let is_there = |page: &Range<usize>| mapping.range.start <= page.start && page.end <= mapping.range.end;
        for (page, _, alias) in SHARED.edges().filter(|(page, inode, _)| mapping.mirrors(*inode) && is_there(page)) {
            let place = ptr::with_exposed_provenance_mut(page.start);
            // SAFETY: of no bytes of a shared mapping it makes another one of the same page elsewhere.
            let other = unsafe { libc::mremap(place, 0, page.len(), libc::MREMAP_MAYMOVE) };
            // The page may be withheld already, as another range's.
            // SAFETY: advice on the mapping that was just made.
            if other != libc::MAP_FAILED && unsafe { libc::madvise(other, page.len(), libc::MADV_DOFORK) } == 0 {
                alias.store(other.expose_provenance(), Ordering::Relaxed);
                // SAFETY: advice on a page that this process has registered; where it is refused the child gets the page.
                unsafe { libc::madvise(place, page.len(), libc::MADV_DONTFORK) };
            }
        }
        false
    });
}

/// Undoes [`withhold_edges`] in the parent.
fn release_edges() {
    for (page, _, alias) in SHARED.edges() {
        let other = alias.swap(0, Ordering::Relaxed);
        if other != 0 {
            // SAFETY: advice on a page that this process has registered.
            unsafe { libc::madvise(ptr::with_exposed_provenance_mut(page.start), page.len(), libc::MADV_DOFORK) };
            // SAFETY: the mapping that `withhold_edges` has made, of which nobody else knows.
            unsafe { libc::munmap(ptr::with_exposed_provenance_mut(other), page.len()) };
        }
    }
}

/// Gives the child copies of the pages that were withheld from it.
fn take_edges() {
    for (page, _, alias) in SHARED.edges() {
        let other = alias.swap(0, Ordering::Relaxed);
        if other == 0 {
            continue;
        }
        let place = ptr::with_exposed_provenance_mut(page.start);
        let (read_write, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: nothing is there in the child, or the same page that another range has as well.
        let mapped = unsafe { libc::mmap(place, page.len(), read_write, kind | libc::MAP_FIXED, -1, 0) };
        if mapped != libc::MAP_FAILED {
            // SAFETY: two mappings of a page each, of which nobody else in the child knows.
            unsafe { copy_page(other, page.start, page.len()) };
        }
        // SAFETY: the mapping that `withhold_edges` has made.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(other), page.len()) };
    }
}

/// The fork that [`before`] has begun, which is over when this is dropped.
fn begun() -> Option<Fork> {
    // SAFETY: `before` has taken the lock in this thread, or in the one that the child's is a copy of.
    unsafe { (*SHARED.fork.get()).take() }
}

/// In the parent, after each fork: nobody may write to the shared pages until the child has its copies.
extern "C" fn in_parent() {
    let mut fork = begun();
    release_edges();
    // The child's end is the child's alone; if there is none, as the fork has failed, nobody's.
    let line = fork.as_mut().and_then(|fork| fork.line.take()).map(|(parents, _)| parents);
    if SHARED.forking.load(Ordering::Relaxed)
        && let Some(done) = done()
    {
        let give_up = super::clock::now_ns() + u64::try_from(PATIENCE.as_nanos()).unwrap_or(0);
        // F4 (Acquire): pairs with F3.
        while done.load(Ordering::Acquire) == 0 && super::clock::now_ns() < give_up {
            match &line {
                Some(line) if has_news(line) => break,
                Some(_) => {}
                // A child that is killed at once costs all of it.
                None => futex::wait(done, 0, futex::ANYBODY, PATIENCE),
            }
        }
    }
}

/// Waits until the child has its pages, or is no more; false if neither comes in time.
fn has_news(line: &OwnedFd) -> bool {
    let timeout = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
    matches!(poll(&mut [PollFd::new(line.as_fd(), PollFlags::POLLIN)], timeout), Ok(news) if news > 0)
}

/// In the child, before its `fork` returns.
extern "C" fn in_child() {
    let fork = begun();
    if SHARED.forking.load(Ordering::Relaxed) {
        take_edges();
        let listed = maps::each(|mapping| {
            if let Some(known) = SHARED.all().find(|known| mapping.mirrors(known.inode)) {
                make_own(&mapping.range, &known);
            }
            false
        });
        if listed.is_err() {
            // Then what was registered is taken for what is there.
            SHARED.all().for_each(|known| make_own(&known.range, &known));
        }
        SHARED.count.store(0, Ordering::Relaxed);
        if let Some(done) = done() {
            // F3 (Release): the child has read what its parent may write again. Pairs with F4.
            done.store(1, Ordering::Release);
            futex::wake(done, futex::ANYBODY);
        }
        if let Some((_, childs)) = fork.as_ref().and_then(|fork| fork.line.as_ref()) {
            // A parent that is no more needs no news.
            let _ = send(childs.as_raw_fd(), &[1], MsgFlags::MSG_NOSIGNAL);
        }
    }
    // That word is the parent's: at forks of its own the child needs another.
    SHARED.done.store(ptr::null_mut(), Ordering::Relaxed);
}

/// Gives the child pages of its own in place of `pages`, which are mapped from the file of `known`.
fn make_own(pages: &Range<usize>, known: &Known) {
    let page = page_bytes();
    if !view(pages, known) {
        pages.clone().step_by(page).for_each(|first| copy(first..first + page));
        return;
    }
    for range in SHARED.all().filter(|other| other.inode == known.inode).map(|other| other.range) {
        for first in [range.start, range.end - page].into_iter().filter(|first| pages.contains(first)) {
            own(first);
        }
    }
}

/// Maps a private view of the file over `pages`. False if the descriptor is not the file's any more, or the system refuses.
fn view(pages: &Range<usize>, known: &Known) -> bool {
    let Ok(fd) = i32::try_from(known.fd) else { return false };
    let Ok(offset) = libc::off_t::try_from(pages.start) else { return false };
    let mut told = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: it is there to be written.
    if unsafe { libc::fstat(fd, told.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: written by the call above.
    let told = unsafe { told.assume_init() };
    // Numbers of inodes are other files', too, on other file systems; but no other file is as long as the address space.
    if told.st_ino != known.inode || told.st_size <= offset {
        return false;
    }
    let place = ptr::with_exposed_provenance_mut(pages.start);
    let (read_write, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_FIXED);
    // SAFETY: the child's inherited mapping of pages that its parent has registered; what they hold is kept
    // by the file that is mapped in their place.
    let mapped = unsafe { libc::mmap(place, pages.len(), read_write, kind, fd, offset) };
    mapped != libc::MAP_FAILED
}

/// Gives the child a copy of a page that is mapped from a file which it cannot map itself.
fn copy(page: Range<usize>) {
    // SAFETY: a page of the child's inherited mapping, which nobody else accesses: the child has one thread, and its
    // parent waits.
    if unsafe { page_back(&page) }.is_err() {
        // A copy that cannot be had leaves a hole: the child must not write to its parent's memory.
        // SAFETY: the same page.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(page.start), page.len()) };
    }
}

/// Gives the child its own copy of a page that is a view of the file: writing does.
fn own(start: usize) {
    let byte: *mut u8 = ptr::with_exposed_provenance_mut(start);
    // SAFETY: a byte of the child's private view, which nobody else accesses: the child has one thread. The
    // kernel copies the page for it.
    let value = unsafe { byte.read_volatile() };
    // SAFETY: the same byte.
    unsafe { byte.write_volatile(value) };
}

//! What a forked child sees of pages that its parent shares with other processes.
//!
//! A child inherits shared pages as they are: what it wrote would change its parent, and through malloc's
//! books on the same pages its parent's heap. So the child, before anything else of it runs, replaces them:
//! by a private view of the file, and for the first and last page of a range, which hold other data as well,
//! by an exact copy, for which the parent waits. The C library calls us at each `fork`; a bare `clone`
//! does not, and `vfork` and `posix_spawn` need not.
//!
//! Handlers of `fork` belong to the process and cannot be given a value, hence the static here.
#![allow(unsafe_code)] // replaces mappings of the child, and handlers of fork have no safe interface

use std::ops::Range;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use super::pages::page_bytes;
use super::{affinity, futex};

/// Ranges of one process at one time.
const MOST: usize = 1024;
/// How long a parent waits for its child's copies.
const PATIENCE: Duration = Duration::from_secs(1);

struct Shared {
    /// Held by whoever changes the table, and from before a fork until its child has its own pages.
    lock: AtomicBool,
    /// Held by a fork, in parent and child.
    forking: AtomicBool,
    /// Counts children that have their own pages; lies in memory that all children share.
    done: AtomicPtr<AtomicU32>,
    count: AtomicUsize,
    entries: [Entry; MOST],
}

struct Entry {
    start: AtomicUsize,
    bytes: AtomicUsize,
    fd: AtomicU32,
}

static SHARED: Shared = Shared {
    lock: AtomicBool::new(false),
    forking: AtomicBool::new(false),
    done: AtomicPtr::new(ptr::null_mut()),
    count: AtomicUsize::new(0),
    entries: [const { Entry { start: AtomicUsize::new(0), bytes: AtomicUsize::new(0), fd: AtomicU32::new(0) } }; MOST],
};

impl Shared {
    fn lock(&self) {
        while self.lock.swap(true, Ordering::Acquire) {
            affinity::yield_now();
        }
    }

    fn unlock(&self) {
        self.lock.store(false, Ordering::Release);
    }

    fn get(&self, index: usize) -> (Range<usize>, u32) {
        let entry = &self.entries[index];
        let start = entry.start.load(Ordering::Relaxed);
        (start..start + entry.bytes.load(Ordering::Relaxed), entry.fd.load(Ordering::Relaxed))
    }

    fn set(&self, index: usize, range: &Range<usize>, fd: u32) {
        let entry = &self.entries[index];
        entry.start.store(range.start, Ordering::Relaxed);
        entry.bytes.store(range.len(), Ordering::Relaxed);
        entry.fd.store(fd, Ordering::Relaxed);
    }
}

/// From now on, children of this process get pages of their own in place of `ranges`, which are mapped from
/// `fd` at offsets that are their addresses. Replaces what was said of `fd` before.
///
/// False if there are too many, or the system refuses; then nothing has changed.
#[must_use]
pub fn protect(fd: u32, ranges: &[Range<usize>]) -> bool {
    static HANDLERS: Once = Once::new();
    if !ranges.is_empty() && !prepare() {
        return false;
    }
    HANDLERS.call_once(|| {
        // SAFETY: the three functions are there for ever, and make system calls and atomic accesses only.
        unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    });
    SHARED.lock();
    let count = SHARED.count.load(Ordering::Relaxed);
    let others = (0..count).filter(|&index| SHARED.get(index).1 != fd).count();
    let fits = others + ranges.len() <= MOST;
    if fits {
        let mut kept = 0;
        for index in 0..count {
            let (range, of) = SHARED.get(index);
            if of != fd {
                SHARED.set(kept, &range, of);
                kept += 1;
            }
        }
        for (place, range) in ranges.iter().enumerate() {
            SHARED.set(kept + place, range, fd);
        }
        SHARED.count.store(kept + ranges.len(), Ordering::Relaxed);
    }
    SHARED.unlock();
    fits
}

/// Makes the word that children count on.
fn prepare() -> bool {
    if !SHARED.done.load(Ordering::Acquire).is_null() {
        return true;
    }
    let (read_write, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping where the kernel likes; it stays for the life of the process.
    let page = unsafe { libc::mmap(ptr::null_mut(), page_bytes(), read_write, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return false;
    }
    let raced = SHARED.done.compare_exchange(ptr::null_mut(), page.cast(), Ordering::AcqRel, Ordering::Acquire);
    if raced.is_err() {
        // SAFETY: another thread's page is used; nobody knows of this one.
        unsafe { libc::munmap(page, page_bytes()) };
    }
    true
}

fn done() -> Option<&'static AtomicU32> {
    // SAFETY: null, or the page of `prepare`, which is never unmapped and starts as a zero.
    unsafe { SHARED.done.load(Ordering::Acquire).as_ref() }
}

/// In the parent, before each fork.
extern "C" fn before() {
    SHARED.lock();
    SHARED.forking.store(SHARED.count.load(Ordering::Relaxed) > 0, Ordering::Relaxed);
    if !SHARED.forking.load(Ordering::Relaxed) {
        SHARED.unlock();
    } else if let Some(done) = done() {
        done.store(0, Ordering::Relaxed);
    }
}

/// In the parent, after each fork: nobody may write to the shared pages until the child has its copies.
extern "C" fn in_parent() {
    if !SHARED.forking.load(Ordering::Relaxed) {
        return;
    }
    if let Some(done) = done()
        && done.load(Ordering::Acquire) == 0
    {
        // A child that was killed at once, or a fork that failed, costs the whole second.
        let give_up = super::clock::now_ns() + u64::try_from(PATIENCE.as_nanos()).unwrap_or(0);
        while done.load(Ordering::Acquire) == 0 && super::clock::now_ns() < give_up {
            futex::wait(done, 0, PATIENCE);
        }
    }
    SHARED.forking.store(false, Ordering::Relaxed);
    SHARED.unlock();
}

/// In the child, before its `fork` returns.
extern "C" fn in_child() {
    if !SHARED.forking.load(Ordering::Relaxed) {
        return;
    }
    let (count, page) = (SHARED.count.load(Ordering::Relaxed), page_bytes());
    for index in 0..count {
        let (range, fd) = SHARED.get(index);
        let fd = i32::try_from(fd).unwrap_or(-1);
        let offset = libc::off_t::try_from(range.start).unwrap_or(libc::off_t::MAX);
        // A view that cannot be had leaves a hole: the child must not write to its parent's memory.
        if !replace(&range, libc::MAP_PRIVATE, fd, offset) {
            replace(&range, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
        }
    }
    for index in 0..count {
        let (range, _) = SHARED.get(index);
        for first in [range.start, range.end - page] {
            own(first);
        }
    }
    SHARED.count.store(0, Ordering::Relaxed);
    SHARED.forking.store(false, Ordering::Relaxed);
    SHARED.unlock();
    if let Some(done) = done() {
        done.store(1, Ordering::Release);
        futex::wake_all(done);
    }
}

/// Maps over a range of the child's.
fn replace(range: &Range<usize>, kind: i32, fd: i32, offset: libc::off_t) -> bool {
    let place = ptr::with_exposed_provenance_mut(range.start);
    let read_write = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the child's inherited mapping of pages that its parent has registered; what they hold is kept
    // by the file that is mapped in their place.
    let mapped = unsafe { libc::mmap(place, range.len(), read_write, kind | libc::MAP_FIXED, fd, offset) };
    mapped != libc::MAP_FAILED
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

//! What the ranks of these tests do. Every role ends by a panic or well.
#![allow(unsafe_code)] // reads and writes what peers have described

mod closed;
mod forked;
mod methods;
mod perished;
mod reached;
mod refused;
mod registered;

use std::fs;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};

use super::harness::Files;
use crate::copy::Access;
use crate::copy::described::Described;
use crate::exchange::Exchange;
use crate::job::Job;
use crate::settings::Settings;
use crate::sys::pages::page_bytes;

/// One rank.
struct Rank {
    job: Rc<Job>,
    exchange: Files,
}

pub(super) fn play(role: &str, set: &str, mut exchange: Files) {
    let mut settings = Settings::default();
    for pair in set.split(' ').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap();
        settings.set(key, value).unwrap();
    }
    if role == "perished" {
        return perished::play(exchange, settings);
    }
    if role == "guarded" {
        methods::drop_to_nobody();
        let dumpable = libc::c_ulong::from(exchange.rank() != exchange.size() - 1);
        // SAFETY: prctl reads no memory for this option.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable, 0, 0, 0) }, 0);
    }
    if role == "filtered" && exchange.rank() == exchange.size() - 1 {
        methods::forbid_kernel_copies();
    }
    if role == "forked-side-by-side" {
        forked::slow_children();
    }
    if role == "forked-beside-the-engine" {
        forked::noting_children();
    }
    if role == "forked-in-haste" {
        forked::hasty_children();
    }
    if role == "forked-in-vain" {
        forked::mortal_children();
    }
    let job = Rc::new(Job::together(&mut exchange, settings).unwrap());
    let mut rank = Rank { job, exchange };
    match role {
        // These end the job themselves.
        "files-closed" => return rank.files_closed(),
        "without-file" => return rank.without_file(),
        "allocated" => rank.allocated(),
        "ordinary" => rank.ordinary(),
        "unmapped" => rank.unmapped(),
        "no-descriptors" => rank.no_descriptors(),
        "all-descriptors-taken" => rank.all_descriptors_taken(),
        "churn" => rank.churn(),
        "given-back" => rank.given_back(),
        "registered" => rank.registered(),
        "registered-late" => rank.registered_late(),
        "registered-under-way" => rank.registered_under_way(),
        "side-by-side" => rank.side_by_side(),
        "beside-the-engine" => rank.beside_the_engine(),
        "lent" => rank.lent(),
        "register-churn" => rank.register_churn(),
        "refused" => rank.refused(),
        "limited" => rank.limited(),
        "forked" => rank.forked(),
        "freed-early" => rank.freed_early(),
        "no-room" => rank.no_room(),
        "many" => rank.many(),
        "untold" => rank.untold(),
        "interrupted" => rank.interrupted(),
        "forked-after-free" => rank.forked_after_free(),
        "forked-before-it-is-private" => rank.forked_before_it_is_private(),
        "forked-without-file" => rank.forked_without_file(),
        "forked-in-haste" => rank.forked_in_haste(),
        "forked-beside-the-engine" => rank.forked_beside_the_engine(),
        "forked-side-by-side" => rank.forked_side_by_side(),
        "forked-in-vain" => rank.forked_in_vain(),
        "forked-by-handler" => rank.forked_by_handler(),
        "forked-meanwhile" => rank.forked_meanwhile(),
        "threaded" => rank.threaded(),
        "register-in-vain" => rank.register_in_vain(),
        "without" => rank.without(set),
        "guarded" => rank.guarded(),
        "filtered" => rank.filtered(),
        _ => panic!("no such role: {role}"),
    }
    rank.meet();
    rank.job.finalize();
}

/// Pages of a mapping of a role's own; unmapped when it goes.
struct Pages {
    start: *mut u8,
    bytes: usize,
}

impl Pages {
    fn new(pages: usize) -> Self {
        let length = std::num::NonZeroUsize::new(pages * page_bytes()).unwrap();
        let (access, kind) = (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
        // SAFETY: a new mapping where the kernel likes.
        let start = unsafe { mmap_anonymous(None, length, access, kind) }.unwrap();
        Self { start: start.as_ptr().cast(), bytes: length.get() }
    }

    fn slice(&mut self) -> &mut [u8] {
        // SAFETY: the mapping lives as long as `self`, and the slice is its only use on this rank.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }

    /// The word that they begin with.
    #[allow(clippy::cast_ptr_alignment)] // the start of a page
    fn first_word(&self) -> &AtomicU64 {
        // SAFETY: the mapping lives as long as `self`; users of this word do not use the slice.
        unsafe { &*self.start.cast() }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.start.wrapping_add(offset)
    }

    /// Puts new pages in the place of the old ones, as an allocator may after they were freed.
    fn renew(&mut self) {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: this mapping's own place, and nothing borrows from it.
        let new = unsafe { libc::mmap(self.start.cast(), self.bytes, access, kind | libc::MAP_FIXED, -1, 0) };
        assert_eq!(new, self.start.cast());
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this mapping's own place, not used any more.
        assert_eq!(unsafe { libc::munmap(self.start.cast(), self.bytes) }, 0);
    }
}

/// What stands at `index` of a filled buffer.
fn pattern(index: usize) -> u8 {
    u8::try_from(index % 251).unwrap()
}

fn fill(bytes: &mut [u8]) {
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = pattern(index);
    }
}

impl Rank {
    fn register(&self, start: *mut u8, bytes: usize) -> crate::Result<()> {
        // SAFETY: the other threads of this process are the test harness's, which waits.
        unsafe { self.job.register(start, bytes) }
    }

    fn unregister(&self, start: *mut u8) -> crate::Result<()> {
        // SAFETY: as above; roles call it when all have met.
        unsafe { self.job.unregister(start) }
    }

    fn number(&self) -> usize {
        self.job.rank()
    }

    fn meet(&mut self) {
        self.exchange.allgather(&[]).unwrap();
    }

    /// Every rank describes a buffer; all of them.
    fn describe(&mut self, start: *const u8, bytes: usize) -> Vec<Described> {
        let words = self.job.reach().describe(start, bytes).to_words();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let all = self.exchange.allgather(&bytes).unwrap();
        let words = |bytes: &Vec<u8>| {
            let (words, _) = bytes.as_chunks::<8>();
            let words: Vec<u64> = words.iter().map(|word| u64::from_ne_bytes(*word)).collect();
            Described::from_words(words.try_into().unwrap())
        };
        all.iter().map(words).collect()
    }

    /// `count` words that a peer has described and that are mapped here.
    fn mapped(&self, rank: usize, what: &Described, count: usize) -> &[AtomicU64] {
        let access = self.job.reach().resolve(rank, what).unwrap();
        let Access::Mapped(start) = access else { panic!("rank {rank}'s buffer is not mapped: {access:?}") };
        // SAFETY: the peer has described that many words, and keeps them until all have met.
        unsafe { std::slice::from_raw_parts(start.cast(), count) }
    }
}

/// Waits until a peer has stored `value`.
fn wait(word: &AtomicU64, value: u64) {
    while word.load(Ordering::Acquire) != value {
        crate::sys::affinity::yield_now();
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

/// Of these the shared ones, among which no allocator's come and go.
fn shared_mappings() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains(" rw-s ")).count()
}

/// Waits for a child, which must have ended well.
fn reap(child: libc::pid_t) {
    let mut status = 0;
    // SAFETY: the child's own id; the status is there to be written.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
}

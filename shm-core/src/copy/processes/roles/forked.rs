//! What a forked child sees of its parent's reachable memory.
#![allow(unsafe_code)] // forks

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};

use super::closed::{descriptor_of, lose};
use super::{Pages, Rank, fill, pattern, shared_mappings};
use crate::copy::Access;
use crate::memory::SharedVec;
use crate::sys::fork::Still;
use crate::sys::pages::{Mirror, page_bytes};

/// Has `handler` called in children before han's, as other libraries' are. To be called before han begins: the C library
/// keeps that order.
fn first_in_children(handler: extern "C" fn()) {
    // SAFETY: the function is there as long as this program.
    assert_eq!(unsafe { libc::pthread_atfork(None, None, Some(handler)) }, 0);
}

/// Lets every child come to its pages late, so that other processes fork meanwhile. To be called before han begins.
pub(super) fn slow_children() {
    extern "C" fn rest() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    first_in_children(rest);
}

/// Children are to be killed before they have pages of their own.
static MORTAL: AtomicBool = AtomicBool::new(false);

/// Lets children be killed, as [`slow_children`] lets them rest.
pub(super) fn mortal_children() {
    extern "C" fn die() {
        if MORTAL.load(Ordering::Relaxed) {
            // SAFETY: ends the child at once.
            unsafe { libc::raise(libc::SIGKILL) };
        }
    }
    first_in_children(die);
}

/// A byte that children write to.
static NOTED: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn note() {
    let noted = NOTED.load(Ordering::Relaxed);
    if !noted.is_null() {
        // SAFETY: a byte of the role's pages.
        unsafe { noted.write_volatile(1) };
    }
}

/// Lets children write to [`NOTED`] as han's own parts do, one of which comes before there are ranks.
pub(super) fn noting_children() {
    assert!(crate::sys::fork::in_children(note));
}

/// Lets children write to [`NOTED`] before han is called, as the C library does in a process of several threads.
pub(super) fn hasty_children() {
    first_in_children(note);
}

/// Puts `pages` under the handlers of fork, for a process that is no rank.
fn protect(pages: &Pages) -> Option<Mirror> {
    let start = pages.start.expose_provenance();
    let range = start..start + pages.bytes;
    let mirror = Mirror::new().ok()?;
    let still = Still::begin();
    // SAFETY: private pages of the role's, which nobody uses just now.
    unsafe { mirror.take_in(range.clone()) }.ok()?;
    still.protect(mirror.fd(), mirror.inode(), &[range]).then_some(mirror)
}

/// Forks children that look at `word`, which changes once `fork` has returned; true if all of them saw what it was.
fn children_see_what_was(word: &AtomicU64, children: u64) -> bool {
    (1..=children).all(|number| {
        word.store(number, Ordering::Relaxed);
        // SAFETY: the child reads a word and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(word.load(Ordering::Relaxed) != number)) };
        }
        word.store(0, Ordering::Relaxed);
        let mut status = 1;
        // SAFETY: the child's own id; the status is there to be written.
        unsafe { libc::waitpid(child, &raw mut status, 0) == child && status == 0 }
    })
}

/// Signals that have been handled, once on a page that is replaced in children and once in ordinary memory.
static ON_PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// Children that have not seen what they should.
static WRONG: AtomicU64 = AtomicU64::new(0);

/// Whether this thread holds back the one signal that it should.
fn mask_is_kept() -> bool {
    let mask = SigSet::thread_get_mask();
    mask.is_ok_and(|mask| mask.contains(Signal::SIGUSR2) && !mask.contains(Signal::SIGUSR1))
}

/// Forks a child that looks whether it has the memory and the mask of this moment.
fn fork_to_look() {
    // SAFETY: the child reads memory, asks for its mask, and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a word of the role's page, which is mapped until all children are gone.
        let on_page = unsafe { &*ON_PAGE.load(Ordering::Relaxed) }.load(Ordering::Relaxed);
        let well = on_page == HANDLED.load(Ordering::Relaxed) && mask_is_kept();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(i32::from(!well)) };
    }
}

/// Waits for a child, as `options` say; false if there is none.
fn reap_any(options: libc::c_int) -> bool {
    let mut status = 0;
    // SAFETY: the status is there to be written.
    let any = unsafe { libc::waitpid(-1, &raw mut status, options) } > 0;
    WRONG.fetch_add(u64::from(any && status != 0), Ordering::Relaxed);
    any
}

/// Forks often, and once more in the handler of each of the first children's ends; true if all was well.
fn handler_forks() -> nix::Result<bool> {
    extern "C" fn again(_: libc::c_int) {
        // SAFETY: as in `fork_to_look`.
        unsafe { &*ON_PAGE.load(Ordering::Relaxed) }.fetch_add(1, Ordering::Relaxed);
        if HANDLED.fetch_add(1, Ordering::Relaxed) < 300 {
            fork_to_look();
        }
        while reap_any(libc::WNOHANG) {}
    }
    let pages = Pages::new(3);
    ON_PAGE.store(std::ptr::from_ref(pages.first_word()).cast_mut(), Ordering::Relaxed);
    let Some(_mirror) = protect(&pages) else { return Ok(false) };
    SigSet::from(Signal::SIGUSR2).thread_block()?;
    // SAFETY: the handler accesses atomics, forks and waits.
    unsafe { signal(Signal::SIGCHLD, SigHandler::Handler(again)) }?;
    (0..300).for_each(|_| fork_to_look());
    // SAFETY: no handler any more.
    unsafe { signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    while reap_any(0) {}
    Ok(WRONG.load(Ordering::Relaxed) == 0 && HANDLED.load(Ordering::Relaxed) > 0 && mask_is_kept())
}

impl Rank {
    /// The child of rank 0 writes to all that it has inherited.
    pub(super) fn forked(&mut self) {
        let (own, page) = (self.number(), page_bytes());
        let mut pages = Pages::new(4);
        fill(pages.slice());
        let (buffer, bytes) = (pages.at(page + 100), 2 * page);
        self.register(buffer, bytes).unwrap();
        let shared = SharedVec::<u8>::zeroed(&self.job, 10_000).unwrap();
        let all = self.describe(buffer, bytes);
        if own == 0 {
            let (reader, writer) = nix::unistd::pipe().unwrap();
            // SAFETY: the child only works on memory and leaves by `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // What the parent writes beside its buffer, for instance malloc's books, is not seen here.
                let told = nix::unistd::read(&reader, &mut [0]) == Ok(1);
                let seen = told && pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i));
                pages.slice().fill(255);
                let written = pages.slice().iter().all(|&byte| byte == 255);
                // What belongs to the parent is left alone.
                drop(shared);
                let refused = self.unregister(buffer).is_err() && self.register(buffer, bytes).is_err();
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(if seen && written && refused { 0 } else { 1 }) };
            }
            for at in [page + 10, 3 * page + 110] {
                pages.slice()[at] = 252;
            }
            nix::unistd::write(&writer, &[1]).unwrap();
            super::reap(child);
            for at in [page + 10, 3 * page + 110] {
                pages.slice()[at] = pattern(at);
            }
            assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
            assert_eq!(self.job.reach().describe(buffer, bytes), all[0]);
            let again = SharedVec::<u8>::zeroed(&self.job, 10_000).unwrap();
            assert_ne!(again.as_ptr(), shared.as_ptr(), "the child has not given its parent's memory back");
        }
        self.meet();
        if own == 1 {
            let Access::Mapped(theirs) = self.job.reach().resolve(0, &all[0]).unwrap() else { panic!("plain") };
            // SAFETY: rank 0's buffer, which nobody writes.
            let theirs = unsafe { std::slice::from_raw_parts(theirs, bytes) };
            assert!(theirs.iter().enumerate().all(|(i, &byte)| byte == pattern(page + 100 + i)));
        }
        self.meet();
        self.unregister(buffer).unwrap();
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
    }

    /// A child has what its parent had registered, also where neither has touched it since, when that is private again.
    pub(super) fn forked_before_it_is_private(&mut self) {
        let mut pages = Pages::new(5);
        for ends in ["unregistered", "freed", "unregistered"] {
            fill(pages.slice());
            let (buffer, bytes) = (pages.start, pages.bytes);
            self.register(buffer, bytes).unwrap();
            let (reader, writer) = nix::unistd::pipe().unwrap();
            // SAFETY: the child only reads memory and leaves by `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let told = nix::unistd::read(&reader, &mut [0]) == Ok(1);
                let seen = told && pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i));
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!seen)) };
            }
            if ends == "freed" {
                pages.renew();
                self.unregister(buffer).unwrap_err();
            } else {
                self.unregister(buffer).unwrap();
                pages.slice().fill(1);
                // Nothing of it is written, so that it would be a hole in the file.
                pages.renew();
                self.register(buffer, bytes).unwrap();
                self.unregister(buffer).unwrap();
            }
            nix::unistd::write(&writer, &[1]).unwrap();
            super::reap(child);
        }
    }

    /// What has come to the place of registered memory that was freed is nothing of the engine's.
    pub(super) fn forked_after_free(&mut self) {
        let mut pages = Pages::new(3);
        fill(pages.slice());
        self.register(pages.start, pages.bytes).unwrap();
        pages.renew();
        pages.slice().fill(77);
        // SAFETY: the child only reads memory and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let kept = pages.slice().iter().all(|&byte| byte == 77);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!kept)) };
        }
        super::reap(child);
    }

    /// What han itself keeps for forks is no page of a buffer's, and what its parts do in children is done on these' own pages.
    pub(super) fn forked_beside_the_engine(&mut self) {
        let (page, table) = (page_bytes(), crate::sys::fork::table());
        assert!(
            table.start.is_multiple_of(page) && table.len().is_multiple_of(page),
            "no other data lies on its pages"
        );
        for start in [table.start, table.start - 1, table.end - page - 1] {
            let start = std::ptr::with_exposed_provenance_mut(start);
            let error = self.register(start, page).unwrap_err().to_string();
            assert!(error.contains("a table of han's that forked children need lies on its pages"), "{error}");
        }
        let mut pages = Pages::new(3);
        self.register(pages.start, pages.bytes).unwrap();
        NOTED.store(pages.start, Ordering::Relaxed);
        // SAFETY: the child leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(pages.slice()[0] != 1)) };
        }
        super::reap(child);
        NOTED.store(std::ptr::null_mut(), Ordering::Relaxed);
        assert_eq!(pages.slice()[0], 0);
        self.unregister(pages.start).unwrap();
    }

    /// What the C library does in a child before han is called harms no parent; the test harness has a thread.
    pub(super) fn forked_in_haste(&mut self) {
        let page = page_bytes();
        let mut pages = Pages::new(4);
        fill(pages.slice());
        // Two that share a page, and one that has the others' last and first page in it.
        let buffers = [(10, 2 * page), (2 * page + 100, page), (page + 5, 2 * page)];
        for (at, bytes) in buffers {
            self.register(pages.at(at), bytes).unwrap();
        }
        for at in [2, 2 * page + 50, 4 * page - 1, usize::MAX] {
            NOTED.store(if at < pages.bytes { pages.at(at) } else { std::ptr::null_mut() }, Ordering::Relaxed);
            // SAFETY: the child works on memory and leaves by `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let is_whole = pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i));
                pages.slice().fill(255);
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!is_whole)) };
            }
            let mut status = 0;
            // SAFETY: the child's own id; the status is there to be written.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status == 0, at == usize::MAX, "{at}: {status:#x}");
            assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)), "{at}");
        }
        let before = shared_mappings();
        // SAFETY: the child leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) };
        }
        super::reap(child);
        assert_eq!(shared_mappings(), before);
        for (at, _) in buffers {
            self.unregister(pages.at(at)).unwrap();
        }
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
    }

    /// A process that has closed its descriptors, or has other files in their places, has children with memory as it was.
    pub(super) fn forked_without_file(&mut self) {
        let page = page_bytes();
        let mut pages = Pages::new(5);
        fill(pages.slice());
        let (buffer, bytes) = (pages.at(100), 4 * page);
        self.register(buffer, bytes).unwrap();
        let fd = descriptor_of("han-registered");
        // SAFETY: the mirror's descriptor, which the mirror keeps.
        let kept = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned().unwrap();
        let other = tempfile::tempfile().unwrap();
        other.set_len(1 << 20).unwrap();
        for other in [None, Some(other)] {
            // The mirror has it back below.
            lose(fd, other.as_ref());
            // SAFETY: the child works on memory and leaves by `_exit`.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let is_whole = pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i));
                pages.slice().fill(255);
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!is_whole)) };
            }
            super::reap(child);
            assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
            // SAFETY: the mirror's own file comes back to its descriptor.
            assert_eq!(unsafe { libc::dup2(kept.as_raw_fd(), fd) }, fd);
        }
        self.unregister(buffer).unwrap();
    }

    /// A child with pages of its own forks at the same time as its parent.
    pub(super) fn forked_side_by_side(&mut self) {
        let (parents, childs) = (Pages::new(3), Pages::new(3));
        self.register(parents.start, parents.bytes).unwrap();
        // SAFETY: the child works on memory, forks, and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mirror = protect(&childs);
            let well = mirror.is_some() && children_see_what_was(childs.first_word(), 100);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!well)) };
        }
        let well = children_see_what_was(parents.first_word(), 100);
        super::reap(child);
        assert!(well);
        self.unregister(parents.start).unwrap();
    }

    /// A child that is killed before it has pages of its own keeps nobody waiting.
    pub(super) fn forked_in_vain(&mut self) {
        // SAFETY: the child works on memory, forks, and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let pages = Pages::new(3);
            let mirror = protect(&pages);
            MORTAL.store(true, Ordering::Relaxed);
            let begun = std::time::Instant::now();
            // SAFETY: the grandchild is killed by the handler, which was there before han's.
            let grandchild = unsafe { libc::fork() };
            let mut status = 0;
            // SAFETY: the status is there to be written.
            let reaped = unsafe { libc::waitpid(grandchild, &raw mut status, 0) } == grandchild;
            let killed = reaped && libc::WTERMSIG(status) == libc::SIGKILL;
            MORTAL.store(false, Ordering::Relaxed);
            let well = mirror.is_some() && killed && begun.elapsed().as_secs() < 5;
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!(well && children_see_what_was(pages.first_word(), 3)))) };
        }
        super::reap(child);
    }

    /// A handler of signals forks and writes to a page that children get a copy of, whatever it has interrupted, a fork
    /// too. In a child, which has one thread: of several, the C library does not let a handler fork at any time.
    pub(super) fn forked_by_handler(&mut self) {
        // SAFETY: the child works on memory, handles signals, forks, and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends a child that hangs.
            unsafe { libc::alarm(240) };
            let well = handler_forks().unwrap_or(false);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!well)) };
        }
        super::reap(child);
    }

    /// Children of another thread, made at any time, do not write to what is registered just then.
    pub(super) fn forked_meanwhile(&mut self) {
        let mut pages = Pages::new(64);
        fill(pages.slice());
        let (start, bytes) = (pages.start, pages.bytes);
        let exposed = start.expose_provenance();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: the child only writes to memory and leaves by `_exit`.
                    let child = unsafe { libc::fork() };
                    if child == 0 {
                        let start = std::ptr::with_exposed_provenance_mut::<u8>(exposed);
                        // SAFETY: the role's pages, which the child has of its own.
                        unsafe { start.write_bytes(255, bytes) };
                        // SAFETY: ends the child at once.
                        unsafe { libc::_exit(0) };
                    }
                    super::reap(child);
                }
            });
            let mut is_whole = || pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i));
            let mut round =
                || self.register(start, bytes).is_ok() && is_whole() && self.unregister(start).is_ok() && is_whole();
            let well = (0..100).all(|_| round());
            over.store(true, Ordering::Relaxed);
            assert!(well);
        });
    }
}

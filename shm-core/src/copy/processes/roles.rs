//! What the ranks of these tests do. Every role ends by a panic or well.
#![allow(unsafe_code)] // reads and writes what peers have described

use std::fs;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};

use super::harness::Files;
use crate::copy::{Access, Described, Method};
use crate::error::Error;
use crate::exchange::Exchange;
use crate::job::Job;
use crate::memory::{Registered, SharedVec};
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
    if role == "guarded" {
        drop_to_nobody();
        let dumpable = libc::c_ulong::from(exchange.rank() != exchange.size() - 1);
        // SAFETY: prctl reads no memory for this option.
        assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable, 0, 0, 0) }, 0);
    }
    if role == "filtered" && exchange.rank() == exchange.size() - 1 {
        forbid_kernel_copies();
    }
    let job = Rc::new(Job::together(&mut exchange, settings).unwrap());
    let mut rank = Rank { job: Rc::clone(&job), exchange };
    match role {
        "allocated" => rank.allocated(),
        "ordinary" => rank.ordinary(),
        "unmapped" => rank.unmapped(),
        "churn" => rank.churn(),
        "given-back" => rank.given_back(),
        "registered" => rank.registered(),
        "side-by-side" => rank.side_by_side(),
        "beside-the-engine" => rank.beside_the_engine(),
        "register-churn" => rank.register_churn(),
        "refused" => rank.refused(),
        "forked" => rank.forked(),
        "threaded" => rank.threaded(),
        "register-in-vain" => rank.register_in_vain(),
        "without" => rank.without(set),
        "guarded" => rank.guarded(),
        "filtered" => rank.filtered(),
        _ => panic!("no such role: {role}"),
    }
    rank.meet();
    job.finalize();
}

/// Root may look into every process: only without its rights can one be refused.
fn drop_to_nobody() {
    if nix::unistd::geteuid().is_root() {
        nix::unistd::setgid(65534.into()).unwrap();
        nix::unistd::setuid(65534.into()).unwrap();
    }
}

/// As containers do: the calls fail with EPERM from now on.
fn forbid_kernel_copies() {
    let statement = |code: u32, k: u32| libc::sock_filter { code: u16::try_from(code).unwrap(), jt: 0, jf: 0, k };
    let jump = |number: libc::c_long, over: u8| libc::sock_filter {
        jt: over,
        ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, u32::try_from(number).unwrap())
    };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0), // the system call's number
        jump(libc::SYS_process_vm_readv, 2),
        jump(libc::SYS_process_vm_writev, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, refuse),
    ];
    let program = libc::sock_fprog { len: 5, filter: filter.as_mut_ptr() };
    // SAFETY: prctl reads no memory for this option.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program and its five statements are alive; the kernel copies them.
    let set = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(set, 0);
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

    fn at(&self, offset: usize) -> *mut u8 {
        self.start.wrapping_add(offset)
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

    /// Every rank registers memory of malloc's, changes it later, and unregisters it.
    fn registered(&mut self) {
        const BYTES: usize = 5_000_001;
        let (own, size) = (self.number(), self.job.size());
        let mut buffer = vec![0_u8; BYTES];
        fill(&mut buffer);
        let start = buffer.as_mut_ptr();
        self.register(start, BYTES).unwrap();
        assert!(buffer.iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
        let all = self.describe(start.wrapping_add(3), BYTES - 3);
        for what in &all {
            assert!(what.is_shared());
        }
        buffer[BYTES - 1] = 252 + u8::try_from(own).unwrap();
        self.meet();
        for (rank, what) in all.iter().enumerate().filter(|(rank, _)| *rank != own) {
            let Access::Mapped(theirs) = self.job.reach().resolve(rank, what).unwrap() else { panic!("not mapped") };
            // SAFETY: the peer's buffer, which nobody writes until all have met.
            let theirs = unsafe { std::slice::from_raw_parts(theirs, BYTES - 3) };
            let (last, rest) = theirs.split_last().unwrap();
            assert_eq!(usize::from(*last), 252 + rank);
            assert!(rest.iter().enumerate().all(|(i, &byte)| byte == pattern(i + 3)));
        }
        let mapped = format!("{} of peers mapped", size - 1);
        assert!(self.job.reach().in_words().contains(&mapped), "{}", self.job.reach().in_words());
        self.meet();
        self.unregister(start).unwrap();
        buffer[7] = 0;
        assert!(buffer[..BYTES - 1].iter().enumerate().all(|(i, &byte)| i == 7 || byte == pattern(i)));
        let all = self.describe(start, BYTES);
        assert!(all.iter().all(|what| !what.is_shared()));
        // With the next region of a rank the dead one goes.
        let next = SharedVec::<u64>::zeroed(&self.job, 10).unwrap();
        let all = self.describe(next.as_ptr().cast(), 80);
        for (rank, what) in all.iter().enumerate().filter(|(rank, _)| *rank != own) {
            self.mapped(rank, what, 10);
        }
        assert!(self.job.reach().in_words().contains(&mapped), "{}", self.job.reach().in_words());
        self.meet();
        let error = self.unregister(start).unwrap_err().to_string();
        assert!(error.contains("no registered buffer begins at"), "{error}");
    }

    /// Two buffers that meet in the middle of a page.
    fn side_by_side(&mut self) {
        let (own, page) = (self.number(), page_bytes());
        let mut pages = Pages::new(6);
        fill(pages.slice());
        let (first, second) = (pages.at(100), pages.at(3 * page + 50));
        let lengths = [3 * page - 50, 2 * page];
        self.register(first, lengths[0]).unwrap();
        self.register(second, lengths[1]).unwrap();
        let describe = |rank: &mut Self, which: usize| rank.describe([first, second][which], lengths[which]);
        let check = |rank: &Self, all: &[Described], which: usize| {
            let peer = 1 - own;
            let Access::Mapped(theirs) = rank.job.reach().resolve(peer, &all[peer]).unwrap() else { panic!("plain") };
            // SAFETY: the peer's buffer, which nobody writes until all have met.
            let theirs = unsafe { std::slice::from_raw_parts(theirs, lengths[which]) };
            let at = [100, 3 * page + 50][which];
            assert!(theirs.iter().enumerate().all(|(i, &byte)| byte == pattern(at + i)));
        };
        for which in [0, 1] {
            let all = describe(self, which);
            check(self, &all, which);
        }
        self.meet();
        self.unregister(first).unwrap();
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
        assert!(!describe(self, 0)[own].is_shared());
        let all = describe(self, 1);
        check(self, &all, 1);
        self.meet();
        self.register(first, lengths[0]).unwrap();
        self.unregister(second).unwrap();
        let all = describe(self, 0);
        check(self, &all, 0);
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
        self.meet();
        self.unregister(first).unwrap();
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
    }

    /// Pages of malloc's, among them those that hold its books and the job.
    fn beside_the_engine(&mut self) {
        let job = Rc::as_ptr(&self.job).cast::<u8>().cast_mut();
        for _ in 0..20 {
            self.register(job.wrapping_add(8), 1).unwrap();
            self.register(job, size_of::<Job>()).unwrap();
            let what = self.job.reach().describe(job, size_of::<Job>());
            assert!(what.is_shared());
            drop((0..100).map(|bytes| vec![1_u8; 17 * bytes]).collect::<Vec<_>>());
            self.unregister(job).unwrap();
            self.unregister(job.wrapping_add(8)).unwrap();
        }
        let mut buffers: Vec<Vec<u8>> = (0..200).map(|bytes| vec![0; 1 + 89 * bytes]).collect();
        for buffer in &mut buffers {
            fill(buffer);
        }
        let mut order: Vec<usize> = (0..200).map(|i| i * 77 % 200).collect();
        for &index in &order {
            self.register(buffers[index].as_mut_ptr(), buffers[index].len()).unwrap();
        }
        order.reverse();
        for index in order {
            assert!(buffers[index].iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
            self.unregister(buffers[index].as_mut_ptr()).unwrap();
            assert!(buffers[index].iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
            buffers[index] = vec![0; 1000];
        }
    }

    fn register_churn(&mut self) {
        let page = page_bytes();
        let mut pages = Pages::new(8);
        fill(pages.slice());
        self.register(pages.start, page).unwrap();
        self.unregister(pages.start).unwrap();
        let before = (descriptors(), mappings());
        for round in 0..10_000 {
            let (offset, bytes) = (round % 5000, 1 + round * 7 % (2 * page));
            self.register(pages.at(offset), bytes).unwrap();
            assert!(self.job.reach().describe(pages.at(offset), bytes).is_shared());
            self.unregister(pages.at(offset)).unwrap();
        }
        assert_eq!((descriptors(), mappings().min(before.1)), before);
        assert!(mappings() <= before.1 + 2, "{} {}", mappings(), before.1);
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
    }

    fn refused(&mut self) {
        let page = page_bytes();
        let mut local = [0_u8; 100];
        let han = SharedVec::<u8>::zeroed(&self.job, 10_000).unwrap();
        let pages = Pages::new(4);
        let file = tempfile::tempfile().unwrap();
        file.set_len(4 * page as u64).unwrap();
        let mapped_file = memmap2::MmapOptions::new().map_raw(&file).unwrap();
        let copied_file = {
            // SAFETY: nobody changes the file.
            unsafe { memmap2::MmapOptions::new().map_copy(&file) }.unwrap()
        };
        let object = crate::sys::map::SharedMap::anonymous("han-test", page).unwrap();
        // SAFETY: a page of this role's own.
        let outcome = unsafe { libc::mprotect(pages.at(2 * page).cast(), page, libc::PROT_READ) };
        assert_eq!(outcome, 0);
        // SAFETY: a page of this role's own.
        assert_eq!(unsafe { libc::munmap(pages.at(3 * page).cast(), page) }, 0);
        for (start, bytes, expected) in [
            (local.as_mut_ptr(), 100, "it lies on a stack"),
            (han.as_ptr().cast_mut(), 10_000, "it is memory of han"),
            (pages.start, 0, "no pages in 0 bytes"),
            (pages.start, usize::MAX, "longer than the address space"),
            (std::ptr::null_mut(), 10, "nothing is mapped at 0x0"),
            (mapped_file.as_mut_ptr(), page, "shared already"),
            (copied_file.as_ptr().cast_mut(), page, "a mapping of the file"),
            (object.base(), page, "shared already (/memfd:han-test"),
            (pages.at(2 * page), 10, "r--p, expected memory that is read and written"),
            (pages.start, 2 * page + 1, "r--p, expected memory that is read and written"),
            (b"constant".as_ptr().cast_mut(), 8, "a mapping of the file"),
        ] {
            let error = self.register(start, bytes).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument(_)), "{error}");
            let text = error.to_string();
            assert!(text.contains(expected) && text.contains("cannot be registered"), "{expected}: {text}");
        }
        self.register(pages.start, 2 * page).unwrap();
        assert!(self.register(pages.start, page).unwrap_err().to_string().contains("registered already"));
        // Registered pages that the kernel takes away: the error says so, and nothing is mapped over.
        // SAFETY: this role's own pages.
        assert_eq!(unsafe { libc::munmap(pages.start.cast(), 2 * page) }, 0);
        let error = self.unregister(pages.start).unwrap_err().to_string();
        assert!(error.contains("was freed before it was unregistered"), "{error}");
        let limited = Pages::new(1);
        let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_FSIZE).unwrap();
        nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_FSIZE, 4096, hard).unwrap();
        // The file exists already.
        self.register(limited.start, 10).unwrap();
        self.unregister(limited.start).unwrap();
        let error = self.job.allocate(8 << 20, false).unwrap_err().to_string();
        assert!(error.contains("no memory for") && error.contains("ulimit -f"), "{error}");
    }

    /// The child of rank 0 writes to all that it has inherited.
    fn forked(&mut self) {
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
            let mut status = 0;
            // SAFETY: the child's own id; the status is there to be written.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
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

    /// The safe way, which does not trust other threads; the harness has one.
    fn threaded(&mut self) {
        let page = page_bytes();
        let mut pages = Pages::new(4);
        fill(pages.slice());
        let whole = &mut pages.slice()[..2 * page];
        {
            let mut registered = Registered::new(&self.job, whole).unwrap();
            assert!(self.job.reach().describe(registered.as_ptr(), 2 * page).is_shared());
            registered[5] = 255;
        }
        assert_eq!((whole[5], whole[6]), (255, 6));
        assert!(!self.job.reach().describe(whole.as_ptr(), 2 * page).is_shared());
        let error = Registered::new(&self.job, &mut whole[1..page]).unwrap_err().to_string();
        assert!(error.contains("threads writes to"), "{error}");
    }

    fn register_in_vain(&mut self) {
        let mut buffer = vec![1_u8; 100_000];
        let start = buffer.as_mut_ptr();
        let before = mappings();
        self.register(start, buffer.len()).unwrap();
        assert!(self.register(start, buffer.len()).is_err());
        assert!(!self.job.reach().describe(start, buffer.len()).is_shared());
        assert!(mappings() <= before + 1);
        self.unregister(start).unwrap();
        assert!(self.unregister(start).is_err());
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

    /// Every rank writes to its own, to the next rank's at a place of its own, and reads all.
    fn allocated(&mut self) {
        const COUNT: usize = 300_000;
        let (own, size) = (self.number(), self.job.size());
        let small = SharedVec::<u64>::zeroed(&self.job, 5).unwrap();
        let mut large = SharedVec::<u64>::zeroed(&self.job, COUNT).unwrap();
        assert!(small.is_shared() && large.is_shared());
        assert!(large.iter().all(|&word| word == 0));
        let mut used = SharedVec::<u64>::zeroed(&self.job, 1000).unwrap();
        used.fill(u64::MAX);
        drop(used);
        let again = SharedVec::<u64>::zeroed(&self.job, 2000).unwrap();
        assert!(again.iter().all(|&word| word == 0), "memory that is used again is cleared");
        large.fill(own as u64);
        // From the middle, so that offsets count.
        let all = self.describe(large[1000..].as_ptr().cast(), 8 * (COUNT - 1000));
        for (rank, what) in all.iter().enumerate().filter(|(rank, _)| *rank != own) {
            assert!(what.is_shared());
            let words = self.mapped(rank, what, COUNT - 1000);
            assert!(words[size..].iter().all(|word| word.load(Ordering::Relaxed) == rank as u64));
            words[own].store(1000 + own as u64, Ordering::Relaxed);
        }
        self.meet();
        for rank in (0..size).filter(|&rank| rank != own) {
            assert_eq!(large[1000 + rank], 1000 + rank as u64);
        }
        let text = self.job.reach().in_words();
        assert!(text.contains("shared on; cma") && text.contains(&format!("{} of peers mapped", size - 1)), "{text}");
        self.meet();
    }

    fn ordinary(&mut self) {
        const BYTES: usize = 3 << 20;
        let own = self.number();
        let mut buffer: Vec<u8> = (0..BYTES).map(|i| u8::try_from((i + own) % 251).unwrap()).collect();
        let all = self.describe(buffer.as_mut_ptr(), BYTES);
        let peer = 1 - own;
        assert!(!all[peer].is_shared());
        let Access::Kernel(remote) = self.job.reach().resolve(peer, &all[peer]).unwrap() else { panic!("mapped") };
        let mut copy = vec![0; BYTES - 7];
        // SAFETY: the copy has room.
        unsafe { remote.read(7, copy.as_mut_ptr(), copy.len()) }.unwrap();
        assert!(copy.iter().enumerate().all(|(i, &byte)| usize::from(byte) == (i + 7 + peer) % 251));
        self.meet();
        if own == 0 {
            // SAFETY: the peer waits.
            unsafe { remote.write(1, b"hello".as_ptr(), 5) }.unwrap();
        }
        self.meet();
        if own == 1 {
            assert_eq!(&buffer[1..6], b"hello");
        }
        self.meet();
    }

    fn unmapped(&mut self) {
        const BYTES: usize = 8 << 20;
        let own = self.number();
        // More than the allocator keeps: its memory goes back to the system.
        let buffer = vec![1_u8; BYTES];
        let all = self.describe(buffer.as_ptr(), BYTES);
        drop(buffer);
        self.meet();
        let peer = 1 - own;
        let Access::Kernel(remote) = self.job.reach().resolve(peer, &all[peer]).unwrap() else { panic!("mapped") };
        let mut word = [0_u8; 8];
        // SAFETY: there is room for 8 bytes.
        let error = unsafe { remote.read(4096, word.as_mut_ptr(), 8) }.unwrap_err();
        assert!(matches!(error, Error::Unreachable { rank, .. } if rank == peer), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("rank {peer}")) && text.contains("nothing is mapped there"), "{text}");
        // SAFETY: 8 bytes are there to be read.
        let error = unsafe { remote.write(4096, word.as_ptr(), 8) }.unwrap_err();
        assert!(error.to_string().contains("nothing is mapped there"), "{error}");
        self.meet();
    }

    /// Rank 0 frees and allocates; rank 1 maps every one of them.
    fn churn(&mut self) {
        const ROUNDS: u64 = 10_000;
        let control = SharedVec::<u64>::zeroed(&self.job, 16).unwrap();
        let all = self.describe(control.as_ptr().cast(), 128);
        let own = self.number();
        if own == 0 {
            // SAFETY: this rank's control words, which both sides access by atomics only from here on.
            let words: &[AtomicU64] = unsafe { std::slice::from_raw_parts(control.as_ptr().cast(), 16) };
            let before = (descriptors(), mappings());
            for round in 1..=ROUNDS {
                let bytes = [100, 5000, 3 << 20][usize::try_from(round % 3).unwrap()];
                let block = self.job.allocate(bytes, false).unwrap();
                // SAFETY: the block has room for a word.
                unsafe { block.pointer().cast::<[u8; 8]>().write(round.to_ne_bytes()) };
                for (word, value) in words[1..].iter().zip(self.job.reach().describe(block.pointer(), bytes).to_words())
                {
                    word.store(value, Ordering::Relaxed);
                }
                words[0].store(2 * round - 1, Ordering::Release);
                wait(&words[0], 2 * round);
            }
            assert!(descriptors() <= before.0 + 1, "{} {}", descriptors(), before.0);
            assert!(mappings() <= before.1 + 8, "{} {}", mappings(), before.1);
        } else {
            let mut before = (0, 0);
            for round in 1..=ROUNDS {
                if round == 10 {
                    before = (descriptors(), mappings());
                }
                let words = self.mapped(0, &all[0], 16);
                wait(&words[0], 2 * round - 1);
                let described: Vec<u64> = words[1..7].iter().map(|word| word.load(Ordering::Relaxed)).collect();
                let block = Described::from_words(described.try_into().unwrap());
                assert_eq!(self.mapped(0, &block, 1)[0].load(Ordering::Relaxed), round);
                // The mapping of the control words may have been looked up again, never moved.
                words[0].store(2 * round, Ordering::Release);
            }
            assert!(descriptors() <= before.0, "{} {}", descriptors(), before.0);
            assert!(mappings() <= before.1 + 4, "{} {}", mappings(), before.1);
        }
        self.meet();
    }

    /// Rank 1 keeps a mapping of what rank 0 gives back.
    fn given_back(&mut self) {
        const COUNT: usize = 1 << 20;
        let own = self.number();
        let mut large = SharedVec::<u64>::zeroed(&self.job, COUNT).unwrap();
        large.fill(7);
        let all = self.describe(large.as_ptr().cast(), 8 * COUNT);
        let here = format!("{} of peers mapped", usize::from(own == 1));
        if own == 1 {
            assert!(self.mapped(0, &all[0], COUNT).iter().all(|word| word.load(Ordering::Relaxed) == 7));
        }
        self.meet();
        let shared_kib = |field: &str| {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap().to_owned();
            line.trim().trim_end_matches(" kB").parse::<usize>().unwrap()
        };
        assert!(self.job.reach().in_words().contains(&here));
        let before = shared_kib("RssShmem:");
        self.meet();
        if own == 0 {
            drop(large);
        }
        self.meet();
        // Rank 1 has resolved nothing since.
        assert!(before - shared_kib("RssShmem:") >= 8 * COUNT / 1024);
        // With the next region of that rank the dead one goes.
        let next = SharedVec::<u64>::zeroed(&self.job, 10).unwrap();
        let all = self.describe(next.as_ptr().cast(), 80);
        if own == 1 {
            assert_eq!(self.mapped(0, &all[0], 10)[9].load(Ordering::Relaxed), 0);
            assert!(self.job.reach().in_words().contains("1 of peers mapped"), "{}", self.job.reach().in_words());
        }
        self.meet();
    }

    fn without(&mut self, set: &str) {
        let own = self.number();
        let peer = 1 - own;
        let methods = self.job.methods();
        for method in [Method::Shared, Method::Cma] {
            assert_eq!(methods.has(method), set.contains(method.name()), "{set}: {methods}");
            assert!(methods.has(method) || methods.verdict(method).contains("was set"), "{methods}");
        }
        let shared = SharedVec::<u64>::zeroed(&self.job, 10).unwrap();
        assert_eq!(shared.is_shared(), set.contains("shared"));
        let ordinary = [0_u64; 10];
        let shared = self.describe(shared.as_ptr().cast(), 80);
        let ordinary = self.describe(ordinary.as_ptr().cast(), 80);
        let resolve = |what: &Described| self.job.reach().resolve(peer, what);
        match set {
            "methods=cico" => {
                let error = resolve(&shared[peer]).unwrap_err().to_string();
                assert!(error.contains("cma is off: methods=cico was set"), "{error}");
                assert!(resolve(&ordinary[peer]).is_err());
            }
            "methods=cma" => {
                assert!(matches!(resolve(&shared[peer]), Ok(Access::Kernel(_))));
                assert!(matches!(resolve(&ordinary[peer]), Ok(Access::Kernel(_))));
            }
            _ => {
                assert!(matches!(resolve(&shared[peer]), Ok(Access::Mapped(_))));
                assert!(resolve(&ordinary[peer]).is_err());
            }
        }
        self.meet();
    }

    /// The last rank may map, but not copy.
    fn filtered(&mut self) {
        let methods = self.job.methods();
        assert!(methods.has(Method::Shared) && !methods.has(Method::Cma), "{methods}");
        let last = self.job.size() - 1;
        let verdict = methods.verdict(Method::Cma);
        assert!(verdict.starts_with(&format!("off: rank {last}: memory of rank")), "{verdict}");
        assert!(verdict.contains("process_vm_readv is refused (EPERM)") && verdict.contains("seccomp"), "{verdict}");
        let ordinary = [0_u64; 10];
        let all = self.describe(ordinary.as_ptr().cast(), 80);
        let error = self.job.reach().resolve(last - self.number(), &all[last - self.number()]).unwrap_err();
        assert!(error.to_string().contains("not shared memory"), "{error}");
        self.meet();
    }

    /// The last rank lets nobody look into it.
    fn guarded(&mut self) {
        let methods = self.job.methods();
        for method in [Method::Shared, Method::Cma] {
            assert!(!methods.has(method), "{methods}");
            let verdict = methods.verdict(method);
            assert!(verdict.starts_with("off: rank "), "{verdict}");
        }
        assert!(methods.verdict(Method::Cma).contains("not dumpable"), "{methods}");
        let all = self.exchange.allgather(self.job.methods().to_string().as_bytes()).unwrap();
        assert!(all.iter().all(|words| *words == all[0]), "all agree");
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

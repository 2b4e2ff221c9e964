//! Ordinary memory that is registered, and given back.
#![allow(unsafe_code)] // reads and writes what peers have described

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigHandler, Signal};
use reduce_kernels::{Call, Datatype, Operator};

use super::{Pages, Rank, descriptors, fill, mappings, pattern, shared_mappings};
use crate::coll::Operation;
use crate::coll::Progress;
use crate::copy::Access;
use crate::copy::described::Described;
use crate::error::Error;
use crate::job::Job;
use crate::memory::SharedVec;
use crate::ring::Ring;
use crate::segment::layout::REGISTERED;
use crate::sys::pages::{obstacle_in, page_bytes};

impl Rank {
    /// Every rank registers memory of malloc's, changes it later, and unregisters it.
    pub(super) fn registered(&mut self) {
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
    pub(super) fn side_by_side(&mut self) {
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
        // The end of the first buffer, on the page that both have, outlives the second one.
        let ends = self.describe(pages.at(3 * page), 50);
        let Access::Mapped(end) = self.job.reach().resolve(1 - own, &ends[1 - own]).unwrap() else { panic!("plain") };
        self.meet();
        self.unregister(second).unwrap();
        let all = describe(self, 0);
        check(self, &all, 0);
        // SAFETY: the end of the peer's buffer, which nobody writes until all have met.
        assert_eq!(unsafe { end.read_volatile() }, pattern(3 * page));
        self.meet();
        self.register(second, lengths[1]).unwrap();
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
    pub(super) fn beside_the_engine(&mut self) {
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

    pub(super) fn register_churn(&mut self) {
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
        // AddressSanitizer's allocator takes some meanwhile; what leaks each time would be thousands.
        let spare = if cfg!(sanitized) { 100 } else { 2 };
        assert!(mappings() <= before.1 + spare, "{} {}", mappings(), before.1);
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
    }

    /// Rank 0 registers its vectors when an operation has begun on them, and before it tells where they are.
    pub(super) fn registered_late(&mut self) {
        const COUNT: usize = 5120;
        let (own, bytes) = (self.number(), COUNT * size_of::<u64>());
        let mut ring = Ring::together(&mut self.exchange, Rc::clone(&self.job), 0, vec![0, 1]).unwrap();
        let [mut send, mut recv] = [(); 2].map(|()| Pages::new(bytes.div_ceil(page_bytes())));
        send.slice().fill(1 + u8::try_from(own).unwrap());
        let (from, to) = (send.start.cast_const(), recv.start);
        // SAFETY: pages of the role's own, which are used otherwise only when the operation has ended.
        let call = unsafe { Call::allreduce_raw(from, to, COUNT, Datatype::Uint64, Operator::Sum.into()) };
        let register = || [from.cast_mut(), to].iter().for_each(|&start| self.register(start, bytes).unwrap());
        if own == 1 {
            register();
        }
        let mut operation = Operation::begin(&mut ring, call, false);
        if own == 0 {
            register();
        }
        while operation.poll(&mut ring).unwrap().is_pending() {
            crate::sys::affinity::yield_now();
        }
        drop(operation);
        assert!(recv.slice().iter().all(|&byte| byte == 3));
        self.meet();
        [from.cast_mut(), to].iter().for_each(|&start| self.unregister(start).unwrap());
    }

    /// Rank 0 registers what peers' kernels may write to by then: a vector, half of it, its neighbours on a page.
    pub(super) fn registered_under_way(&mut self) {
        let (own, page) = (self.number(), page_bytes());
        let mut ring = Ring::together(&mut self.exchange, Rc::clone(&self.job), 0, vec![0, 1]).unwrap();
        let mut pages = Pages::new(12);
        pages.slice().fill(1 + u8::try_from(own).unwrap());
        // Two pages before the vector, eight and a half in it.
        let (vector, bytes) = (pages.at(2 * page), 17 * page / 2);
        // SAFETY: pages of the role's own, which are used otherwise only when the operation has ended.
        let call = unsafe {
            Call::allreduce_raw(vector, vector, bytes / size_of::<u64>(), Datatype::Uint64, Operator::Sum.into())
        };
        if own == 1 {
            self.meet();
        }
        let mut operation = Operation::begin(&mut ring, call, false);
        assert!(own == 1 || operation.poll(&mut ring).unwrap().is_pending());
        if own == 0 {
            for (at, bytes) in
                [(2 * page, 8 * page), (2 * page, bytes), (6 * page, page), (0, 3 * page), (11 * page - 1, 1)]
            {
                let error = self.register(pages.at(at), bytes).unwrap_err().to_string();
                assert!(error.contains("a vector of a collective that is under way lies on its pages"), "{error}");
            }
            self.register(pages.start, 2 * page).unwrap();
            self.register(pages.at(11 * page + 7), 100).unwrap();
            self.meet();
        }
        while operation.poll(&mut ring).unwrap().is_pending() {
            crate::sys::affinity::yield_now();
        }
        drop(operation);
        assert!(pages.slice()[2 * page..][..bytes].iter().all(|&byte| byte == 3));
        self.register(vector, bytes).unwrap();
        self.unregister(vector).unwrap();
        if own == 0 {
            self.unregister(pages.start).unwrap();
            self.unregister(pages.at(11 * page + 7)).unwrap();
        }
    }

    /// Buffers go while vectors are lent: one elsewhere, or ones on their first and last pages, which stay until they are freed.
    pub(super) fn lent(&mut self) {
        let page = page_bytes();
        let (elsewhere, pages) = (Pages::new(1), Pages::new(1400));
        let (before, lent) = (shared_mappings(), self.job.reach().lend([elsewhere.start.cast_const(); 2], page));
        for index in 0..700 {
            let buffer = pages.at(2 * index * page + 100);
            self.register(buffer, page).unwrap();
            self.unregister(buffer).unwrap();
        }
        assert_eq!(shared_mappings(), before);
        drop(lent);
        let mut buffers: Vec<Pages> = (0..700).map(|_| Pages::new(3)).collect();
        for pages in &mut buffers {
            fill(pages.slice());
            let (buffer, bytes) = (pages.at(100), pages.bytes - 200);
            self.register(buffer, bytes).unwrap();
            let beside = [pages.start.cast_const(), pages.at(pages.bytes - 100)];
            let lent = self.job.reach().lend(beside, 100);
            self.unregister(buffer).unwrap();
            assert_eq!(shared_mappings(), before + 2);
            assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
            drop(lent);
            pages.renew();
        }
        assert_eq!(shared_mappings(), before);
    }

    /// The safe way, which does not trust other threads; the harness has one.
    pub(super) fn threaded(&mut self) {
        let page = page_bytes();
        let mut pages = Pages::new(4);
        fill(pages.slice());
        let whole = &mut pages.slice()[..2 * page];
        let work = |registered: &mut [u8]| {
            registered[5] = 255;
            self.job.reach().describe(registered.as_ptr(), 2 * page).is_shared()
        };
        assert!(self.job.with_registered(whole, work).unwrap());
        assert_eq!((whole[5], whole[6]), (255, 6));
        assert!(!self.job.reach().describe(whole.as_ptr(), 2 * page).is_shared());
        let error = self.job.with_registered(&mut whole[1..page], |_| ()).unwrap_err().to_string();
        assert!(error.contains("threads writes to"), "{error}");
        assert_eq!(self.job.with_registered(&mut whole[1..1], |empty| empty.len()).unwrap(), 0);
    }

    pub(super) fn register_in_vain(&mut self) {
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

    /// Memory that goes before it is unregistered, against the rules, harms no buffer that comes to its place.
    pub(super) fn freed_early(&mut self) {
        let (own, page) = (self.number(), page_bytes());
        let mut pages = Pages::new(4);
        fill(pages.slice());
        self.register(pages.start, 4 * page).unwrap();
        pages.renew();
        let (second, bytes) = (pages.at(page), 2 * page);
        self.register(second, bytes).unwrap();
        assert!(pages.slice().iter().all(|&byte| byte == 0), "nothing old comes back");
        pages.slice()[page + 5] = 99;
        let all = self.describe(second, bytes);
        let Access::Mapped(theirs) = self.job.reach().resolve(1 - own, &all[1 - own]).unwrap() else { panic!("plain") };
        // SAFETY: the peer's buffer, which nobody writes until all have met.
        let theirs = unsafe { std::slice::from_raw_parts(theirs, bytes) };
        assert!(theirs.iter().enumerate().all(|(i, &byte)| byte == if i == 5 { 99 } else { 0 }));
        self.meet();
        assert!(self.unregister(pages.start).unwrap_err().to_string().contains("was freed before"));
        self.unregister(second).unwrap();
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == if i == page + 5 { 99 } else { 0 }));
    }

    /// Pages that the system does not let go back are kept track of, and go back when there is room.
    pub(super) fn no_room(&mut self) {
        let page = page_bytes();
        let mut pages = Pages::new(700);
        fill(pages.slice());
        let range = pages.start.addr()..pages.start.addr() + pages.bytes;
        self.register(pages.start, pages.bytes).unwrap();
        let (_, hard) = getrlimit(Resource::RLIMIT_DATA).unwrap();
        setrlimit(Resource::RLIMIT_DATA, page as u64, hard).unwrap();
        let outcome = self.unregister(pages.start);
        setrlimit(Resource::RLIMIT_DATA, hard, hard).unwrap();
        assert!(outcome.unwrap_err().to_string().contains("mmap"));
        // SAFETY: the child only writes to memory and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            pages.slice().fill(255);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) };
        }
        super::reap(child);
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
        self.register(pages.start, pages.bytes).unwrap();
        assert!(self.job.reach().describe(pages.start, pages.bytes).is_shared());
        self.unregister(pages.start).unwrap();
        assert_eq!(obstacle_in(&range).unwrap(), None);
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
    }

    /// As many buffers as can be registered leave the heap what it needs, and peers map both.
    pub(super) fn many(&mut self) {
        let (own, page) = (self.number(), page_bytes());
        let mut pages = Pages::new(2 * REGISTERED + 1);
        fill(pages.slice());
        for index in 0..REGISTERED {
            self.register(pages.at(2 * index * page), page).unwrap();
        }
        let error = self.register(pages.at(2 * REGISTERED * page), page).unwrap_err();
        assert!(matches!(error, Error::NoMemory { .. }) && error.to_string().contains("registered buffers"), "{error}");
        let mut blocks = [100, 5_000_000].map(|count| SharedVec::<u64>::zeroed(&self.job, count).unwrap());
        for block in &mut blocks {
            assert!(block.is_shared());
            block[0] = 7 + own as u64;
            let all = self.describe(block.as_ptr().cast(), 8);
            assert_eq!(self.mapped(1 - own, &all[1 - own], 1)[0].load(Ordering::Relaxed), 8 - own as u64);
        }
        for index in [0, REGISTERED - 1] {
            let all = self.describe(pages.at(2 * index * page), page);
            let Access::Mapped(theirs) = self.job.reach().resolve(1 - own, &all[1 - own]).unwrap() else { panic!() };
            // SAFETY: the peer's buffer, which nobody writes until all have met.
            assert_eq!(unsafe { theirs.wrapping_add(9).read() }, pattern(2 * index * page + 9));
        }
        self.meet();
        self.unregister(pages.start).unwrap();
        self.register(pages.at(2 * REGISTERED * page), page).unwrap();
        for index in 1..=REGISTERED {
            self.unregister(pages.at(2 * index * page)).unwrap();
        }
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
    }

    /// What the system does not tell of a buffer is no fault of the buffer's.
    pub(super) fn untold(&mut self) {
        let page = page_bytes();
        let mut pages = Pages::new(4);
        fill(pages.slice());
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let without_descriptors = |work: &mut dyn FnMut() -> crate::Result<()>| {
            setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
            let error = work().unwrap_err();
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
            assert!(
                matches!(error, Error::System { .. }) && error.to_string().contains("Too many open files"),
                "{error}"
            );
        };
        // Before there is a file for registered pages, and when there is one.
        without_descriptors(&mut || self.register(pages.start, page));
        self.register(pages.start, page).unwrap();
        without_descriptors(&mut || self.register(pages.at(page), page));
        let beside = &mut pages.slice()[2 * page + 1..3 * page];
        without_descriptors(&mut || self.job.with_registered(beside, |_| ()));
        without_descriptors(&mut || self.unregister(pages.start));
        assert!(self.job.reach().describe(pages.start, page).is_shared(), "it stays registered");
        self.unregister(pages.start).unwrap();
        // A slice that was lent is the caller's again all the same.
        let whole = &mut pages.slice()[2 * page..3 * page];
        self.job.with_registered(whole, |_| setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap()).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        assert!(!self.job.reach().describe(pages.at(2 * page), page).is_shared());
        assert!(pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i)));
    }

    /// A handler of signals writes to the page that a buffer begins on, while it is moved to and fro.
    pub(super) fn interrupted(&mut self) {
        static COUNTER: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());
        static HANDLED: AtomicU64 = AtomicU64::new(0);
        extern "C" fn count(_: libc::c_int) {
            // SAFETY: a word of the role's page, which is mapped as long as there are signals.
            unsafe { &*COUNTER.load(Ordering::Relaxed) }.fetch_add(1, Ordering::Relaxed);
            HANDLED.fetch_add(1, Ordering::Relaxed);
        }
        let page = page_bytes();
        let pages = Pages::new(2);
        #[allow(clippy::cast_ptr_alignment)] // the start of a page
        COUNTER.store(pages.start.cast(), Ordering::Relaxed);
        let handler = SigHandler::Handler(count);
        // SAFETY: the handler touches atomics only.
        let old = unsafe { nix::sys::signal::signal(Signal::SIGUSR1, handler) }.unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // SAFETY: takes nothing, and gives the calling thread's own handle.
            let target = unsafe { libc::pthread_self() };
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // SAFETY: the thread lives until this one has ended.
                    unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                    std::thread::sleep(std::time::Duration::from_micros(20));
                }
            });
            for _ in 0..1000 {
                self.register(pages.at(64), page).unwrap();
                self.unregister(pages.at(64)).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        // SAFETY: what was there before.
        unsafe { nix::sys::signal::signal(Signal::SIGUSR1, old) }.unwrap();
        // SAFETY: the word that the handler has counted in.
        let counted = unsafe { &*COUNTER.load(Ordering::Relaxed) }.load(Ordering::Relaxed);
        assert_eq!(counted, HANDLED.load(Ordering::Relaxed), "no signal's work was lost");
        assert!(counted > 0);
    }
}

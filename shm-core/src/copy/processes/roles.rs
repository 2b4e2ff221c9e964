//! What the ranks of these tests do. Every role ends by a panic or well.
#![allow(unsafe_code)] // reads and writes what peers have described

use std::fs;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::harness::Files;
use crate::copy::{Access, Described, Method};
use crate::error::Error;
use crate::exchange::Exchange;
use crate::job::Job;
use crate::memory::SharedVec;
use crate::settings::Settings;

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
    let job = Rc::new(Job::together(&mut exchange, settings).unwrap());
    let mut rank = Rank { job: Rc::clone(&job), exchange };
    match role {
        "allocated" => rank.allocated(),
        "ordinary" => rank.ordinary(),
        "unmapped" => rank.unmapped(),
        "churn" => rank.churn(),
        "given-back" => rank.given_back(),
        "without" => rank.without(set),
        "guarded" => rank.guarded(),
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

impl Rank {
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
        large.fill(own as u64);
        // From the middle, so that offsets count.
        let all = self.describe(large[1000..].as_ptr().cast(), 8 * (COUNT - 1000));
        for (rank, what) in all.iter().enumerate().filter(|(rank, _)| *rank != own) {
            assert!(what.is_shared() && self.job.reach().is_mappable(rank, what));
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
        assert!(!all[peer].is_shared() && !self.job.reach().is_mappable(peer, &all[peer]));
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

//! Memory of one rank that the others map, or copy from through the kernel.
#![allow(unsafe_code)] // reads and writes what peers have described

use std::fs::{self, File};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use reduce_kernels::{Call, Operator};

use super::{Rank, descriptors, mappings, wait};
use crate::comm::LocalComm;
use crate::copy::Access;
use crate::copy::described::Described;
use crate::error::Error;
use crate::memory::SharedVec;

impl Rank {
    /// Every rank writes to its own, to the next rank's at a place of its own, and reads all.
    pub(super) fn allocated(&mut self) {
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

    pub(super) fn ordinary(&mut self) {
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

    pub(super) fn unmapped(&mut self) {
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
        assert!(text.contains("that can be read:"), "{text}");
        // SAFETY: 8 bytes are there to be read.
        let error = unsafe { remote.write(4096, word.as_ptr(), 8) }.unwrap_err();
        assert!(error.to_string().contains("that can be written:"), "{error}");
        self.meet();
    }

    /// Rank 1 has no descriptor left to map its peers' vectors by, of which it learns when the collective is under way.
    pub(super) fn no_descriptors(&mut self) {
        let (own, size) = (self.number(), self.job.size());
        let mut comm = LocalComm::together(&mut self.exchange, Rc::clone(&self.job), 0, (0..size).collect()).unwrap();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        // Shorter and longer than what is gathered from where it was reduced to.
        for count in [20_000, 200_000] {
            let mut send = SharedVec::<u64>::zeroed(&self.job, count).unwrap();
            let mut recv = SharedVec::<u64>::zeroed(&self.job, count).unwrap();
            (0..).zip(send.iter_mut()).for_each(|(i, word)| *word = i + own as u64);
            if own == 1 {
                setrlimit(Resource::RLIMIT_NOFILE, 3, hard).unwrap();
            }
            let idle = || Ok(false);
            comm.run(Call::allreduce(&send, &mut recv, Operator::Sum.into()).unwrap(), idle).unwrap();
            comm.run(Call::allreduce_in_place(&mut send, Operator::Sum.into()), idle).unwrap();
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
            for results in [&recv, &send] {
                assert!((0..).zip(results.iter()).all(|(i, word)| *word == 3 * i + 3), "{count}");
            }
            let text = self.job.reach().in_words();
            assert_eq!(text.contains("cma in place of a mapping"), own == 1, "{text}");
            self.meet();
        }
    }

    /// Rank 1's program has as many files open as it may. It maps what rank 0 allocates, again and again.
    pub(super) fn all_descriptors_taken(&mut self) {
        let own = self.number();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        for round in 0..3_u64 {
            // A region of its own each time: twice as large as all before it.
            let mut block = SharedVec::<u64>::zeroed(&self.job, 1 << (18 + round)).unwrap();
            block[0] = round + own as u64;
            let all = self.describe(block.as_ptr().cast(), 8);
            let mut taken = Vec::new();
            if own == 1 {
                setrlimit(Resource::RLIMIT_NOFILE, 64, hard).unwrap();
                taken.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
                let access = self.job.reach().resolve(0, &all[0]).unwrap();
                let Access::Mapped(theirs) = access else { panic!("not mapped: {access:?}") };
                // SAFETY: the owner has written it before it described it, and keeps it until the ranks meet.
                assert_eq!(unsafe { theirs.cast::<[u8; 8]>().read() }, round.to_ne_bytes());
            }
            drop(taken);
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
            self.meet();
        }
    }

    /// Rank 0 frees and allocates; rank 1 maps every one of them.
    pub(super) fn churn(&mut self) {
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
    pub(super) fn given_back(&mut self) {
        // More than is kept.
        const COUNT: usize = 5 << 20;
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
}

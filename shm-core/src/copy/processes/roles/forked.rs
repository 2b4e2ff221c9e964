//! What a forked child sees of its parent's reachable memory.
#![allow(unsafe_code)] // forks

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Pages, Rank, fill, pattern};
use crate::copy::Access;
use crate::memory::SharedVec;
use crate::sys::pages::page_bytes;

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

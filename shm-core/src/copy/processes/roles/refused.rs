//! What cannot be registered.
#![allow(unsafe_code)] // makes and takes away memory of all kinds

use std::path::Path;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::{Pages, Rank, descriptors, fill, pattern, shared_mappings};
use crate::error::Error;
use crate::memory::SharedVec;
use crate::sys::map::{self, SharedMap};
use crate::sys::pages::page_bytes;

/// Lets no file of this process be longer than `bytes`, as far as that may be said.
fn limit_files(bytes: u64) {
    let (_, hard) = getrlimit(Resource::RLIMIT_FSIZE).unwrap();
    setrlimit(Resource::RLIMIT_FSIZE, bytes.min(hard), hard).unwrap();
}

impl Rank {
    pub(super) fn refused(&mut self) {
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
        let object = SharedMap::anonymous("han-test", page).unwrap();
        // SAFETY: a page of this role's own.
        let outcome = unsafe { libc::mprotect(pages.at(2 * page).cast(), page, libc::PROT_READ) };
        assert_eq!(outcome, 0);
        // SAFETY: a page of this role's own.
        assert_eq!(unsafe { libc::munmap(pages.at(3 * page).cast(), page) }, 0);
        let locked = Pages::new(3);
        // AddressSanitizer's mlock does nothing.
        // SAFETY: a page of this role's own.
        assert_eq!(unsafe { libc::syscall(libc::SYS_mlock, locked.at(page), page) }, 0);
        for (start, bytes, expected) in [
            (locked.start, 2 * page, "it is locked in memory"),
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
        // Where a large block is, a small one asks for no region as large as that.
        let large = self.job.allocate(192 << 20, false).unwrap();
        let address_space = Resource::RLIMIT_AS;
        let (soft, hard) = getrlimit(address_space).unwrap();
        let mapped = std::fs::read_to_string("/proc/self/statm").unwrap();
        let mapped: u64 = mapped.split(' ').next().unwrap().parse().unwrap();
        setrlimit(address_space, mapped * page as u64 + (64 << 20), hard).unwrap();
        let small = self.job.allocate(100, false).unwrap();
        setrlimit(address_space, soft, hard).unwrap();
        drop((large, small));
    }

    /// A longer file would be a signal that ends the process.
    pub(super) fn limited(&mut self) {
        let page = page_bytes();
        let mut pages = Pages::new(1000);
        let last = 999 * page;
        fill(&mut pages.slice()[last..]);
        let is_whole = |pages: &mut Pages| {
            let (untouched, filled) = pages.slice().split_at(last);
            untouched.iter().all(|&byte| byte == 0) && filled.iter().enumerate().all(|(i, &byte)| byte == pattern(i))
        };
        limit_files(16 << 20);
        let error = self.register(pages.start, pages.bytes).unwrap_err().to_string();
        assert!(error.contains("ftruncate failed") && error.contains("ulimit -f unlimited"), "{error}");
        limit_files(u64::MAX);
        let first = Pages::new(1);
        self.register(first.start, 10).unwrap();
        limit_files(4096);
        // The file is there, and nothing has to be written to it.
        let untouched = Pages::new(1);
        self.register(untouched.start, 10).unwrap();
        let before = (shared_mappings(), descriptors());
        let error = self.register(pages.start, pages.bytes).unwrap_err().to_string();
        assert!(error.contains("pwrite failed") && error.contains("ulimit -f unlimited"), "{error}");
        assert!(is_whole(&mut pages));
        assert_eq!((shared_mappings(), descriptors()), before, "all is as it was");
        let error = self.job.allocate(8 << 20, false).unwrap_err().to_string();
        assert!(error.contains("no memory for") && error.contains("ulimit -f"), "{error}");
        let path = map::prefix() + "limited-" + &std::process::id().to_string();
        let error = SharedMap::named(&Path::new(map::DEV_SHM).join(path), 8192).unwrap_err().to_string();
        assert!(error.contains("ulimit -f"), "{error}");
        limit_files(u64::MAX);
        self.register(pages.start, pages.bytes).unwrap();
        for start in [first.start, untouched.start, pages.start] {
            self.unregister(start).unwrap();
        }
        assert!(is_whole(&mut pages));
    }
}

//! What cannot be registered.
#![allow(unsafe_code)] // makes and takes away memory of all kinds

use std::path::Path;

use super::{Pages, Rank};
use crate::error::Error;
use crate::memory::SharedVec;
use crate::sys::map::{self, SharedMap};
use crate::sys::pages::page_bytes;

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
        let address_space = nix::sys::resource::Resource::RLIMIT_AS;
        let (soft, hard) = nix::sys::resource::getrlimit(address_space).unwrap();
        let mapped = std::fs::read_to_string("/proc/self/statm").unwrap();
        let mapped: u64 = mapped.split(' ').next().unwrap().parse().unwrap();
        nix::sys::resource::setrlimit(address_space, mapped * page as u64 + (64 << 20), hard).unwrap();
        let small = self.job.allocate(100, false).unwrap();
        nix::sys::resource::setrlimit(address_space, soft, hard).unwrap();
        drop((large, small));
        let limited = Pages::new(1);
        let (_, hard) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_FSIZE).unwrap();
        nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_FSIZE, 4096, hard).unwrap();
        // The file exists already.
        self.register(limited.start, 10).unwrap();
        self.unregister(limited.start).unwrap();
        let error = self.job.allocate(8 << 20, false).unwrap_err().to_string();
        assert!(error.contains("no memory for") && error.contains("ulimit -f"), "{error}");
        // A longer file in /dev/shm would be a signal that ends the process.
        let path = map::prefix() + "refused-" + &std::process::id().to_string();
        let error = SharedMap::named(&Path::new(map::DEV_SHM).join(path), 8192).unwrap_err().to_string();
        assert!(error.contains("ulimit -f"), "{error}");
    }
}

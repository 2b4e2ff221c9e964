//! Programs that close descriptors which they do not know, and open files of their own, which get their numbers.
#![allow(unsafe_code)] // closes descriptors of the engine's

use std::fs::{self, File};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::{Pages, Rank, fill, pattern};
use crate::memory::SharedVec;
use crate::sys::pages::obstacle_in;

/// Length of a [`file`].
const FILE_BYTES: usize = 1 << 20;

/// A file of the program's, of which parts could be taken away.
fn file() -> File {
    let file = File::from(memfd_create(c"programs", MFdFlags::empty()).unwrap());
    let mut bytes = vec![0; FILE_BYTES];
    fill(&mut bytes);
    file.write_all_at(&bytes, 0).unwrap();
    file
}

/// Whether a [`file`] is as it was made.
fn is_untouched(file: &File) -> bool {
    let mut bytes = vec![0; FILE_BYTES];
    let length = file.metadata().map(|seen| seen.len());
    length.is_ok_and(|length| length == FILE_BYTES as u64)
        && file.read_exact_at(&mut bytes, 0).is_ok()
        && bytes.iter().enumerate().all(|(i, &byte)| byte == pattern(i))
}

fn is_whole(pages: &mut Pages) -> bool {
    pages.slice().iter().enumerate().all(|(i, &byte)| byte == pattern(i))
}

/// The descriptor of this process whose file is called so.
pub(super) fn descriptor_of(name: &str) -> RawFd {
    let mut links = fs::read_dir("/proc/self/fd").unwrap().map(|link| link.unwrap().path());
    // The one that lists them is gone by now.
    let is_it = |link: &std::path::PathBuf| fs::read_link(link).is_ok_and(|to| to.to_string_lossy().contains(name));
    links.find(is_it).unwrap().file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// Closes a descriptor of the engine's, or puts a file of the program's in its place.
pub(super) fn lose(fd: RawFd, other: Option<&File>) {
    match other {
        // SAFETY: as a program does that closes what it does not know.
        None => assert_eq!(unsafe { libc::close(fd) }, 0),
        // SAFETY: as it does when it opens something afterwards.
        Some(other) => assert_eq!(unsafe { libc::dup2(other.as_raw_fd(), fd) }, fd),
    }
}

impl Rank {
    /// Closes all of the engine's descriptors, opens files in their place, frees memory and ends.
    pub(super) fn files_closed(mut self) {
        // One has a region of its own, too large to be kept, the others are in one together.
        let alone = SharedVec::<u64>::zeroed(&self.job, 5 << 20).unwrap();
        let others = [10, 4 << 17].map(|count| SharedVec::<u64>::zeroed(&self.job, count).unwrap());
        self.meet();
        // SAFETY: it takes no pointers. What han needs its descriptors for is over.
        assert_eq!(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) }, 0);
        let files: Vec<File> = (0..20).map(|_| file()).collect();
        let [small, large] = others;
        drop(large);
        drop((small, alone));
        assert!(files.iter().all(is_untouched), "what is freed is no part of a file of the program's");
        self.meet();
        self.job.finalize();
        drop(self);
        assert!(files.iter().all(is_untouched), "they are open");
    }

    /// The program closes the file of registered memory, or has one of its own in its place: all contents stay.
    pub(super) fn without_file(mut self) {
        let other = file();
        // A few pages, and more than are moved at a time.
        let mut buffers = [5, 600].map(Pages::new);
        let register = |rank: &Self, buffers: &mut [Pages]| {
            for pages in buffers {
                fill(pages.slice());
                rank.register(pages.start, pages.bytes).unwrap();
            }
        };
        for other in [None, Some(&other)] {
            register(&self, &mut buffers);
            let fd = descriptor_of("han-registered");
            lose(fd, other);
            let third = Pages::new(1);
            let error = self.register(third.start, third.bytes).unwrap_err().to_string();
            assert!(error.contains("the program has closed the descriptor of han's file"), "{error}");
            for pages in &mut buffers {
                self.unregister(pages.start).unwrap();
                assert!(is_whole(pages));
            }
            if let Some(other) = other {
                assert!(is_untouched(other));
                // SAFETY: the program's own, which nobody else has closed.
                assert_eq!(unsafe { libc::close(fd) }, 0);
            }
        }
        // Zeros tell of no page that it was touched.
        register(&self, &mut buffers[..1]);
        lose(descriptor_of("pagemap"), Some(&File::open("/dev/zero").unwrap()));
        register(&self, &mut buffers[1..]);
        assert!(buffers.iter_mut().all(is_whole));
        lose(descriptor_of("han-registered"), Some(&other));
        self.meet();
        self.job.finalize();
        drop(self);
        for pages in &mut buffers {
            let range = pages.start.addr()..pages.start.addr() + pages.bytes;
            assert_eq!(obstacle_in(&range).unwrap(), None, "it is private");
            assert!(is_whole(pages));
        }
        assert!(is_untouched(&other));
    }
}

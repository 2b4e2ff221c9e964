use std::os::unix::fs::MetadataExt;

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};

use super::*;

#[test]
fn only_private_memory_is_taken_in() {
    for (line, expected) in [
        ("1000-2000 rw-p 00000000 00:00 0", None),
        ("1000-2000 rw-p 00000000 00:00 0 [anon:arena]", None),
        ("1000-2000 rw-p 00000000 00:00 0 [stack]", Some("stack")),
        ("1000-2000 r--p 00000000 00:00 0", Some("r--p")),
        ("1000-2000 rwxp 00000000 00:00 0", Some("rwxp")),
        ("1000-2000 ---p 00000000 00:00 0", Some("---p")),
        ("1000-2000 rw-p 00000000 fe:01 99 /tmp/with space", Some("the file /tmp/with space")),
        ("1000-2000 rw-s 00000000 00:01 99 /memfd:x (deleted)", Some("shared already")),
        ("1000-2000 rw-p 00000000 00:00 0 [vvar]", Some("belong to the system")),
    ] {
        let obstacle = obstacle(&Mapping::parse(line).unwrap());
        match expected {
            Some(part) => assert!(obstacle.as_ref().is_some_and(|why| why.contains(part)), "{line}: {obstacle:?}"),
            None => assert_eq!(obstacle, None, "{line}"),
        }
    }
}

#[test]
fn what_is_no_private_memory_is_refused() {
    let page = page_bytes();
    let pages = |address: usize| address / page * page..(address / page + 1) * page;
    let local = 0_u8;
    let why = |range| obstacle_in(&range).unwrap().unwrap();
    assert!(why(pages((&raw const local).addr())).contains("stack"));
    assert!(why(pages((b"text").as_ptr().addr())).contains("mapping of the file"));
    assert!(why(0..page).contains("nothing is mapped"));
    let memory = vec![1_u8; 1 << 20];
    assert_eq!(obstacle_in(&pages(memory[page..].as_ptr().addr())).unwrap(), None);
}

/// Pages of a mapping of the test's own.
fn anonymous(pages: usize) -> Range<usize> {
    let length = std::num::NonZeroUsize::new(pages * page_bytes()).unwrap();
    // SAFETY: a new mapping where the kernel likes.
    let base =
        unsafe { mmap_anonymous(None, length, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE) };
    let start = base.unwrap().as_ptr().expose_provenance();
    start..start + length.get()
}

#[test]
fn contents_stay_and_untouched_pages_stay_so() {
    let (mirror, page) = (Mirror::new().unwrap(), page_bytes());
    let range = anonymous(3 * PAGES_AT_A_TIME);
    let touched: Vec<usize> = [0, 1, 5, PAGES_AT_A_TIME - 1, PAGES_AT_A_TIME, 3 * PAGES_AT_A_TIME - 1].into();
    let words: Vec<*mut usize> =
        touched.iter().map(|index| std::ptr::with_exposed_provenance_mut(range.start + index * page + 8)).collect();
    let check = || {
        for (word, index) in words.iter().zip(&touched) {
            // SAFETY: a word of a touched page of this test's own mapping.
            assert_eq!(unsafe { word.read() }, *index);
        }
    };
    for (word, index) in words.iter().zip(&touched) {
        // SAFETY: as above.
        unsafe { word.write(*index) };
    }
    for _ in 0..3 {
        assert_eq!(obstacle_in(&range).unwrap(), None);
        // SAFETY: pages of this test's own.
        unsafe { mirror.take_in(range.clone()) }.unwrap();
        assert!(mirror.lacks(&range).unwrap().is_empty());
        assert!(obstacle_in(&range).unwrap().unwrap().contains("shared already"));
        check();
        let used = mirror.file.metadata().unwrap().blocks() * 512;
        assert_eq!(used, (touched.len() * page) as u64, "only touched pages take memory");
        // SAFETY: they were taken in above.
        unsafe { mirror.give_back(range.clone()) }.unwrap();
        assert_eq!(mirror.lacks(&range).unwrap(), std::slice::from_ref(&range));
        check();
        assert_eq!(mirror.file.metadata().unwrap().blocks(), 0);
    }
    // SAFETY: as above.
    unsafe { mirror.take_in(range.clone()) }.unwrap();
    let hole = range.start + 2 * page..range.start + 3 * page;
    // SAFETY: a page of this test's own mapping.
    unsafe { libc::munmap(pointer(hole.start).cast(), page) };
    assert_eq!(mirror.lacks(&range).unwrap(), [hole]);
    // SAFETY: this test's own mapping, not used any more.
    unsafe { libc::munmap(pointer(range.start).cast(), range.len()) };
}

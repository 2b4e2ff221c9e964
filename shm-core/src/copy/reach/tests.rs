use std::ptr;
use std::time::{Duration, Instant};

use super::*;
use crate::exchange::Alone;
use crate::segment::{Backing, Segment, Shape};
use crate::sys::pages::page_bytes;
use crate::sys::pidfd::PidFd;

/// Moving its pages would lose what a peer's kernel writes to it, or to a vector beside the buffer.
#[test]
fn pages_of_a_lent_vector_are_not_moved() {
    let shape = Shape {
        name: "test",
        ranks: 1,
        members: 0,
        cell_bytes: 0,
        bytes: size_of::<RegionTable>(),
        least_bytes: size_of::<RegionTable>(),
    };
    let segment = Segment::together(&mut Alone, &shape, &[Backing::Heap]).unwrap();
    let lives = Rc::new(Lives::new(vec![None]));
    let reach = Reach::new(0, &[std::process::id()], lives, &[segment.place(0)], Methods::new(None, None), false);
    let page = page_bytes();
    let mut memory = vec![0_u8; 6 * page];
    let start = memory.as_mut_ptr().wrapping_add(memory.as_ptr().align_offset(page));
    let at = |offset: usize| start.wrapping_add(offset);
    let register = |offset, bytes| {
        // SAFETY: nobody else has the buffer, which outlives its registration.
        unsafe { reach.register(at(offset), bytes, Neighbours::Still) }?;
        // SAFETY: no operation uses it.
        unsafe { reach.unregister(at(offset), Untold::Refused) }
    };
    let lent = reach.lend([at(page + 100), at(3 * page)], page);
    for (offset, bytes) in [(0, page + 1), (page, page), (2 * page + 200, 1), (3 * page, page), (4 * page - 1, 9)] {
        let error = register(offset, bytes).unwrap_err().to_string();
        assert!(error.contains("a collective that is under way"), "{error}");
    }
    let other = reach.lend([at(4 * page), at(4 * page)], 8);
    let _empty = reach.lend([at(10), at(10)], 0);
    register(0, page).unwrap();
    drop(lent);
    register(0, 4 * page).unwrap();
    assert!(register(0, 4 * page + 1).is_err());
    drop(other);
    register(0, 5 * page).unwrap();
}

/// Whoever asks for memory gets it, also when a rank's table of regions is full.
#[test]
fn without_a_place_for_a_region_memory_is_ordinary() {
    let bytes = size_of::<RegionTable>();
    let shape = Shape { name: "test", ranks: 1, members: 0, cell_bytes: 0, bytes, least_bytes: bytes };
    let segment = Segment::together(&mut Alone, &shape, &[Backing::Heap]).unwrap();
    let lives = Rc::new(Lives::new(vec![None]));
    let reach = Reach::new(0, &[std::process::id()], lives, &[segment.place(0)], Methods::new(None, None), true);
    let take = |bytes: usize, is_shared: bool| {
        let (pointer, home) = reach.take(bytes, true).unwrap();
        assert_eq!(matches!(home, Home::Region(_)), is_shared);
        assert_eq!(reach.describe(pointer, bytes).is_shared(), is_shared);
        // SAFETY: the block is this long, and nobody else has it.
        let block = unsafe { std::slice::from_raw_parts_mut(pointer, bytes) };
        assert!(block.iter().all(|&byte| byte == 0));
        block.fill(1);
        (pointer, bytes, home)
    };
    // SAFETY: taken above, and not used any more.
    let give = |(pointer, bytes, home)| unsafe { reach.give(pointer, bytes, home) };
    reach.regions.borrow_mut().fill(false);
    let first = take(100_000, true);
    reach.regions.borrow_mut().fill(true);
    give(take(8 << 20, false));
    give(first);
    // The first one's place, where nothing is left.
    give(take(8 << 20, true));
}

/// A peer has ended, and its process id is another process's by now: this one's.
#[test]
fn a_process_that_has_taken_a_peers_id_is_not_read_in_its_place() {
    let bytes = 2 * size_of::<RegionTable>();
    let shape = Shape { name: "test", ranks: 1, members: 0, cell_bytes: 0, bytes, least_bytes: bytes };
    let segment = Segment::together(&mut Alone, &shape, &[Backing::Heap]).unwrap();
    let tables = [segment.place(0), segment.place(size_of::<RegionTable>())];
    let mut peer = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    let lives = Rc::new(Lives::new(vec![None, Some(PidFd::open(peer.id()).unwrap())]));
    let id = std::process::id();
    let reach = Reach::new(0, &[id, id], lives, &tables, Methods::new(None, None), false);
    let (mut theirs, mut into) = (7_u64, 0_u64);
    let buffer = RemoteBuffer::at(1, id, (&raw mut theirs).expose_provenance());
    let mut read = || {
        // SAFETY: the word may be written.
        let outcome = unsafe { reach.read(buffer, 0, (&raw mut into).cast(), size_of::<u64>()) };
        outcome.map(|()| into)
    };
    assert_eq!(read().unwrap(), 7);
    drop(peer.stdin.take());
    peer.wait().unwrap();
    // In the tick of the clock in which it was seen to live it is taken to have kept its id.
    let give_up = Instant::now() + Duration::from_secs(100);
    let outcome = loop {
        match read() {
            Ok(_) if Instant::now() < give_up => std::thread::yield_now(),
            outcome => break outcome,
        }
    };
    assert!(matches!(outcome, Err(Error::Unreachable { rank: 1, .. })));
    // SAFETY: both are words of this function.
    let written = unsafe { reach.write(buffer, 0, (&raw const into).cast(), size_of::<u64>()) };
    assert!(written.unwrap_err().to_string().contains("has ended"));
}

/// The kernel says alike of both sides of a copy that there is no such memory.
#[test]
fn the_side_is_named_whose_memory_is_not_there() {
    let bytes = 2 * size_of::<RegionTable>();
    let shape = Shape { name: "test", ranks: 1, members: 0, cell_bytes: 0, bytes, least_bytes: bytes };
    let segment = Segment::together(&mut Alone, &shape, &[Backing::Heap]).unwrap();
    let tables = [segment.place(0), segment.place(size_of::<RegionTable>())];
    let id = std::process::id();
    let reach =
        Reach::new(0, &[id, id], Rc::new(Lives::new(vec![None, None])), &tables, Methods::new(None, None), false);
    let mut theirs = [7_u8; 100];
    let buffer = RemoteBuffer::at(1, id, (&raw mut theirs).expose_provenance());
    let constant: *const u8 = b"read-only".as_ptr();
    // SAFETY: the kernel does not write to what is read-only.
    let error = unsafe { reach.read(buffer, 0, constant.cast_mut(), 9) }.unwrap_err();
    assert!(matches!(error, Error::Unreachable { rank: 0, .. }), "{error}");
    assert!(error.to_string().contains(&format!("{:#x} that can be written", constant.addr())), "{error}");
    let nowhere = RemoteBuffer::at(1, id, 4096);
    // SAFETY: there is room.
    let error = unsafe { reach.read(nowhere, 0, theirs.as_mut_ptr(), 100) }.unwrap_err();
    assert!(matches!(error, Error::Unreachable { rank: 1, .. }), "{error}");
    // SAFETY: the kernel does not read what is not there.
    let error = unsafe { reach.write(buffer, 0, ptr::without_provenance(4096), 100) }.unwrap_err();
    assert!(matches!(error, Error::Unreachable { rank: 0, .. }), "{error}");
}

use super::*;
use crate::exchange::Alone;
use crate::segment::{Backing, Segment, Shape};
use crate::sys::pidfd::PidFd;

/// Moving its pages would lose what a peer's kernel writes to a vector beside the buffer.
#[test]
fn pages_that_may_hold_a_lent_vector_are_not_moved() {
    let shape = Shape { name: "test", ranks: 1, cell_bytes: 0, bytes: size_of::<RegionTable>() };
    let segment = Segment::together(&mut Alone, &shape, &[Backing::Heap]).unwrap();
    let lives = Rc::new(Lives::new(vec![None]));
    let reach = Reach::new(0, &[std::process::id()], lives, &[segment.place(0)], Methods::new(None, None), false);
    let mut buffer = vec![0_u8; 10_000];
    let start = buffer.as_mut_ptr();
    // SAFETY: nobody else has the buffer, which outlives its registration.
    let register = || unsafe { reach.register(start, 10_000, Neighbours::Still) };
    let lent = reach.lend();
    assert!(register().unwrap_err().to_string().contains("a collective that is under way"));
    drop(lent);
    register().unwrap();
    // SAFETY: no operation uses it.
    unsafe { reach.unregister(start) }.unwrap();
}

/// A peer has ended, and its process id is another process's by now: this one's.
#[test]
fn a_process_that_has_taken_a_peers_id_is_not_read_in_its_place() {
    let bytes = 2 * size_of::<RegionTable>();
    let shape = Shape { name: "test", ranks: 1, cell_bytes: 0, bytes };
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
    assert!(matches!(read(), Err(Error::Unreachable { rank: 1, .. })));
    // SAFETY: both are words of this function.
    let written = unsafe { reach.write(buffer, 0, (&raw const into).cast(), size_of::<u64>()) };
    assert!(written.unwrap_err().to_string().contains("has ended"));
}

//! Memory of messages that were given up, or whose transport is gone, is nobody's but its owner's.

use std::thread;
use std::time::Duration;

use net_fabric::transport::ofi::{Config, OfiTransport, world_here};
use net_fabric::transport::{Posted, Tag, Token, Transport};

use crate::world::{over, providers};

const BYTES: usize = 4 << 20;
/// What the owner writes once the memory is free.
const OWNERS: u8 = 0xaa;

/// How a receive ends before its message is there.
#[derive(Debug, Clone, Copy)]
enum End {
    Cancelled,
    Dropped,
}

/// Lets a rank work, whatever comes of it: its peer, or itself, may be broken.
fn work(rank: &mut OfiTransport) {
    let _ = rank.progress(&mut Vec::new());
}

/// Begins a message from rank 0 to rank 1.
fn begin(ranks: &mut [OfiTransport], from: &[u8], into: &mut [u8]) {
    // SAFETY: the callers keep the memory until the message has been given up, or its transport is gone.
    let posted = unsafe { ranks[1].receive(0, Tag(1), into.as_mut_ptr(), into.len(), Token(1)) };
    assert_eq!(posted.unwrap(), Posted::Pending);
    // SAFETY: the same.
    while unsafe { ranks[0].send(1, Tag(1), 1, from.as_ptr(), from.len(), Token(2)) }.unwrap() == Posted::Busy {
        ranks.iter_mut().for_each(work);
    }
}

/// Lets the rest of the message come, if it does: threads of the provider's are given time.
fn let_it_come(ranks: &mut [OfiTransport]) {
    for _ in 0..100 {
        ranks.iter_mut().for_each(work);
        thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn nothing_comes_into_memory_that_was_taken_back() {
    let from = vec![1; BYTES];
    for provider in providers() {
        // Not begun, or somewhere in the middle.
        for (end, begun) in [(End::Cancelled, 0), (End::Cancelled, 20), (End::Dropped, 20)] {
            let register = begun > 0;
            let config = Config { register, ..over(&provider) };
            let mut into = vec![0; BYTES];
            let mut ranks = world_here(&config, 2).unwrap();
            begin(&mut ranks, &from, &mut into);
            for _ in 0..begun {
                ranks.iter_mut().for_each(work);
            }
            match end {
                End::Cancelled => ranks[1].cancel(Token(1)),
                End::Dropped => drop(ranks.pop()),
            }
            into.fill(OWNERS);
            let_it_come(&mut ranks);
            assert!(into.iter().all(|&byte| byte == OWNERS), "{provider}, {end:?} after {begun}");
        }
    }
}

#[test]
fn nothing_goes_from_memory_that_was_taken_back() {
    for provider in providers() {
        for begun in [0, 20] {
            let mut from = vec![1; BYTES];
            let mut into = vec![0; BYTES];
            let mut ranks = world_here(&over(&provider), 2).unwrap();
            begin(&mut ranks, &from, &mut into);
            for _ in 0..begun {
                ranks.iter_mut().for_each(work);
            }
            ranks[0].cancel(Token(2));
            from.fill(OWNERS);
            let_it_come(&mut ranks);
            assert!(!into.contains(&OWNERS), "{provider} after {begun}");
        }
    }
}

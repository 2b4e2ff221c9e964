//! The transport within a process, in each of its moods.

use crate::rig::{Features, Rig};
use crate::suite;
use net_fabric::Error;
use net_fabric::transport::loopback::{Loopback, Options};
use net_fabric::transport::{Posted, Tag, Token, Transport};
use std::time::Duration;

const ALL: Features = Features { data: true, notices_death: true, parts_with_sends: true, forgives_lengths: true };

mod plain {
    crate::conformance!(
        |ranks| super::Loopback::world(ranks, super::Options { held_messages: 256, ..Default::default() }),
        super::ALL
    );
}

mod synchronous {
    crate::conformance!(
        |ranks| super::Loopback::world(
            ranks,
            super::Options { synchronous: true, held_messages: 256, ..Default::default() }
        ),
        super::ALL
    );
}

mod disordered {
    crate::conformance!(
        |ranks| super::Loopback::world(
            ranks,
            super::Options { disorder: Some(7), held_messages: 256, ..Default::default() }
        ),
        super::ALL
    );
}

mod synchronous_disordered {
    crate::conformance!(
        |ranks| super::Loopback::world(
            ranks,
            super::Options { synchronous: true, disorder: Some(8), held_messages: 256 }
        ),
        super::ALL
    );
}

#[test]
fn a_full_queue_refuses_and_room_admits() {
    let mut rig = Rig::new(Loopback::world(2, Options { held_messages: 1, ..Default::default() }), ALL);
    let bytes = [1, 2, 3];
    assert_eq!(rig.try_send(0, 1, Tag(1), 0, &bytes, Token(1)).unwrap(), Posted::Done);
    assert_eq!(rig.try_send(0, 1, Tag(2), 0, &bytes, Token(2)).unwrap(), Posted::Busy);
    let first = rig.receive(1, 0, Tag(1), 3);
    assert_eq!(rig.try_send(0, 1, Tag(2), 0, &bytes, Token(2)).unwrap(), Posted::Done);
    let second = rig.receive(1, 0, Tag(2), 3);
    rig.finish(&[first, second]);
}

#[test]
fn ranks_may_be_threads_and_sleep() {
    let ranks = Loopback::world(2, Options { synchronous: true, ..Default::default() });
    let threads: Vec<_> = ranks
        .into_iter()
        .map(|rank| {
            std::thread::spawn(move || {
                let (own, peer) = (rank.rank(), 1 - rank.rank());
                let mut rig = Rig::new(vec![rank], ALL);
                for round in 0..2000u64 {
                    let received = rig.receive(0, peer, Tag(round), 8);
                    let sent = rig.send(0, peer, Tag(round), round, &(round + own as u64).to_ne_bytes());
                    while !(rig.has_ended(received) && rig.has_ended(sent)) {
                        rig.sleep(0, Duration::from_secs(10));
                        rig.progress();
                    }
                    assert_eq!(rig.take(received).0, (round + peer as u64).to_ne_bytes());
                    rig.take(sent);
                }
                // The peer may still wait for what this rank has to say.
                rig
            })
        })
        .collect();
    drop(threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>());
}

#[test]
fn lent_memory_is_free_after_cancel() {
    let mut rig = Rig::new(Loopback::world(2, Options { synchronous: true, ..Default::default() }), ALL);
    let data = vec![7; 100];
    assert_eq!(rig.try_send(0, 1, Tag(9), 0, &data, Token(u64::MAX)).unwrap(), Posted::Pending);
    rig.ranks[0].cancel(Token(u64::MAX));
    drop(data);
    let receive = rig.receive(1, 0, Tag(9), 100);
    rig.progress();
    assert!(!rig.has_ended(receive), "the message was taken back");
}

#[test]
fn lengths_are_named() {
    let mut rig = Rig::new(Loopback::world(2, Options::default()), ALL);
    let receive = rig.receive(1, 0, Tag(9), 5);
    rig.send(0, 1, Tag(9), 0, &[0; 6]);
    let error = rig.fail(receive);
    assert!(matches!(error, Error::Length { rank: 0, sent: 6, expected: 5 }), "{error}");
    assert_eq!(error.to_string(), "rank 0 sent 6 bytes where 5 were expected");
}

#[test]
fn a_rank_that_is_not_there_is_an_error() {
    let mut rig = Rig::new(Loopback::world(2, Options::default()), ALL);
    let error = rig.try_send(0, 2, Tag(0), 0, &[], Token(0)).unwrap_err();
    assert_eq!(error.to_string(), "invalid argument: rank 2: the world's ranks are 0 to 1");
}

#[test]
fn the_suite_notices_a_transport_that_mixes_tags_up() {
    struct Forgetful(Loopback);
    impl Transport for Forgetful {
        fn rank(&self) -> usize {
            self.0.rank()
        }
        fn size(&self) -> usize {
            self.0.size()
        }
        unsafe fn send(
            &mut self,
            peer: usize,
            tag: Tag,
            word: u64,
            data: *const u8,
            bytes: usize,
            token: Token,
        ) -> net_fabric::Result<Posted> {
            // SAFETY: the caller's promise is the same.
            unsafe { self.0.send(peer, Tag(tag.0 & 1), word, data, bytes, token) }
        }
        unsafe fn receive(
            &mut self,
            peer: usize,
            tag: Tag,
            data: *mut u8,
            bytes: usize,
            token: Token,
        ) -> net_fabric::Result<Posted> {
            // SAFETY: the caller's promise is the same.
            unsafe { self.0.receive(peer, Tag(tag.0 & 1), data, bytes, token) }
        }
        fn progress(&mut self, completed: &mut Vec<net_fabric::transport::Completion>) -> net_fabric::Result<()> {
            self.0.progress(completed)
        }
        fn cancel(&mut self, token: Token) {
            self.0.cancel(token);
        }
        fn sleep(&mut self, limit: Duration) -> net_fabric::Result<()> {
            self.0.sleep(limit)
        }
        fn describe(&self) -> String {
            self.0.describe()
        }
    }
    let world = |ranks| Loopback::world(ranks, Options::default()).into_iter().map(Forgetful).collect();
    let caught = std::panic::catch_unwind(|| suite::matches_by_tag_and_sender(world, ALL));
    assert!(caught.is_err(), "tags that collide must be noticed");
}

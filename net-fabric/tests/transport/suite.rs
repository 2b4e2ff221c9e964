//! The contract of [`Transport`], clause by clause. All ranks are driven from one thread.

use net_fabric::Error;
use net_fabric::transport::Transport;
use net_fabric::transport::{ANYBODY, Posted, Tag, Token};
use std::time::{Duration, Instant};

use crate::rig::{Features, Rig};

/// One test for each clause, on the worlds that `$make` makes.
#[macro_export]
macro_rules! conformance {
    ($make:expr, $features:expr) => {
        $crate::conformance!(@each $make, $features,
            keeps_order_within_a_tag, matches_by_tag_and_sender, carries_nothing, carries_much,
            unexpected_messages_wait_and_hold_nobody_up, wrong_lengths_are_errors, cancelled_receives_are_gone,
            cancelled_sends_leave_their_memory, carries_many, busy_loses_nothing, carries_the_word,
            both_ways_at_once, receives_from_anybody, sends_to_the_dead_fail, sleeps);
    };
    (@each $make:expr, $features:expr, $($clause:ident),*) => {
        $(#[test]
        fn $clause() {
            $crate::suite::$clause($make, $features);
        })*
    };
}

/// Tags use 48 bits.
const HIGH: u64 = (1 << 48) - 1;

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| u8::try_from((i * 31 + seed * 17 + i / 251) % 256).unwrap()).collect()
}

pub(crate) fn keeps_order_within_a_tag<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(2), features);
    let early: Vec<_> = (0..20).map(|_| rig.receive(1, 0, Tag(5), 16)).collect();
    let sent: Vec<_> = (0..60).map(|i| rig.send(0, 1, Tag(5), i as u64, &bytes(16, i))).collect();
    let late: Vec<_> = (20..60).map(|_| rig.receive(1, 0, Tag(5), 16)).collect();
    for (i, message) in early.into_iter().chain(late).enumerate() {
        rig.expect(message, &bytes(16, i), i as u64, &format!("message {i}"));
    }
    rig.finish(&sent);
}

pub(crate) fn matches_by_tag_and_sender<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(4), features);
    let tags = [0, 1, 1 << 20, HIGH - 1, HIGH];
    let mut received = Vec::new();
    // Half of the receives before the sends; then the other half in another order.
    let post = |rig: &mut Rig<T>, at: usize, from: usize| {
        let message = rig.receive(0, from, Tag(tags[at]), 8 * at);
        (message, at, from)
    };
    for from in [3, 1, 2] {
        received.extend([4, 0].map(|at| post(&mut rig, at, from)));
    }
    let mut sent = Vec::new();
    for (at, &tag) in tags.iter().enumerate() {
        for from in 1..4 {
            sent.push(rig.send(from, 0, Tag(tag), tag ^ from as u64, &bytes(8 * at, from)));
        }
    }
    for at in [3, 1, 2] {
        received.extend([2, 3, 1].map(|from| post(&mut rig, at, from)));
    }
    for (message, at, from) in received {
        let what = format!("tag {:#x} from rank {from}", tags[at]);
        rig.expect(message, &bytes(8 * at, from), tags[at] ^ from as u64, &what);
    }
    rig.finish(&sent);
}

pub(crate) fn carries_nothing<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(2), features);
    let expected = rig.receive(1, 0, Tag(1), 0);
    let sent = [1, 2].map(|tag| rig.send(0, 1, Tag(tag), 70 + tag, &[]));
    let unexpected = rig.receive(1, 0, Tag(2), 0);
    rig.expect(expected, &[], 71, "an expected message of no bytes");
    rig.expect(unexpected, &[], 72, "an unexpected message of no bytes");
    rig.finish(&sent);
}

pub(crate) fn carries_much<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(2), features);
    for length in [1, 4095, 65_537, 1 << 20, (5 << 20) + 3] {
        let length = length.min(rig.ranks[0].max_message_bytes());
        let data = bytes(length, 3);
        let expected = rig.receive(1, 0, Tag(1), length);
        let sent = [1, 2].map(|tag| rig.send(0, 1, Tag(tag), 0, &data));
        let unexpected = rig.receive(1, 0, Tag(2), length);
        rig.expect(expected, &data, 0, &format!("{length} bytes, expected"));
        rig.expect(unexpected, &data, 0, &format!("{length} bytes, unexpected"));
        rig.finish(&sent);
    }
}

pub(crate) fn unexpected_messages_wait_and_hold_nobody_up<T: Transport>(
    make: impl FnOnce(usize) -> Vec<T>,
    features: Features,
) {
    let mut rig = Rig::new(make(2), features);
    let length = |i: usize| [1, 100, 5000, 70_000][i % 4];
    let sent: Vec<_> = (0..64).map(|i| rig.send(0, 1, Tag(i as u64), 0, &bytes(length(i), i))).collect();
    for _ in 0..50 {
        rig.progress();
    }
    for i in (0..64).rev() {
        let message = rig.receive(1, 0, Tag(i as u64), length(i));
        rig.expect(message, &bytes(length(i), i), 0, &format!("message {i}, the earlier ones being unexpected"));
    }
    rig.finish(&sent);
}

pub(crate) fn wrong_lengths_are_errors<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(2), features);
    for (tag, length) in [(1, 0), (2, 15), (3, 17), (4, 100_000)] {
        let expected = rig.receive(1, 0, Tag(tag), 16);
        if length > 16 && !features.forgives_lengths {
            rig.send(0, 1, Tag(tag), 0, &bytes(length, 1));
            let error = rig.fail(expected);
            assert!(matches!(error, Error::Length { rank: 0, expected: 16, .. }), "{length} bytes for 16: {error}");
            return;
        }
        let sent = [tag, tag + 100].map(|tag| rig.send(0, 1, Tag(tag), 0, &bytes(length, 1)));
        let unexpected = rig.receive(1, 0, Tag(tag + 100), 16);
        for message in [expected, unexpected] {
            let error = rig.fail(message);
            assert!(matches!(error, Error::Length { rank: 0, .. }), "{length} bytes for 16: {error}");
        }
        rig.wait(&sent);
    }
    // Nothing else is harmed.
    let received = rig.receive(1, 0, Tag(9), 16);
    let sent = rig.send(0, 1, Tag(9), 0, &bytes(16, 2));
    rig.expect(received, &bytes(16, 2), 0, "the message after those of wrong length");
    rig.finish(&[sent]);
}

pub(crate) fn cancelled_receives_are_gone<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(2), features);
    let cancelled: Vec<_> = (0..8).map(|_| rig.receive(1, 0, Tag(1), 4096)).collect();
    let kept = rig.receive(1, 0, Tag(2), 4096);
    for &message in &cancelled {
        rig.cancel(1, message);
    }
    let received = rig.receive(1, 0, Tag(1), 4096);
    let sent = [(1, 1), (2, 2)].map(|(tag, seed)| rig.send(0, 1, Tag(tag), tag, &bytes(4096, seed)));
    rig.expect(received, &bytes(4096, 1), 1, "the message for the receive after those that were cancelled");
    rig.expect(kept, &bytes(4096, 2), 2, "the message for the receive that was kept");
    rig.finish(&sent);
}

pub(crate) fn cancelled_sends_leave_their_memory<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(2), features);
    for round in 0..8 {
        let sent = rig.send(0, 1, Tag(round), 0, &bytes(200_000, 1));
        rig.cancel(0, sent);
        if !features.parts_with_sends {
            return;
        }
        rig.progress();
    }
    let sent = rig.send(0, 1, Tag(100), 3, &bytes(200_000, 2));
    let received = rig.receive(1, 0, Tag(100), 200_000);
    rig.expect(received, &bytes(200_000, 2), 3, "the message after those that were cancelled");
    rig.finish(&[sent]);
}

pub(crate) fn carries_many<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(3), features);
    let mut received = Vec::new();
    for i in 0..400 {
        received.extend([1, 2].map(|from| (rig.receive(0, from, Tag(i as u64), 24), from, i)));
    }
    let mut sent = Vec::new();
    for i in (0..400).rev() {
        sent.extend([2, 1].map(|from| rig.send(from, 0, Tag(i as u64), i as u64, &bytes(24, from + i))));
    }
    for (message, from, i) in received {
        rig.expect(message, &bytes(24, from + i), i as u64, &format!("message {i} from rank {from}"));
    }
    rig.finish(&sent);
}

pub(crate) fn busy_loses_nothing<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(2), features);
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    let deadline = Instant::now() + Duration::from_secs(300);
    while received.len() < 1000 {
        // As many as it takes, then as many as are needed for the next.
        let before = sent.len();
        while sent.len() < 1000 {
            let Some(message) = rig.send_if_free(0, 1, Tag(3), &bytes(40, sent.len())) else { break };
            sent.push(message);
        }
        assert!(sent.len() > before || received.len() < sent.len() || Instant::now() < deadline, "always busy");
        while received.len() < sent.len() {
            received.push(rig.receive(1, 0, Tag(3), 40));
        }
        rig.progress();
    }
    for (i, message) in received.into_iter().enumerate() {
        rig.expect(message, &bytes(40, i), 0, &format!("message {i}"));
    }
    rig.finish(&sent);
}

pub(crate) fn carries_the_word<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(2), features);
    for word in [0, 1, u64::MAX, 0x0123_4567_89ab_cdef, 1 << 63] {
        for length in [0, 8, 100_000] {
            let received = rig.receive(1, 0, Tag(HIGH), length);
            let sent = rig.send(0, 1, Tag(HIGH), word, &bytes(length, 0));
            rig.expect(received, &bytes(length, 0), word, &format!("{length} bytes"));
            assert_eq!(rig.take(sent).1, 0, "a send has no word");
        }
    }
}

/// Each rank sends before it receives, as in an exchange: nobody may need the other's call to return from its own.
pub(crate) fn both_ways_at_once<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(3), features);
    for length in [8, 300_000] {
        let pairs: Vec<_> = (0..3).flat_map(|from| (0..3).map(move |to| (from, to))).filter(|(f, t)| f != t).collect();
        let sent: Vec<_> =
            pairs.iter().map(|&(from, to)| rig.send(from, to, Tag(4), 0, &bytes(length, from))).collect();
        let received: Vec<_> = pairs.iter().map(|&(from, to)| (rig.receive(to, from, Tag(4), length), from)).collect();
        for (message, from) in received {
            rig.expect(message, &bytes(length, from), 0, &format!("{length} bytes from rank {from}"));
        }
        rig.finish(&sent);
    }
}

pub(crate) fn receives_from_anybody<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(4), features);
    if !rig.ranks[0].receives_from_anybody() {
        return;
    }
    let early: Vec<_> = (0..3).map(|_| rig.receive(0, ANYBODY, Tag(HIGH), 8)).collect();
    let cancelled = rig.receive(0, ANYBODY, Tag(HIGH), 8);
    rig.cancel(0, cancelled);
    // Receives from one rank go on beside them.
    let other = rig.receive(0, 1, Tag(1), 8);
    let mut sent = vec![rig.send(1, 0, Tag(1), 9, &bytes(8, 9))];
    for i in 0..2 {
        for from in 1..4 {
            sent.push(rig.send(from, 0, Tag(HIGH), from as u64 * 10 + i, &bytes(8, from)));
        }
    }
    let late: Vec<_> = (0..3).map(|_| rig.receive(0, ANYBODY, Tag(HIGH), 8)).collect();
    rig.expect(other, &bytes(8, 9), 9, "a message beside those for anybody's");
    let mut words: Vec<_> = early.into_iter().chain(late).map(|message| rig.take(message)).collect();
    words.sort_by_key(|(_, word)| *word);
    for ((data, word), (from, i)) in words.into_iter().zip((1..4).flat_map(|from| [(from, 0), (from, 1)])) {
        assert_eq!(word, from as u64 * 10 + i, "each message comes once");
        assert!(!features.data || data == bytes(8, from), "the bytes of rank {from}");
    }
    rig.finish(&sent);
}

pub(crate) fn sends_to_the_dead_fail<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    if !features.notices_death {
        return;
    }
    let mut rig = Rig::new(make(2), features);
    let received = rig.receive(1, 0, Tag(1), 4);
    let sent = rig.send(0, 1, Tag(1), 0, &[1, 2, 3, 4]);
    rig.finish(&[sent, received]);
    drop(rig.ranks.pop());
    let deadline = Instant::now() + Duration::from_secs(300);
    let mut completed = Vec::new();
    for token in 1 << 40.. {
        assert!(Instant::now() < deadline, "sends to a rank that is gone must fail at last");
        match rig.try_send(0, 1, Tag(2), 0, &[5; 4], Token(token)) {
            Err(error) => {
                assert!(matches!(error, Error::Unreachable { rank: 1, .. }), "{error}");
                return;
            }
            Ok(Posted::Busy | Posted::Done | Posted::Pending) => {}
        }
        rig.ranks[0].progress(&mut completed).unwrap();
        if let Some(error) = completed.drain(..).find_map(|completion| completion.outcome.err()) {
            assert!(matches!(error, Error::Unreachable { rank: 1, .. }), "{error}");
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// It may wake for nothing, but never sleeps on a message that is there.
pub(crate) fn sleeps<T: Transport>(make: impl FnOnce(usize) -> Vec<T>, features: Features) {
    let mut rig = Rig::new(make(2), features);
    rig.sleep(0, Duration::from_millis(1));
    let received = rig.receive(1, 0, Tag(1), 4);
    let sent = rig.send(0, 1, Tag(1), 0, &[1; 4]);
    let deadline = Instant::now() + Duration::from_secs(300);
    while !rig.has_ended(received) {
        assert!(Instant::now() < deadline, "the message was slept through");
        rig.progress();
        if !rig.has_ended(received) {
            rig.sleep(1, Duration::from_millis(5));
        }
    }
    rig.finish(&[received, sent]);
}

//! What arrives.

use std::time::{Duration, Instant};

use net_fabric::transport::ofi::Config;
use net_fabric::transport::{ANYBODY, Posted, Tag, Token, Transport};

use crate::world::{World, over, pattern, providers};

/// Sizes around the limits of inlined, eager and rendezvous messages.
const SIZES: [usize; 13] = [0, 1, 7, 8, 64, 128, 129, 4096, 16_383, 16_385, 65_537, 1 << 20, (3 << 20) + 5];

fn every_size(config: &Config) -> World {
    let mut world = World::new(config, 2);
    for (number, bytes) in SIZES.into_iter().enumerate() {
        for (from, to) in [(0, 1), (1, 0)] {
            let data = pattern(number, bytes);
            let mut into = vec![0xee; bytes];
            let word = 0xfedc_ba98_7654_3210 + number as u64;
            let receive = world.receive(to, from, 5, &mut into);
            let send = world.send(from, to, 5, word, &data).unwrap();
            world.sent(from, send, bytes);
            world.received(to, receive, word, bytes);
            assert_eq!(into, data, "{bytes} bytes");
        }
    }
    world
}

#[test]
fn messages_of_every_size() {
    for provider in providers() {
        every_size(&over(&provider));
    }
}

/// Sends that are done before a connection is there, and more of them than are copied.
#[test]
fn memory_is_free_once_a_send_is_done() {
    for provider in providers() {
        for bytes in [128, 4096, 4097] {
            let mut world = World::new(&over(&provider), 2);
            let messages: Vec<Vec<u8>> = (0..100).map(|seed| pattern(seed, bytes)).collect();
            let mut memory = messages.clone();
            let sends: Vec<_> = memory.iter().map(|data| world.send(0, 1, 5, 7, data).unwrap()).collect();
            for (data, send) in memory.iter_mut().zip(&sends) {
                if world.has_ended(0, *send) {
                    data.fill(0xee);
                }
            }
            for message in &messages {
                let mut into = vec![0; bytes];
                let receive = world.receive(1, 0, 5, &mut into);
                world.received(1, receive, 7, bytes);
                assert_eq!(&into, message, "{provider}");
            }
            sends.into_iter().for_each(|send| world.sent(0, send, bytes));
        }
    }
}

/// More of them than the kernel has room for, to a rank that does nothing, and then asks for all.
#[test]
fn short_messages_to_a_rank_that_stands_still_do_not_pile_up() {
    const MANY: u64 = 1 << 20;
    const PATIENCE: Duration = Duration::from_millis(100);
    for provider in providers() {
        let mut world = World::new(&over(&provider), 2);
        let (data, mut into) = ([7; 8], [0; 8]);
        let receive = world.receive(1, 0, 4, &mut into);
        world.send(0, 1, 4, 0, &data).unwrap();
        world.received(1, receive, 0, 8);
        let (mut count, mut waits, mut moved) = (0, false, Instant::now());
        let (sender, mut completed) = (&mut world.ranks[0], Vec::new());
        while moved.elapsed() < PATIENCE && count < MANY {
            // SAFETY: the bytes stay until all are received.
            let posted = unsafe { sender.send(1, Tag(5), count, data.as_ptr(), data.len(), Token(1 << 40)) };
            match posted.unwrap() {
                Posted::Busy => {}
                Posted::Done => (count, moved) = (count + 1, Instant::now()),
                Posted::Pending => (count, waits) = (count + 1, true),
            }
            while waits && moved.elapsed() < PATIENCE {
                sender.progress(&mut completed).unwrap();
                if completed.pop().is_some() {
                    (waits, moved) = (false, Instant::now());
                }
            }
        }
        println!("{provider}: {count} messages");
        assert!(count < MANY, "{provider}");
        for word in 0..count {
            let receive = world.receive(1, 0, 5, &mut into);
            world.received(1, receive, word, 8);
        }
    }
}

#[test]
fn memory_is_registered_while_messages_use_it() {
    for provider in providers() {
        let config = Config { register: true, ..over(&provider) };
        let world = every_size(&config);
        for rank in &world.ranks {
            let (made, living) = rank.registrations();
            // All receives but the empty one, and the sends whose bytes are not taken along.
            assert!(made > SIZES.len() as u64, "{provider}: {made}");
            // The transport's own memory, for words, is always registered.
            assert_eq!(living, 1, "{provider}");
        }
    }
}

#[test]
fn the_word_may_travel_with_the_bytes() {
    for provider in providers() {
        every_size(&Config { word_in_message: true, ..over(&provider) });
        let world = every_size(&Config { word_in_message: true, register: true, ..over(&provider) });
        // The memory of the words stays registered.
        assert!(world.ranks.iter().all(|rank| rank.registrations().1 == 1), "{provider}");
    }
}

#[test]
fn many_messages_in_both_directions() {
    const MESSAGES: usize = 3000;
    for provider in providers() {
        let mut world = World::new(&over(&provider), 2);
        let data: Vec<_> = (0..MESSAGES).map(|number| pattern(number, 8 + number % 700)).collect();
        let mut into: Vec<Vec<_>> = [0, 1].map(|_| data.iter().map(|bytes| vec![0; bytes.len()]).collect()).into();
        // More than the slots: receives are posted some ahead, as they find room.
        const AHEAD: usize = 100;
        let mut receives = [Vec::new(), Vec::new()];
        let mut sends = [Vec::new(), Vec::new()];
        let mut places = into.iter_mut().map(|all| all.iter_mut()).collect::<Vec<_>>();
        for number in 0..MESSAGES + AHEAD {
            for rank in [0, 1] {
                if let Some(place) = places[rank].next() {
                    receives[rank].push(world.receive(rank, 1 - rank, number as u64, place));
                }
                if let Some(number) = number.checked_sub(AHEAD) {
                    sends[rank].push(world.send(rank, 1 - rank, number as u64, number as u64, &data[number]).unwrap());
                }
            }
        }
        for rank in [0, 1] {
            for number in 0..MESSAGES {
                world.sent(rank, sends[rank][number], data[number].len());
                world.received(rank, receives[rank][number], number as u64, data[number].len());
            }
            assert!(into[rank] == data, "{provider}");
        }
    }
}

#[test]
fn messages_with_one_tag_keep_their_order() {
    const MESSAGES: usize = 200;
    for provider in providers() {
        let mut world = World::new(&over(&provider), 2);
        let data: Vec<_> =
            (0..MESSAGES).map(|number| pattern(number, if number % 3 == 0 { 20_000 } else { 16 })).collect();
        let mut into: Vec<_> = data.iter().map(|bytes| vec![0; bytes.len()]).collect();
        let receives: Vec<_> = into.iter_mut().map(|into| world.receive(1, 0, 9, into)).collect();
        let sends: Vec<_> = data.iter().map(|data| world.send(0, 1, 9, 1, data).unwrap()).collect();
        for number in 0..MESSAGES {
            world.sent(0, sends[number], data[number].len());
            world.received(1, receives[number], 1, data[number].len());
        }
        assert!(into == data, "{provider}");
    }
}

#[test]
fn messages_overtake_those_that_nobody_has_asked_for() {
    for provider in providers() {
        let limit = Config::default().unexpected_bytes;
        for (bytes, unexpected_bytes) in [(8, limit), (4096, limit), (300_000, limit), (300_000, 1 << 20)] {
            let mut world = World::new(&Config { unexpected_bytes, ..over(&provider) }, 2);
            let data: Vec<_> = (0..100).map(|number| pattern(number, bytes)).collect();
            let mut into = vec![vec![0; bytes]; data.len()];
            let sends: Vec<_> = data
                .iter()
                .enumerate()
                .map(|(tag, data)| world.send(0, 1, tag as u64, tag as u64, data).unwrap())
                .collect();
            // The last is asked for first.
            for tag in (0..data.len()).rev() {
                let receive = world.receive(1, 0, tag as u64, &mut into[tag]);
                world.received(1, receive, tag as u64, bytes);
            }
            for send in sends {
                world.sent(0, send, bytes);
            }
            assert!(into == data, "{provider}");
        }
    }
}

/// A rank that awaits another one's message, and anybody's, takes only so much of what it has not asked for.
#[test]
fn a_flood_that_nobody_asks_for_waits_at_its_sender() {
    const BYTES: usize = 1 << 20;
    for provider in providers() {
        let limits = [(usize::MAX, true), (4 << 20, false)];
        for (unexpected_bytes, all) in limits.into_iter().filter(|_| provider == "net" || provider == "tcp") {
            let mut world = World::new(&Config { unexpected_bytes, ..over(&provider) }, 3);
            // More than the sockets of one connection take, and more messages than the provider puts aside by itself.
            let data: Vec<_> = (0..200).map(|number| pattern(number, BYTES)).collect();
            let (mut late, mut note) = ([0; 8], [0; 8]);
            let awaited = world.receive(1, 2, 1, &mut late);
            let anybodys = world.receive(1, ANYBODY, 2, &mut note);
            let sends: Vec<_> = data.iter().map(|data| world.send(0, 1, 3, 7, data).unwrap()).collect();
            let gone = |world: &World| sends.iter().filter(|send| world.has_ended(0, **send)).count();
            let waited = Instant::now();
            // Those that stay would have gone by then.
            let limit = Duration::from_secs(if all { 60 } else { 2 });
            while waited.elapsed() < limit && !(all && gone(&world) == sends.len()) {
                world.drive();
            }
            let gone = gone(&world);
            assert_eq!(gone == sends.len(), all, "{provider}: {gone} of {} have gone", sends.len());

            // Nothing else is held up, and nothing is lost.
            for (tag, receive) in [(1, awaited), (2, anybodys)] {
                let send = world.send(2, 1, tag, 5, &[9; 8]).unwrap();
                world.received(1, receive, 5, 8);
                world.sent(2, send, 8);
            }
            assert_eq!((late, note), ([9; 8], [9; 8]));
            for (data, send) in data.iter().zip(sends) {
                let mut into = vec![0; BYTES];
                let receive = world.receive(1, 0, 3, &mut into);
                world.received(1, receive, 7, BYTES);
                world.sent(0, send, BYTES);
                assert!(into == *data, "{provider}");
            }
        }
    }
}

#[test]
fn receives_match_their_sender_alone() {
    for provider in providers() {
        let mut world = World::new(&over(&provider), 4);
        let mut into = [[0_u8; 8]; 4];
        let data: Vec<_> = (0..4_u64).map(u64::to_le_bytes).collect();
        let receives: Vec<_> =
            into.iter_mut().enumerate().skip(1).map(|(from, into)| world.receive(0, from, 3, into)).collect();
        for from in (1..4).rev() {
            let send = world.send(from, 0, 3, from as u64, &data[from]).unwrap();
            world.sent(from, send, 8);
        }
        for from in 1..4 {
            world.received(0, receives[from - 1], from as u64, 8);
            assert_eq!(into[from], data[from], "{provider}");
        }
    }
}

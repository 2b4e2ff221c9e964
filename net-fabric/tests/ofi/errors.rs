//! What goes wrong, and how it is told.

use std::time::{Duration, Instant};

use net_fabric::transport::ofi::{Config, Interface, OfiTransport, Reach, candidates, open, world_here};
use net_fabric::transport::{Posted, Tag, Token, Transport};
use net_fabric::{Error, Result};

use crate::world::{DEADLINE, World, over, pattern, providers};

/// The words of an error, which there is.
fn words<T>(result: Result<T>) -> String {
    result.err().unwrap().to_string()
}

#[test]
fn messages_of_another_length_are_errors() {
    for provider in providers() {
        for (sent, expected) in [(10, 64), (100, 64), (64, 0), (0, 64), (200_000, 100_000), (100_000, 200_000)] {
            println!("{provider}: {sent} bytes into {expected}");
            let mut world = World::new(&over(&provider), 2);
            let data = pattern(1, sent);
            let mut into = vec![0; expected];
            let receive = world.receive(1, 0, 1, &mut into);
            world.send(0, 1, 1, 0, &data).unwrap();
            let error = world.error(1, receive);
            // Where it was longer, providers do not always tell by how much.
            let told = match error {
                Error::Length { rank: 0, sent: told, expected: room } => {
                    room == expected && if sent < expected { told == sent } else { told > expected && told <= sent }
                }
                _ => false,
            };
            assert!(told, "{provider}, {sent} into {expected}: {error}");
        }
    }
}

#[test]
fn kept_messages_of_another_length_are_errors() {
    for provider in providers() {
        let mut world = World::new(&over(&provider), 2);
        let (early, late) = (pattern(1, 100), pattern(2, 8));
        let (mut wrong, mut right) = ([0; 64], [0; 8]);
        world.send(0, 1, 1, 0, &early).unwrap();
        world.send(0, 1, 2, 7, &late).unwrap();
        let receive = world.receive(1, 0, 2, &mut right);
        world.received(1, receive, 7, 8);
        let receive = world.receive(1, 0, 1, &mut wrong);
        let error = world.error(1, receive);
        assert!(matches!(error, Error::Length { rank: 0, expected: 64, .. }), "{provider}: {error}");
    }
}

#[test]
fn receives_can_be_given_up() {
    for provider in providers() {
        let mut world = World::new(&over(&provider), 2);
        let data = pattern(1, 5000);
        let mut into = vec![0; 5000];
        let receive = world.receive(1, 0, 1, &mut into);
        world.ranks[1].cancel(receive);
        // The memory is free: it takes another message.
        let second = world.receive(1, 0, 2, &mut into);
        world.send(0, 1, 2, 9, &data).unwrap();
        world.received(1, second, 9, 5000);
        assert_eq!(into, data, "{provider}");
        let error = world.error(1, receive).to_string();
        assert!(error.contains("given up"), "{provider}: {error}");
        // Unknown tokens are none of its business.
        world.ranks[1].cancel(Token(12_345));
    }
}

#[test]
fn sends_that_nobody_receives_can_be_given_up() {
    for provider in providers() {
        let mut world = World::new(&over(&provider), 2);
        let mut data = pattern(1, 16 << 20);
        let send = world.send(0, 1, 1, 0, &data).unwrap();
        world.drive();
        world.ranks[0].cancel(send);
        // Nothing reads it any more.
        data.fill(0);
        drop(data);
        let mut completed = Vec::new();
        let told = world.ranks[0].progress(&mut completed);
        let outcome = completed.iter().find(|completion| completion.token == send).map(|found| found.outcome.is_err());
        assert!(outcome == Some(true), "{provider}: {told:?} {completed:?}");
    }
}

#[test]
fn a_full_transport_is_busy() {
    let config = Config { outstanding: 4, ..Config::default() };
    let mut ranks = world_here(&config, 2).unwrap();
    let mut into = [0_u8; 5];
    let mut receive = |number: usize| {
        let into = into[number..].as_mut_ptr();
        // SAFETY: the memory outlives the transport.
        unsafe { ranks[0].receive(1, Tag(number as u64), into, 1, Token(number as u64)) }
    };
    for number in 0..4 {
        assert_eq!(receive(number).unwrap(), Posted::Pending);
    }
    assert_eq!(receive(4).unwrap(), Posted::Busy);
    ranks[0].cancel(Token(2));
    ranks[0].progress(&mut Vec::new()).unwrap();
    let into = into[4..].as_mut_ptr();
    // SAFETY: as above.
    assert_eq!(unsafe { ranks[0].receive(1, Tag(4), into, 1, Token(4)) }.unwrap(), Posted::Pending);
    drop(ranks);
}

#[test]
fn arguments_that_nothing_could_make_right() {
    let mut ranks = world_here(&Config::default(), 2).unwrap();
    // SAFETY: nothing is begun.
    let sent = unsafe { ranks[0].send(2, Tag(0), 0, [0_u8].as_ptr(), 1, Token(0)) };
    assert!(words(sent).contains("ranks 0 to 1"));
    let too_long = ranks[0].max_message_bytes().wrapping_add(1);
    if too_long > 0 {
        // SAFETY: nothing is begun.
        let sent = unsafe { ranks[0].send(1, Tag(0), 0, [0_u8].as_ptr(), too_long, Token(0)) };
        assert!(words(sent).contains("at most"));
    }
}

#[test]
fn ranks_that_chose_differently_are_named() {
    let providers = providers();
    let ours = open(&over(&providers[0])).unwrap();
    let theirs = open(&over(&providers[1])).unwrap();
    let addresses = [ours.address(), theirs.address()];
    let error = words(ours.connect(0, &addresses));
    assert!(error.contains("rank 1") && error.contains(&providers[1]) && error.contains("HAN_PROVIDER"), "{error}");
    let ours = open(&over(&providers[0])).unwrap();
    let addresses = [ours.address(), b"nonsense".to_vec()];
    assert!(words(ours.connect(0, &addresses)).contains("rank 1"));
    let ours = open(&over(&providers[0])).unwrap();
    assert!(matches!(ours.connect(0, &[b"other".to_vec()]), Err(Error::InvalidArgument(_))));
}

#[test]
fn a_reason_does_not_say_again_whom_it_is_about() {
    for provider in providers().into_iter().filter(|provider| provider != "udp;ofi_rxd") {
        let mut world = World::new(&over(&provider), 2);
        let data = pattern(1, 1000);
        let mut into = vec![0; 1000];
        let receive = world.receive(1, 0, 1, &mut into);
        world.send(0, 1, 1, 7, &data).unwrap();
        world.received(1, receive, 7, 1000);
        world.ranks.truncate(1);
        let started = Instant::now();
        let reason = loop {
            assert!(started.elapsed() < DEADLINE, "{provider}: nobody is missed");
            // They are copied, so that nobody hears of their end.
            match world.send(0, 1, 1, 7, &data) {
                Err(Error::Unreachable { rank: 1, reason }) => break reason,
                sent => drop(sent.unwrap()),
            }
            world.drive();
            if let Some((1, reason)) = world.ranks[0].found_gone() {
                break reason;
            }
        };
        assert!(!reason.contains("rank 1"), "{provider}: {reason}");
    }
}

#[test]
fn the_choice_is_explained() {
    let on_this_host = candidates(&Config::default()).unwrap();
    assert!(on_this_host[0].fits && on_this_host[0].reason.starts_with("taken"), "{on_this_host:?}");
    assert!(on_this_host[0].ip.is_some_and(|ip| ip.is_loopback()), "{on_this_host:?}");
    let shared_memory = on_this_host.iter().find(|way| way.provider == "shm").unwrap();
    assert!(!shared_memory.fits && shared_memory.reason.contains("not between nodes"));
    let elsewhere = candidates(&Config { reach: Reach::Network, ..Config::default() }).unwrap();
    for way in &elsewhere {
        assert!(!way.fits || way.ip.is_none_or(|ip| !ip.is_loopback()), "{way:?}");
    }
    let nowhere = Interface::Named("no-such-interface".to_owned());
    let error = words(open(&Config { interface: Some(nowhere), ..Config::default() }));
    assert!(error.contains("is not on no-such-interface, as HAN_INTERFACE demands"), "{error}");
    let error = words(open(&over("carrier-pigeon")));
    assert!(error.contains("carrier-pigeon"), "{error}");
    let loopback: Interface = "127.0.0.0/8".parse().unwrap();
    let there = open(&Config { interface: Some(loopback), ..Config::default() }).unwrap();
    assert!(there.describe().contains("127.0.0.1/32"), "{}", there.describe());
}

#[test]
fn sleeping_ends_with_a_message() {
    for provider in providers() {
        for wait in [true, false] {
            let mut ranks = world_here(&Config { wait, ..over(&provider) }, 2).unwrap();
            let data = pattern(1, 1000);
            let mut into = vec![0; 1000];
            let started = Instant::now();
            let mut second = ranks.pop().unwrap();
            let mut first = ranks.pop().unwrap();
            // Nothing is sent yet: this ends by its limit.
            first.sleep(Duration::from_millis(5)).unwrap();
            let into = into.as_mut_slice();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let mut completed = Vec::new();
                    // SAFETY: the memory outlives the transport.
                    let posted = unsafe { second.receive(0, Tag(1), into.as_mut_ptr(), into.len(), Token(1)) };
                    assert_eq!(posted.unwrap(), Posted::Pending);
                    while completed.is_empty() {
                        second.sleep(Duration::from_secs(1)).unwrap();
                        second.progress(&mut completed).unwrap();
                    }
                    assert_eq!(completed[0].outcome.clone().unwrap(), 1000);
                    second.leave(Duration::from_secs(100)).unwrap();
                });
                let mut completed = Vec::new();
                // SAFETY: as above.
                while unsafe { first.send(1, Tag(1), 0, data.as_ptr(), 1000, Token(1)) }.unwrap() == Posted::Busy {
                    first.progress(&mut completed).unwrap();
                }
                first.leave(Duration::from_secs(100)).unwrap();
            });
            assert!(started.elapsed() < Duration::from_secs(300), "{provider}");
        }
    }
}

/// Two ranks of which the second expects a word before the bytes that the first does not send: as a stranger could
/// who comes in a rank's name.
fn at_odds_about_the_word(provider: &str) -> Vec<OfiTransport> {
    let plain = open(&over(provider)).unwrap();
    let first = open(&Config { word_in_message: true, ..over(provider) }).unwrap();
    let (mut of_plain, mut of_first) = (plain.address(), first.address());
    // The last byte of an address tells where the word is.
    let own = [of_plain.clone(), of_first.clone()];
    for address in [&mut of_plain, &mut of_first] {
        let last = address.len() - 1;
        address[last] ^= 1;
    }
    let [own_plain, own_first] = own;
    vec![plain.connect(0, &[own_plain, of_first]).unwrap(), first.connect(1, &[of_plain, own_first]).unwrap()]
}

#[test]
fn a_message_too_short_for_its_word_is_an_error() {
    for provider in providers() {
        let mut world = World::of(at_odds_about_the_word(&provider));
        for bytes in [8, 0, 7] {
            // What came with the first must not be taken for the word of the others.
            let data = pattern(1, bytes);
            let receive = world.receive(1, 0, 1, &mut []);
            world.send(0, 1, 1, 0, &data).unwrap();
            let (word, outcome) = world.wait(1, receive);
            let told = matches!(outcome, Err(Error::Length { rank: 0, expected: 8, .. }));
            assert!(
                if bytes == 8 { matches!(outcome, Ok(0)) } else { told },
                "{provider}, {bytes} bytes: {word:x} {outcome:?}"
            );
        }
    }
}

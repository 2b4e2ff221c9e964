//! Rendezvous between threads over the loopback interface: ranks, and those that are none.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Barrier, mpsc};
use std::time::Duration;

use super::caller::{Caller, Progress};
use super::handshake::{GREETING_BYTES, Greeting};
use super::member::{Member, Obstacle};
use super::message::{Inbox, Kind, MAX_GIVEN_BYTES, Outbox};
use super::root::Root;
use super::*;

const SECRET: &[u8] = b"what nobody else knows";

fn listener() -> TcpListener {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    listener
}

/// A rank that meets the others at the listener.
fn settings(listener: &TcpListener, rank: usize, size: usize) -> Settings {
    let port = listener.local_addr().unwrap().port();
    Settings {
        host: "127.0.0.1".to_owned(),
        port,
        rank,
        size,
        secret: proof::Key::new(SECRET),
        limit: Duration::from_secs(300),
    }
}

fn limited(settings: Settings, milliseconds: u64) -> Settings {
    Settings { limit: Duration::from_millis(milliseconds), ..settings }
}

/// The errors of rank 0 and of the ranks with these settings.
fn errors(listener: &TcpListener, root: Settings, members: Vec<Settings>) -> (String, Vec<String>) {
    let exchanged = |exchange: Result<Box<dyn Exchange>>| {
        let all = exchange.map_err(|e| e.to_string()).and_then(|mut e| e.allgather(b"").map_err(|e| e.to_string()));
        all.unwrap_err()
    };
    thread::scope(|scope| {
        let join = |settings| exchanged(Member::join(settings).map(|member| Box::new(member) as Box<dyn Exchange>));
        let members: Vec<_> = members.into_iter().map(|settings| scope.spawn(move || join(settings))).collect();
        let root = exchanged(Root::gather(listener, root).map(|root| Box::new(root) as Box<dyn Exchange>));
        (root, members.into_iter().map(|member| member.join().unwrap()).collect())
    })
}

/// What `wait` comes to: a wait that has no end fails, too.
fn ends<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(wait()));
    receiver.recv_timeout(Duration::from_secs(100)).unwrap()
}

/// A word from a connection.
fn heard<const BYTES: usize>(stream: &mut TcpStream) -> [u8; BYTES] {
    let mut word = [0; BYTES];
    stream.read_exact(&mut word).unwrap();
    word
}

#[test]
fn ranks_meet_and_exchange() {
    let card = |round: usize, rank: usize| vec![u8::try_from(rank).unwrap(); round * 50_000 * rank];
    for size in [1, 2, 5] {
        let listener = listener();
        let work = |mut exchange: Box<dyn Exchange>| {
            assert_eq!(exchange.size(), size);
            for round in 0..4 {
                let all = exchange.allgather(&card(round, exchange.rank())).unwrap();
                assert!(all == (0..size).map(|rank| card(round, rank)).collect::<Vec<_>>());
            }
            exchange.finalize().unwrap();
        };
        thread::scope(|scope| {
            for rank in 1..size {
                let settings = settings(&listener, rank, size);
                scope.spawn(move || work(Box::new(Member::join(settings).unwrap())));
            }
            work(Box::new(Root::gather(&listener, settings(&listener, 0, size)).unwrap()));
        });
    }
}

#[test]
fn rank_0_may_be_the_last() {
    let port = listener().local_addr().unwrap().port();
    let at = |rank| Settings {
        host: "localhost".to_owned(),
        port,
        rank,
        size: 2,
        secret: proof::Key::new(SECRET),
        limit: Duration::from_secs(300),
    };
    thread::scope(|scope| {
        let early = scope.spawn(move || meet(at(1)).unwrap().allgather(b"early").unwrap());
        thread::sleep(Duration::from_millis(200));
        let all = meet(at(0)).unwrap().allgather(b"late").unwrap();
        assert_eq!(all, [b"late".to_vec(), b"early".to_vec()]);
        assert_eq!(early.join().unwrap(), all);
    });
}

#[test]
fn missing_ranks_are_named_on_all_that_have_come() {
    let listener = listener();
    let root = limited(settings(&listener, 0, 7), 20_000);
    let (root, members) = errors(&listener, root, vec![settings(&listener, 2, 7)]);
    assert!(root.contains("5 of 7 ranks have not come to 127.0.0.1:"), "{root}");
    assert!(root.contains("within 20 s: 1, 3..6"), "{root}");
    assert_eq!(members, [root]);
}

#[test]
fn a_rank_that_reaches_nobody_says_so() {
    let nobody = settings(&listener(), 3, 4);
    let error = Member::join(limited(nobody, 200)).unwrap_err().to_string();
    assert!(error.contains("rank 3 has not reached rank 0 at 127.0.0.1:"), "{error}");
    assert!(error.contains("within 0.2 s") && error.contains("refused"), "{error}");
}

#[test]
fn another_secret_is_told_to_both_sides() {
    let listener = listener();
    let stranger = Settings { secret: proof::Key::new(b"another"), ..settings(&listener, 1, 2) };
    let (root, members) = errors(&listener, limited(settings(&listener, 0, 2), 20_000), vec![stranger]);
    assert!(root.contains("have not come") && root.contains(" has another secret"), "{root}");
    assert!(members[0].contains("rank 0 has another secret") && members[0].contains("HAN_SECRET"), "{members:?}");
}

#[test]
fn ranks_that_disagree_learn_both_sides() {
    let listener = listener();
    let (root, members) = errors(&listener, settings(&listener, 0, 2), vec![settings(&listener, 1, 3)]);
    assert!(root.contains("rank 0 has HAN_SIZE=2") && root.contains("has HAN_SIZE=3"), "{root}");
    assert_eq!(members, [root]);

    let twice = vec![settings(&listener, 1, 3), settings(&listener, 1, 3)];
    let (root, members) = errors(&listener, settings(&listener, 0, 3), twice);
    assert!(root.contains("two processes say that they are rank 1: one at 127.0.0.1:"), "{root}");
    assert_eq!(members, [root.clone(), root]);

    let (root, members) = errors(&listener, settings(&listener, 0, 2), vec![settings(&listener, 0, 2)]);
    assert!(root.contains("a second process") && root.contains("rank 0 of 2"), "{root}");
    assert_eq!(members, [root]);
}

#[test]
fn a_rank_that_leaves_ends_the_exchange_for_all() {
    let listener = listener();
    let all = thread::scope(|scope| {
        let stay = |mut exchange: Box<dyn Exchange>| {
            exchange.allgather(b"").unwrap();
            let first = exchange.allgather(b"").unwrap_err().to_string();
            assert_eq!(exchange.allgather(b"").unwrap_err().to_string(), first);
            first
        };
        let (one, two) = (settings(&listener, 1, 3), settings(&listener, 2, 3));
        scope.spawn(|| Member::join(one).unwrap().allgather(b"").unwrap());
        let two = scope.spawn(move || stay(Box::new(Member::join(two).unwrap())));
        let root = stay(Box::new(Root::gather(&listener, settings(&listener, 0, 3)).unwrap()));
        [root, two.join().unwrap()]
    });
    assert!(all.iter().all(|error| error.contains("rank 1 (at 127.0.0.1:") && error.contains("has left")), "{all:?}");
}

#[test]
fn an_abort_reaches_all() {
    let listener = listener();
    let all_are_in = Barrier::new(2);
    let all = thread::scope(|scope| {
        let (one, two) = (settings(&listener, 1, 3), settings(&listener, 2, 3));
        scope.spawn(|| {
            let mut one = Member::join(one).unwrap();
            all_are_in.wait();
            one.abort(7, "no more ice");
        });
        let two = scope.spawn(|| {
            let mut two = Member::join(two).unwrap();
            all_are_in.wait();
            two.allgather(b"").unwrap_err().to_string()
        });
        // Rank 0 learns it when it lets the last one in, or after that.
        let root = match Root::gather(&listener, settings(&listener, 0, 3)) {
            Ok(mut root) => root.allgather(b"").unwrap_err().to_string(),
            Err(error) => error.to_string(),
        };
        [root, two.join().unwrap()]
    });
    assert!(all.iter().all(|error| error.contains("rank 1") && error.contains("code 7: no more ice")), "{all:?}");
}

#[test]
fn an_abort_ends_the_wait_for_those_who_have_not_come() {
    let listener = listener();
    let error = thread::scope(|scope| {
        let one = settings(&listener, 1, 3);
        scope.spawn(|| Member::join(one).unwrap().abort(7, "no more ice"));
        Root::gather(&listener, settings(&listener, 0, 3)).unwrap_err().to_string()
    });
    assert!(error.contains("rank 1") && error.contains("code 7: no more ice"), "{error}");
}

#[test]
fn strangers_do_not_keep_ranks_from_meeting() {
    let listener = listener();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        // Silent ones, more than are listened to at a time, and one that speaks something else.
        let silent: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
        let root = settings(&listener, 0, 2);
        let root = scope.spawn(|| Root::gather(&listener, root).unwrap().allgather(b"0").unwrap());
        let mut web = TcpStream::connect(address).unwrap();
        web.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n").unwrap();
        // It is hung up on, and told nothing.
        let mut answer = Vec::new();
        let _ = web.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
        let member = Member::join(settings(&listener, 1, 2)).unwrap().allgather(b"1").unwrap();
        assert_eq!(root.join().unwrap(), member);
        drop(silent);
    });
}

#[test]
fn who_says_nothing_is_looked_at_for_a_time() {
    let (listener, secret) = (TcpListener::bind("127.0.0.1:0").unwrap(), proof::Key::new(SECRET));
    let called = |within| {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, peer) = listener.accept().unwrap();
        (stream, Caller::new(accepted, peer, within).unwrap())
    };
    let (_silent, mut caller) = called(Duration::from_secs(1000));
    assert!(matches!(caller.go_on(&secret), Progress::Waiting));
    let (mut stream, mut caller) = called(Duration::ZERO);
    assert!(matches!(caller.go_on(&secret), Progress::Gone("said nothing")));
    // A greeting proves nothing.
    stream.write_all(Greeting::new([7; 32]).bytes()).unwrap();
    while !matches!(caller.go_on(&secret), Progress::Stirred) {
        thread::yield_now();
    }
    assert!(matches!(caller.go_on(&secret), Progress::Gone("said nothing")));
}

/// Codes are over both greetings, so none is good for two connections.
#[test]
fn no_two_greetings_are_alike() {
    let (listener, own) = (listener(), TcpListener::bind("127.0.0.1:0").unwrap());
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let root = scope.spawn(|| Root::gather(&listener, settings(&listener, 0, 2)).map(drop));
        let of_root = [(); 2].map(|()| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(Greeting::new([7; 32]).bytes()).unwrap();
            heard::<GREETING_BYTES>(&mut stream)
        });
        let member = Member::join(settings(&listener, 1, 2));
        assert!(root.join().unwrap().is_ok() && member.is_ok());

        let (address, settings) = (own.local_addr().unwrap(), &settings(&own, 1, 2));
        let of_member = [(); 2].map(|()| {
            thread::scope(|scope| {
                let attempt = scope.spawn(|| member::attempt_any([address], settings, &Limit::of(settings.limit)));
                let greeting = heard::<GREETING_BYTES>(&mut own.accept().unwrap().0);
                assert!(attempt.join().unwrap().is_err());
                greeting
            })
        });
        assert_ne!(of_root[0], of_root[1]);
        assert_ne!(of_member[0], of_member[1]);
    });
}

/// Rank 0 of two that have met, and the other's end of the connection.
fn met() -> (Root, (TcpStream, Inbox, Outbox)) {
    let listener = listener();
    let (address, other) = (listener.local_addr().unwrap(), settings(&listener, 1, 2));
    thread::scope(|scope| {
        let other = scope.spawn(|| member::attempt_any([address], &other, &Limit::of(other.limit)));
        let root = Root::gather(&listener, settings(&listener, 0, 2)).unwrap();
        (root, other.join().unwrap().ok().unwrap())
    })
}

#[test]
fn a_rank_that_stays_silent_is_waited_for_within_the_limit() {
    let (mut root, _silent) = met();
    root.settings.limit = Duration::from_millis(300);
    let error = ends(move || root.allgather(b"").unwrap_err().to_string());
    assert!(error.contains("these ranks have not come to an exchange within 0.3 s: 1"), "{error}");
}

#[test]
fn a_rank_that_does_not_read_is_waited_for_within_the_limit() {
    let (mut root, (mut stream, _, mut outbox)) = met();
    root.settings.limit = Duration::from_secs(2);
    // More than the system keeps for it.
    const ROUNDS: usize = 50;
    for _ in 0..ROUNDS {
        stream.write_all(&outbox.seal(Kind::Bytes, b"").unwrap()).unwrap();
    }
    let error = ends(move || {
        let mut rounds = (0..ROUNDS).map(|_| root.allgather(&vec![0; MAX_GIVEN_BYTES]));
        rounds.find_map(std::result::Result::err).unwrap().to_string()
    });
    assert!(error.contains("rank 1 (at 127.0.0.1:") && error.contains("does not read what it is sent"), "{error}");
    drop(stream);
}

#[test]
fn a_rank_0_that_stays_silent_is_waited_for_within_the_limit() {
    let listener = listener();
    let of_rank_1 = settings(&listener, 1, 2);
    let (_root, mut member) = thread::scope(|scope| {
        let member = scope.spawn(|| Member::join(of_rank_1).unwrap());
        (Root::gather(&listener, settings(&listener, 0, 2)).unwrap(), member.join().unwrap())
    });
    member.settings.limit = Duration::from_millis(300);
    let error = ends(move || member.allgather(b"").unwrap_err().to_string());
    assert!(error.contains("rank 0 has not answered within 0.3 s"), "{error}");
}

#[test]
fn who_is_no_rank_0_is_told_from_one() {
    for (words, expected) in
        [(&b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"[..], "no rank 0"), (b"han-rdv1", "know the secret")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = settings(&listener, 1, 2);
        let words = [words, &[7; 200]].concat();
        let error = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(&words).unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            });
            Member::join(settings).unwrap_err().to_string()
        });
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_is_heard_from_who_is_no_rank_0_is_told_however_little() {
    for (words, expected) in [
        (&b"220 mail\r\n"[..], "no rank 0 of a job of han: its first 10 bytes are something else"),
        (b"han-", "somebody there has answered 4 bytes and no more"),
        (b"", "somebody there has accepted and said nothing"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, settings) = (listener.local_addr().unwrap(), settings(&listener, 1, 2));
        let joined = thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(words).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            });
            member::attempt_any([address], &settings, &Limit::of(settings.limit))
        });
        let Err(Obstacle::Elsewhere(why) | Obstacle::Later(why)) = joined else { panic!("{expected}") };
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn strangers_at_one_address_do_not_hide_rank_0_at_another() {
    for words in [&b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"[..], b"han-rdv1"] {
        let (stranger, listener) = (TcpListener::bind("127.0.0.2:0").unwrap(), listener());
        let addresses = [stranger.local_addr().unwrap(), listener.local_addr().unwrap()];
        let words = [words, &[7; 200]].concat();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = stranger.accept().unwrap();
                stream.write_all(&words).unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            });
            let root = scope.spawn(|| Root::gather(&listener, settings(&listener, 0, 2)).map(drop));
            let settings = settings(&listener, 1, 2);
            let joined = member::attempt_any(addresses, &settings, &Limit::of(settings.limit));
            assert!(joined.is_ok() && root.join().unwrap().is_ok());
        });
    }
}

#[test]
fn an_address_that_cannot_be_listened_at_is_explained() {
    let listener = listener();
    let taken = root::listen(&settings(&listener, 0, 2)).unwrap_err().to_string();
    assert!(taken.contains("take another port"), "{taken}");
    // Addresses for documentation are nobody's.
    let foreign = Settings { host: "192.0.2.77".to_owned(), ..settings(&listener, 0, 2) };
    let foreign = root::listen(&foreign).unwrap_err().to_string();
    assert!(foreign.contains("on which rank 0 runs"), "{foreign}");
}

#[test]
fn ranks_are_listed_as_ranges() {
    assert_eq!(list(&[1]), "1");
    assert_eq!(list(&[1, 2, 4, 6, 7, 8]), "1, 2, 4, 6..8");
    assert_eq!(list(&(0..40).step_by(2).collect::<Vec<_>>()), "0, 2, 4, 6, 8, 10, 12, 14, ...");
}

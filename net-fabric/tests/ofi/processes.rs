//! Ranks that are processes: this program, started again.

use std::env;
use std::io::{BufRead, BufReader, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use net_fabric::Error;
use net_fabric::transport::ofi::{OfiTransport, open};
use net_fabric::transport::{Completion, Posted, Tag, Token, Transport};

use crate::world::{over, pattern, providers};

/// Begins the lines that a rank says to the test; others are of the test harness.
const MARK: &str = "@";

/// A rank's process, with its ears and mouth.
struct Rank {
    child: Child,
    ear: ChildStdin,
    mouth: BufReader<ChildStdout>,
}

impl Rank {
    fn hear(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.mouth.read_line(&mut line).unwrap() > 0, "a rank has ended early");
            // The harness begins a line that it does not end.
            if let Some(at) = line.find(MARK) {
                return line[at + MARK.len()..].trim().to_owned();
            }
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.ear, "{line}").unwrap();
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the ranks of a world that do `what`, and passes their addresses around.
fn start(what: &str, provider: &str, size: usize) -> Vec<Rank> {
    let mut ranks: Vec<_> = (0..size)
        .map(|rank| {
            let mut child = Command::new(env::current_exe().unwrap())
                .args(["--exact", "processes::rank_of_another_test", "--nocapture"])
                .env("NET_FABRIC_TEST_RANK", format!("{what} {provider} {rank} {size}"))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            Rank { ear: child.stdin.take().unwrap(), mouth: BufReader::new(child.stdout.take().unwrap()), child }
        })
        .collect();
    let addresses: Vec<_> = ranks.iter_mut().map(Rank::hear).collect();
    for rank in &mut ranks {
        rank.tell(&addresses.join(" "));
    }
    ranks
}

fn say(what: &str) {
    println!("{MARK}{what}");
}

fn next_line() -> String {
    let mut line = String::new();
    stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Not a test by itself: what the processes of the others do.
#[test]
fn rank_of_another_test() {
    let Ok(job) = env::var("NET_FABRIC_TEST_RANK") else { return };
    let mut words = job.split(' ');
    let mut next = || words.next().unwrap();
    let (what, provider) = (next(), next());
    let (rank, size): (usize, usize) = (next().parse().unwrap(), next().parse().unwrap());
    let unconnected = open(&over(provider)).unwrap();
    let hex: String = unconnected.address().iter().map(|byte| format!("{byte:02x}")).collect();
    say(&hex);
    let addresses: Vec<Vec<u8>> = next_line()
        .split(' ')
        .map(|hex| (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect())
        .collect();
    assert_eq!(addresses.len(), size);
    let mut transport = unconnected.connect(rank, &addresses).unwrap();
    match what {
        "exchange" => exchange(&mut transport),
        "lose" => lose(&mut transport),
        "part" => part(&mut transport),
        _ => panic!("{what}"),
    }
}

/// Sends a message to each rank and receives one of each.
fn exchange(transport: &mut OfiTransport) {
    let (rank, size) = (transport.rank(), transport.size());
    for bytes in [8_usize, 50_000, 2 << 20] {
        let mut into = vec![vec![0; bytes]; size];
        let data: Vec<_> = (0..size).map(|peer| pattern(rank * size + peer, bytes)).collect();
        let mut left = 2 * (size - 1);
        let mut completed = Vec::new();
        for offset in 1..size {
            let peer = (rank + offset) % size;
            let tag = Tag(bytes as u64);
            // SAFETY: all memory stays until all messages have ended, for both.
            while unsafe { transport.receive(peer, tag, into[peer].as_mut_ptr(), bytes, Token(1)) }.unwrap()
                == Posted::Busy
            {
                transport.progress(&mut completed).unwrap();
            }
        }
        for offset in 1..size {
            let peer = (rank + offset) % size;
            loop {
                // SAFETY: as above.
                match unsafe { transport.send(peer, Tag(bytes as u64), 1, data[peer].as_ptr(), bytes, Token(2)) }
                    .unwrap()
                {
                    Posted::Busy => transport.progress(&mut completed).unwrap(),
                    Posted::Pending => break,
                    Posted::Done => {
                        left -= 1;
                        break;
                    }
                }
            }
        }
        while completed.len() < left {
            transport.sleep(Duration::from_millis(100)).unwrap();
            transport.progress(&mut completed).unwrap();
        }
        for Completion { outcome, .. } in completed {
            assert_eq!(outcome.unwrap(), bytes);
        }
        for peer in (0..size).filter(|peer| *peer != rank) {
            assert_eq!(into[peer], pattern(peer * size + rank, bytes));
        }
    }
    transport.leave(Duration::from_secs(60)).unwrap();
    say("good");
}

#[test]
fn processes_exchange_messages_and_leave() {
    for provider in providers() {
        for mut rank in start("exchange", &provider, 3) {
            assert_eq!(rank.hear(), "good", "{provider}");
            assert!(rank.child.wait().unwrap().success(), "{provider}");
        }
    }
}

/// Rank 1 is killed after it has met the others. Rank 0 waits for a message from it, rank 2 sends
/// it one, rank 3 one after the other.
fn lose(transport: &mut OfiTransport) {
    exchange(transport);
    if transport.rank() == 1 {
        loop {
            transport.progress(&mut Vec::new()).unwrap();
        }
    }
    let mut into = [0_u8; 8];
    // The one is lent to the provider, the other is taken along at once.
    let data = vec![0_u8; if transport.rank() == 2 { 4 << 20 } else { 8 }];
    let mut completed = Vec::new();
    let waits = transport.rank() == 0;
    if waits {
        // SAFETY: the memory outlives the transport's use of it: this process ends first.
        let posted = unsafe { transport.receive(1, Tag(77), into.as_mut_ptr(), 8, Token(1)) };
        assert_eq!(posted.unwrap(), Posted::Pending);
    }
    say("waiting");
    assert_eq!(next_line(), "killed");
    let started = Instant::now();
    let mut told = None;
    let mut sent = waits;
    while told.is_none() && started.elapsed() < Duration::from_secs(300) {
        if !sent {
            // SAFETY: as above.
            match unsafe { transport.send(1, Tag(78), 0, data.as_ptr(), data.len(), Token(2)) } {
                // What was taken along says nothing any more: the next one is sent.
                Ok(posted) => sent = posted == Posted::Pending,
                Err(error) => told = Some(error),
            }
        }
        match transport.progress(&mut completed) {
            Ok(()) => told = told.or_else(|| completed.drain(..).find_map(|completion| completion.outcome.err())),
            Err(error) => told = Some(error),
        }
    }
    match told {
        Some(Error::Unreachable { rank: 1, reason }) => say(&format!("lost: {reason}")),
        other => say(&format!("{other:?} sent {sent}")),
    }
}

#[test]
fn a_dead_peer_is_named() {
    // Datagrams tell nothing of their receivers.
    for provider in providers().into_iter().filter(|provider| provider != "udp;ofi_rxd") {
        let mut ranks = start("lose", &provider, 4);
        for rank in &mut ranks {
            assert_eq!(rank.hear(), "good");
        }
        for rank in [0, 2, 3] {
            assert_eq!(ranks[rank].hear(), "waiting");
        }
        ranks[1].child.kill().unwrap();
        ranks[1].child.wait().unwrap();
        for rank in [0, 2, 3] {
            ranks[rank].tell("killed");
        }
        for rank in [0, 2, 3] {
            let told = ranks[rank].hear();
            assert!(told.starts_with("lost"), "{provider}: {told}");
        }
    }
}

/// The first of the tags by which ranks leave, one a round.
const LEAVING: u64 = (1 << 48) - 256;

/// Rank 0 leaves. Rank 1 is gone when it has told rank 0 all that it has to, before rank 2 has said its first word.
fn part(transport: &mut OfiTransport) {
    let tell = |transport: &mut OfiTransport, peer, round| {
        // SAFETY: no bytes are sent.
        while unsafe { transport.send(peer, Tag(LEAVING + round), 0, [].as_ptr(), 0, Token(1)) }.unwrap()
            == Posted::Busy
        {
            transport.progress(&mut Vec::new()).unwrap();
        }
    };
    let hear = |transport: &mut OfiTransport, peer, round| {
        let mut completed = Vec::new();
        // SAFETY: no bytes are received.
        while unsafe { transport.receive(peer, Tag(LEAVING + round), [].as_mut_ptr(), 0, Token(2)) }.unwrap()
            == Posted::Busy
        {
            transport.progress(&mut completed).unwrap();
        }
        while !completed.iter().any(|completion| completion.token == Token(2)) {
            transport.progress(&mut completed).unwrap();
        }
    };
    match transport.rank() {
        0 => transport.leave(Duration::from_secs(60)).unwrap(),
        1 => {
            hear(transport, 0, 0);
            tell(transport, 0, 1);
        }
        _ => {
            assert_eq!(next_line(), "go on");
            tell(transport, 0, 0);
            hear(transport, 0, 1);
        }
    }
}

#[test]
fn what_a_rank_says_before_it_leaves_is_heard_by_those_that_wait_for_others() {
    // With others a message that is done may not be sent yet; how `leave` waits for that is not seen from here.
    for provider in providers().into_iter().filter(|provider| matches!(&**provider, "net" | "tcp")) {
        let mut ranks = start("part", &provider, 3);
        assert!(ranks[1].child.wait().unwrap().success(), "{provider}");
        ranks[2].tell("go on");
        for rank in &mut ranks {
            assert!(rank.child.wait().unwrap().success(), "{provider}");
        }
    }
}

//! Ranks that nobody launches together: they meet at HAN_RENDEZVOUS.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;

use nix::sys::signal::{Signal, kill};

use crate::harness::{Finished, Job, Running, eventually};
use crate::ports;
use crate::programs::{
    self, REPRODUCIBLE, TRAINING_BEGINS, endless_training, expect_greetings, expect_training, hello, training,
};
use crate::testbed::Testbed;

const SECRET: (&str, &str) = ("HAN_SECRET", "a secret of these tests");

/// An address at which nobody listens now.
fn address() -> String {
    format!("localhost:{}", ports::free())
}

/// Rank `rank` of `size` of a program, without a secret.
fn rank(address: &str, rank: usize, size: usize, words: &[String]) -> Job {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    let job = Job::of(command).env("HAN_RENDEZVOUS", address).env("HAN_RANK", &rank.to_string());
    job.env("HAN_SIZE", &size.to_string()).env("HAN_RENDEZVOUS_TIMEOUT", "250").env(REPRODUCIBLE.0, REPRODUCIBLE.1)
}

fn start(address: &str, size: usize, words: &[String]) -> Vec<Running> {
    (0..size).map(|number| rank(address, number, size, words).env(SECRET.0, SECRET.1).start()).collect()
}

/// All ranks' output as that of one job.
fn together(ranks: impl IntoIterator<Item = Finished>) -> Finished {
    let mut all = Finished { code: 0, stdout: String::new(), stderr: String::new() };
    for rank in ranks {
        all.code = all.code.max(rank.code);
        all.stdout += &rank.stdout;
        all.stderr += &rank.stderr;
    }
    all
}

#[test]
fn ranks_meet() {
    for size in [1, 3] {
        let ranks = start(&address(), size, &[hello()]);
        expect_greetings(&together(ranks.into_iter().map(Running::finish)), size);
    }
    let ranks = start(&address(), 3, &training());
    expect_training(&together(ranks.into_iter().map(Running::finish)), 3);
}

/// `han bench` is a rank of that job, not one that starts a job of its own.
#[test]
fn benchmarks_run_in_the_job_that_is_there() {
    let words = [env!("CARGO_BIN_EXE_han"), "bench", "barrier", "-n", "2", "--json"].map(str::to_owned);
    let done = together(start(&address(), 2, &words).into_iter().map(Running::finish));
    done.expect(0, &[]);
    assert_eq!(done.stdout.lines().count(), 1, "{done:#?}");
    assert!(done.stdout.contains("\"ranks\":2"), "{done:#?}");
}

#[test]
fn ranks_meet_over_nodes() {
    let Some(testbed) = Testbed::up(2) else { return };
    let mut secret = tempfile::NamedTempFile::new().unwrap();
    secret.write_all(b"what the file says\n").unwrap();
    let run = |words: &[String]| {
        // Processes of their own, as other machines have, so that nobody takes the nodes for one.
        let node = |node: usize| {
            let (one, two) = (2 * node, 2 * node + 1);
            let script = format!("HAN_RANK={one} \"$@\" & one=$!; HAN_RANK={two} \"$@\" && wait $one");
            let prefix = testbed.prefix().replace("{node}", &node.to_string());
            let prefix: Vec<&str> = prefix.split(' ').collect();
            let mut command = Command::new(prefix[0]);
            command.args(&prefix[1..]).args(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]);
            command.args(["bash", "-c", &script, "-"]).args(words);
            let job = Job::of(command).env("HAN_RENDEZVOUS", "node0:29500").env("HAN_SIZE", "4");
            job.env("HAN_SECRET_FILE", secret.path().to_str().unwrap())
                .env(REPRODUCIBLE.0, REPRODUCIBLE.1)
                .env("HAN_LOG", "info")
        };
        let nodes: Vec<_> = (0..2).map(|number| node(number).start()).collect();
        together(nodes.into_iter().map(Running::finish))
    };
    let done = run(&[hello()]);
    expect_greetings(&done, 4);
    assert!(done.stderr.contains("nodes: 2 with 4 ranks"), "{done:#?}");
    expect_training(&run(&training()), 4);
}

#[test]
fn a_rank_that_is_killed_is_named_by_the_others() {
    let mut ranks = start(&address(), 3, &endless_training());
    ranks[0].wait_for_lines(TRAINING_BEGINS, 1);
    let victim = ranks.remove(1);
    kill(victim.pid(), Signal::SIGKILL).unwrap();
    let named = format!("(pid {})", victim.pid());
    assert_eq!(victim.finish().code, -(Signal::SIGKILL as i32));
    for rank in ranks {
        rank.finish().expect(1, &["gradient: ", &named]);
    }
}

#[test]
fn mistakes_are_explained_on_every_rank() {
    let hello = [hello()];
    let alone = rank(&address(), 0, 2, &hello).finish();
    alone.expect(1, &["HAN_RENDEZVOUS needs a secret", "/dev/urandom", "HAN_SECRET_FILE"]);

    let here = address();
    let present = |number| rank(&here, number, 4, &hello).env(SECRET.0, SECRET.1);
    // Rank 0's patience is over first.
    let half = [present(0).env("HAN_RENDEZVOUS_TIMEOUT", "20").start(), present(2).start()];
    let here = address();
    let root = rank(&here, 0, 2, &hello).env(SECRET.0, SECRET.1).env("HAN_RENDEZVOUS_TIMEOUT", "20").start();
    let stranger = rank(&here, 1, 2, &hello).env(SECRET.0, "another secret of somebody").start();
    stranger.finish().expect(1, &["rank 0 has another secret"]);
    root.finish().expect(1, &["1 of 2 ranks have not come", "has another secret"]);
    for rank in half {
        rank.finish().expect(1, &["2 of 4 ranks have not come to localhost:", "within 20 s: 1, 3"]);
    }

    let here = address();
    let ranks =
        [(0, 2), (1, 3)].map(|(number, size)| rank(&here, number, size, &hello).env(SECRET.0, SECRET.1).start());
    for rank in ranks {
        rank.finish().expect(1, &["sizes differ: rank 0 has HAN_SIZE=2, rank 1 at 127.0.0.1:", "HAN_SIZE=3"]);
    }
}

#[test]
fn strangers_that_take_all_descriptors_do_not_keep_ranks_from_meeting() {
    let here = address();
    // What a shell's `ulimit -n 64` gives to rank 0.
    let limited = ["sh", "-c", "ulimit -n 64; exec \"$0\"", &hello()].map(str::to_owned);
    let root = rank(&here, 0, 2, &limited).env(SECRET.0, SECRET.1).start();
    let port = &here["localhost:".len()..];
    let connect = || TcpStream::connect(format!("127.0.0.1:{port}")).ok();
    eventually("rank 0 listens", || connect().is_some());
    let silent: Vec<_> = (0..200).map(|_| connect()).collect();
    let member = rank(&here, 1, 2, &[hello()]).env(SECRET.0, SECRET.1).finish();
    expect_greetings(&together([root.finish(), member]), 2);
    drop(silent);
}

#[test]
fn a_rank_does_not_connect_to_itself() {
    if std::env::var_os("HAN_TEST_NO_NETNS").is_some_and(|value| value == "1") {
        eprintln!("not tested, as HAN_TEST_NO_NETNS says: a rank at a port that may be its own");
        return;
    }
    // A network of few ports, one of which is the job's: a connection to it that finds nobody there is soon given it.
    let script = "ip link set lo up && echo 40000 40003 > /proc/sys/net/ipv4/ip_local_port_range &&
        { HAN_RANK=1 \"$0\" & sleep 3; HAN_RANK=0 \"$0\" && wait $!; }";
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", script, &hello()]);
    let job = Job::of(command).env("HAN_RENDEZVOUS", "127.0.0.1:40002").env("HAN_SIZE", "2");
    expect_greetings(&job.env(SECRET.0, SECRET.1).finish(), 2);
}

#[test]
fn han_run_does_not_hand_a_rendezvous_on() {
    let done = Job::new(&["-n", "2", "--", &hello()]);
    let done = done.env("HAN_RENDEZVOUS", "localhost:1").env("HAN_RANK", "0").env("HAN_SIZE", "9").finish();
    programs::expect_greetings(&done, 2);
}

//! The ranks of these tests: this test binary, started again by a launcher to play a role.

use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process;
use std::thread;
use std::time::Duration;

use han::{Config, Context, Operator};
use shm_core::exchange::Exchange;
use shm_core::sys::process::duplicate_inherited;

use crate::harness::Job;

const ROLE: &str = "HAN_TEST_ROLE";

/// The command line that plays a role, given by [`ROLE`].
pub(crate) fn program() -> Vec<String> {
    let own = env::current_exe().unwrap().to_str().unwrap().to_owned();
    let words = ["ranks::play_a_role", "--exact", "--ignored", "--nocapture", "--quiet"];
    std::iter::once(own).chain(words.map(str::to_owned)).collect()
}

/// `han run OPTIONS` of ranks that play `role`.
pub(crate) fn job(options: &[&str], role: &str) -> Job {
    let program = program();
    let words: Vec<&str> = options.iter().copied().chain(["--"]).chain(program.iter().map(String::as_str)).collect();
    Job::new(&words).env(ROLE, role)
}

/// Any launcher of ranks that play `role`.
pub(crate) fn job_under(launcher: &str, options: &[&str], role: &str) -> Job {
    let mut command = process::Command::new(launcher);
    command.args(options).args(program());
    Job::of(command).env(ROLE, role)
}

#[test]
#[ignore = "a rank of other tests: they start it under a launcher"]
fn play_a_role() {
    match env::var(ROLE).as_deref() {
        Ok("exchange") => exchange(),
        Ok("allreduce") => allreduce(),
        Ok("chatter") => chatter(),
        Ok("no-finalize") => no_finalize(),
        Ok("abort") => abort(),
        Ok("two-programs") => two_programs(),
        Ok("garbage") => spoil(b"\0\xff garbage\n"),
        Ok("endless-line") => spoil(&[b'x'; 1 << 20]),
        Ok("hang-up") => hang_up(),
        Ok("silent-rank") => silent_rank(),
        Ok("missing-rank") => missing_rank(),
        Ok(other) => panic!("no such role: {other}"),
        Err(_) => {}
    }
}

/// What rank `rank` gives in round `round`: from nothing to several PMI values long.
fn card(round: usize, rank: usize) -> Vec<u8> {
    (0..(round * 400 + rank * 150)).map(|i| u8::try_from((i * 7 + rank) % 256).unwrap()).collect()
}

fn connect() -> han::bootstrap::Result<Box<dyn Exchange>> {
    han::bootstrap::connect(&Config::default())
}

fn exchange() {
    let mut job = connect().unwrap();
    let (rank, size) = (job.rank(), job.size());
    for round in 0..4 {
        let all = job.allgather(&card(round, rank)).unwrap();
        assert_eq!(all, (0..size).map(|rank| card(round, rank)).collect::<Vec<_>>());
    }
    let nodes: Vec<String> = job.nodes().unwrap().iter().map(usize::to_string).collect();
    job.finalize().unwrap();
    println!("exchanged: rank {rank} of {size}, nodes {}", nodes.join(","));
}

/// Allreduces until an error ends it.
fn allreduce() {
    let forever = || -> han::Result<()> {
        let context = Context::init()?;
        println!("working");
        loop {
            context.world().allreduce_in_place(&mut [1_i32; 100], Operator::Sum)?;
        }
    };
    eprintln!("survivor: {}", forever().unwrap_err());
    process::exit(3);
}

const CHATTER_LINES: usize = 400;

fn chatter_line(rank: usize, stream: &str, line: usize) -> String {
    format!("chatter {rank} {stream} {line} {}", "-".repeat(line % 300))
}

/// How often each line must come.
pub(crate) fn chatter_lines(ranks: usize) -> HashMap<String, usize> {
    let line = |i: usize| (chatter_line(i / 2 / CHATTER_LINES, ["out", "err"][i % 2], i / 2 % CHATTER_LINES), 1);
    (0..ranks * CHATTER_LINES * 2).map(line).collect()
}

/// Writes each line in two parts, to both streams in turn.
fn chatter() {
    let rank: usize = env::var("PMI_RANK").unwrap().parse().unwrap();
    println!();
    for i in 0..CHATTER_LINES {
        let streams: [(&str, &mut dyn Write); 2] = [("out", &mut io::stdout()), ("err", &mut io::stderr())];
        for (stream, sink) in streams {
            let line = chatter_line(rank, stream, i) + "\n";
            let (first, second) = line.split_at(line.len() / 2);
            for part in [first, second] {
                sink.write_all(part.as_bytes()).unwrap();
                sink.flush().unwrap();
            }
        }
    }
    process::exit(0);
}

/// Rank 1 exits in the middle; the others wait for it, and then exit with the code in `HAN_TEST_THEN`, or stay.
fn no_finalize() {
    let mut job = connect().unwrap();
    job.allgather(b"").unwrap();
    if job.rank() == 1 {
        process::exit(0);
    }
    println!("{}", job.allgather(b"").unwrap_err());
    match env::var("HAN_TEST_THEN").unwrap().parse() {
        Ok(code) => process::exit(code),
        Err(_) => thread::sleep(Duration::from_secs(300)),
    }
}

fn abort() {
    let mut job = connect().unwrap();
    job.allgather(b"").unwrap();
    if job.rank() == 1 {
        job.abort(9, "as agreed");
        process::exit(9);
    }
    thread::sleep(Duration::from_secs(300));
}

/// Starts another program of han before it finalizes, and becomes one then.
fn two_programs() {
    let mut job = connect().unwrap();
    job.allgather(b"").unwrap();
    let words = program();
    let mut next = process::Command::new(&words[0]);
    next.args(&words[1..]).env(ROLE, "exchange");
    let early = next.output().unwrap();
    let said = String::from_utf8_lossy(&early.stderr);
    assert!(said.contains("only when it has finalized"), "{said}");
    job.finalize().unwrap();
    panic!("{}", next.exec());
}

/// The raw connection to the launcher.
fn raw() -> OwnedFd {
    duplicate_inherited(env::var("PMI_FD").unwrap().parse().unwrap()).unwrap()
}

/// Rank 1 writes what is no PMI; the others wait for it.
fn spoil(bytes: &[u8]) {
    if env::var("PMI_RANK").unwrap() == "1" {
        // The launcher hangs up in the middle of it.
        let _ = File::from(raw()).write_all(bytes);
        thread::sleep(Duration::from_secs(300));
    }
    println!("{}", connect().unwrap().allgather(b"").unwrap_err());
    process::exit(5);
}

/// Rank 1 closes its connection and lives on; the others wait for it.
fn hang_up() {
    let mut job = connect().unwrap();
    if job.rank() == 1 {
        UnixStream::from(raw()).shutdown(Shutdown::Both).unwrap();
        thread::sleep(Duration::from_secs(300));
    }
    println!("{}", job.allgather(b"").unwrap_err());
    process::exit(5);
}

/// Rank 1 never speaks; the others wait for it.
fn missing_rank() {
    if env::var("PMI_RANK").unwrap() == "1" {
        process::exit(0);
    }
    println!("{}", connect().unwrap().allgather(b"").unwrap_err());
    process::exit(5);
}

/// Rank 1 closes its connection before it has spoken, and lives on; the others wait for it.
fn silent_rank() {
    if env::var("PMI_RANK").unwrap() == "1" {
        UnixStream::from(raw()).shutdown(Shutdown::Both).unwrap();
        thread::sleep(Duration::from_secs(300));
    }
    println!("{}", connect().unwrap().allgather(b"").unwrap_err());
    process::exit(5);
}

//! The nodes that rivals run on, and what stands for ssh between them. Needs root; HAN_TEST_NO_NETNS=1 leaves it out.
#![allow(clippy::unwrap_used)] // in a test a panic is the report

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use benches::network::Network;
use benches::testbed::{Testbed, ssh};

const NO_NETNS: &str = "HAN_TEST_NO_NETNS";

#[test]
fn launchers_reach_every_node() {
    if std::env::var_os(NO_NETNS).is_some_and(|value| value == "1") {
        eprintln!("SKIPPED: {NO_NETNS}=1, so no network namespaces are made");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed");
    let network = Network { nodes: 2, rate: "1gbit".parse().unwrap() };
    let testbed = Testbed::up(&script, network)
        .unwrap_or_else(|error| panic!("{error} (where nodes cannot be made, {NO_NETNS}=1 leaves this test out)"));
    let reach = |words: &[&str]| -> Output {
        let mut command = Command::new(ssh(&script));
        testbed.enter(&mut command);
        command.args(words).output().unwrap()
    };
    // As Open MPI's launcher and as Hydra's call ssh; the words are one line for a shell.
    for options in [&["-x"][..], &["-q", "-l", "somebody", "-o", "StrictHostKeyChecking=no"]] {
        let words = [options, &["node1", "A=5;", "echo", "$(hostname) $A; tc qdisc show dev eth0"]].concat();
        let said = String::from_utf8(reach(&words).stdout).unwrap();
        assert!(said.starts_with("node1 5\n") && said.contains("rate 1Gbit"), "{said}");
    }
    assert_eq!(reach(&["node0", "exit 7"]).status.code(), Some(7));
    let missing = reach(&["node2", "true"]);
    assert!(!missing.status.success() && String::from_utf8_lossy(&missing.stderr).contains("no node 2"), "{missing:?}");
    assert_eq!(reach(&["node1"]).status.code(), Some(2), "there is no command");
}

/// A closed port refuses: the answer comes after one way there and one back.
#[test]
fn long_wires_delay_every_packet() {
    if std::env::var_os(NO_NETNS).is_some_and(|value| value == "1") {
        eprintln!("SKIPPED: {NO_NETNS}=1, so no network namespaces are made");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("testbed");
    let name = format!("delay-{}", std::process::id());
    let testbed = |words: &str| {
        let mut command = Command::new(&script);
        command.args(words.split(' ')).env("HAN_TESTBED", &name);
        command
    };
    // It is up until its standard input ends.
    let mut held = testbed("hold 3 --delay 150000").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(held.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n", "where nodes cannot be made, or Python 3 is missing, {NO_NETNS}=1 leaves this out");
    let start = Instant::now();
    let refused = testbed("exec 1 bash -c").arg("echo > /dev/tcp/node2/9").output().unwrap();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("refused"), "{refused:?}");
    assert!(start.elapsed() > Duration::from_millis(300), "{:?}", start.elapsed());
    drop(held.stdin.take());
    held.wait().unwrap();
    let wrong = testbed("up 2 --delay soon").output().unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("expected microseconds"), "{wrong:?}");
}

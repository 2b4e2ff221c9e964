//! Ranks behind a prefix: they run on their nodes, speak to the launcher, and end with it; and the testbed itself.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::{Job, eventually, name, unshared};
use crate::testbed::{Testbed, processes};

/// `han run -n RANKS --nodes NODES --node-exec ... OPTIONS -- sh -c SCRIPT`.
fn script(testbed: &Testbed, ranks: &str, nodes: &str, options: &[&str], script: &str) -> Job {
    let prefix = testbed.prefix();
    let words = [&["-n", ranks, "--nodes", nodes, "--node-exec", &prefix], options].concat();
    Job::script(&words, script)
}

#[test]
fn ranks_run_on_their_nodes() {
    let Some(testbed) = Testbed::up(3) else { return };
    let show = "echo $(hostname) $PMI_RANK: $(ls /dev/shm) $(ip -br addr show eth0 | wc -l) in $PWD; \
                echo $PMI_RANK > /dev/shm/of-rank-$PMI_RANK";
    let done = script(&testbed, "4", "3", &["--label"], show).finish();
    done.expect(0, &[]);
    let here = std::env::current_dir().unwrap();
    // Two ranks on the first node, whose /dev/shm one may see after the other has written to it.
    let lines = done.sorted_lines();
    for (rank, node) in [0, 0, 1, 2].into_iter().enumerate() {
        let line = lines[rank];
        assert!(line.starts_with(&format!("[{rank}] node{node} {rank}:")), "{lines:?}");
        assert!(line.ends_with(&format!(" 1 in {}", here.display())), "{lines:?}");
    }
    assert_eq!(testbed.on_node(0, &["ls", "/dev/shm"]), "of-rank-0\nof-rank-1\n");
    assert_eq!(testbed.on_node(2, &["ls", "/dev/shm"]), "of-rank-3\n");
    assert!(!std::path::Path::new("/dev/shm/of-rank-0").exists());
}

#[test]
fn failures_and_signals_pass_the_prefix() {
    let Some(testbed) = Testbed::up(2) else { return };
    script(&testbed, "2", "2", &[], "[ $PMI_RANK = 1 ] && exit 7; sleep 300").finish().expect(7, &["rank 1 (pid"]);
    script(&testbed, "2", "2", &[], "kill -9 $$").finish().expect(137, &["was killed by signal 9"]);
    let mut job = script(&testbed, "2", "2", &[], "trap 'exit 5' TERM; echo ready; sleep 300 & wait").start();
    job.wait_for_lines("ready", 2);
    job.signal(Signal::SIGTERM);
    job.finish().expect(5, &["exited with code 5"]);
}

#[test]
fn killing_the_launcher_ends_what_runs_on_nodes() {
    let Some(testbed) = Testbed::up(2) else { return };
    let forks = "setsid sleep 300 & (setsid sh -c 'sleep 301 &' &); echo ready; sleep 302";
    let mut job = script(&testbed, "2", "2", &[], forks).start();
    job.wait_for_lines("ready", 2);
    job.signal(Signal::SIGKILL);
    job.wait_until_gone();
    // A process namespace a rank: its first process is a child of the prefix.
    let mut own = Job::script(&["-n", "2", "--node-exec", "unshare --pid --fork --kill-child"], forks).start();
    own.wait_for_lines("ready", 2);
    eventually("all sleep", || own.processes().into_iter().filter(|pid| name(*pid) == "sleep").count() == 6);
    own.signal(Signal::SIGKILL);
    own.wait_until_gone();
}

#[test]
fn a_prefix_that_closes_the_connection_is_named() {
    let words = ["-n", "1", "--node-exec", "bash -c 'fd=$PMI_FD; exec {fd}>&-; exec \"$@\"' -"];
    let done = crate::ranks::job(&words, "hello").finish();
    done.expect(3, &["PMI_FD=", "is no open connection here", "--node-exec", "`ip netns exec` and `nsenter` do"]);
}

#[test]
fn a_testbed_goes_with_its_switch_and_with_its_maker() {
    let Some(testbed) = Testbed::up(2) else { return };
    assert_eq!(processes(testbed.name()).len(), 3);
    kill(Pid::from_raw(i32::try_from(testbed.switch()).unwrap()), Signal::SIGKILL).unwrap();
    eventually("the nodes have died with the switch", || processes(testbed.name()).is_empty());

    let Some(testbed) = Testbed::up(2) else { return };
    let name = testbed.name().to_owned();
    drop(testbed);
    eventually("the nodes have died with their maker", || processes(&name).is_empty());
}

#[test]
fn a_cable_can_be_pulled() {
    let Some(testbed) = Testbed::up(2) else { return };
    let carrier = || testbed.on_node(1, &["ip", "-br", "link", "show", "eth0"]);
    assert!(carrier().contains("LOWER_UP"), "{}", carrier());
    testbed.command("link", &["1", "down"]);
    assert!(carrier().contains("NO-CARRIER"), "{}", carrier());
    testbed.command("link", &["1", "up"]);
    assert!(carrier().contains("LOWER_UP"), "{}", carrier());
}

#[test]
fn a_host_that_does_not_reach_itself_is_told_at_the_start() {
    let Some(command) = unshared(&["-n"], "exec \"$0\" bench barrier -n 2 --nodes 2") else { return };
    let why = "has no network: fi_getinfo failed: no provider fits: ";
    Job::of(command).finish().expect(1, &[why, "by the interface lo, which is down: ip link set lo up"]);
}

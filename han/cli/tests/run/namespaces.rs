//! Jobs in a namespace of processes of their own, as a container's are, seen from outside.

use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::harness::{Job, Running, eventually, unshared};
use crate::ranks;

/// What `han status` tells of the ranks of this job.
fn ranks_of(job: &Running) -> Option<Vec<Value>> {
    let output = Command::new(env!("CARGO_BIN_EXE_han")).args(["status", "--json"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let all = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let processes = job.processes();
    all.filter_map(|job| job["ranks"].as_array().cloned())
        .find(|ranks| !ranks.is_empty() && ranks.iter().all(|rank| processes.contains(&pid(rank))))
}

fn pid(rank: &Value) -> Pid {
    Pid::from_raw(rank["pid"].as_i64().unwrap().try_into().unwrap())
}

#[test]
fn status_finds_the_processes_of_a_container() {
    let script = "exec \"$0\" run -n 2 --grace 250 -- \"$@\"";
    let Some(mut command) = unshared(&["--pid", "--fork", "--mount-proc", "--kill-child"], script) else { return };
    command.args(ranks::program());
    let mut job = Job::of(command).env("HAN_TEST_ROLE", "allreduce").start();
    job.wait_for_lines("working", 2);
    let ranks = ranks_of(&job).expect("the job is listed with the numbers that its processes have here");
    kill(pid(&ranks[1]), Signal::SIGSTOP).unwrap();
    eventually("rank 0 waits for rank 1, which is stopped", || {
        ranks_of(&job).is_some_and(|ranks| {
            (&ranks[0]["state"], &ranks[1]["state"]) == (&json!("waiting"), &json!("stopped"))
                && ranks[0]["missing"] == json!([1])
        })
    });
    kill(pid(&ranks[1]), Signal::SIGKILL).unwrap();
    job.finish().expect(137, &["rank 1 (pid ", "was killed by signal 9"]);
}

//! Where ranks run, and what they are told of it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;

use crate::harness::Job;

const SHOW_MASK: &str = "echo $PMI_RANK $(grep Cpus_allowed_list /proc/self/status)";

fn usable_cpus() -> Vec<usize> {
    let usable = sched_getaffinity(Pid::from_raw(0)).unwrap();
    (0..CpuSet::count()).filter(|cpu| usable.is_set(*cpu).unwrap()).collect()
}

#[test]
fn ranks_are_bound_round_robin_to_the_usable_processors() {
    let cpus = usable_cpus();
    let ranks = cpus.len() + 1;
    let done = Job::script(&["-n", &ranks.to_string()], SHOW_MASK).finish();
    let mut expected: Vec<String> =
        (0..ranks).map(|rank| format!("{rank} Cpus_allowed_list: {}", cpus[rank % cpus.len()])).collect();
    expected.sort_unstable();
    assert_eq!(done.sorted_lines(), expected);
}

#[test]
fn the_launchers_mask_is_respected() {
    let last = usable_cpus().pop().unwrap().to_string();
    let mut command = Command::new("taskset");
    command.args(["-c", &last, env!("CARGO_BIN_EXE_han"), "run", "-n", "2", "--", "sh", "-c", SHOW_MASK]);
    let done = Job::of(command).finish();
    let expected = [format!("0 Cpus_allowed_list: {last}"), format!("1 Cpus_allowed_list: {last}")];
    assert_eq!(done.sorted_lines(), expected);
}

#[test]
fn unbound_ranks_keep_the_launchers_mask() {
    let mask = "grep Cpus_allowed_list /proc/self/status";
    let own = Job::of({
        let mut command = Command::new("/bin/sh");
        command.args(["-c", mask]);
        command
    });
    let own = own.finish().stdout;
    assert_eq!(Job::script(&["-n", "1", "--bind", "none"], mask).finish().stdout, own);
}

#[test]
fn nodes_take_blocks_and_unequal_ones_where_they_must() {
    let show = "echo $PMI_RANK on $NODE as $MPI_LOCALRANKID of $MPI_LOCALNRANKS";
    let done = Job::script(&["-n", "5", "--nodes", "2", "--node-exec", "env 'NODE=node {node}'"], show).finish();
    done.expect(0, &[]);
    let expected = [
        "0 on node 0 as 0 of 3",
        "1 on node 0 as 1 of 3",
        "2 on node 0 as 2 of 3",
        "3 on node 1 as 0 of 2",
        "4 on node 1 as 1 of 2",
    ];
    assert_eq!(done.sorted_lines(), expected);
}

#[test]
fn a_prefix_that_drops_variables_does_not_take_the_ranks_places() {
    let show =
        "echo $PMI_RANK of $PMI_SIZE, $MPI_LOCALRANKID of $MPI_LOCALNRANKS, HOME=$HOME; test -e /proc/$$/fd/$PMI_FD";
    let done = Job::script(&["-n", "3", "--nodes", "2", "--node-exec", "env -i"], show).env("HOME", "/").finish();
    done.expect(0, &[]);
    assert_eq!(done.sorted_lines(), ["0 of 3, 0 of 2, HOME=", "1 of 3, 1 of 2, HOME=", "2 of 3, 0 of 1, HOME="]);
}

#[test]
fn a_program_behind_a_prefix_may_have_any_name() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("n=2");
    fs::write(&program, "#!/bin/sh\necho $PMI_RANK: \"$@\"\n").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let words = ["-n", "2", "--node-exec", "nice", "--", program.to_str().unwrap(), "a  b", "c=d"];
    let done = Job::new(&words).finish();
    done.expect(0, &[]);
    assert_eq!(done.sorted_lines(), ["0: a  b c=d", "1: a  b c=d"]);
}

#[test]
fn a_job_inside_a_job_is_its_own_world() {
    let inner = "echo $OUTER: $PMI_RANK of $PMI_SIZE";
    let script = format!("OUTER=$PMI_RANK exec \"$0\" run -n 2 -- sh -c '{inner}'");
    let done = Job::new(&["-n", "2", "--", "sh", "-c", &script, env!("CARGO_BIN_EXE_han")]).finish();
    assert_eq!(done.sorted_lines(), ["0: 0 of 2", "0: 1 of 2", "1: 0 of 2", "1: 1 of 2"]);
}

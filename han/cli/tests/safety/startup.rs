//! Start-up that cannot succeed: every rank says why, and what would be right.

use std::process::Command;

use crate::harness::{Job, unshared};
use crate::{finish, reports, roles};

/// All ranks of two report texts with all of `parts`.
fn refused(job: Job, parts: &[&str]) {
    let done = finish(job);
    done.expect(3, &[]);
    let reports = reports(&done);
    assert_eq!(reports.iter().map(|(rank, ..)| *rank).collect::<Vec<_>>(), [0, 1], "{done:#?}");
    for (.., text) in &reports {
        for part in parts {
            assert!(text.contains(part), "{part:?} is missing in {done:#?}");
        }
    }
}

#[test]
fn wrong_variables_are_answered_with_what_is_valid() {
    for (name, value, parts) in [
        ("HAN_SET", "chunk=1", ["\"chunk\"", "valid keys are backing, methods, form, chunk_bytes"]),
        ("HAN_SET", "chunk_bytes=5000", ["chunk_bytes=5000", "a power of two from 4096 to 131072"]),
        ("HAN_SET", "methods=shared+xpmem", ["methods=shared+xpmem", "some of shared, cma, cico"]),
        ("HAN_SET", "backing=disk", ["backing=disk", "auto, memfd or dev_shm"]),
        ("HAN_SET", "spins", ["\"spins\"", "key=value"]),
        ("HAN_LOG", "loud", ["HAN_LOG=loud", "error, warn, info, debug"]),
        ("HAN_PROVIDER", "tcp,carrier-pigeon", ["HAN_PROVIDER=tcp,carrier-pigeon", "no provider carrier-pigeon"]),
        ("HAN_INTERFACE", "10.0.0.0/33", ["HAN_INTERFACE=10.0.0.0/33", "bits after / is 0 to 32"]),
        ("HAN_WATCHDOG", "-1", ["HAN_WATCHDOG=-1", "a number of seconds, 0 to 1e9"]),
        ("HAN_REPRODUCIBLE", "yes", ["HAN_REPRODUCIBLE=yes", "0, 1"]),
    ] {
        refused(roles::job(2, "hello").env(name, value), &parts);
    }
}

#[test]
fn settings_that_differ_between_ranks_are_refused_with_both_values() {
    let program = roles::program().iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let script = format!("HAN_SET=chunk_bytes=$((8192 + 8192 * PMI_RANK)) exec {program}");
    let job = Job::script(&["-n", "2", "--grace", "120"], &script).env("HAN_TEST_ROLE", "hello");
    refused(job, &["settings differ: rank 0 has chunk_bytes=8192, rank 1 has chunk_bytes=16384: set HAN_SET "]);
}

/// A second greeting would make the launcher end the job.
#[test]
fn a_process_joins_its_job_once() {
    refused(roles::job(2, "join-twice"), &["this process has joined the launcher's job before", "keep its context"]);
}

/// What has no effect on one node ends the job there as well, rather than when a communicator is made.
#[test]
fn what_ranks_choose_by_is_the_same_on_one_node() {
    let program = roles::program().iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let script = format!("HAN_SET=inter_chunk_bytes=100$PMI_RANK exec {program}");
    let job = Job::script(&["-n", "2", "--grace", "120"], &script).env("HAN_TEST_ROLE", "hello");
    refused(job, &["settings differ: rank 0 has inter_chunk_bytes=1000, rank 1 has inter_chunk_bytes=1001: set "]);
}

/// What a rank prints would go into the job's memory, or to a peer.
#[test]
fn nothing_takes_the_places_of_standard_streams_that_are_closed() {
    for options in [&["-n", "2"][..], &["-n", "2", "--nodes", "2"]] {
        let words = options.iter().copied().chain(["--grace", "120", "--"]).map(str::to_owned);
        let words: Vec<_> = words.chain(roles::program()).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        finish(Job::new(&words).env("HAN_TEST_ROLE", "no-streams")).expect(0, &[]);
    }
}

#[test]
fn what_is_missing_of_proc_is_named() {
    let Some(mut command) = unshared(&["-m"], "mount -t tmpfs tmpfs /proc/sys && exec \"$0\" \"$@\"") else { return };
    command.args(["run", "-n", "2", "--grace", "120", "--"]).args(roles::program()).env("HAN_TEST_ROLE", "hello");
    refused(Job::of(command), &["/proc/sys/kernel/random/boot_id: No such file", "; /proc must be mounted, with all"]);
}

#[test]
fn a_backing_for_threads_is_refused_between_processes() {
    refused(roles::job(2, "hello").env("HAN_SET", "backing=heap"), &["backing=heap: expected auto, memfd or dev_shm"]);
}

/// A command that has a `/dev/shm` of its own of `size`, then runs `han run` of `ranks` that play `role`; `None` where
/// tests are to do without.
pub(crate) fn with_dev_shm(size: &str, ranks: usize, role: &str) -> Option<Command> {
    let script = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm && exec \"$0\" \"$@\"");
    let mut command = unshared(&["-m"], &script)?;
    command.args(["run", "-n", &ranks.to_string(), "--grace", "120", "--"]).args(roles::program());
    command.env("HAN_TEST_ROLE", role);
    Some(command)
}

#[test]
fn a_full_dev_shm_is_an_error_at_start_up() {
    let Some(mut command) = with_dev_shm("64k", 2, "hello") else { return };
    command.env("HAN_SET", "backing=dev_shm");
    refused(
        Job::of(command),
        &["no memory for ", " bytes: rank 0: /dev/shm has ", " KiB left (ENOSPC): make it larger"],
    );
}

#[test]
fn a_small_dev_shm_holds_many_communicators_and_tells_when_it_is_full() {
    let Some(mut command) = with_dev_shm("64m", 2, "communicators") else { return };
    command.env("HAN_SET", "backing=dev_shm");
    let done = finish(Job::of(command));
    done.expect(0, &[]);
    let reports = reports(&done);
    assert_eq!(reports.len(), 2, "{done:#?}");
    for (.., text) in reports {
        assert!(text.starts_with("many: no memory for ") && text.contains(" KiB left (ENOSPC)"), "{text}");
    }
}

/// As containers have it; more memory than that is allocated and registered.
#[test]
fn a_small_dev_shm_is_enough() {
    for set in ["", "backing=dev_shm", "methods=cico"] {
        let Some(mut command) = with_dev_shm("64m", 2, "memory") else { return };
        command.env("HAN_SET", set);
        finish(Job::of(command)).expect(0, &[]);
    }
}

//! PMI-1 as `han run` serves it: to this library's client, to MPICH, and to ranks that misbehave.

use std::process::Command;

use crate::harness::Job;
use crate::ranks;

#[test]
fn ranks_exchange_cards_of_any_length() {
    for size in [1, 2, 5, 9] {
        let done = ranks::job(&["-n", &size.to_string()], "exchange").finish();
        done.expect(0, &[]);
        for rank in 0..size {
            let nodes = vec!["0"; size].join(",");
            assert!(done.stdout.contains(&format!("exchanged: rank {rank} of {size}, nodes {nodes}\n")), "{done:?}");
        }
    }
}

#[test]
fn unequal_nodes_are_told() {
    let done = ranks::job(&["-n", "5", "--nodes", "3"], "exchange").finish();
    done.expect(0, &[]);
    assert_eq!(done.stdout.matches("nodes 0,0,1,1,2\n").count(), 5, "{done:?}");
}

#[test]
fn a_script_may_run_two_programs_one_after_the_other() {
    let program = ranks::program().iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let job = Job::script(&["-n", "2"], &format!("{program} && {program}")).env("HAN_TEST_ROLE", "exchange");
    let done = job.finish();
    done.expect(0, &[]);
    assert_eq!(done.stdout.matches("exchanged: rank ").count(), 4, "{done:?}");
}

#[test]
fn a_rank_may_become_another_program_when_it_has_finalized() {
    let done = ranks::job(&["-n", "2"], "two-programs").finish();
    done.expect(0, &[]);
    assert_eq!(done.stdout.matches("exchanged: rank ").count(), 2, "{done:?}");
}

#[test]
fn the_others_decide_what_an_exit_before_finalize_is() {
    const LEFT: [&str; 2] = ["han run: rank 1 (pid ", ") exited with code 0 between PMI init and finalize"];
    for (then, code) in [("5", 5), ("0", 0)] {
        let job = ranks::job(&["-n", "3", "--grace", "250"], "no-finalize").env("HAN_TEST_THEN", then);
        let done = job.finish();
        done.expect(code, &LEFT);
        assert_eq!(done.stdout.matches("the launcher closed the PMI connection").count(), 2, "{done:?}");
    }
    let job = ranks::job(&["-n", "3", "--grace", "1"], "no-finalize").env("HAN_TEST_THEN", "sleep");
    job.finish().expect(1, &[&LEFT[..], &["ending ranks 0, 2 by SIGTERM"]].concat());
}

#[test]
fn abort_ends_the_job_with_its_code() {
    let done = ranks::job(&["-n", "3"], "abort").finish();
    done.expect(9, &["han run: rank 1 (pid ", ") aborted the job with code 9\n"]);
}

#[test]
fn bytes_that_are_not_pmi_end_the_job_and_name_the_rank() {
    let done = ranks::job(&["-n", "3"], "garbage").finish();
    done.expect(1, &["han run: rank 1 (pid ", ") broke the PMI-1 protocol", "printable ASCII"]);
    let done = ranks::job(&["-n", "3"], "endless-line").finish();
    done.expect(1, &["han run: rank 1 (pid ", ") broke the PMI-1 protocol", "more than 1024 bytes"]);
}

#[test]
fn a_closed_connection_ends_the_job_and_names_the_rank() {
    let done = ranks::job(&["-n", "3"], "hang-up").finish();
    done.expect(5, &["han run: rank 1 (pid ", ") closed its PMI connection before finalize"]);
}

#[test]
fn a_rank_that_never_comes_does_not_hang_the_others() {
    let done = ranks::job(&["-n", "3"], "missing-rank").finish();
    done.expect(
        5,
        &["han run: rank 1 (pid ", ") has ended or closed its PMI connection, but the PMI barrier needs it"],
    );
    let done = ranks::job(&["-n", "3"], "silent-rank").finish();
    done.expect(
        5,
        &["han run: rank 1 (pid ", ") has ended or closed its PMI connection, but the PMI barrier needs it"],
    );
}

#[test]
fn ranks_that_have_not_come_are_told_of_by_those_that_have() {
    let words = ranks::program().iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
    let script = format!("[ $PMI_RANK = 1 ] && exec sleep 300; exec {words}");
    let job = Job::script(&["-n", "3"], &script).env("HAN_TEST_ROLE", "allreduce");
    let done = job.env("HAN_SET", "timeout_s=10").env("HAN_WATCHDOG", "1").finish();
    for rank in [0, 2] {
        let said = format!("watchdog: rank {rank} has waited ");
        done.expect(3, &[&said, " s at the start for the other ranks of 3", "given up at HAN_SET=timeout_s"]);
    }
}

const MPI_PROGRAM: &str = r#"
#include <stdio.h>
/* MPICH's binary interface by hand: its header is in a package that nothing else here needs. */
enum { MPI_COMM_WORLD = 0x44000000, MPI_INT = 0x4c000405, MPI_SUM = 0x58000003, MPI_UNIVERSE_SIZE = 0x64400009 };
int MPI_Init(int *, char ***), MPI_Finalize(void), MPI_Comm_rank(int, int *), MPI_Comm_size(int, int *);
int MPI_Allreduce(const void *, void *, int, int, int, int), MPI_Comm_get_attr(int, int, void *, int *);
int MPI_Abort(int, int);
int main(int argc, char **argv)
{
    int rank, size, sum = 0, *universe, found;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1)
        MPI_Abort(MPI_COMM_WORLD, 6);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &found);
    printf("rank %d of %d: sum %d, universe %d\n", rank, size, sum, found ? *universe : -1);
    MPI_Finalize();
    return 0;
}
"#;

#[test]
fn an_mpich_program_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (source, program) = (directory.path().join("sum.c"), directory.path().join("sum"));
    std::fs::write(&source, MPI_PROGRAM).unwrap();
    let built = Command::new("cc").arg(&source).arg("-o").arg(&program).arg("-l:libmpich.so.12").status();
    assert!(built.unwrap().success(), "`make deps` installs cc and MPICH's library");
    let done = Job::new(&["-n", "3", program.to_str().unwrap()]).finish();
    done.expect(0, &[]);
    let line = |rank| format!("rank {rank} of 3: sum 3, universe 3");
    assert_eq!(done.sorted_lines(), [line(0), line(1), line(2)]);
    let done = Job::new(&["-n", "3", program.to_str().unwrap(), "abort"]).finish();
    done.expect(6, &["aborted the job with code 6"]);
}

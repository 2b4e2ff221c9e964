//! The same ranks under Hydra's `mpiexec`, MPICH's launcher.

use crate::ranks;

const HYDRA: &str = "mpiexec.hydra";

#[test]
fn ranks_exchange_cards_under_hydra() {
    for size in [1, 2, 5] {
        let done = ranks::job_under(HYDRA, &["-n", &size.to_string()], "exchange").finish();
        done.expect(0, &[]);
        for rank in 0..size {
            assert!(done.stdout.contains(&format!("exchanged: rank {rank} of {size}, nodes 0")), "{done:?}");
        }
    }
}

#[test]
fn abort_ends_a_job_under_hydra() {
    let done = ranks::job_under(HYDRA, &["-n", "3"], "abort").start().wait();
    assert_eq!(done.code, 9, "{done:?}");
}

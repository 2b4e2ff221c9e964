//! Command lines of the contestants.

use super::*;
use crate::job::Style;
use std::collections::BTreeSet;

fn everybody() -> Vec<Contestant> {
    all(&["malloc".to_owned(), "shared".to_owned()])
}

fn line_of_name(name: &str, ranks: usize) -> String {
    let everybody = everybody();
    let contestant = everybody.iter().find(|contestant| contestant.name == name).expect("in the list");
    line_of(contestant, &Task { ranks, ..Task::of("bcast", &[8, 64], Style::Osu) })
}

/// Variables and words of the command for `task` on two cores.
pub(super) fn line_of(contestant: &Contestant, task: &Task) -> String {
    let places = Places {
        han: "/bin/han".into(),
        programs: "/cb".into(),
        rivals: "/peers".into(),
        testbed: "/bench/testbed".into(),
    };
    let command = contestant.command(&places, task, 2, 9);
    let variables = command
        .get_envs()
        .map(|(name, value)| format!("{}={}", name.to_string_lossy(), value.unwrap_or_default().to_string_lossy()));
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_rival_takes_part_as_installed_where_it_can() {
    let installed = |ranks| {
        let all = everybody().into_iter().filter(|c| c.rank == Rank::Installed && c.takes_part(ranks, 2));
        all.map(|contestant| contestant.library).collect::<Vec<_>>()
    };
    assert_eq!(installed(2), Library::COLUMNS);
    assert_eq!(installed(8), [Library::OpenMpi, Library::IntelMpi]);
}

#[test]
fn names_are_unique_and_select() {
    let everybody = everybody();
    let names: BTreeSet<&str> = everybody.iter().map(|contestant| contestant.name.as_str()).collect();
    assert_eq!(names.len(), everybody.len());
    let count = |word: &str| everybody.iter().filter(|c| c.is_meant(&[word.to_owned()])).count();
    assert_eq!(count("none"), 2, "han in both kinds of memory");
    assert_eq!(count("installed"), 2 + 4);
    assert!(count("installed") < count("best") && count("best") < count("all"));
    assert_eq!(count("all"), everybody.len());
    assert_eq!(count("mpich-rg-1"), 2 + 3);
}

#[test]
fn parameters_and_variables_of_open_mpi_are_told_apart() {
    let line = line_of_name("openmpi-ucx", 2);
    assert!(line.contains("--mca pml ucx") && line.contains("-x UCX_TLS=posix,self"), "{line}");
    assert!(line.contains("/cb/openmpi bcast --sizes 8,64") && line.contains("--bind-to core"), "{line}");
}

#[test]
fn each_launcher_gets_what_it_understands() {
    let line = line_of_name("intelmpi-icx", 4);
    assert!(line.contains("I_MPI_TUNING_BIN=/peers/intelmpi/opt/mpi/etc/tuning_icx_shm.dat"), "{line}");
    assert!(line.contains("I_MPI_PIN_PROCESSOR_LIST=0,1"), "{line}");
    let line = line_of_name("mpich-mpir-yield", 4);
    assert!(line.contains("MPIR_CVAR_BARRIER_POSIX_INTRA_ALGORITHM=mpir"), "{line}");
    assert!(line.contains("-bind-to user:0,1,0,1 /cb/mpich"), "{line}");
    let line = line_of_name("han-shared", 2);
    assert!(line.starts_with("run -n 2 --timeout 9 -- /cb/han bcast") && line.contains("--alloc shared"), "{line}");
}

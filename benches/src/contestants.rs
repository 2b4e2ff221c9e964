//! The rivals, as installed and with their best documented settings.
//!
//! "As installed" is what a user gets who starts the program with nothing but the number of ranks,
//! one rank a core where there are enough; where there are not, with yielding switched on as each
//! manual advises. MPICH as installed is left out there: its shared-memory path spins and takes
//! milliseconds to a second.

use std::path::Path;
use std::process::Command;

use crate::job::Task;

/// An MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// Open MPI 5.
    OpenMpi,
    /// MPICH 5.
    Mpich,
    /// Intel MPI 2021.
    IntelMpi,
}

impl Rival {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::OpenMpi, Self::Mpich, Self::IntelMpi];

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::IntelMpi => "Intel MPI",
        }
    }

    /// Its directory below that of all rivals, and the end of its program's name.
    fn directory(self) -> &'static str {
        match self {
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
            Self::IntelMpi => "intelmpi",
        }
    }
}

/// For how many ranks a setting is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fits {
    /// A core for each rank.
    Few,
    /// More ranks than cores.
    Many,
    /// Any number.
    Any,
}

/// A rival with settings.
#[derive(Clone, Copy, Debug)]
pub struct Contestant {
    /// The name on the command line and in results.
    pub name: &'static str,
    /// Whose.
    pub rival: Rival,
    /// Whether this is how it comes.
    pub installed: bool,
    /// For how many ranks.
    pub fits: Fits,
    /// Environment variables; for Open MPI also MCA parameters, which are in lower case.
    settings: &'static [(&'static str, &'static str)],
}

/// MPICH's collectives in shared memory with cells of a given size and number, for every size.
macro_rules! release_gather {
    ($bytes:literal, $cells:literal) => {
        &[
            ("MPIR_CVAR_BARRIER_POSIX_INTRA_ALGORITHM", "release_gather"),
            ("MPIR_CVAR_BCAST_POSIX_INTRA_ALGORITHM", "release_gather"),
            ("MPIR_CVAR_REDUCE_POSIX_INTRA_ALGORITHM", "release_gather"),
            ("MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM", "release_gather"),
            ("MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD", "0"),
            ("MPIR_CVAR_COLL_SHM_LIMIT_PER_NODE", "1048576"),
            ("MPIR_CVAR_BCAST_INTRANODE_BUFFER_TOTAL_SIZE", $bytes),
            ("MPIR_CVAR_BCAST_INTRANODE_NUM_CELLS", $cells),
            ("MPIR_CVAR_REDUCE_INTRANODE_BUFFER_TOTAL_SIZE", $bytes),
            ("MPIR_CVAR_REDUCE_INTRANODE_NUM_CELLS", $cells),
        ]
    };
}

/// Everybody. The settings come from the rivals' manuals and `ompi_info`, `mpichversion`, `impi_info`.
pub const ALL: &[Contestant] = &[
    Contestant::new("openmpi", Rival::OpenMpi, Fits::Any, &[]).as_installed(),
    Contestant::new("mpich", Rival::Mpich, Fits::Few, &[]).as_installed(),
    Contestant::new("intelmpi", Rival::IntelMpi, Fits::Few, &[]).as_installed(),
    Contestant::new("intelmpi-wait", Rival::IntelMpi, Fits::Many, &[("I_MPI_WAIT_MODE", "1")]).as_installed(),
    Contestant::new("openmpi-sm", Rival::OpenMpi, Fits::Any, &[("coll_sm_priority", "100")]),
    Contestant::new(
        "openmpi-sm-64k",
        Rival::OpenMpi,
        Fits::Any,
        &[("coll_sm_priority", "100"), ("coll_sm_fragment_size", "65536"), ("coll_sm_comm_num_segments", "8")],
    ),
    Contestant::new(
        "openmpi-sm-1m",
        Rival::OpenMpi,
        Fits::Few,
        &[("coll_sm_priority", "100"), ("coll_sm_fragment_size", "1048576"), ("coll_sm_comm_num_segments", "8")],
    ),
    Contestant::new("openmpi-ob1", Rival::OpenMpi, Fits::Any, &[("pml", "ob1"), ("coll", "^han")]),
    Contestant::new(
        "openmpi-ucx",
        Rival::OpenMpi,
        Fits::Few,
        &[
            ("pml", "ucx"),
            ("osc", "ucx"),
            ("pml_ucx_tls", "any"),
            ("pml_ucx_devices", "any"),
            ("UCX_TLS", "posix,self"),
            ("UCX_RNDV_THRESH", "inf"),
        ],
    ),
    Contestant::new("mpich-rg", Rival::Mpich, Fits::Few, release_gather!("32768", "4")),
    Contestant::new("mpich-rg-256k", Rival::Mpich, Fits::Few, release_gather!("262144", "4")),
    Contestant::new("mpich-rg-1m", Rival::Mpich, Fits::Few, release_gather!("1048576", "4")),
    Contestant::new("mpich-rg-16m", Rival::Mpich, Fits::Few, release_gather!("16777216", "4")),
    Contestant::new(
        "mpich-yield",
        Rival::Mpich,
        Fits::Many,
        &[
            ("MPIR_CVAR_BARRIER_POSIX_INTRA_ALGORITHM", "mpir"),
            ("MPIR_CVAR_BCAST_POSIX_INTRA_ALGORITHM", "mpir"),
            ("MPIR_CVAR_REDUCE_POSIX_INTRA_ALGORITHM", "mpir"),
            ("MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM", "mpir"),
            ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"),
        ],
    ),
    Contestant::new(
        "intelmpi-t1",
        Rival::IntelMpi,
        Fits::Few,
        &[("I_MPI_ADJUST_BCAST", "12"), ("I_MPI_ADJUST_ALLREDUCE", "13")],
    ),
    Contestant::new(
        "intelmpi-t2",
        Rival::IntelMpi,
        Fits::Few,
        &[("I_MPI_ADJUST_BCAST", "1"), ("I_MPI_ADJUST_REDUCE", "7"), ("I_MPI_ADJUST_ALLREDUCE", "8")],
    ),
    Contestant::new("intelmpi-yield", Rival::IntelMpi, Fits::Many, &[("I_MPI_THREAD_YIELD", "2")]),
];

impl Contestant {
    const fn new(
        name: &'static str,
        rival: Rival,
        fits: Fits,
        settings: &'static [(&'static str, &'static str)],
    ) -> Self {
        Self { name, rival, installed: false, fits, settings }
    }

    const fn as_installed(self) -> Self {
        Self { installed: true, ..self }
    }

    /// Whether it takes part with so many ranks on so many cores.
    #[must_use]
    pub fn takes_part(&self, ranks: usize, cores: usize) -> bool {
        match self.fits {
            Fits::Any => true,
            Fits::Few => ranks <= cores,
            Fits::Many => ranks > cores,
        }
    }

    /// The command that runs `task` with what is installed in `directory`.
    #[must_use]
    pub fn command(&self, directory: &Path, task: &Task, cores: usize) -> Command {
        let home = directory.join(self.rival.directory());
        let program = directory.join("bin").join(format!("mpibench-{}", self.rival.directory()));
        let ranks = task.ranks.to_string();
        let crowded = task.ranks > cores;
        let mut command;
        match self.rival {
            Rival::OpenMpi => {
                command = Command::new(home.join("bin/mpiexec"));
                command.args(["--allow-run-as-root", "-n", &ranks]);
                if crowded {
                    command.args(["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]);
                } else {
                    command.args(["--bind-to", "core"]);
                }
                for (name, value) in self.settings {
                    if name.starts_with(char::is_lowercase) {
                        command.args(["--mca", name, value]);
                    } else {
                        command.arg("-x").arg(format!("{name}={value}"));
                    }
                }
            }
            Rival::Mpich => {
                command = Command::new(home.join("bin/mpiexec"));
                command.args(["-n", &ranks, "-bind-to"]);
                if crowded {
                    let places: Vec<_> = (0..task.ranks).map(|rank| (rank % cores).to_string()).collect();
                    command.arg(format!("user:{}", places.join(",")));
                } else {
                    command.arg("core");
                }
                command.envs(self.settings.iter().copied());
            }
            Rival::IntelMpi => {
                command = Command::new(home.join("bin/mpiexec.hydra"));
                command.args(["-n", &ranks]);
                let libraries = home.join("lib");
                command.env("I_MPI_ROOT", &home).env("I_MPI_FABRICS", "shm");
                command.env("LD_LIBRARY_PATH", &libraries).env("FI_PROVIDER_PATH", &libraries);
                if crowded {
                    let places: Vec<_> = (0..cores).map(|core| core.to_string()).collect();
                    command.env("I_MPI_PIN_PROCESSOR_LIST", places.join(","));
                }
                command.envs(self.settings.iter().copied());
            }
        }
        command.arg(program).args(task.for_mpibench());
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rival_takes_part_as_installed_where_it_can() {
        let installed = |ranks| {
            let all = ALL.iter().filter(|contestant| contestant.installed && contestant.takes_part(ranks, 2));
            all.map(|contestant| contestant.rival).collect::<Vec<_>>()
        };
        assert_eq!(installed(2), Rival::ALL);
        assert_eq!(installed(8), [Rival::OpenMpi, Rival::IntelMpi]);
    }

    #[test]
    fn parameters_and_variables_of_open_mpi_are_told_apart() {
        let task = Task {
            ranks: 2,
            collectives: vec!["bcast".into()],
            min: 8,
            max: 64,
            factor: 4,
            repeats: 5,
            ms: 10,
            style: "osu".into(),
        };
        let ucx = ALL.iter().find(|contestant| contestant.name == "openmpi-ucx").expect("in the list");
        let command = ucx.command(Path::new("/peers"), &task, 2);
        let line: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
        let line = line.join(" ");
        assert!(line.contains("--mca pml ucx") && line.contains("-x UCX_TLS=posix,self"), "{line}");
        assert!(line.ends_with("/peers/bin/mpibench-openmpi bcast 8 64 4 5 10 osu"), "{line}");
    }
}

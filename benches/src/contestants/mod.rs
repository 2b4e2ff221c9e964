//! Who takes part: a library, its settings, and the command that runs it.

mod nodes;
mod one_machine;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use nodes::over_nodes;
pub use one_machine::all;

use crate::Result;
use crate::job::Task;
use crate::network::Network;

/// A collective library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// This project's.
    Han,
    /// Open MPI 5.
    OpenMpi,
    /// MPICH 5.
    Mpich,
    /// Intel MPI 2021.
    IntelMpi,
    /// Debian's Open MPI, if it is installed.
    DebianOpenMpi,
    /// Debian's MPICH, if it is installed.
    DebianMpich,
}

impl Library {
    /// The rivals that have a column in tables; others count among "all settings".
    pub const COLUMNS: [Self; 3] = [Self::OpenMpi, Self::Mpich, Self::IntelMpi];

    /// The name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Han => "han",
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
            Self::IntelMpi => "Intel MPI",
            Self::DebianOpenMpi => "Open MPI (Debian)",
            Self::DebianMpich => "MPICH (Debian)",
        }
    }

    /// Its program in `collbench/`, the beginning of its contestants' names, its directory if it has one.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Han => "han",
            Self::OpenMpi => "openmpi",
            Self::Mpich => "mpich",
            Self::IntelMpi => "intelmpi",
            Self::DebianOpenMpi => "debian-openmpi",
            Self::DebianMpich => "debian-mpich",
        }
    }

    fn is_open_mpi(self) -> bool {
        matches!(self, Self::OpenMpi | Self::DebianOpenMpi)
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

/// How likely a contestant is to matter; `--contestants` takes these words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// han itself: always takes part.
    Own,
    /// A rival as it comes: `installed`.
    Installed,
    /// A setting that was best somewhere: `best`, with those above.
    Best,
    /// Any other: `all`, with those above.
    Further,
}

/// A library with settings.
#[derive(Clone, Debug)]
pub struct Contestant {
    /// The name on the command line and in results.
    pub name: String,
    /// Whose.
    pub library: Library,
    /// How likely it is to matter.
    pub rank: Rank,
    /// For how many ranks.
    pub fits: Fits,
    /// The only collective that the setting concerns, if there is one.
    pub only: Option<&'static str>,
    /// The memory of its buffers: `malloc`, `shared`, `register`.
    pub alloc: String,
    /// Over nodes: whether ranks are bound to cores in turn, as han's are, or left to the scheduler.
    bound: bool,
    /// Environment variables; for Open MPI also MCA parameters, which are in lower case. `{home}` stands
    /// for the library's directory.
    settings: Vec<(String, String)>,
}

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Places {
    /// The binary `han`.
    pub han: PathBuf,
    /// The directory of the programs that `build-collbench.sh` makes.
    pub programs: PathBuf,
    /// The directory that `install-rivals.sh` fills.
    pub rivals: PathBuf,
    /// The script `benches/testbed`.
    pub testbed: PathBuf,
}

impl Places {
    /// What was built is in the directory `release`, or in that of the running program.
    ///
    /// # Errors
    /// Nobody knows where the running program is.
    pub fn of(release: Option<&Path>, rivals: &Path, testbed: &Path) -> Result<Self> {
        let own = std::env::current_exe()?;
        let release = release.or(own.parent()).ok_or("this program is in no directory")?;
        let absolute = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let (han, programs) = (release.join("han"), release.join("collbench"));
        Ok(Self { han, programs, rivals: absolute(rivals), testbed: absolute(testbed) })
    }
}

/// A program to run.
#[derive(Clone, Debug)]
pub struct Job {
    /// Number of ranks.
    pub ranks: usize,
    /// The nodes that share them in equal blocks, if not this machine has them all.
    pub network: Option<Network>,
    /// The program, built for the contestant's library.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

type Settings<'a> = &'a [(&'a str, &'a str)];

/// UCX under Open MPI, on whatever devices there are.
const UCX: [(&str, &str); 4] = [("pml", "ucx"), ("osc", "ucx"), ("pml_ucx_tls", "any"), ("pml_ucx_devices", "any")];
/// MPICH's algorithms are chosen for each of these.
const MPICH_COLLECTIVES: [&str; 4] = ["BARRIER", "BCAST", "REDUCE", "ALLREDUCE"];
/// The library as it comes, or if it cannot run `task` well then, with the setting that helps most.
#[must_use]
pub fn usual(library: Library, task: &Task, cores: usize) -> Option<Contestant> {
    let all = if task.network.is_some() { over_nodes() } else { all(&["malloc".to_owned()]) };
    let fits = |contestant: &Contestant| {
        contestant.library == library && contestant.takes_part(task.ranks, cores) && contestant.only.is_none()
    };
    all.into_iter().find(fits)
}

impl Contestant {
    fn new(library: Library, suffix: &str, rank: Rank, fits: Fits, settings: Settings) -> Self {
        let mut name = library.word().to_owned();
        if !suffix.is_empty() {
            name = format!("{name}-{suffix}");
        }
        let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { name, library, rank, fits, only: None, alloc: "malloc".to_owned(), bound: false, settings }
    }

    fn han(alloc: &str) -> Self {
        let suffix = if alloc == "malloc" { "" } else { alloc };
        Self { alloc: alloc.to_owned(), ..Self::new(Library::Han, suffix, Rank::Own, Fits::Any, &[]) }
    }

    /// MPICH with this algorithm for every collective.
    fn algorithms(mut self, name: &str) -> Self {
        let variable = |collective| format!("MPIR_CVAR_{collective}_POSIX_INTRA_ALGORITHM");
        self.settings.extend(MPICH_COLLECTIVES.map(|collective| (variable(collective), name.to_owned())));
        self
    }

    /// MPICH's collectives in shared memory, from the first call on.
    fn release_gather(mut self) -> Self {
        self.settings.push(("MPIR_CVAR_POSIX_NUM_COLLS_THRESHOLD".to_owned(), "0".to_owned()));
        self.algorithms("release_gather")
    }

    /// Whether one of the words of `--contestants` means it: a rank, or the beginning of a name.
    #[must_use]
    pub fn is_meant(&self, words: &[String]) -> bool {
        self.rank == Rank::Own
            || words.iter().any(|word| match word.as_str() {
                "none" => false,
                "installed" => self.rank <= Rank::Installed,
                "best" => self.rank <= Rank::Best,
                "all" => true,
                word => self.name.starts_with(word),
            })
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

    /// Whether its program has been built.
    #[must_use]
    pub fn is_there(&self, places: &Places) -> bool {
        places.programs.join(self.library.word()).exists()
    }

    /// The command that runs `collbench` for `task`; see [`start`](Self::start).
    #[must_use]
    pub fn command(&self, places: &Places, task: &Task, cores: usize, limit_s: u64) -> Command {
        let program = places.programs.join(self.library.word());
        let Task { ranks, network, .. } = *task;
        let job = Job { ranks, network, program, arguments: task.arguments(&self.alloc) };
        self.start(places, &job, cores, limit_s)
    }

    /// The command that runs `job`; it ends after `limit_s` seconds and leaves no process behind. A job over nodes
    /// runs on the testbed that its environment names.
    #[must_use]
    pub fn start(&self, places: &Places, job: &Job, cores: usize, limit_s: u64) -> Command {
        if let Some(network) = &job.network {
            return self.start_over_nodes(places, job, network, cores, limit_s);
        }
        if self.library == Library::Han {
            let mut command = Command::new(&places.han);
            command.args(["run", "-n", &job.ranks.to_string(), "--timeout", &limit_s.to_string(), "--"]);
            command.arg(&job.program).args(&job.arguments);
            return command;
        }
        let mut command = self.launcher(places, job.ranks, cores);
        command.arg(&job.program).args(&job.arguments);
        supervised(places, &command, limit_s)
    }

    /// The rival's own launcher with all its options and settings.
    fn launcher(&self, places: &Places, ranks: usize, cores: usize) -> Command {
        let home = places.rivals.join(self.library.word());
        let crowded = ranks > cores;
        let mut command = Command::new(match self.library {
            Library::DebianOpenMpi => PathBuf::from("mpiexec.openmpi"),
            Library::DebianMpich => PathBuf::from("mpiexec.hydra"),
            Library::IntelMpi => home.join("bin/mpiexec.hydra"),
            _ => home.join("bin/mpiexec"),
        });
        let is_open_mpi = self.library.is_open_mpi();
        command.args(is_open_mpi.then_some("--allow-run-as-root")).args(["-n", &ranks.to_string()]);
        match self.library {
            Library::IntelMpi => {
                let libraries = home.join("lib");
                command.env("I_MPI_ROOT", &home).env("I_MPI_FABRICS", "shm");
                command.env("LD_LIBRARY_PATH", &libraries).env("FI_PROVIDER_PATH", &libraries);
                if crowded {
                    command.env("I_MPI_PIN_PROCESSOR_LIST", joined(0..cores));
                }
            }
            _ if is_open_mpi && crowded => {
                command.args(["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]);
            }
            _ if is_open_mpi => {
                command.args(["--bind-to", "core"]);
            }
            _ if crowded => {
                command.arg("-bind-to").arg(format!("user:{}", joined((0..ranks).map(|rank| rank % cores))));
            }
            _ => {
                command.args(["-bind-to", "core"]);
            }
        }
        self.set(&mut command, &home);
        command
    }

    /// The settings, as this launcher takes them.
    fn set(&self, command: &mut Command, home: &Path) {
        for (name, value) in &self.settings {
            let value = value.replace("{home}", &home.to_string_lossy());
            if !self.library.is_open_mpi() {
                command.env(name, value);
            } else if name.starts_with(char::is_lowercase) {
                command.args(["--mca", name, &value]);
            } else {
                command.arg("-x").arg(format!("{name}={value}"));
            }
        }
    }
}

/// `command` as the only rank of a job of `han run`, which ends it in time and leaves none of its
/// processes behind: a launcher that is killed leaves its ranks, and they spin for ever.
fn supervised(places: &Places, command: &Command, limit_s: u64) -> Command {
    let mut supervised = Command::new(&places.han);
    supervised.args(["run", "-n", "1", "--bind", "none", "--timeout", &limit_s.to_string(), "--", "env"]);
    // The launcher must not take itself for a rank.
    for name in ["PMI_FD", "PMI_RANK", "PMI_SIZE", "PMI_PORT", "PMI_ID"] {
        supervised.args(["-u", name]);
    }
    supervised.arg(command.get_program()).args(command.get_args());
    supervised.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    supervised
}

fn joined(numbers: impl Iterator<Item = usize>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;

//! Who takes part: the first thing that ranks tell each other, at the end of `MPI_Init`.
//!
//! A rank whose process does not have this library says nothing, ever, and whatever was sent to it might be taken for a
//! message of the program's. So the ranks that have it wait, and after `HAN_WATCHDOG` seconds one of each node looks among
//! the processes beside it for those without, and says which these are.
#![allow(unsafe_code)] // Calls the MPI library.

use std::ffi::{c_int, c_void};
use std::os::unix::process::parent_id;
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use han::Config;
use shm_core::say;

use crate::abi::Word;
use crate::real::{SUCCESS, theirs};
use crate::waiting::has_ended;

/// What a rank tells of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Takes,
    /// `HAN_MPI=0`.
    Off,
    /// The library of this place in [`GPU_LIBRARIES`] is loaded, so the program's buffers may be on a GPU.
    Gpu(usize),
}

/// Libraries by which programs have memory of GPUs, which MPI libraries know how to read and write.
const GPU_LIBRARIES: [&str; 5] =
    ["libcuda.so", "libcudart.so", "libamdhip64.so", "libhsa-runtime64.so", "libze_loader.so"];
/// The part of a file's name by which this library is known.
const LIBRARY: &str = "libhan_mpi";
/// What launchers call a process's rank in `MPI_COMM_WORLD`.
const RANK_VARIABLES: [&str; 4] = ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID"];

impl Part {
    /// That of this process.
    pub(crate) fn own() -> Self {
        if env::var_os("HAN_MPI").is_some_and(|value| value == "0") {
            return Self::Off;
        }
        let may_have_buffers = env::var_os("HAN_MPI_GPU").is_none_or(|value| value != "0");
        let loaded = || fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let library = may_have_buffers.then(loaded).and_then(|maps| gpu_library(&maps));
        library.map_or(Self::Takes, Self::Gpu)
    }

    fn number(self) -> u8 {
        match self {
            Self::Takes => 0,
            Self::Off => 1,
            Self::Gpu(place) => u8::try_from(place).map_or(u8::MAX, |place| place.saturating_add(2)),
        }
    }

    /// Why nobody takes part if this rank has this one.
    fn why(number: u8) -> Option<String> {
        match number {
            0 => None,
            1 => Some("HAN_MPI=0".to_owned()),
            more => {
                let library = GPU_LIBRARIES.get(usize::from(more - 2)).copied().unwrap_or("a GPU's library");
                Some(format!(
                    "{library} is loaded, so buffers may be a GPU's; set HAN_MPI_GPU=0 if no collective has such buffers"
                ))
            }
        }
    }
}

/// The first library of GPUs among a process's mappings.
fn gpu_library(maps: &str) -> Option<usize> {
    GPU_LIBRARIES.iter().position(|name| maps.lines().any(|line| line.contains(&format!("/{name}"))))
}

/// What the ranks have told.
pub(crate) enum Presence {
    All,
    /// Nobody takes part, as everybody wants it.
    Off,
    /// Nobody takes part, as some rank cannot.
    Refused(String),
}

/// All `size` ranks of `comm`, of which this is `rank`, tell their parts.
pub(crate) fn meet(comm: Word, byte: Word, rank: usize, size: usize) -> Result<Presence, String> {
    type Iallgather =
        unsafe extern "C-unwind" fn(*const c_void, c_int, Word, *mut c_void, c_int, Word, Word, *mut Word) -> c_int;
    let (own, mut all) = ([Part::own().number()], vec![0_u8; size]);
    let (from, to) = (own.as_ptr().cast(), all.as_mut_ptr().cast());
    let mut request: Word = 0;
    let begin = theirs!(c"PMPI_Iallgather", Iallgather);
    // SAFETY: there is a byte of this rank's and room for one of each rank until the request has ended, below, and room for
    // a handle.
    let code = unsafe { begin(from, 1, byte, to, 1, byte, comm, &raw mut request) };
    let mut watch = Watch { rank, since: Instant::now(), has_spoken: false };
    let mut ended = if code == SUCCESS { has_ended(&mut request) } else { Err(code) };
    while ended == Ok(false) {
        watch.rest();
        ended = has_ended(&mut request);
    }
    ended.map_err(|code| format!("MPI_Iallgather returned error {code}"))?;
    let refusing = all.iter().position(|&number| Part::why(number).is_some());
    Ok(match refusing.map(|rank| (rank, all[rank])) {
        None => Presence::All,
        Some(_) if all.iter().all(|&number| number == Part::Off.number()) => Presence::Off,
        Some((rank, number)) => Presence::Refused(format!("rank {rank}: {}", Part::why(number).unwrap_or_default())),
    })
}

/// A wait for all ranks.
struct Watch {
    rank: usize,
    since: Instant,
    has_spoken: bool,
}

impl Watch {
    /// Between two looks: ranks come together within a second, or some may not come at all.
    fn rest(&mut self) {
        const SOON: Duration = Duration::from_secs(1);
        if self.since.elapsed() < SOON {
            return thread::yield_now();
        }
        thread::sleep(Duration::from_millis(1));
        if !self.has_spoken && self.since.elapsed().as_secs_f64() >= patience_s() {
            self.has_spoken = true;
            self.speak(&beside());
        }
    }

    /// Says whom this rank waits for, unless another one of the node does.
    fn speak(&self, beside: &[Beside]) {
        if beside.iter().any(|other| other.has_library && other.rank < self.rank) {
            return;
        }
        let silent: Vec<String> = beside.iter().filter(|other| !other.has_library).map(Beside::name).collect();
        let silent = if silent.is_empty() { "none of this node".to_owned() } else { silent.join(", ") };
        say(&format!(
            "libhan_mpi: watchdog: rank {} has waited {:.1} s in MPI_Init for ranks whose processes do not have this library: \
             {silent}. LD_PRELOAD must name it for all ranks, or for none",
            self.rank,
            self.since.elapsed().as_secs_f64()
        ));
    }
}

/// Seconds until the watchdog speaks.
fn patience_s() -> f64 {
    let seconds = Config::from_environment().map_or(30.0, |config| config.settings.watchdog_s);
    if seconds > 0.0 { seconds } else { f64::INFINITY }
}

/// A process of this job, started by the same launcher's process as this one.
struct Beside {
    rank: usize,
    pid: u32,
    has_library: bool,
}

impl Beside {
    fn name(&self) -> String {
        format!("rank {} (pid {})", self.rank, self.pid)
    }

    /// What is known of process `pid`, if it is one; it may end meanwhile.
    fn of(pid: u32) -> Option<Self> {
        let read = |name: &str| fs::read(format!("/proc/{pid}/{name}")).ok();
        let text = |name: &str| Some(String::from_utf8_lossy(&read(name)?).into_owned());
        // After the name, which may contain anything: the state, then the parent.
        let parent: u32 = text("stat")?.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
        if parent != parent_id() {
            return None;
        }
        let environment = text("environ")?;
        let rank = rank_of(environment.split('\0').filter_map(|entry| entry.split_once('=')))?;
        Some(Self { rank, pid, has_library: text("maps")?.contains(LIBRARY) })
    }
}

/// All of them but this one, by rank.
fn beside() -> Vec<Beside> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    let mut all: Vec<Beside> = pids.filter(|&pid| pid != process::id()).filter_map(Beside::of).collect();
    all.sort_by_key(|beside| beside.rank);
    all
}

/// The rank in an environment.
fn rank_of<'a>(variables: impl Iterator<Item = (&'a str, &'a str)>) -> Option<usize> {
    let mut known = variables.filter(|(name, _)| RANK_VARIABLES.contains(name));
    known.find_map(|(_, value)| value.parse().ok())
}

/// Whether this process is the first of its job, as far as its launcher has told it.
pub(crate) fn is_first() -> bool {
    let variables = RANK_VARIABLES.map(|name| (name, env::var(name).unwrap_or_default()));
    rank_of(variables.iter().map(|(name, value)| (*name, value.as_str()))).is_none_or(|rank| rank == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_gpus_are_known_by_their_files() {
        let line = |file| format!("7f00-7f01 r-xp 00000000 08:01 1 {file}\n");
        assert_eq!(gpu_library(&line("/usr/lib/libcuda.so.550.54")), Some(0));
        assert_eq!(gpu_library(&(line("/usr/lib/libc.so.6") + &line("/opt/rocm/lib/libamdhip64.so.6"))), Some(2));
        assert_eq!(gpu_library(&line("/opt/rocm/lib/libhsa-runtime64.so.1.14.0")), Some(3));
        assert_eq!(gpu_library(&line("/usr/lib/x86_64-linux-gnu/libze_loader.so.1.17.6")), Some(4));
        assert_eq!(gpu_library(&line("/usr/lib/libmy-libcuda.so")), None);
    }

    #[test]
    fn parts_have_numbers_and_reasons() {
        assert_eq!(Part::why(Part::Takes.number()), None);
        assert_eq!(Part::why(Part::Off.number()).as_deref(), Some("HAN_MPI=0"));
        assert!(Part::why(Part::Gpu(2).number()).is_some_and(|why| why.starts_with("libamdhip64.so is loaded")));
    }

    #[test]
    fn ranks_are_read_from_environments() {
        let rank = |variables: &[(&str, &str)]| rank_of(variables.iter().copied());
        assert_eq!(rank(&[("PATH", "/bin"), ("PMIX_RANK", "3")]), Some(3));
        assert_eq!(rank(&[("PMI_RANK", ""), ("SLURM_PROCID", "7")]), Some(7));
        assert_eq!(rank(&[("RANK", "1")]), None);
    }
}
